"""The first place where two runs diverge, and how far apart they come."""
