"""The explorer: two runs on one image, compared pixel by pixel in the notebook.

The arrays travel to the browser once, deflated; everything that moves afterwards (curtain,
opacity, zoom, read-out) is drawn there and never waits for the kernel. `Explorer.to_png` draws
the same picture with matplotlib, for places without a kernel.
"""

from __future__ import annotations

import base64
import io
import zlib
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from cellrepro.errors import BadInput
from cellrepro.show.plots import (
    AGREE_SHARE,
    CATEGORIES,
    COLOURS,
    DASHES,
    DIMMED,
    enlarged,
    outlined,
)
from cellrepro.show.plots import enlarged_categories as _enlarged_categories
from cellrepro.show.plots import painted as _painted
from cellrepro.show.words import grouped

__all__ = ["CATEGORIES", "COLOURS", "Explorer", "explore"]


class Explorer(anywidget.AnyWidget):
    """A canvas on which two label images of one image are compared live; made by `explore`.

    Attributes
    ----------
    counts : dict
        Pixels of each of `CATEGORIES`, ``differ`` (the last three together), ``pixels`` (all of
        them) and ``ppm`` (``differ`` per million of ``pixels``).
    line : str
        The counts as one sentence, as shown under the title.
    title, name_a, name_b : str
        As given to `explore`.
    planes : dict
        The deflated arrays as the browser receives them; see `unpacked`.
    """

    _esm = Path(__file__).with_name("static") / "explorer.js"
    _css = Path(__file__).with_name("static") / "explorer.css"

    planes = traitlets.Dict().tag(sync=True)
    counts = traitlets.Dict().tag(sync=True)
    line = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    name_a = traitlets.Unicode("A").tag(sync=True)
    name_b = traitlets.Unicode("B").tag(sync=True)
    height = traitlets.Int(512).tag(sync=True)
    drawing = traitlets.Dict(
        {"colours": COLOURS, "dashes": DASHES, "agree_share": AGREE_SHARE, "dimmed": DIMMED}
    ).tag(sync=True)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live widget, and the same as a still picture for pages without a kernel."""
        live = super()._repr_mimebundle_(**kwargs)
        data, metadata = live if isinstance(live, tuple) else (live or {}, {})
        still = {"image/png": base64.b64encode(self.to_png()).decode(), "text/plain": self.line}
        return {**data, **still}, metadata

    def to_png(self, path: str | Path | None = None, *, panel: int = 560) -> bytes:
        """The comparison as one PNG: outlines of A, outlines of B, categories, counts.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the picture as well; its folder must exist.
        panel : int
            Longer side of each of the three panels, in pixels.

        Returns
        -------
        bytes
            The PNG file.
        """
        content = _three_panels(self, panel)
        if path is not None:
            Path(path).write_bytes(content)
        return content


def explore(
    image: np.ndarray,
    masks_a: np.ndarray,
    masks_b: np.ndarray,
    *,
    truth: np.ndarray | None = None,
    name_a: str = "A",
    name_b: str = "B",
    title: str = "",
    categories: np.ndarray | None = None,
    height: int = 512,
) -> Explorer:
    """A live comparison of the masks that two runs made on one image.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, 3)
        Any real dtype, all finite. Shown in grey, stretched from the 1st to the 99th percentile of
        each channel; the read-out gives the values as they are.
    masks_a, masks_b : ndarray of int, shape (Y, X)
        Label images, 0 is background; neither side is the truth.
    truth : ndarray of int, shape (Y, X), optional
        Annotated label image, 0 is background; drawn on request, never counted.
    name_a, name_b : str
        What the two runs are called on screen.
    title : str
        Shown above the picture.
    categories : ndarray of uint8, shape (Y, X), optional
        0 background in both, 1 the same object in both, 2 cell only in A, 3 cell only in B, 4 cell
        in both but another object. Computed by `cellrepro.compare.masks.categories` if not given.
    height : int
        Height of the picture on screen, in CSS pixels; narrow pages show it smaller.

    Returns
    -------
    Explorer
        Shows itself as the last line of a notebook cell.

    Raises
    ------
    BadInput
        If an array has another shape or kind of number than described here, or `categories`
        contradicts the masks.

    Notes
    -----
    Saved with its notebook, the widget carries all its arrays; in a batch execute with
    ``store_widget_state=False`` and show `Explorer.to_png` instead.
    """
    image = _checked_image(image)
    shape = image.shape[:2]
    masks_a = _checked_labels("masks_a", masks_a, shape)
    masks_b = _checked_labels("masks_b", masks_b, shape)
    if categories is None:
        from cellrepro.compare import masks

        categories = masks.categories(masks_a, masks_b)
    categories = _checked_categories(categories, masks_a, masks_b)
    planes = {
        "image": _packed_image(image),
        "a": packed(masks_a),
        "b": packed(masks_b),
        "categories": packed(categories),
    }
    if truth is not None:
        planes["truth"] = packed(_checked_labels("truth", truth, shape))
    counts = count(categories)
    return Explorer(
        planes=planes,
        counts=counts,
        line=counts_line(counts, name_a, name_b),
        title=title,
        name_a=name_a,
        name_b=name_b,
        height=height,
    )


def count(categories: np.ndarray) -> dict[str, int | float]:
    """How many pixels fall into each category, and how many of a million differ.

    Parameters
    ----------
    categories : ndarray of uint8, shape (Y, X)
        Values 0 to 4 as in `CATEGORIES`.

    Returns
    -------
    dict
        One count per category, ``differ``, ``pixels`` and ``ppm`` = differ / pixels * 1e6.

    Examples
    --------
    >>> count(np.array([[0, 1], [2, 4]], dtype=np.uint8))["ppm"]
    500000.0
    """
    numbers = np.bincount(categories.ravel(), minlength=len(CATEGORIES)).tolist()
    counts: dict[str, int | float] = dict(zip(CATEGORIES, numbers, strict=True))
    counts["differ"] = sum(numbers[2:])
    counts["pixels"] = categories.size
    counts["ppm"] = counts["differ"] / categories.size * 1e6
    return counts


def counts_line(counts: dict[str, int | float], name_a: str = "A", name_b: str = "B") -> str:
    """The counts as a sentence; digits are grouped in threes by spaces.

    Parameters
    ----------
    counts : dict
        From `count`.
    name_a, name_b : str
        What the two runs are called.

    Returns
    -------
    str

    Examples
    --------
    >>> print(counts_line(count(np.array([[0, 1], [2, 4]], dtype=np.uint8))))
    2 pixels differ = 500 000 ppm (only A: 1, only B: 0, other object: 1) of 4
    """
    differ = counts["differ"]
    parts = (
        f"only {name_a}: {grouped(counts['only_a'])}, "
        f"only {name_b}: {grouped(counts['only_b'])}, "
        f"other object: {grouped(counts['other_object'])}"
    )
    pixels = "pixel differs" if differ == 1 else "pixels differ"
    return (
        f"{grouped(differ)} {pixels} = {grouped(counts['ppm'])} ppm ({parts}) "
        f"of {grouped(counts['pixels'])}"
    )


def packed(array: np.ndarray, **facts: Any) -> dict[str, Any]:
    """An array of non-negative integers as the browser receives it.

    Parameters
    ----------
    array : ndarray of int, shape (Y, X) or (Y, X, C)
        Values in [0, 2**32).
    **facts
        Further entries to send along.

    Returns
    -------
    dict
        ``data`` (zlib stream of the little-endian values in C order), ``dtype`` (the narrowest of
        uint8, uint16, uint32 that holds them), ``shape`` and `facts`.
    """
    dtype = np.min_scalar_type(int(array.max()))
    data = np.ascontiguousarray(array, dtype=dtype.newbyteorder("<")).tobytes()
    return {
        # Level 1: label images are so regular that more effort saves little and costs seconds.
        "data": zlib.compress(data, level=1),
        "dtype": dtype.name,
        "shape": list(array.shape),
        **facts,
    }


def unpacked(plane: dict[str, Any]) -> np.ndarray:
    """The array that `packed` was given, in its narrowest dtype.

    Parameters
    ----------
    plane : dict
        From `packed`.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> unpacked(packed(np.array([[0, 300]])))
    array([[  0, 300]], dtype=uint16)
    """
    dtype = np.dtype(plane["dtype"])
    values = np.frombuffer(zlib.decompress(plane["data"]), dtype=dtype.newbyteorder("<"))
    return values.astype(dtype).reshape(plane["shape"])


def grey(plane: dict[str, Any]) -> np.ndarray:
    """The image plane in 8 bit, stretched between its limits; channels are averaged.

    Parameters
    ----------
    plane : dict
        ``Explorer.planes["image"]``.

    Returns
    -------
    ndarray of uint8, shape (Y, X)
        The very values that the browser paints.
    """
    low, high = np.asarray(plane["low"], dtype=float), np.asarray(plane["high"], dtype=float)
    stretched = np.clip((unpacked(plane) - low) / (high - low), 0, 1)
    return np.floor(stretched.mean(axis=2) * 255 + 0.5).astype(np.uint8)


def _checked_image(image: np.ndarray) -> np.ndarray:
    """The image with a channel axis, or BadInput."""
    image = np.asarray(image)
    if image.ndim == 2:
        image = image[..., np.newaxis]
    if image.ndim != 3 or image.shape[2] not in (1, 3):
        raise BadInput(
            f"image has shape {image.shape}; expected (Y, X), or (Y, X, 3) with the channels "
            "last. Give one plane of a stack, and move channels with np.moveaxis(image, 0, -1)."
        )
    if image.size == 0:
        raise BadInput(f"image has shape {image.shape}, so no pixels; there is nothing to compare.")
    if image.dtype.kind not in "buif":
        raise BadInput(f"image has dtype {image.dtype}; expected real numbers.")
    if not np.isfinite(image).all():
        raise BadInput(
            f"image has {np.count_nonzero(~np.isfinite(image))} values that are NaN or infinite; "
            "expected finite numbers. Replace them with np.nan_to_num(image)."
        )
    return image


def _checked_labels(name: str, labels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The label image, or BadInput."""
    labels = np.asarray(labels)
    if labels.shape != shape:
        raise BadInput(
            f"{name} has shape {labels.shape}; expected {shape}, (Y, X) of the image. Give "
            "the masks of this very image, one plane, neither cropped nor resized."
        )
    if labels.dtype.kind not in "bui":
        raise BadInput(
            f"{name} has dtype {labels.dtype}; expected a label image of integers with 0 as "
            f"background. If its values are whole numbers, give {name}.astype(np.int32)."
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= 2**32:
        raise BadInput(
            f"{name} has labels from {low} to {high}; expected 0 for background and labels "
            "below 2**32 for objects. Renumber the objects from 1."
        )
    return labels


def _checked_categories(
    categories: np.ndarray, masks_a: np.ndarray, masks_b: np.ndarray
) -> np.ndarray:
    """The categories map, or BadInput where it contradicts the masks it is drawn over."""
    categories = _checked_labels("categories", categories, masks_a.shape)
    in_a, in_b = masks_a > 0, masks_b > 0
    expected = np.where(in_a & in_b, 1, 2 * in_a + 3 * in_b)
    # "Agree" and "other object" both mean a cell in both; which one, the masks alone do not say.
    wrong = np.where(categories == 4, 1, categories) != expected
    if wrong.any():
        y, x = (int(i) for i in np.argwhere(wrong)[0])
        raise BadInput(
            f"categories contradict the masks at {np.count_nonzero(wrong)} pixels, first at "
            f"(y, x) = ({y}, {x}): category {categories[y, x]} where A has label {masks_a[y, x]} "
            f"and B {masks_b[y, x]}. Expected 0 background in both, 1 agree, 2 only A, 3 only B, "
            "4 other object; leave categories out to have them computed."
        )
    return categories.astype(np.uint8)


def _packed_image(image: np.ndarray) -> dict[str, Any]:
    """The image with the limits of its contrast; at most two bytes a value.

    Integers that span less than 2**16 arrive exactly, as offset + value. Others are quantised to
    1/65535 of their span, ten times finer than the four digits which the read-out shows.
    """
    numbers = image.astype(np.float64 if image.dtype.kind == "f" else np.int64)
    offset, top = numbers.min().item(), numbers.max().item()
    exact = image.dtype.kind != "f" and top - offset < 2**16
    step = 1 if exact else (top - offset) / (2**16 - 1) or 1
    stored = (numbers - offset if exact else np.rint((numbers - offset) / step)).astype(np.uint16)
    low, high = np.percentile(stored, (1, 99), axis=(0, 1))
    # A channel of one value, or nearly, has no contrast to stretch: use its whole span.
    flat = low == high
    low, high = np.where(flat, stored.min((0, 1)), low), np.where(flat, stored.max((0, 1)), high)
    high = np.where(low == high, low + 1, high)
    return packed(
        stored, low=low.tolist(), high=high.tolist(), offset=offset, step=step, exact=exact
    )


def _three_panels(explorer: Explorer, panel: int) -> bytes:
    """The static picture as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    planes = {name: unpacked(plane) for name, plane in explorer.planes.items()}
    n_rows, n_columns = planes["a"].shape
    scale = panel / max(n_rows, n_columns)
    height, width = shape = max(1, round(n_rows * scale)), max(1, round(n_columns * scale))
    background = np.repeat(enlarged(grey(explorer.planes["image"]), shape)[..., None], 3, axis=2)

    pictures = []
    for side in ("a", "b"):
        picture = background.copy()
        for name in ("truth", side):  # the truth peeps out where the run leaves it
            if name in planes:
                labels = enlarged(planes[name], shape)
                lines = outlined(labels, thickness=1 if scale < 1 else 2, dash=DASHES[name])
                _painted(picture, lines, COLOURS[name])
        pictures.append(picture)
    picture = np.rint(background * DIMMED).astype(np.uint8)
    categories = _enlarged_categories(planes["categories"], shape)
    for value, name in enumerate(CATEGORIES[1:], start=1):
        opacity = 0.85 * (AGREE_SHARE if name == "agree" else 1)
        _painted(picture, categories == value, COLOURS[name], opacity)
    pictures.append(picture)

    # Panels are placed to the pixel, so that matplotlib resamples nothing.
    gap, top, bottom = 16, 76 if explorer.title else 48, 64
    total = (max(3 * width + 4 * gap, 640), height + top + bottom)
    left = (total[0] - 3 * width - 2 * gap) // 2
    figure = Figure(figsize=(total[0] / 100, total[1] / 100), dpi=100, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    names = (explorer.name_a, explorer.name_b, "where they differ")
    for i, (name, picture) in enumerate(zip(names, pictures, strict=True)):
        x = left + i * (width + gap)
        axes = figure.add_axes(
            (x / total[0], bottom / total[1], width / total[0], height / total[1])
        )
        axes.imshow(picture, interpolation="nearest", aspect="auto")
        axes.set_axis_off()
        axes.set_title(name, fontsize=11, parse_math=False)
    if explorer.title:
        figure.text(
            0.5, 1 - 24 / total[1], explorer.title, ha="center", fontsize=13, parse_math=False
        )
    _add_legend(figure, explorer, with_truth="truth" in planes)
    figure.text(
        0.5, 12 / total[1], explorer.line, ha="center", va="bottom", fontsize=10, parse_math=False
    )
    buffer = io.BytesIO()
    canvas.print_png(buffer)
    return buffer.getvalue()


def _add_legend(figure: Any, explorer: Explorer, *, with_truth: bool) -> None:
    """Name colours and line styles under the panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    outlines = {"a": explorer.name_a, "b": explorer.name_b}
    if with_truth:
        outlines["truth"] = "truth"
    areas = {
        "only_a": f"only {explorer.name_a}",
        "only_b": f"only {explorer.name_b}",
        "other_object": "other object",
    }
    styles: dict[str, Any] = {"a": "-", "b": "--", "truth": ":"}
    handles: list[Any] = [
        Line2D([], [], color=COLOURS[key], linestyle=styles[key], linewidth=2.5, label=name)
        for key, name in outlines.items()
    ]
    handles += [Patch(color=COLOURS[key], label=name) for key, name in areas.items()]
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 28 / (figure.get_figheight() * 100)),
        ncols=len(handles),
        fontsize=10,
        frameon=False,
        borderpad=0,
    )
