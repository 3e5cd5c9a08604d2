"""Runs for others: exported, signed, imported, verified, replayed. Uses every room but show."""
