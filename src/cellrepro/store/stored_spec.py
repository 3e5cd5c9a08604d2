"""A stored spec as evidence: its types hold, the rules for new requests do not.

A rule that is added later must not make a run unreadable that was stored before it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from cellrepro.spec.spec import Spec

Model = TypeVar("Model", bound=BaseModel)


def read_spec(text: bytes) -> Spec:
    """Read a stored ``spec.json``."""
    try:
        return Spec.model_validate_json(text)
    except ValidationError as error:
        try:
            return _without_rules(Spec, json.loads(text))
        except (ValueError, TypeError):
            raise error from None


def _without_rules(kind: type[Model], document: object) -> Model:
    """A model of plain values: every field of its type, no validator asked."""
    if not isinstance(document, dict):
        raise ValueError(f"{document!r:.40} in place of the fields of a {kind.__name__.lower()}")
    unknown = document.keys() - kind.model_fields.keys()
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        annotation: Any = field.annotation
        if name not in document:
            if field.is_required():
                raise ValueError(f"{name} is missing")
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            values[name] = _without_rules(annotation, document[name])
        else:
            values[name] = _adapter(annotation).validate_python(document[name])
    return kind.model_construct(**values)


@lru_cache
def _adapter(annotation: Any) -> TypeAdapter:
    return TypeAdapter(annotation)
