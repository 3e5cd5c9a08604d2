"""Whether a library is installed, told without importing it."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec


@cache
def has_library(module: str) -> bool:
    """Whether a module is imported already or can be."""
    return module in sys.modules or find_spec(module) is not None
