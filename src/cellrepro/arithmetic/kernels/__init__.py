"""The portable forms of PyTorch's operations, by subject; each has the operation's parameters."""
