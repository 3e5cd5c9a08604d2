"""The report's pictures of images: panels that stand side by side, or below each other on a phone.

Signs are text over the pictures, which stays sharp at any size.
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
_SMALLEST_WINDOW, _LARGEST_WINDOW = 40, 160
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
    longer = max(masks.panel_shape(shape))
    scale = longer / max(shape)
    marks = []
    for change in changes[:_MOST_MARKS]:
        y, x = ((place + 0.5) * scale for place in change.position)
        area = max(change.area_a, change.area_b)
        radius = max(_LEAST_RADIUS * longer, 1.25 * scale * (area / np.pi) ** 0.5)
        marks.append((CHANGES[change.kind][0], round(x, 1), round(y, 1), round(radius, 1)))
    return marks


def _window(differs: np.ndarray) -> tuple[slice, slice] | None:
    """The rows and columns around the place where most pixels differ; none of a small image."""
    from scipy import ndimage

    least = min(differs.shape)
    side = int(np.clip(least // 4, _SMALLEST_WINDOW, _LARGEST_WINDOW))
    if least < 2 * side or not differs.any():
        return None
    density = ndimage.gaussian_filter(differs.astype(np.float32), side / 4)
    middle = np.unravel_index(density.argmax(), density.shape)
    starts = np.clip(np.array(middle) - side // 2, 0, np.array(differs.shape) - side).tolist()
    return slice(starts[0], starts[0] + side), slice(starts[1], starts[1] + side)
