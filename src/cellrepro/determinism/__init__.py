"""What is held fixed: seeds and generators, PyTorch's switches, profiles, substitutes.

It may import the ground and `digests`.
"""
