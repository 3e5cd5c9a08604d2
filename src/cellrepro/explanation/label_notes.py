"""What a reader has to know of two label images: how they were read, and what their numbers are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cellrepro.comparison.number_changes import number_change
from cellrepro.comparison.number_remarks import (
    FEW_NUMBERS,
    NO_BACKGROUND,
    background_remarks,
    may_be_cut,
    n_numbers,
    piece_remarks,
)
from cellrepro.comparison.object_matching import label_pairs
from cellrepro.comparison.systematic_change import SystematicChange, systematic_change
from cellrepro.comparison.unrelated_masks import chance_overlap
from cellrepro.comparison.verdicts import Verdict
from cellrepro.images.pictures import doubt
from samebits.words import amount, grouped, joined, some, with_verb

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.images.integer_images import Integers

_MOST_PLANES = 6  # that are listed
_MOST_IMAGES = 4
_LEAST_JOINED = 3  # cells; fewer may be a choice of the segmentation


class LabelNotes(NamedTuple):
    """What a reader has to know of two label images, without the name of the image."""

    sentences: tuple[str, ...]
    number_rule: str
    """How the numbers of one follow from those of the other, which is one of the sentences; empty
    where they do not."""
    systematic: SystematicChange | None
    """The one change of all cells, which is one of the sentences, too."""
    unrelated: str
    """What speaks for two images, with which one of the sentences ends; else empty."""


def label_notes(
    labels_a: Integers,
    labels_b: Integers,
    result: MaskComparison,
    *,
    a: str = "A",
    b: str = "B",
) -> LabelNotes:
    """Say how two label images were read, and what was done to their numbers."""
    side_a = _Side(a, labels_a, result.n_objects_a, result.n_shared_a)
    side_b = _Side(b, labels_b, result.n_objects_b, result.n_shared_b)
    rule = _number_change(side_a, side_b) if _may_follow_a_rule(labels_a, labels_b, result) else ""
    rule = rule or _joined_where_they_touch(side_a, side_b, result)
    change = systematic_change(labels_a, labels_b, result)
    by_chance = chance_overlap(labels_a, labels_b, result) if change is None else None
    unrelated = "" if by_chance is None else by_chance.text(a, b)
    first = []
    if change is not None:
        first = [change.text(a, b)]
    elif unrelated:
        first = [f"these may be masks of two different images, as {unrelated}"]
    sentences = (*first, *_sentences(side_a, side_b, result, rule))
    return LabelNotes(sentences, rule, change, unrelated)


def _sentences(a: _Side, b: _Side, result: MaskComparison, rule: str) -> Iterator[str]:
    yield from counting_notes(result, a.name, b.name)
    if rule:
        yield rule
    else:
        yield from _remarks_on_both(a, b, by_plane=result.by_plane)


def counting_notes(result: MaskComparison, a: str = "A", b: str = "B") -> Iterator[str]:
    """Say where cells were counted otherwise than by their numbers."""
    if result.by_plane:
        yield _reading_note(result, a, b)
    for side, n_shared in ((a, result.n_shared_a), (b, result.n_shared_b)):
        if n_shared:
            yield (
                f"{with_verb(n_shared, 'number', 'stands', 'stand')} in {side} for several cells "
                f"that do not touch; each separate piece of {'it' if n_shared == 1 else 'them'} is "
                "counted as a cell"
            )


@dataclass(frozen=True, eq=False)
class _Side:
    """One of two label images."""

    name: str
    labels: Integers
    n_objects: int
    n_shared: int
    """Numbers that name several cells each."""

    @property
    def n_numbers(self) -> int:
        """How many numbers it has beside that of the background."""
        return n_numbers(self.labels) if self.n_shared else self.n_objects


def _may_follow_a_rule(labels_a: Integers, labels_b: Integers, result: MaskComparison) -> bool:
    """Whether numbers may have changed when a file was saved, which is costly to find out.

    A rule that changes numbers moves the largest one, or the background.
    """
    if result.verdict == Verdict.IDENTICAL:
        return False
    keeps_background = result.n_background > max(result.n_only_a, result.n_only_b)
    return not keeps_background or labels_a.max(initial=0) != labels_b.max(initial=0)


def _number_change(a: _Side, b: _Side) -> str:
    """Say by which rule the numbers of one side follow from those of the other, if by any."""
    pairs = label_pairs(a.labels, b.labels)
    for before, after, both in ((a, b, pairs), (b, a, pairs.exchanged())):
        rule = number_change(
            both,
            n_bits=8 * after.labels.dtype.itemsize,
            n_shared_a=before.n_shared,
            n_shared_b=after.n_shared,
        )
        if rule is not None:
            return rule.text(before.name, after.name)
    return ""


def _joined_where_they_touch(a: _Side, b: _Side, result: MaskComparison) -> str:
    """Say which side has the other's foreground, with no border between cells that touch."""
    if not result.n_other_object:
        return ""
    sides = ((a, b, result.n_only_a, result.n_only_b), (b, a, result.n_only_b, result.n_only_a))
    for side, other, n_only_side, n_only_other in sides:
        n_fewer = other.n_objects - side.n_objects
        least = 1 if side.n_shared else _LEAST_JOINED
        if n_only_side or n_fewer < least:
            continue
        n_taken_out = _n_taken_out(other.labels, side.labels) if n_only_other else 0
        if n_taken_out is None or n_fewer - n_taken_out < least:
            continue
        if not _has_borders(side.labels):
            lacks = f" but for {amount(n_taken_out, 'cell')} that it lacks" if n_taken_out else ""
            return (
                f"{side.name} has the same foreground as {other.name}{lacks}, and cells that touch "
                "are one in it: the numbers are lost, as in a map of the foreground; take "
                f"{other.name}"
            )
    return ""


