"""A site: where in a network, and where in the code around it, an operation was called."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Site:
    """The place in the code that called an operation.

    >>> print(Site("aten.mul.Tensor", "encoder", "mine.py:3 in f", "forward"))
    forward of encoder, mine.py:3 in f
    """

    op: str
    """Its name in PyTorch, with its overload: ``aten.index_put.default``."""
    module: str | None
    """Path of the innermost module (``encoder.blocks.1.attn``), or the class of the network; None
    outside of any."""
    source: str | None
    """``FILE:LINE in FUNCTION`` outside PyTorch; for an operation of the backward, of its forward.
    None if no such line is on the stack."""
    phase: str
    """``forward``, ``backward``, or ``update`` (inside an optimizer's step)."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (pydantic reads it from the class)

    def __str__(self) -> str:
        """Say it as a part of a sentence."""
        return f"{self.phase} of {self.module or 'no module'}, {self.source or 'no line'}"


def short_path(file: str) -> str:
    """A source file as it is imported, without the folder of this machine."""
    path = Path(file)
    if "ipykernel_" in file:
        return "notebook cell"
    if not path.is_absolute():
        return file
    inside = [Path(entry) for entry in sys.path if entry and path.is_relative_to(entry)]
    nearest = max(inside, key=lambda folder: len(folder.parts), default=path.parent)
    return path.relative_to(nearest).as_posix()
