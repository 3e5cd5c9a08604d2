"""Are two results the same: masks, weights, ledgers, runs, and how far apart where they are not."""
