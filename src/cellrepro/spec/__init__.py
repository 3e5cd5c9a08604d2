"""What was asked for: the spec of a run, the settings of Cellpose, their defaults.

It may import ``digests`` and ``determinism``.
"""
