"""The reproducibility lab for Cellpose."""
