"""When did two runs diverge? The first difference, its cause, and how it grows.

May import `explanation`, `run`, `comparison` and the rooms above them.
"""
