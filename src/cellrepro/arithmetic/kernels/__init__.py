"""Portable forms of PyTorch's operations, by subject, each with the parameters of its operation.

They may import their siblings, what computes for them in `cellrepro.arithmetic`, and the ground.
"""