def _n_taken_out(labels: Integers, other: Integers) -> int | None:
    """Count the cells that are background on the other side; None where parts of cells are."""
    numbers = np.unique(labels[(labels > 0) & (other == 0)])
    of_both = labels[np.isin(labels, numbers) & (other > 0)]
    return None if of_both.any() else len(numbers)


def _has_borders(labels: Integers) -> bool:
    """Whether two cells touch, along an axis."""
    for axis in range(labels.ndim):
        along = np.moveaxis(labels, axis, 0)
        before = along[:-1]
        after = along[1:]
        if ((before != after) & (before > 0) & (after > 0)).any():
            return True
    return False


def _remarks_on_both(a: _Side, b: _Side, *, by_plane: bool) -> Iterator[str]:
    """Say what is odd about the numbers of each, but not of both that cells touch everywhere."""
    remarks_of = {side.name: _remarks(side, by_plane=by_plane) for side in (a, b)}
    fills_both = all(NO_BACKGROUND in remarks for remarks in remarks_of.values())
    for name, remarks in remarks_of.items():
        for remark in remarks:
            if not (fills_both and remark == NO_BACKGROUND):
                yield f"{name}: {remark}"


def _remarks(side: _Side, *, by_plane: bool) -> list[str]:
    """Find what is odd about the numbers of one label image."""
    remarks = [*background_remarks(side.labels)]
    if by_plane:
        return remarks
    if 0 < side.n_numbers <= FEW_NUMBERS:
        doubtful = None if remarks else doubt(side.labels, counts_pieces=side.n_shared > 0)
        return remarks if doubtful is None else [f"it has {doubtful}"]
    if not may_be_cut(side.labels):
        return remarks
    return [*remarks, *piece_remarks(side.labels, counts_pieces=side.n_shared > 0)]


def _reading_note(result: MaskComparison, a: str, b: str) -> str:
    """Say that planes were compared one by one, and why."""
    numbering_of = {a: result.numbering_a, b: result.numbering_b}
    anew = [side for side, numbering in numbering_of.items() if numbering == "anew"]
    through = [side for side, numbering in numbering_of.items() if numbering == "through"]
    note = (
        f"the numbers of {joined(anew)} begin anew in each plane, so every plane was compared by "
        f"itself: {grouped(result.n_objects_a)} and {grouped(result.n_objects_b)} cells in "
        f"{amount(result.shape[0], 'plane')}"
    )
    if through:
        note += (
            f". In {through[0]} cells keep their numbers through planes, as in a stack that was "
            f"stitched or segmented in 3-D: which planes belong to one cell only {through[0]} "
            "says, a difference that these counts leave out"
        )
    return note


def counts_by_plane(labels_a: Integers, labels_b: Integers) -> Iterator[str]:
    """Say on which planes of a stack, or frames of a time-lapse, the two have other numbers."""
    if labels_a.ndim != 3 or labels_a.shape != labels_b.shape:
        return
    differing = [
        f"z {z}: {grouped(n_a)} and {grouped(n_b)}"
        for z, (n_a, n_b) in enumerate(zip(n_by_plane(labels_a), n_by_plane(labels_b), strict=True))
        if n_a != n_b
    ]
    if differing:
        yield (
            "planes (or frames of a time-lapse) with different numbers of cells in A and B: "
            f"{some(differing, _MOST_PLANES)}"
        )


def n_by_plane(stack: Integers) -> list[int]:
    """Count the cells on each plane of a stack."""
    return [n_numbers(plane) for plane in stack]


def of_images(names: Sequence[str], n_images: int) -> str:
    """Begin a note with the images that it is of; with nothing where only one is compared.

    >>> of_images(["a"], 3), of_images(["a", "b"], 3), of_images(["a"], 1)
    ('image a: ', 'images a, b: ', '')
    """
    if n_images == 1:
        return ""
    return f"{'image' if len(names) == 1 else 'images'} {some(names, _MOST_IMAGES)}: "


def no_cell_note(side: str) -> str:
    """Say what usually makes masks without a cell, of one side of two."""
    return (
        f"{side} has no cell. Usual reasons: a network that is not of this version of Cellpose, "
        "intensities scaled by a few bright pixels, a threshold or a diameter that is far off, or "
        "masks saved before they were computed"
    )
