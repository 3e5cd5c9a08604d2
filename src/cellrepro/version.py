"""The version of the package, for all that writes it down."""

__version__ = "0.1.0"
