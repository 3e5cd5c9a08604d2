"""Whether a library is installed, and in which version, told without importing it."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec


@cache
def has_library(module: str) -> bool:
    """Whether a module is imported already or can be."""
    return module in sys.modules or find_spec(module) is not None


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution; None of a clone on the path, which can be imported.

    >>> version_of("no-such-distribution")
    """
    from importlib import metadata  # which takes long, and most commands never ask

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
