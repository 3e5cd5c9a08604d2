"""What does not repeat on this computer, what does that do to cells, and what does a cure cost?

May import `explanation`, `run`, `comparison` and the rooms above them.
"""
