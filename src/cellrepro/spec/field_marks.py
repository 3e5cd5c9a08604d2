"""What is said at a field of a spec beside its type and its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import BaseModel

Task = Literal["train", "segment", "wrap"]


@dataclass(frozen=True)
class InSpec:
    """Stands in the type of a field: ``ranks: Annotated[int, InSpec(task="train")]``."""

    first: bool = False
    """Part of every spec since the first version of the lab: it always enters the key. A field that
    came later does where it differs from its default."""
    task: Task | None = None
    """The only one in which it does something; none for all."""
    chosen: bool = False
    """By a user, beside the images: named alike in options, notebooks, grids and specs."""


@cache
def field_marks(kind: type[BaseModel]) -> dict[str, InSpec]:
    """The mark of each field of a model, by name; a field without one has the usual one."""
    return {
        name: next((mark for mark in field.metadata if isinstance(mark, InSpec)), InSpec())
        for name, field in kind.model_fields.items()
    }
