"""What files record of how one result was made: values by name, each with the file it stands in.

Each reader gives such a record: `mask_file_record` (a mask file and what lies beside it, by way of
`seg_record` and `script_record`), `run_record` (a stored run) and `run_log` (Cellpose's own log).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from cellrepro.explanation.conditions import PRECISION, Condition
from cellrepro.model import cellpose_generation
from samebits.results import Result, Row
from samebits.words import amount

DEVICE = "device"
DRAWN = "n_drawn_by_hand"
REMOVED = "n_removed_by_hand"
FILENAME = "filename"
IMAGE_DIGEST = "image.digest"
"""SHA-256 of the pixels that ``eval`` received."""
IMAGE_DTYPE = "image.dtype"
IMAGE_SHAPE = "image.shape"
MODEL_DIGEST = "model_digest"
MODEL_PATH = "model_path"
RESTORE = "restore"
TRAINING = "training"
"""Length of a training, from a log without masks."""
RUNSTRING = "runstring"
"""The call in Python that Omnipose's GUI writes into its files."""
SOFTWARE = "software"
WRITTEN = "written"

STORED_NETWORK = re.compile(r"[0-9a-f]{16}/[^/]+/\d+")
"""The network of a stored run, as a record names it: ``KEY/MACHINE/REPEAT``."""

NOT_RECORDED = "?"
"""Stands in a table, and in JSON, for a value that no file records."""

NOT_OF_CELLS = frozenset({FILENAME, MODEL_PATH, SOFTWARE, WRITTEN, "run"})
"""Recorded names that differ between nearly any two results, and change no cell."""

_NO_SETTINGS = NOT_OF_CELLS | {DRAWN, REMOVED, "description"}

GenerationNumber = Literal["2", "3", "4"]
"""Of Cellpose; ``2`` stands for earlier versions, too, which write the same files."""


@dataclass(frozen=True)
class RecordedValue:
    """A value that a file records."""

    value: object
    """None is a value, too: that setting of Cellpose was none."""
    source: str
    """Name of the file, or of the run."""


@dataclass(frozen=True, repr=False)
class RecordedSettings(Result):
    """What files record of how one result was made."""

    values: Mapping[str, RecordedValue] = field(default_factory=dict)
    """By name: settings of ``eval`` under Cellpose's own names (``diameter``,
    ``normalize.sharpen``), ``model``, ``precision``, ``cellpose`` (the version), ``device``, and
    whatever else a file tells. What is not in it is not recorded."""
    generation: GenerationNumber | None = None
    """Generation of the Cellpose that wrote the files; None where they do not tell."""
    written_by: str = ""
    """What wrote them, in words; empty where they do not tell."""
    remarks: tuple[str, ...] = ()
    """What a reader has to know beyond the values, one sentence each."""

    @property
    def plain(self) -> dict[str, object]:
        """All values, by name."""
        return {name: entry.value for name, entry in self.values.items()}

    @property
    def known(self) -> Condition:
        """Values that can be varied: settings and precision."""
        return {name: entry.value for name, entry in self.values.items() if _can_vary(name)}

    @property
    def beyond(self) -> dict[str, object]:
        """Values that cannot be varied: version, device, restoration, edits."""
        return {name: entry.value for name, entry in self.values.items() if not _can_vary(name)}

    @property
    def tells_settings(self) -> bool:
        """Whether a recorded value can change cells, beyond names, times and edits."""
        return tell_settings(self.values)

    def value(self, name: str) -> object:
        """Give a recorded value, or `NOT_RECORDED`."""
        entry = self.values.get(name)
        return NOT_RECORDED if entry is None else entry.value

    def source(self, name: str) -> str:
        """Name the file that records a value; empty where none does."""
        entry = self.values.get(name)
        return "" if entry is None else entry.source

    def sentence(self) -> str:
        """Say how many values are recorded, and by what."""
        if not self.values:
            return "nothing is recorded of how it was made"
        files = ", ".join(dict.fromkeys(entry.source for entry in self.values.values()))
        written_by = f", written by {self.written_by}" if self.written_by else ""
        return f"{amount(len(self.values), 'value')} recorded in {files}{written_by}"

    def rows(self) -> list[Row]:
        """Give every value with the file that records it."""
        return [
            {"setting": name, "value": entry.value, "recorded in": entry.source}
            for name, entry in self.values.items()
        ]

    def with_more_of(self, other: RecordedSettings) -> RecordedSettings:
        """Merge what another file records of the same result; contradictions become remarks."""
        contradictions = tuple(
            f"{name} is {mine.value} in {mine.source}, and {theirs.value} in {theirs.source}: the "
            "first is taken"
            for name, mine in self.values.items()
            for theirs in [other.values.get(name)]
            if theirs is not None and theirs.value != mine.value and name not in NOT_OF_CELLS
        )
        if self.generation and other.generation and self.generation != other.generation:
            contradictions += (
                f"one file is of Cellpose {self.generation}, the other of Cellpose "
                f"{other.generation}: they are hardly of one run",
            )
        return replace(
            self,
            values={**other.values, **self.values},
            generation=self.generation or other.generation,
            written_by=self.written_by or other.written_by,
            remarks=(*self.remarks, *other.remarks, *contradictions),
        )


def tell_settings(names: Iterable[str]) -> bool:
    """Whether one of these recorded values can change cells, beyond names, times and edits.

    >>> tell_settings(["software", "filename"]), tell_settings(["software", "diameter"])
    (False, True)
    """
    return any(name not in _NO_SETTINGS for name in names)


def of_file(source: str, values: Mapping[str, object]) -> dict[str, RecordedValue]:
    """Give plain values as those of one file.

    >>> of_file("a_seg.npy", {"diameter": 30.0})
    {'diameter': RecordedValue(value=30.0, source='a_seg.npy')}
    """
    return {name: RecordedValue(value, source) for name, value in values.items()}


def generation_number(version: object) -> GenerationNumber | None:
    """Tell the generation of a version of Cellpose; None for text that is no version.

    >>> generation_number("3.1.1.2"), generation_number("4.0.9"), generation_number("1.0.2")
    ('3', '4', '2')
    """
    first = str(version).partition(".")[0]
    by_number: dict[str, GenerationNumber] = {"0": "2", "1": "2", "2": "2", "3": "3", "4": "4"}
    return by_number.get(first)


def _can_vary(name: str) -> bool:
    from cellrepro.spec.segmentation_settings import CHANNELS, NAMES

    if name == CHANNELS:
        return cellpose_generation.generation_of().chooses_channels
    return name in NAMES or name == PRECISION
