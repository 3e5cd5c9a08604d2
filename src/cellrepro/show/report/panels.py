"""The report's pictures of images: panels that stand side by side, or below each other on a phone.

Made without matplotlib: an array of colours is a picture at once, and its signs are text that stays
sharp at any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


def object_counts(comparison: MaskComparison) -> dict[str, int]:
    """How many cells, splits and merges of each kind there are, in the order of `CHANGES`."""
    return {str(kind): comparison.kinds[kind] for kind in CHANGES}


def counts_text(counts: Mapping[str, int]) -> str:
    """The same in words, without what is not there.

    Examples
    --------
    >>> counts_text({"kept": 3, "moved": 0, "lost": 1})
    '3 kept and 1 lost'
    >>> counts_text({"kept": 0})
    'no cell on either side'
    """
    parts = [f"{n} {kind}" for kind, n in counts.items() if n]
    return joined(parts) if parts else "no cell on either side"


def difference_panels(
    image: np.ndarray | None,
    a: np.ndarray,
    b: np.ndarray,
    comparison: MaskComparison,
    *,
    name_a: str,
    name_b: str,
) -> tuple[Panel, ...]:
    """One image and two label images of it, and where these differ.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C), or None
        Without it the outlines stand on black, and there is no panel of the image alone.
    a, b : ndarray of int, shape (Y, X)
        Label images, 0 is background.
    comparison : MaskComparison
        Of a and b.
    name_a, name_b : str
        What the two are called.

    Returns
    -------
    tuple of Panel
        The image; the outlines of both; what differs, with a sign at every cell that is not
        kept; the place where most differs, larger. The last is missing where the image is small.
    """
    background = masks.grey_image(image) if image is not None else np.zeros(a.shape, np.uint8)
    map_ = categories(a, b)
    marked = changed(comparison)
    counts = counts_text(object_counts(comparison))
    outlines = (
        f"Outlines of {name_a} (blue), {amount(comparison.n_objects_a, 'cell')}, and of {name_b} "
        f"(orange, dashed), {amount(comparison.n_objects_b, 'cell')}; white where they coincide"
    )
    found = [
        panel(
            masks.with_outlines(background, {"a": a, "b": b}),
            alt=f"{outlines}.",
            heading="Outlines of both",
        ),
        panel(
            masks.category_picture(background, map_)[0],
            alt=f"What differs: {grouped(comparison.n_differing)} of "
            f"{grouped(comparison.n_pixels)} pixels ({ppm_text(comparison.ppm)}). {counts}.",
            heading="What differs",
            marks=_marks(marked, a.shape),
        ),
    ]
    if image is not None:
        alone = masks.with_outlines(background, {})
        found.insert(0, panel(alone, alt="The image alone.", heading="Image"))
    window = _window(map_ >= 2)
    if window is not None:
        y, x = window[0].start, window[1].start
        found.append(
            panel(
                masks.with_outlines(background[window], {"a": a[window], "b": b[window]}),
                alt=f"Outlines of both in the rows from {y} to {window[0].stop} and the columns "
                f"from {x} to {window[1].stop}, where most pixels differ.",
                heading=f"Closer: rows {y}–{window[0].stop}, columns {x}–{window[1].stop}",
            )
        )
    return tuple(found)


def changed(comparison: MaskComparison) -> list[ObjectChange]:
    """The cells that are not kept, the largest first."""
    found = [change for change in comparison.objects if change.kind != ObjectKind.KEPT]
    return sorted(found, key=lambda change: -max(change.area_a, change.area_b))


def cell_rows(comparison: MaskComparison, *, image: str) -> list[dict[str, Any]]:
    """Every cell of both sides and what became of it, those that are not kept first."""
    kept = [change for change in comparison.objects if change.kind == ObjectKind.KEPT]
    rows = [
        {
            "image": image,
            "what": str(change.kind),
            "y": round(change.position[-2], 1),
            "x": round(change.position[-1], 1),
            "iou": round(change.iou, 4),
            "area_a": change.area_a,
            "area_b": change.area_b,
            "labels_a": " ".join(map(str, change.labels_a)),
            "labels_b": " ".join(map(str, change.labels_b)),
        }
        for change in [*changed(comparison), *kept]
    ]
    return rows or [{"image": image, "what": "no cell on either side"}]


def truth_panels(
    image: np.ndarray | None, truth: np.ndarray, found: np.ndarray, comparison: MaskComparison
) -> tuple[Panel, ...]:
    """The ground truth and what a network found, with a sign where they disagree.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C), or None
        Without it the outlines stand on black.
    truth, found : ndarray of int, shape (Y, X)
        Label images, 0 is background.
    comparison : MaskComparison
        Of truth and found.
    """
    background = masks.grey_image(image) if image is not None else np.zeros(truth.shape, np.uint8)
    drawn = masks.with_outlines(background, {"truth": truth}, solid=True)
    counts = counts_text(object_counts(comparison))
    return (
        panel(
            drawn,
            alt=f"Outlines of the ground truth: {amount(comparison.n_objects_a, 'cell')}.",
            heading=f"Truth: {amount(comparison.n_objects_a, 'cell')}",
        ),
        panel(
            masks.with_outlines(background, {"a": found}),
            alt=f"Outlines of the cells found: {comparison.n_objects_b}.",
            heading=f"Found: {amount(comparison.n_objects_b, 'cell')}",
        ),
        panel(
            masks.category_picture(background, categories(truth, found))[0],
            alt=f"What differs from the truth: {counts}.",
            heading="What differs",
            marks=_marks(changed(comparison), truth.shape),
        ),
    )


def _marks(changes: Sequence[ObjectChange], shape: Sequence[int]) -> list[Mark]:
    """In pixels of the panel, which is an image of that shape enlarged or shrunk."""
    height, width = masks.panel_shape(shape)
    scale = max(height, width) / max(shape[0], shape[1])
    marks = []
    for change in changes[:_MOST_MARKS]:
        y, x = ((place + 0.5) * scale for place in change.position)
        area = max(change.area_a, change.area_b)
        radius = max(_LEAST_RADIUS * max(height, width), 1.25 * scale * (area / np.pi) ** 0.5)
        room_y, room_x = _BADGE * height, _BADGE * width
        marks.append(
            Mark(
                x=round(x, 1),
                y=round(y, 1),
                radius=round(radius, 1),
                sign=CHANGES[change.kind][0],
                sign_x=round(float(np.clip(x + 0.71 * radius, room_x, width - room_x)), 1),
                sign_y=round(float(np.clip(y - 0.71 * radius, room_y, height - room_y)), 1),
            )
        )
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
