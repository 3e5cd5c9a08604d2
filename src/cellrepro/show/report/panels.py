"""The report's pictures of images: panels that stand side by side, or below each other on a phone.

The arrays of colours are those of `cellrepro.show.figures.masks`; signs are text over them, which
stays sharp at any size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cellrepro.compare.metrics import MaskComparison, categories
from cellrepro.compare.object_changes import ObjectChange, ObjectKind
from cellrepro.show.figures import masks
from cellrepro.show.report.page import Mark, Panel, panel
from cellrepro.text import amount, grouped, joined, ppm_text

CHANGES: dict[str, tuple[str, str]] = {
    ObjectKind.KEPT: ("", "as before: a counterpart that covers it, less than 1 pixel away"),
    ObjectKind.MOVED: ("→", "a counterpart that went farther or overlaps less"),
    ObjectKind.LOST: ("−", "only in the first"),
    ObjectKind.GAINED: ("+", "only in the second"),
    ObjectKind.SPLIT: ("1:2", "one in the first, several in the second"),
    ObjectKind.MERGED: ("2:1", "several in the first, one in the second"),
}
"""What became of cells: the sign in pictures, and what it means."""

_MOST_MARKS = 40
_SMALLEST_WINDOW = 40
_LARGEST_WINDOW = 160
_NEARLY = 0.9  # of the differing pixels of the best window
_BADGE = 0.03  # half of a sign's room at the edge, share of the panel's sides
_LEAST_RADIUS = 0.014  # of a ring, share of the longer side


def counts_text(comparison: MaskComparison) -> str:
    """What became of the cells: "3 kept and 1 lost"."""
    parts = [f"{n} {kind}" for kind in CHANGES if (n := comparison.kinds[kind])]
    return joined(parts) if parts else "no cell on either side"


def changed(comparison: MaskComparison) -> list[ObjectChange]:
    """The cells that are not kept, the largest first."""
    found = [change for change in comparison.objects if change.kind != ObjectKind.KEPT]
    return sorted(found, key=lambda change: -max(change.area_a, change.area_b))


def difference_panels(
    image: np.ndarray | None, a: np.ndarray, b: np.ndarray, comparison: MaskComparison
) -> tuple[Panel, ...]:
    """The image, if there is one; the outlines of two label images of it; what differs, with a sign
    at every cell that is not kept; and, where the image is large, the place where most differs.
    """
    background = np.zeros(a.shape, np.uint8) if image is None else masks.grey_image(image)
    map_ = categories(a, b)
    found = [
        panel(
            masks.with_outlines(background, {"a": a, "b": b}),
            alt=f"Outlines of the first (blue), {amount(comparison.n_objects_a, 'cell')}, and of "
            f"the second (orange, dashed), {amount(comparison.n_objects_b, 'cell')}; white where "
            "they coincide.",
            heading="Outlines of both",
        ),
        panel(
            masks.category_picture(background, map_)[0],
            alt=f"What differs: {grouped(comparison.n_differing)} of "
            f"{grouped(comparison.n_pixels)} pixels ({ppm_text(comparison.ppm)}). "
            f"{counts_text(comparison)}.",
            heading="What differs",
            marks=_marks(changed(comparison), a.shape),
        ),
    ]
    if image is not None:
        alone = masks.with_outlines(background, {})
        found.insert(0, panel(alone, alt="The image alone.", heading="Image"))
    window = _window(map_ >= 2)
    if window is not None:
        rows, columns = (f"{one.start}–{one.stop}" for one in window)
        near = masks.with_outlines(background[window], {"a": a[window], "b": b[window]})
        alt = f"Outlines of both in rows {rows} and columns {columns}, where most pixels differ."
        found.append(panel(near, alt=alt, heading=f"Closer: rows {rows}, columns {columns}"))
    return tuple(found)


def _marks(changes: Sequence[ObjectChange], shape: Sequence[int]) -> list[Mark]:
    """In pixels of the panel, which is an image of that shape enlarged or shrunk."""
    height, width = masks.panel_shape(shape)
    scale = max(height, width) / max(shape[0], shape[1])
    marks = []
    for change in changes[:_MOST_MARKS]:
        y, x = ((place + 0.5) * scale for place in change.position)
        area = max(change.area_a, change.area_b)
        radius = max(_LEAST_RADIUS * max(height, width), 1.25 * scale * (area / np.pi) ** 0.5)
        sign_x = np.clip(x + 0.71 * radius, _BADGE * width, (1 - _BADGE) * width)
        sign_y = np.clip(y - 0.71 * radius, _BADGE * height, (1 - _BADGE) * height)
        places = (round(float(number), 1) for number in (x, y, radius, sign_x, sign_y))
        marks.append(Mark(CHANGES[change.kind][0], *places))
    return marks


def _window(differs: np.ndarray) -> tuple[slice, slice] | None:
    """The rows and columns in which most pixels differ; none if that is nearly the whole image."""
    from scipy import ndimage

    height, width = differs.shape
    side = int(np.clip(min(height, width) // 4, _SMALLEST_WINDOW, _LARGEST_WINDOW))
    if min(height, width) < 2 * side or not differs.any():
        return None
    density = ndimage.uniform_filter(differs.astype(np.float32), side, mode="constant")
    # Of the windows that hold nearly as much, the middle one does not cut through the cell.
    ys, xs = np.nonzero(density >= _NEARLY * density.max())
    near = (np.abs(ys - ys[0]) < side) & (np.abs(xs - xs[0]) < side)
    y, x = round(float(ys[near].mean())), round(float(xs[near].mean()))
    top = int(np.clip(y - side // 2, 0, height - side))
    left = int(np.clip(x - side // 2, 0, width - side))
    return slice(top, top + side), slice(left, left + side)
