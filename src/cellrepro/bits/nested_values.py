"""Nested plain values, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def flattened(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Give a nested plain value field by field.

    Parameters
    ----------
    value : mapping, or any plain value
        An empty mapping has no fields.
    name : str
        Of the value itself, before the names of its fields.

    Yields
    ------
    name : str
        Of a field, with dots between the levels.
    value : object
        What the field holds.

    Examples
    --------
    >>> list(flattened({"a": 1, "b": {"c": 2}}))
    [('a', 1), ('b.c', 2)]
    """
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, item in value.items():
        yield from flattened(item, f"{name}.{key}" if name else str(key))
