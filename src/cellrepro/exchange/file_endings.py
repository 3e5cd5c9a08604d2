"""How files that are handed on are named; nothing else is imported with it."""

PASSPORTS = ".intoto.jsonl"
"""A bundle of passports and receipts, as in-toto names such a file."""

PACKAGE = ".bioimageio.zip"
"""A package of bioimage.io."""

MEASUREMENTS = ".measured.safetensors"
"""What a network gave on another machine, for a package that is made elsewhere."""
