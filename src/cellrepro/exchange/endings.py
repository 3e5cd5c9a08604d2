"""How files that are handed on are named; nothing else is imported with it."""

PASSPORTS = ".intoto.jsonl"
"""A bundle of passports and receipts, as in-toto names such a file."""
