"""Monkeypatching: an attribute of another library, replaced for one block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, stand_in: Any) -> Iterator[None]:
    """Replace an attribute for one block, and restore it, also where the block raises.

    >>> import math
    >>> with replaced(math, "pi", 3):
    ...     math.pi
    3
    >>> round(math.pi, 2)
    3.14
    """
    is_its_own = name in owner.__dict__
    original = getattr(owner, name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        if is_its_own:
            setattr(owner, name, original)
        else:  # inherited from a class
            delattr(owner, name)
