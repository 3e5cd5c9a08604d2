"""Cells that were drawn or removed by hand in Cellpose's GUI, as a ``_seg.npy`` records them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from cellrepro.comparison.mask_comparison import compare_masks
from samebits.words import amount, some

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cellrepro.images.integer_images import Integers
    from cellrepro.images.seg_file import SegFile

EditKind = Literal["drawn", "removed"]

_WORDS: Mapping[str, EditKind] = {"added mask": "drawn", "removed mask": "removed"}
"""As ``cellpose/gui/gui.py`` writes them (2.3.2 to 4.2.1.1)."""
_SAME_CELL = 0.5  # IoU
_MOST_PLACES = 5


@dataclass(frozen=True, eq=False)
class HandEdit:
    """One cell that was drawn or removed by hand."""

    kind: EditKind
    pixels: NDArray[np.intp]
    """Of the cell, by axis."""

    @property
    def place(self) -> str:
        """Its centroid in words: "y 42 x 45"."""
        axes = "zyx"[-len(self.pixels) :]
        centroid = self.pixels.mean(axis=1)
        return " ".join(f"{axis} {at:.0f}" for axis, at in zip(axes, centroid, strict=True))

    def label_in(self, masks: Integers) -> int:
        """The cell of masks that is this one; 0 where none is."""
        if len(self.pixels) != masks.ndim or not self._is_within(masks.shape):
            return 0
        labels, counts = np.unique(masks[tuple(self.pixels)], return_counts=True)
        n_pixels = self.pixels.shape[1]
        for label, n_shared in zip(labels.tolist(), counts.tolist(), strict=True):
            if not label or n_shared < _SAME_CELL * n_pixels:
                continue
            n_union = n_pixels + int(np.count_nonzero(masks == label)) - n_shared
            if n_shared >= _SAME_CELL * n_union:
                return int(label)
        return 0

    def _is_within(self, shape: Sequence[int]) -> bool:
        ends = np.reshape(shape, (-1, 1))
        return bool((self.pixels >= 0).all() and (self.pixels < ends).all())


def hand_edits(seg: SegFile) -> tuple[HandEdit, ...]:
    """Give the cells that were drawn or removed by hand, but for edits that were undone."""
    return (*_drawn(seg), *_removed(seg))


def _drawn(seg: SegFile) -> Iterator[HandEdit]:
    flags = seg.settings.get("ismanual")
    labels = np.unique(seg.masks[seg.masks > 0])
    for label, is_drawn in zip(labels, flags if isinstance(flags, list) else (), strict=False):
        if is_drawn is True:
            yield HandEdit("drawn", np.array(np.nonzero(seg.masks == label)))


def _removed(seg: SegFile) -> Iterator[HandEdit]:
    """The removed cells, but for those put back, or drawn by hand before and so without effect."""
    drawn_before: list[HandEdit] = []
    for edit in _logged(seg.settings.get("manual_changes")):
        if edit.kind == "drawn":
            drawn_before.append(edit)
            continue
        twin = next((each for each in drawn_before if _are_same(each, edit)), None)
        if twin is not None:
            drawn_before.remove(twin)
        elif not _is_put_back(edit, seg.masks):
            yield edit


def _logged(changes: object) -> Iterator[HandEdit]:
    """Read the GUI's list of a time, a word and pixels for each edit; skip what is malformed."""
    for change in changes if isinstance(changes, list) else ():
        if not isinstance(change, list) or len(change) != 3 or change[1] not in _WORDS:
            continue
        try:
            pixels = np.array(change[2], dtype=np.intp)
        except (TypeError, ValueError, OverflowError):
            continue
        if pixels.ndim == 2 and len(pixels) in (2, 3) and pixels.size:
            yield HandEdit(_WORDS[change[1]], pixels)


def _are_same(a: HandEdit, b: HandEdit) -> bool:
    if len(a.pixels) != len(b.pixels):
        return False
    is_apart = (a.pixels.max(axis=1) < b.pixels.min(axis=1)) | (
        b.pixels.max(axis=1) < a.pixels.min(axis=1)
    )
    if is_apart.any():
        return False
    of_a = set(zip(*a.pixels.tolist(), strict=True))
    of_b = set(zip(*b.pixels.tolist(), strict=True))
    return len(of_a & of_b) >= _SAME_CELL * len(of_a | of_b)


def _is_put_back(edit: HandEdit, masks: Integers) -> bool:
    """Whether undo, which the GUI does not log, put the very same cell back."""
    label = edit.label_in(masks)
    return bool(label) and int(np.count_nonzero(masks == label)) == edit.pixels.shape[1]


@dataclass(frozen=True, eq=False)
class EditedSide:
    """The masks and the edits by hand of one of two results."""

    letter: str
    masks: Integers
    edits: tuple[HandEdit, ...] = ()


@dataclass(frozen=True)
class EffectOfHand:
    """What edits by hand explain of the difference between two results."""

    notes: tuple[str, ...] = ()
    n_cells: int = 0
    """Cells that only one side has because of them."""
    explains_all: bool = False
    """Whether the two are equal but for the edited cells."""


def effect_of_hand(a: EditedSide, b: EditedSide) -> EffectOfHand:
    """Find the cells that only one side has because they were drawn or removed by hand."""
    if a.masks.shape != b.masks.shape or not (a.edits or b.edits):
        return EffectOfHand()
    notes: list[str] = []
    n_cells = 0
    rest_a = a.masks.copy()
    rest_b = b.masks.copy()
    for own, other, rest_own, rest_other in ((a, b, rest_a, rest_b), (b, a, rest_b, rest_a)):
        removed = [edit for edit in own.edits if edit.kind == "removed"]
        labels = [(edit.place, edit.label_in(other.masks)) for edit in removed]
        missing = [(place, label) for place, label in labels if label]
        drawn = [edit for edit in own.edits if edit.kind == "drawn"]
        added = [edit for edit in drawn if not edit.label_in(other.masks)]
        rest_other[np.isin(other.masks, [label for _, label in missing])] = 0
        for edit in added:
            rest_own[tuple(edit.pixels)] = 0
        n_cells += len(missing) + len(added)
        notes += _notes(own.letter, other.letter, "removed", [place for place, _ in missing])
        notes += _notes(own.letter, own.letter, "drawn", [edit.place for edit in added])
    is_all = bool(notes) and not compare_masks(rest_a, rest_b).n_differing
    return EffectOfHand(tuple(notes), n_cells, explains_all=is_all)


def _notes(edited: str, holder: str, what: EditKind, places: Sequence[str]) -> Iterator[str]:
    if places:
        were = "was" if len(places) == 1 else "were"
        yield (
            f"{amount(len(places), 'cell')} that only {holder} has {were} {what} by hand in "
            f"{edited}, which no setting explains: at {some(places, _MOST_PLACES)}"
        )
