"""What is asked for: the spec of a run, the arguments of Cellpose, and what is usual."""
