"""Exported files: a zip of one form, which only the writer here writes and only that is read."""
