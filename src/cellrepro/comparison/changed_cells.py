"""Cells of compared images as a table: what became of each, and the image in which it lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cellrepro.comparison.object_changes import ObjectChange, ObjectKind
from cellrepro.results import Row
from cellrepro.words import place_text

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison


class ChangedCell(NamedTuple):
    """A cell of compared images: the change that became of it, and the image in which it lies."""

    image: str
    change: ObjectChange
    shape: tuple[int, ...]
    """The shape of the image, (Y, X) or (Z, Y, X)."""


def cells_of(masks: Mapping[str, MaskComparison]) -> Iterator[ChangedCell]:
    """Give what became of every cell of some images."""
    for image, result in masks.items():
        for change in result.objects:
            yield ChangedCell(image, change, result.shape)


def not_kept(masks: Mapping[str, MaskComparison]) -> list[ChangedCell]:
    """Give the cells that are not where they were."""
    return [cell for cell in cells_of(masks) if cell.change.kind != ObjectKind.KEPT]


def cell_rows(
    cells: Sequence[ChangedCell], *, a: str, b: str, most: int | None = None
) -> list[Row]:
    """Give a row for each cell, or for the first ones, with its image where there are several."""
    with_images = len({cell.image for cell in cells}) > 1
    rows: list[Row] = []
    for image, change, shape in cells[:most]:
        cuts = f", cut between {change.cuts}" if change.cuts else ""
        has_both = change.labels_a and change.labels_b
        rows.append(
            {
                "image": image if with_images else "",
                "cell": change.kind.in_words,
                f"in {a}": ", ".join(map(str, change.labels_a)) or "–",
                f"in {b}": ", ".join(map(str, change.labels_b)) or "–",
                "where": f"{place_text(change.position, shape)}{cuts}",
                f"pixels in {a}": str(change.area_a or "–"),
                f"pixels in {b}": str(change.area_b or "–"),
                "IoU": f"{change.iou:.3f}" if has_both else "–",
            }
        )
    return rows
