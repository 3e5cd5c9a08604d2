"""Looking at it: progress, plots, the explorer, the report."""
