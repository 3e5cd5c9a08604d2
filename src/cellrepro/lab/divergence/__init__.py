"""The first place where two runs diverge."""
