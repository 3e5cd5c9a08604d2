"""Have two arrays, tensors, files or values the same bits, and what is the digest of one?

It may import the ground alone.
"""
