"""The options of a training or a segmentation from names that a user may have mistyped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.spec.field_marks import field_marks
from cellrepro.spec.new_spec import LEAVE_OUT
from cellrepro.spec.spec import Spec
from samebits.errors import BadInput

Options = TypeVar("Options", TrainingOptions, SegmentationOptions)

_ELSEWHERE = (
    ("train", TrainingOptions.model_fields),
    ("segment", SegmentationOptions.model_fields),
    ("wrap", {name for name, mark in field_marks(Spec).items() if mark.task == "wrap"}),
)
"""The options of each task; an unknown name is said to belong to the first task that has it."""


def options_by_name(kind: type[Options], parameters: Mapping[str, Any]) -> Options:
    """Make options from parameters of a grid, whose names may be wrong."""
    known = list(kind.model_fields)
    unknown = [
        name
        for name, value in parameters.items()
        if name not in known and not _is_usual(name, value)
    ]
    function = "train" if issubclass(kind, TrainingOptions) else "segment"
    refuse_unknown(function, unknown, known)
    return kind.among(parameters)


def _is_usual(name: str, value: Any) -> bool:
    if value is None:
        return True
    field = Spec.model_fields.get(name)
    return field is not None and value == field.get_default(call_default_factory=True)


def refuse_unknown(function: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `BadInput` with a sentence for each name that a function does not take.

    >>> refuse_unknown("train", ["epochs", "epoch"], ["epochs", "seed"])
    Traceback (most recent call last):
        ...
    samebits.errors.BadInput: train has no option epoch; do you mean epochs?
    """
    known_names = list(known)
    problems = [
        _sentence_on_unknown(function, name, known_names)
        for name in names
        if name not in known_names
    ]
    if problems:
        raise BadInput("; ".join(problems))


def _sentence_on_unknown(function: str, name: str, known: list[str]) -> str:
    has_none = f"{function} has no option {name}"
    for other, options in _ELSEWHERE:
        if name in options:
            advice = LEAVE_OUT.get(name, "leave it out") if function == "train" else "leave it out"
            return f"{has_none}, which is one of {other}: {advice}"
    near = get_close_matches(name, known, n=2, cutoff=0.75)
    if near:
        return f"{has_none}; do you mean {' or '.join(near)}?"
    return f"{has_none}; expected {', '.join(known)}"
