"""A warning that was heard, with the operation that gave it."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.call_site import Site


@dataclass
class HeardWarning:
    """One kind of warning, as Python printed it."""

    message: str
    """Text of the warning."""
    category: str
    """Name of its Python class."""
    file: str
    """Path of the file that gave it."""
    line: int
    """Line of that file."""
    phase: str
    """Phase of the repeat: ``train``, ``segment`` …"""
    count: int
    """How often it was given."""
    place: Site | None = None
    """The operation that gave it; only mode ``warn`` watches operations."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (pydantic reads it from the class)
