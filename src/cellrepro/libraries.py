"""Which of the lab's libraries are installed; what reads files does without them."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec


@cache
def has_library(module: str) -> bool:
    """Whether a module can be imported; it is not imported for that."""
    return module in sys.modules or find_spec(module) is not None
