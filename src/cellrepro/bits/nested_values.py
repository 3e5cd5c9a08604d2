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


def each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make a JSON object of its pairs, for ``json.loads``; a name may stand in it once.

    Parameters
    ----------
    pairs : list of tuple
        As ``object_pairs_hook`` is given them.

    Returns
    -------
    dict of str to object

    Raises
    ------
    ValueError
        If a name stands there twice: readers differ in which of the two they take.
    """
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return record
