"""Why do two results differ? Masks, weights and runs are compared, described, explained and replayed.

It may import every room up to ``run``.
"""
