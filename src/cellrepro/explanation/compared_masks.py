"""The masks of two results, compared image by image, with what a reader has to know of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import BadInput
from cellrepro.explanation.label_notes import label_notes, no_cell_note
from cellrepro.images.size_factor import factor_text
from cellrepro.words import amount, some

if TYPE_CHECKING:
    from cellrepro.explanation.references import MaskReaders


@dataclass(frozen=True)
class ComparedMasks:
    """The masks of the images that two sides have in common."""

    by_image: Mapping[str, MaskComparison]
    notes: tuple[str, ...]
    """What only one side has, and what may be no label image."""


def compare_by_image(a: MaskReaders, b: MaskReaders, *, who: str) -> ComparedMasks:
    """Compare the masks of equal names, one image at a time."""
    in_both = [name for name in a if name in b]
    if not in_both:
        names = f"{some(list(a)) or 'none'} and {some(list(b)) or 'none'}"
        raise BadInput(
            f"{who}: {len(a)} and {len(b)} masks, and no image of the same name ({names}); "
            "expected masks of the same images: NAME_masks, NAME_cp_masks, NAME_seg.npy and NAME "
            "are those of the image NAME"
        )
    by_image: dict[str, MaskComparison] = {}
    notes: list[str] = []
    for side, only in (("A", a.keys() - b.keys()), ("B", b.keys() - a.keys())):
        if only:
            notes.append(f"only {side} has masks of {', '.join(sorted(only))}")
    for name in in_both:
        try:
            labels_a = a[name]()
            labels_b = b[name]()
            _refuse_other_size(labels_a.shape, labels_b.shape)
            result = compare_masks(labels_a, labels_b)
        except BadInput as error:
            raise BadInput(f"image {name}: {error}") from error
        by_image[name] = result
        notes += (f"{name}: {note}" for note in label_notes(labels_a, labels_b, result))
    notes += _empty_notes(by_image)
    return ComparedMasks(by_image, tuple(notes))


def _refuse_other_size(a: Sequence[int], b: Sequence[int]) -> None:
    """Refuse masks of two sizes, as nothing pairs their pixels."""
    if tuple(a) == tuple(b):
        return
    if len(a) != len(b):
        what_to_do = (
            "; a plane (Y, X) is not compared with a stack (Z, Y, X): save one plane of the stack "
            "as a file of its own"
        )
    else:
        what_to_do = factor_text("A", a, "B", b) or (
            "; check that both belong to the same image, then transpose or crop one of them"
        )
        if len(a) == 2 and (a[0] <= b[0]) == (a[1] <= b[1]):
            what_to_do += (
                ". If one is a crop of the other: `cellrepro explain A B` finds its place, and "
                "compares what both show"
            )
    raise BadInput(f"A has masks of shape {tuple(a)}, B of {tuple(b)}{what_to_do}")


def _empty_notes(by_image: Mapping[str, MaskComparison]) -> Iterator[str]:
    """Say of the side that has no cell in an image in which the other has some."""
    empty_in_a = [name for name, each in by_image.items() if not each.n_objects_a]
    empty_in_b = [name for name, each in by_image.items() if not each.n_objects_b]
    for side, empty, others in (("A", empty_in_a, empty_in_b), ("B", empty_in_b, empty_in_a)):
        names = [name for name in empty if name not in others]
        if names:
            yield f"{some(names)}: {no_cell_note(side)}"


def stitching_notes(masks: Mapping[str, MaskComparison]) -> Iterator[str]:
    """Say of stacks between which planes cells of one side are cut on the other."""
    for name, result in masks.items():
        cut = [change for change in result.objects if change.cut_between]
        if cut:
            planes = some(sorted({change.cuts for change in cut}))
            yield (
                f"{name}: planes were stitched otherwise: {amount(len(cut), 'cell')} whole on one "
                f"side, in parts on the other, cut between {planes}"
            )


def masks_differ(verdict: Verdict) -> bool:
    """Whether a verdict over masks means a difference, be it in the numbers of objects alone."""
    return verdict not in (Verdict.IDENTICAL, Verdict.VACUOUS)
