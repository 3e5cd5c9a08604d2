"""Why do two results differ? They are compared, described, explained, and replayed.

It may import every room up to ``run``.
"""
