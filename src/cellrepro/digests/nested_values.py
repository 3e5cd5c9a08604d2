"""Nested plain values, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def flattened(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Give a nested plain value field by field.

    >>> list(flattened({"a": 1, "b": {"c": 2}}))
    [('a', 1), ('b.c', 2)]
    """
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, item in value.items():
        yield from flattened(item, f"{name}.{key}" if name else str(key))


def each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make a JSON object of its pairs, for ``json.loads``; a name may stand in it once."""
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return record
