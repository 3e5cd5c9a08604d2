"""Exported files: how a zip is written that can be read without trust; used by the room itself."""
