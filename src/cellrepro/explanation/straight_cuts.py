"""Straight cuts in a label image, whatever made them: rows and columns at which cells end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.straight_borders import StraightBorder, straight_borders
from cellrepro.images.image_file import read_labels
from cellrepro.words import images_in_text
from samebits.results import Result
from samebits.words import amount, some, verb_of

_MOST_LABELS = 8  # of the cells at a cut


@dataclass(frozen=True)
class CutImage:
    """The straight cuts of a label image."""

    name: str
    """The file."""
    cuts: tuple[StraightBorder, ...]
    """Those first at which most cells end."""


@dataclass(frozen=True, repr=False)
class Cuts(Result):
    """The straight cuts of label images."""

    images: tuple[CutImage, ...]
    """One for each label image."""
    vacuous: bool
    """Whether the label image holds no cell."""
    is_stack: bool = field(default=False, repr=False)
    """Whether it has planes, between which cells may be cut as well."""

    @property
    def differs(self) -> bool:
        """Whether there is a cut, or no cell that could be cut."""
        return self.vacuous or any(image.cuts for image in self.images)

    def sentence(self) -> str:
        """Name each straight cut of each label image."""
        return "\n".join(line for image in self.images for line in self._lines_of(image))

    def _lines_of(self, image: CutImage) -> Iterator[str]:
        if image.cuts:
            yield f"{image.name}:"
            yield from cut_lines(image.cuts)
        elif self.vacuous:
            yield f"{image.name}: vacuous: it holds no cell, so none could be cut"
        else:
            along = "row, column or plane" if self.is_stack else "row or column"
            yield (
                f"{image.name}: no straight cut found: at no {along} do more cells end straight "
                "than by chance; a cut through one or two cells is not found"
            )


def straight_cuts(masks: str | Path) -> Cuts:
    """Find the straight cuts in a label image."""
    labels = read_labels(masks)
    image = CutImage(str(masks), straight_borders(labels))
    n_objects = int(canonical(labels).max(initial=0))
    return Cuts((image,), vacuous=not n_objects, is_stack=labels.ndim == 3)


def _position(cut: StraightBorder) -> str:
    """Say where a cut is; planes count from 0, as rows and columns do."""
    if cut.axis == "z":
        return f"between planes z {cut.at - 1} and z {cut.at}"
    return f"at {cut.axis} {cut.at}"


def cut_lines(cuts: Iterable[StraightBorder]) -> Iterator[str]:
    """Say where each cut is, a line each."""
    for cut in cuts:
        yield f"    {cut_text(cut)}"


def cut_text(cut: StraightBorder) -> str:
    """Say where a cut is, and how sure that is."""
    end = verb_of(cut.n_objects, "ends", "end")
    which = f" ({some([str(label) for label in cut.labels], _MOST_LABELS)})" if cut.labels else ""
    line = "plane" if cut.axis == "z" else "row or column"
    return (
        f"straight cut {_position(cut)}: {amount(cut.n_objects, 'cell')}{which} {end} there in a "
        f"straight line, {amount(cut.length, 'pixel')} in all. Without a cut, so many end at one "
        f"{line} in {images_in_text(cut.chance)} (cells that touch along it count once)"
    )
