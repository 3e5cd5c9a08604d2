"""The picture of docs/comparison.md: what can become of a cell, said by the lab itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from cellrepro.comparison.object_changes import ObjectChange
    from cellrepro.show.figures.style import Picture

_SIZE = 44  # pixels along an edge of a drawing
_SIDE = 264  # the same where they are drawn
_GREY = 85  # of cells
_WIDTH = 7.6  # inches, so that letters are as large as those of the page


@dataclass(frozen=True)
class Ellipse:
    """A cell of a drawing."""

    centre_x: float = 21.5
    radius_x: float = 15
    radius_y: float = 12
    centre_y: float = 21.5
    between_x: tuple[float, float] = (0, _SIZE)
    """It is cut off outside."""

    def covered(self) -> NDArray[np.bool_]:
        y, x = np.indices((_SIZE, _SIZE))
        inside = ((x - self.centre_x) / self.radius_x) ** 2
        inside = inside + ((y - self.centre_y) / self.radius_y) ** 2
        return (inside <= 1) & (x >= self.between_x[0]) & (x < self.between_x[1])


CELL = Ellipse()
HALVES = (Ellipse(between_x=(0, 22)), Ellipse(between_x=(22, _SIZE)))
DRAWINGS: tuple[tuple[tuple[Ellipse, ...], tuple[Ellipse, ...]], ...] = (
    ((CELL,), (Ellipse(radius_x=15.8, radius_y=12.8),)),
    ((CELL,), (Ellipse(radius_x=20, radius_y=15.5),)),
    ((CELL,), (Ellipse(centre_x=26.5, centre_y=24.5),)),
    ((CELL,), (Ellipse(radius_x=10, radius_y=7),)),
    ((CELL,), ()),
    ((), (CELL,)),
    ((CELL,), HALVES),
    (HALVES, (CELL,)),
)
"""The cells of A and those of B."""


def fates_picture() -> Picture:
    """Draw the outlines of both sides, and under each drawing what the lab says of it."""
    from cellrepro.comparison.mask_comparison import compare_masks
    from cellrepro.show.figures.pixels import with_outlines
    from cellrepro.show.figures.style import Picture, image_panel

    picture = Picture(_WIDTH, 5.4)
    for place, (cells_a, cells_b) in enumerate(DRAWINGS, start=1):
        a, b = _labels(cells_a), _labels(cells_b)
        (change,) = compare_masks(a, b).objects
        axes = picture.add_subplot(2, 4, place)
        grey = np.where((a > 0) | (b > 0), _GREY, 0).astype(np.uint8)
        pixels = with_outlines(np.repeat(grey[..., None], 3, axis=2), {"a": a, "b": b}, side=_SIDE)
        image_panel(axes, pixels)
        axes.set_title(f"{change.kind.sign}  {change.kind.in_words}", fontsize=10, weight="bold")
        axes.set_xlabel(_facts(change, a, b), fontsize=9.5)
    return picture.described("A: blue. B: orange, dashed. White where both outlines coincide.")


def _labels(cells: tuple[Ellipse, ...]) -> NDArray[np.uint16]:
    labels = np.zeros((_SIZE, _SIZE), np.uint16)
    for number, cell in enumerate(cells, start=1):
        labels[cell.covered()] = number
    return labels


def _facts(change: ObjectChange, a: NDArray[np.uint16], b: NDArray[np.uint16]) -> str:
    """Its size on both sides, how much of it is shared, and how far the centres lie apart."""
    if not change.area_a or not change.area_b:
        return f"only in {'A' if change.area_a else 'B'}"
    sizes = f"{change.area_a} → {change.area_b} pixels"
    if len(change.labels_a) + len(change.labels_b) > 2:
        return f"{sizes}\n{len(change.labels_a)} in A, {len(change.labels_b)} in B"
    apart = np.linalg.norm(np.argwhere(a).mean(0) - np.argwhere(b).mean(0))
    return f"{sizes}\nIoU {change.iou:.2f}, {apart:.1f} pixels apart"
