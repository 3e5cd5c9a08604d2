"""All conclusions of one experiment under two sides: the answer of `cellrepro.conclusion`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.conclusions.conclusion import (
    Conclusion,
    compared_text,
    conclude,
    conclusion_lines,
    conclusion_rows,
    summary,
)
from cellrepro.conclusions.groups import GroupNames, read_groups
from cellrepro.conclusions.measuring import (
    ImageReader,
    MeasuredImage,
    PixelReaders,
    measured_pairs,
)
from cellrepro.conclusions.readouts import ChosenReadout
from cellrepro.spec import defaults
from samebits.results import Result, Row
from samebits.words import amount, some


@dataclass(frozen=True, repr=False)
class Conclusions(Result):
    """What an experiment says under the masks of A and under those of B."""

    conclusions: tuple[Conclusion, ...]
    """One for each readout, and for each group beside the control."""
    images: tuple[MeasuredImage, ...]
    """What was measured of each image."""
    notes: tuple[str, ...]
    """Which group is the control, and what was left out, a sentence each."""

    def sentence(self) -> str:
        """Say of which readouts the conclusion stands."""
        return f"{compared_text(self.conclusions)}: {summary(self.conclusions)}"

    def rows(self) -> list[Row]:
        """Give a row for each readout and comparison."""
        return conclusion_rows(self.conclusions)

    def lines(self) -> list[str]:
        """Give the table, a sentence on what does not stand, and the notes."""
        return [*conclusion_lines(self.conclusions), *(f"  note: {note}" for note in self.notes)]


def conclusions_of(
    a: PixelReaders,
    b: PixelReaders,
    *,
    groups: GroupNames | str | Path,
    readouts: Sequence[ChosenReadout],
    control: str | None = None,
    margin: float = defaults.MARGIN,
    read_image: ImageReader | None = None,
) -> Conclusions:
    """Measure the images that both sides have masks of, and draw the conclusions."""
    both = [name for name in a if name in b]
    found = read_groups(groups, both, control=control)
    measured = measured_pairs(a, b, found.of, readouts, read_image=read_image)
    conclusions = conclude(measured, found, readouts, margin=margin)
    return Conclusions(conclusions, measured, (*found.notes, *_empty_notes(measured, readouts)))


def _empty_notes(measured: Sequence[MeasuredImage], readouts: Sequence[ChosenReadout]) -> list[str]:
    """Say in which images a readout could not be measured under one side or both."""
    notes = []
    for readout in readouts:
        empty = [
            each.image
            for each in measured
            if any(value != value for value in (each.a[readout.name], each.b[readout.name]))
        ]
        if empty:
            notes.append(
                f"{readout.name} cannot be measured in {amount(len(empty), 'image')}, as a side "
                f"has no cell for it: {some(empty)}"
            )
    return notes
