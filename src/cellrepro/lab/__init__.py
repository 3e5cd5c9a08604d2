"""What a user runs: train, segment, audit, compare, diverge, grids."""
