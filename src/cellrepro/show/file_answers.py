"""What the commands on single files answer: the JSON document, and the same in lines of words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from cellrepro.text import grouped

if TYPE_CHECKING:
    from cellrepro.lab.describe import Description
    from cellrepro.show.answers import Answer


def description(found: Description) -> Answer:
    """Of `cellrepro.describe`."""
    return asdict(found), _description(found)


def _description(found: Description) -> Iterator[str]:
    yield found.kind + (f" {found.official_name} of Cellpose" if found.official_name else "")
    of_network = found.n_parameters is not None or found.kind == "name"
    shown = {
        "Cellpose": found.generation or ("none" if found.n_parameters else None),
        "dtype": found.dtype,
        "parameters": found.n_parameters and grouped(found.n_parameters),
        "SHA-256": found.digest,
        "loads as": (found.loads_as or "not at all") if of_network else None,
        **found.details,
    }
    for name, value in shown.items():
        if isinstance(value, dict):
            yield from (f"  {key.replace('_', ' ')}: {one}" for key, one in value.items())
        elif value is not None:
            yield f"  {name.replace('_', ' ')}: {value}"
    if found.note:
        yield f"  note: {found.note}"
