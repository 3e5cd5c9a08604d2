"""The interactive explorer of two runs."""
