"""What `describe` answers: what a file is, and how Cellpose loads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.words import grouped

if TYPE_CHECKING:
    from cellrepro.changes.describe import Description


def description_answer(description: Description) -> Answer[Description]:
    """Answer with a line for each thing that is known of the file; the document is the result."""
    return Answer(description, list(_description_lines(description)))


def _description_lines(description: Description) -> Iterator[str]:
    of_cellpose = f" {description.official_name} of Cellpose" if description.official_name else ""
    yield f"{description.kind}{of_cellpose}"
    for name, value in _shown(description).items():
        if isinstance(value, Mapping):
            yield from (f"  {key}: {part}" for key, part in value.items())
        elif value is not None:
            yield f"  {name.replace('_', ' ')}: {value}"
    if description.note:
        yield f"  note: {description.note}"


def _shown(description: Description) -> dict[str, object]:
    """What has a line, by its name; None has none."""
    n_parameters = description.n_parameters
    of_network = n_parameters is not None or description.kind == "name"
    return {
        "Cellpose": description.generation or ("none" if n_parameters else None),
        "dtype": description.dtype,
        "parameters": grouped(n_parameters) if n_parameters else n_parameters,
        "SHA-256": description.digest,
        "loads as": (description.loads_as or "not at all") if of_network else None,
        **description.details,
    }
