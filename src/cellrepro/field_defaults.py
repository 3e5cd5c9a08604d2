"""Default values of a pydantic model's fields, and which of them a key leaves out."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from pydantic import BaseModel


def added_later(model: BaseModel, first: Collection[str]) -> set[str]:
    """Fields that are not among the first and have their default: so a new field changes no key."""
    return {
        name
        for name, default in defaults(type(model)).items()
        if name not in first and getattr(model, name) == default
    }


@cache
def defaults(kind: type[BaseModel]) -> dict[str, object]:
    """The default of each field; cached, as `list` needs those of thousands of specs."""
    return {
        # pydantic 2.10.0 calls a factory only where it is given data that have been validated.
        name: field.get_default(call_default_factory=True, validated_data={})
        for name, field in kind.model_fields.items()
    }
