"""Portable forms of PyTorch's operations, by subject, each with the parameters of its operation.

They may import their siblings, what computes for them in `samebits.arithmetic`, and the files
beside that folder.
"""
