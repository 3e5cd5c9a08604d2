"""Nested plain values, such as those of a JSON file, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def flattened(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """The fields of nested mappings, each by its path.

    >>> list(flattened({"a": 1, "b": {"c": 2}}))
    [('a', 1), ('b.c', 2)]
    """
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, item in value.items():
        yield from flattened(item, f"{name}.{key}" if name else str(key))


def each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The ``object_pairs_hook`` of ``json.loads`` that refuses a name that stands twice."""
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return record
