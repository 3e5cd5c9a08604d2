"""Profiles: the numeric environment of a process, as small files that a user can add to."""
