"""The same bits or not: of arrays, tensors, files and values, and their digests."""
