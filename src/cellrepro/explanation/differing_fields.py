"""The fields of specs and environments that differ between two runs, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from cellrepro.explanation.setting_meanings import field_in_words
from cellrepro.explanation.settings_of_both import setting_in_words
from cellrepro.words import cut
from samebits.words import some

_MOST_NAMES = 4
_MOST_LETTERS = 60
_FOLLOW = {"profile_settings": "profile", "model_digest": "model"}
"""Fields that say in detail what another one names."""


def follows(name: str, names: Mapping[str, object]) -> bool:
    """Whether a field differs because another one of these does."""
    return _FOLLOW.get(name) in names


def field_lines(title: str, fields: Mapping[str, tuple[object, object]]) -> Iterator[str]:
    """Say each pair of values once, with all fields that have it.

    >>> fields = {"variables.A": ("1", "2"), "variables.B": ("1", "2"), "seed": (0, 1)}
    >>> print(*field_lines("spec", fields), sep="\\n")
    spec environment variables, A, B: 1 and 2
    spec seed: 0 and 1
    """
    names_by_values: dict[tuple[str, ...], list[str]] = {}
    groups: dict[tuple[str, ...], str] = {}  # a variable is a switch, too
    for field, (a, b) in fields.items():
        if follows(field, fields):
            continue
        for name, *values in _differing_parts(field, a, b):
            group, dot, last = name.rpartition(".")
            texts = [cut(setting_in_words(name, value), _MOST_LETTERS) for value in values]
            said_in = groups.setdefault((last, *texts), group)
            if said_in == group:
                names_by_values.setdefault((f"{group}{dot}", *texts), []).append(last)
    for (group, a_text, b_text), names in names_by_values.items():
        yield f"{title} {field_in_words(f'{group}{_counted(names)}')}: {a_text} and {b_text}"


def _counted(names: Sequence[str]) -> str:
    """Several names, each once."""
    return some(list(dict.fromkeys(names)), _MOST_NAMES)


def _differing_parts(name: str, a: object, b: object) -> Iterator[tuple[str, object, object]]:
    """What differs inside two values of equal form, down to the single values."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in {**a, **b}:
            if a.get(key) != b.get(key):
                yield from _differing_parts(f"{name}.{key}", a.get(key), b.get(key))
    elif _are_records(a) and _are_records(b) and len(a) == len(b):
        for item_a, item_b in zip(a, b, strict=True):
            yield from _differing_parts(name, item_a, item_b)
    else:
        yield name, a, b


def _are_records(value: object) -> TypeGuard[list[Mapping[str, object]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(i, Mapping) for i in value)
