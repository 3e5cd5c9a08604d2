"""Straight cuts in a label image, whatever made them: rows and columns at which cells end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.straight_borders import (
    BlockGrid,
    LeastFound,
    StraightBorder,
    StraightEnd,
    block_grid,
    least_found,
    lines_between_parts,
    straight_borders,
)
from cellrepro.images.image_file import read_labels
from cellrepro.images.integer_images import Integers
from cellrepro.spec.lab_command import lab_command
from cellrepro.words import images_in_text
from samebits.results import Result
from samebits.words import amount, grouped, some, verb_of

_MOST_LABELS = 8  # of the cells at a cut
_MOST_LINES = 6
_SIDES = {"y": ("above", "below"), "x": ("left of", "right of")}


@dataclass(frozen=True)
class CutImage:
    """The straight cuts of a label image."""

    name: str
    """The file."""
    cuts: tuple[StraightBorder, ...]
    """Those first at which most cells end."""
    blocks: BlockGrid | None = None
    """The blocks of which these cuts show borders, where further ones do as well."""
    least: LeastFound | None = field(default=None, repr=False)
    """The least cut that would be found; none where most cells are rectangles."""


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
            if image.blocks is not None:
                yield f"    {_blocks_text(image.blocks)}"
        elif self.vacuous:
            yield f"{image.name}: vacuous: it holds no cell, so none could be cut"
        else:
            yield f"{image.name}: {self._nothing_found(image.least)}"

    def _nothing_found(self, least: LeastFound | None) -> str:
        """Say what was looked for, and how small a cut is not found."""
        if least is None:
            between = "; between planes no cut found" if self.is_stack else ""
            return (
                "rows and columns were not searched: most cells that end straight are rectangles, "
                f"whose own edges look like cuts{between}"
            )
        along = "row, column or plane" if self.is_stack else "row or column"
        over = _over(least.typical)
        if least.largest != least.typical:
            over += f", {_over(least.largest)}"
        return (
            f"no straight cut found: at no {along} do more cells end straight than by chance. In "
            f"this image a cut is found if it goes through {grouped(least.n_borders)} cells or "
            f"more, each cut over at least {over}; a smaller cut may be missed"
        )


def straight_cuts(masks: str | Path) -> Cuts:
    """Find the straight cuts in a label image."""
    labels = read_labels(masks)
    cuts = straight_borders(labels)
    image = CutImage(
        str(masks),
        cuts,
        blocks=block_grid(labels, cuts),
        least=None if cuts else least_found(labels),
    )
    n_objects = int(canonical(labels).max(initial=0))
    return Cuts((image,), vacuous=not n_objects, is_stack=labels.ndim == 3)


@dataclass(frozen=True)
class OneSidedCuts:
    """Straight cuts that one of two results has, and the other has not."""

    side: Literal["A", "B"]
    lines: tuple[tuple[str, int], ...]
    """Each by its axis and the first row or column behind it."""
    n_changed: int
    """Cells of the other side that are in several parts there."""
    blocks: BlockGrid | None
    """The blocks at whose borders they are, where their size shows."""
    file: str
    """The masks that have them."""

    @property
    def text(self) -> str:
        """Say where they are, and what makes such cuts."""
        where = some([f"{axis} {at}" for axis, at in self.lines], _MOST_LINES)
        lines = "one straight line" if len(self.lines) == 1 else "straight lines"
        other = "A" if self.side == "B" else "B"
        of_size = f" of {self.blocks.size} pixels" if self.blocks is not None else ""
        return (
            f"{grouped(self.n_changed)} of {other}'s cells {verb_of(self.n_changed, 'is', 'are')} "
            f"cut in {self.side} along {lines} ({where}): {self.side} was probably put together "
            f"from blocks{of_size} that were segmented one by one"
        )

    @property
    def command(self) -> str:
        """What names each cell at each cut."""
        return lab_command("tiles", "--masks", self.file, store=None)


def one_sided_cuts(
    masks_a: Integers,
    masks_b: Integers,
    comparison: MaskComparison,
    *,
    files: tuple[str, str],
) -> OneSidedCuts | None:
    """Find the straight cuts that explain split or merged cells; None without any."""
    of_a = straight_borders(masks_a)
    of_b = straight_borders(masks_b)
    only_a = _without(of_a, of_b)
    only_b = _without(of_b, of_a)
    if bool(only_a) == bool(only_b):  # neither, or both: then blocks are not what tells them apart
        return None
    side: Literal["A", "B"] = "A" if only_a else "B"
    kind = ObjectKind.MERGED if side == "A" else ObjectKind.SPLIT
    parts = [
        change.labels_a if side == "A" else change.labels_b
        for change in comparison.objects
        if change.kind == kind
    ]
    # One line stands out by itself; the others of its blocks are where further cells are cut.
    masks = masks_a if side == "A" else masks_b
    lines_of_cells = lines_between_parts(masks, parts)
    lines = set().union(*lines_of_cells)
    if lines.isdisjoint((cut.axis, cut.at) for cut in only_a or only_b):
        return None
    n_changed = sum(map(bool, lines_of_cells))
    file = files[0] if side == "A" else files[1]
    blocks = block_grid(masks, only_a or only_b)
    return OneSidedCuts(side, tuple(sorted(lines)), n_changed, blocks, file)


def _without(
    cuts: Iterable[StraightBorder], others: Iterable[StraightBorder]
) -> tuple[StraightBorder, ...]:
    lines = {(cut.axis, cut.at) for cut in others}
    return tuple(cut for cut in cuts if (cut.axis, cut.at) not in lines)


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
    which = f" ({some([str(label) for label in cut.labels], _MOST_LABELS)})" if cut.labels else ""
    end = verb_of(cut.n_objects, "ends", "end")
    length = amount(cut.length, "pixel")
    if cut.axis == "z":
        ended = f"{end} where others with the same outline begin, {length} in all"
        line, counted = "plane", ""
    else:
        ended = f"{end} there in a straight line, over {length} of it"
        line, counted = "row or column", " (two cells that touch along it count once)"
    return (
        f"straight cut {_position(cut)}: {_by_side(cut)}{which} {ended}. Without a cut, so many "
        f"end at one {line} in {images_in_text(cut.chance)}{counted}"
    )


def _blocks_text(blocks: BlockGrid) -> str:
    """Say of which blocks the cuts show borders, and how sure that is."""
    seam = blocks.seam
    where = some([f"{axis} {at}" for axis, at in blocks.lines], _MOST_LINES)
    return (
        f"probably put together from blocks of {blocks.size} pixels: of their other borders "
        f"{where} have {amount(seam.n_at, 'straight end')} of cells, and the "
        f"{grouped(seam.n_other_lines)} other rows and columns {grouped(seam.n_elsewhere)} (by "
        f"chance as many in {images_in_text(seam.chance)})"
    )


def _by_side(cut: StraightBorder) -> str:
    """Count the cells on either side of a cut: the halves of one cell are two."""
    if not (cut.n_before and cut.n_behind):
        side = "" if cut.axis == "z" else f" {_SIDES[cut.axis][bool(cut.n_behind)]} it"
        return f"{amount(cut.n_objects, 'cell')}{side}"
    if cut.n_before == cut.n_behind:
        return f"{amount(cut.n_before, 'cell')} on each side"
    before, behind = _SIDES[cut.axis]
    return f"{amount(cut.n_before, 'cell')} {before} it and {grouped(cut.n_behind)} {behind} it"


def _over(end: StraightEnd) -> str:
    return f"{amount(end.length, 'pixel')} if it is {end.width} pixels wide"
