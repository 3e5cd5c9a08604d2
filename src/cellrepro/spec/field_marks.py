"""Marks on the fields of a spec, beside type and bounds: whether it enters the key, which task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import BaseModel

Task = Literal["train", "segment", "wrap"]


@dataclass(frozen=True)
class InSpec:
    """A mark in the type of a field: ``ranks: Annotated[int, InSpec(task="train")]``."""

    first: bool = False
    """Whether it is in every spec since the first version, so that it always enters the key.

    A later field enters it where it differs from its default: keys of earlier runs stay as they
    are."""
    task: Task | None = None
    """The only task in which the field does something; none for all."""
    chosen: bool = False
    """A user chooses it, under one name in options, notebooks, grids and specs."""


@cache
def field_marks(kind: type[BaseModel]) -> dict[str, InSpec]:
    """The mark of each field of a model, by name."""
    return {
        name: next((mark for mark in field.metadata if isinstance(mark, InSpec)), InSpec())
        for name, field in kind.model_fields.items()
    }
