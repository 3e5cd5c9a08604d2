"""The zip of an exported file: how it is written, and read without trusting its sender."""
