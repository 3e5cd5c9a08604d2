"""What `describe` answers: what a file is, and how Cellpose loads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cellrepro.libraries import has_library
from cellrepro.show.answers.answer import Answer
from cellrepro.show.answers.recorded_lines import command_lines
from cellrepro.words import grouped

if TYPE_CHECKING:
    from cellrepro.changes.describe import Description


def description_answer(
    description: Description, *, with_command: bool = False
) -> Answer[Description]:
    """Answer with a line for each thing that is known of the file; the document is the result."""
    lines = [*_description_lines(description), *_recorded_lines(description)]
    if with_command:
        lines += command_lines(description.recorded, description.commands)
    return Answer(description, lines)


def _description_lines(description: Description) -> Iterator[str]:
    if description.kind == "other":
        yield str(description.details["what"])
        yield f"  next: {description.details['next']}"
        return
    of_cellpose = f" {description.official_name} of Cellpose" if description.official_name else ""
    yield f"{description.kind}{of_cellpose}"
    for name, value in _shown(description).items():
        if isinstance(value, Mapping):
            yield from (f"  {key}: {part}" for key, part in value.items())
        elif value is not None:
            yield f"  {name.replace('_', ' ')}: {value}"
    if description.note:
        yield f"  note: {description.note}"


def _recorded_lines(description: Description) -> Iterator[str]:
    """Say what files record of how masks were made; of a run its settings stand in the store."""
    record = description.recorded
    if record is None or description.kind == "run":
        return
    sources = {entry.source for entry in record.values.values()}
    if record.written_by:
        yield f"  written by: {record.written_by}"
    for name, entry in record.values.items():
        value = "none" if entry.value is None else entry.value
        source = f" ({entry.source})" if len(sources) > 1 else ""
        yield f"  {name}: {value}{source}"
    yield from (f"  note: {remark}" for remark in record.remarks)


def _shown(description: Description) -> dict[str, object]:
    """What has a line, by its name; None has none."""
    n_parameters = description.n_parameters
    of_network = n_parameters is not None or description.kind == "name"
    loads_as = description.loads_as or ("not at all" if has_library("cellpose") else None)
    return {
        "Cellpose": description.generation or ("none" if n_parameters else None),
        "dtype": description.dtype,
        "parameters": grouped(n_parameters) if n_parameters else n_parameters,
        "SHA-256": description.digest,
        "loads as": loads_as if of_network else None,
        **{name: value for name, value in description.details.items() if name != "settings"},
    }
