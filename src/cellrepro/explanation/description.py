"""What a file, a stored run or the name of a network is: the answer of `describe`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cellrepro.explanation.commands import Commands, command_lines
from cellrepro.explanation.recorded_settings import RecordedSettings
from cellrepro.explanation.settings_of_both import value_text
from cellrepro.libraries import has_library
from cellrepro.results import Result, Row
from cellrepro.words import grouped

DescribedKind = Literal[
    "weights",
    "tensors",
    "_seg.npy",
    "label image",
    "outlines",
    "baseline",
    "run",
    "run.log",
    "name",
    "other",
]


@dataclass(frozen=True, repr=False)
class Description(Result):
    """What a file is; what does not apply is None."""

    kind: DescribedKind
    """``weights``, ``tensors`` (a file of tensors without a network), ``label image``,
    ``_seg.npy``, ``outlines`` of cells, ``baseline``, ``run``, ``run.log``, ``name`` or ``other``:
    the details then say ``what`` it is, and the ``next`` step."""
    generation: str | None = None
    """Generation of Cellpose: ``2 or 3``, ``4 (SAM)``, ``4 (DINO)``."""
    dtype: str | None = None
    """Type of the numbers in weights or in a label image."""
    n_parameters: int | None = None
    """Numbers in all tensors of the weights."""
    digest: str | None = None
    """SHA-256 of the file; of a run, of its weights."""
    loads_as: str | None = None
    """As what the installed Cellpose would load it: ``itself``, the name of another network that it
    takes without a word, ``a partly random network``, or None where it refuses it."""
    official_name: str | None = None
    """Name of Cellpose's published weights that have this digest."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else is known of this kind, by name."""
    note: str = ""
    """Why it does not load, or what deserves attention."""
    recorded: RecordedSettings | None = None
    """What the files of masks or of a run record of how they were made."""
    commands: Commands | None = None
    """How Cellpose is called with that; None where too little is recorded."""
    says_commands: bool = field(default=False, repr=False)
    """Whether its lines end with these calls."""

    def sentence(self) -> str:
        """Say what it is, and what Cellpose makes of it."""
        if self.kind == "other":
            return f"{self.details['what']}; {self.details['next']}"
        parts: list[str] = [self.kind]
        if self.official_name is not None:
            parts = [f"{self.kind} {self.official_name} of Cellpose"]
        if self.generation is not None:
            parts.append(f"of Cellpose {self.generation}")
        if self.loads_as is not None:
            parts.append(f"Cellpose loads it as {self.loads_as}")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)

    def rows(self) -> list[Row]:
        """Give what is known beyond that."""
        known = {"dtype": self.dtype, "parameters": self.n_parameters, "SHA-256": self.digest}
        return [
            {"what": name, "value": value}
            for name, value in {**known, **self.details}.items()
            if value is not None
        ]

    def lines(self) -> list[str]:
        """Give a line for each fact."""
        if self.kind == "other":
            return [str(self.details["what"]), f"  next: {self.details['next']}"]
        of_cellpose = f" {self.official_name} of Cellpose" if self.official_name else ""
        lines = [f"{self.kind}{of_cellpose}"]
        for name, value in self._shown().items():
            if isinstance(value, Mapping):
                lines += [f"  {key}: {part}" for key, part in value.items()]
            elif value is not None:
                lines.append(f"  {name.replace('_', ' ')}: {value}")
        if self.note:
            lines.append(f"  note: {self.note}")
        if self.recorded is not None and self.kind != "run":  # whose settings stand in the store
            lines += _value_lines(self.recorded)
        if self.says_commands:
            lines += command_lines(self.recorded, self.commands)
        return lines

    def _shown(self) -> dict[str, object]:
        """Facts by their names in a terminal; None stands for no line."""
        n_parameters = self.n_parameters
        of_network = n_parameters is not None or self.kind == "name"
        loads_as = self.loads_as or ("not at all" if has_library("cellpose") else None)
        return {
            "Cellpose": self.generation or ("none" if n_parameters else None),
            "dtype": self.dtype,
            "parameters": grouped(n_parameters) if n_parameters else n_parameters,
            "SHA-256": self.digest,
            "loads as": loads_as if of_network else None,
            **{name: value for name, value in self.details.items() if name != "settings"},
        }


def _value_lines(record: RecordedSettings) -> Iterator[str]:
    """Say what files record of one result, a line for each value."""
    sources = {entry.source for entry in record.values.values()}
    if record.written_by:
        yield f"  written by: {record.written_by}"
    for name, entry in record.values.items():
        source = f" ({entry.source})" if len(sources) > 1 else ""
        yield f"  {name}: {value_text(entry.value)}{source}"
    yield from (f"  note: {remark}" for remark in record.remarks)
