"""Cells of compared images as a table: what became of each, and the image in which it lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cellrepro.comparison.object_changes import KEPT_WITHIN, ObjectChange, ObjectKind
from cellrepro.words import iou_text, place_text
from samebits.results import Row

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison


class ChangedCell(NamedTuple):
    """A cell of compared images: the change that became of it, and the image in which it lies."""

    image: str
    change: ObjectChange


def cells_of(masks: Mapping[str, MaskComparison]) -> Iterator[ChangedCell]:
    """Give what became of every cell of some images."""
    for image, result in masks.items():
        for change in result.objects:
            yield ChangedCell(image, change)


def listed_cells(masks: Mapping[str, MaskComparison]) -> list[ChangedCell]:
    """Give the changed cells and the kept ones of another size, those that tell most first."""
    listed = [cell for cell in cells_of(masks) if is_listed(cell.change)]
    return sorted(listed, key=lambda cell: rank(cell.change))


def listed_changes(comparison: MaskComparison) -> list[ObjectChange]:
    """Give those of one image."""
    return [cell.change for cell in listed_cells({"": comparison})]


def is_listed(change: ObjectChange) -> bool:
    """Whether a reader has to see a cell: it changed, or is kept in another size."""
    return change.kind != ObjectKind.KEPT or change.is_resized


def resized_cells(changes: Iterable[ObjectChange]) -> list[ObjectChange]:
    """Give the kept cells of which one side has fewer than three quarters of the other's pixels.

    >>> from cellrepro import compare_masks
    >>> [len(resized_cells(compare_masks([[1, 1, 1]], [b]).objects)) for b in ([1, 1, 0], [1] * 3)]
    [1, 0]
    """
    return [change for change in changes if change.is_resized]


def rank(change: ObjectChange) -> tuple[bool, int, int]:
    """Lost, gained, split and merged cells, the largest first; then shifted or reshaped ones, then
    kept ones, by what differs."""
    order = {ObjectKind.MOVED: 1, ObjectKind.KEPT: 2}.get(change.kind, 0)
    size = max(change.area_a, change.area_b)
    telling = _differing_pixels(change) if order else size
    return not is_listed(change), order, -telling


def _differing_pixels(change: ObjectChange) -> int:
    """Count the pixels that only one of the two sides has of a cell."""
    both = change.area_a + change.area_b
    return round(both * (1 - change.iou) / (1 + change.iou))


def shift_note(changes: Iterable[ObjectChange]) -> str:
    """Say why cells that overlap by half or more are not kept; empty where there are none."""
    if not any(change.is_moved_alone for change in changes):
        return ""
    return (
        f"(shift: pixels between the centres in A and in B; where it is {KEPT_WITHIN:.0f} or more, "
        "a cell is not kept, whatever its IoU)"
    )


def cell_rows(
    cells: Sequence[ChangedCell], *, a: str, b: str, n_images: int, most: int | None = None
) -> list[Row]:
    """Give a row for each cell, or for the first ones; its image where several were compared."""
    with_images = n_images > 1
    rows: list[Row] = []
    where = "centre"
    unit = "pixels"
    if any(len(cell.change.position) == 3 for cell in cells):
        where += ", z from 0"
        unit = "voxels"
    for image, change in cells[:most]:
        cuts = f", cut between {change.cuts}" if change.cuts else ""
        has_both = change.labels_a and change.labels_b
        rows.append(
            {
                "image": image if with_images else "",
                "cell": change.in_words,
                f"in {a}": ", ".join(map(str, change.labels_a)) or "–",
                f"in {b}": ", ".join(map(str, change.labels_b)) or "–",
                where: f"{place_text(change.position)}{cuts}",
                f"{unit} {a}": str(change.area_a or "–"),
                f"{unit} {b}": str(change.area_b or "–"),
                "shift": change.shift_text,
                "IoU": iou_text(change.iou, 3) if has_both else "–",
            }
        )
    return rows
