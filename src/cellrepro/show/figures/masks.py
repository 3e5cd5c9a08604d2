"""Images with outlines of their masks, and where two label images of one image differ.

The lower half draws arrays of colours, which report and explorer show, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.compare.metrics import average_precision, compare_masks
from cellrepro.compare.metrics import categories as category_map
from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, WIDTH, Picture
from cellrepro.text import amount, grouped, ppm_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.images.folder import ImageFolder
    from cellrepro.store.store import Repeat, Store

CATEGORIES = ("background", "agree", "only_a", "only_b", "other_object")
"""What each value of a categories map means, in order: 0, 1, 2, 3, 4."""

COLOURS = {
    "a": "#56B4E9",
    "b": "#E69F00",
    "truth": "#F0E442",
    "agree": "#FFFFFF",
    "only_a": "#56B4E9",
    "only_b": "#E69F00",
    "other_object": "#CC79A7",
}
"""Okabe-Ito colours (white is faint), the same in the browser and in the static picture."""

DASHES: dict[str, tuple[int, int] | None] = {"a": None, "b": (6, 4), "truth": (2, 4)}
"""How outlines differ in style: pixels on and off along the line; None is solid."""

AGREE_SHARE = 0.25  # of the overlay's opacity for "agree": what agrees must not shout
DIMMED = 0.55  # of its brightness that the image keeps under the categories
DARKER = 0.45  # of its brightness that a colour keeps on the lines of its pattern

AGREEMENT = ("#F0E442", "#E69F00", "#D55E00", "#8C4A86", "#2F4A7A")
"""From few runs (bright) to all runs (dark): what runs dispute stands out, also without colour."""
AGREED = 0.5  # of the opacity for pixels on which all runs agree

_OPACITY = 0.85
_SIDE = 480  # longer side of a picture inside a figure, pixels
_FEW = 0.002  # share of differing pixels below which each is drawn as a spot of this size
_SPOT = 5
_MANY_PLACES = 12  # beyond this many separate differences, rings would hide them
_NEAR = 6  # pixels between a difference and its ring
_NAME_LETTERS = 34  # above a panel


# -- figures -------------------------------------------------------------------------------


def data_at_a_glance(folder: ImageFolder, *, n: int = 6) -> Picture:
    """Some images of a folder with the outlines of their masks, by name.

    Parameters
    ----------
    folder : ImageFolder
        From `cellrepro.read_folder`.
    n : int
        How many images at most; training and test images are both shown if there are both.
    """
    n_test = min(len(folder.test), max(n - len(folder.train), -(-n // 3)))
    chosen = [("train", item) for item in folder.train[: n - n_test]]
    chosen += [("test", item) for item in folder.test[:n_test]]
    if not chosen:
        raise BadInput(f"{folder.path} holds no images to show; expected one or more")
    n_columns = min(3, len(chosen))
    n_rows = -(-len(chosen) // n_columns)
    figure = Picture(height=0.5 + n_rows * (WIDTH / n_columns + 0.3))
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for panel, (split, item) in zip(panels, chosen, strict=False):
        height, width = item.image.shape[:2]
        outlines = {} if item.masks is None else {"truth": item.masks}
        style.image_panel(panel, with_outlines(grey_image(item.image), outlines, solid=True))
        objects = "no masks" if item.masks is None else _objects(item.masks)
        name = style.clipped(item.name, _NAME_LETTERS)
        style.title(panel, f"{split}: {name}\n{width} × {height} pixels, {objects}")
        colour, dashes = (SERIES[1], (0, (4, 2))) if split == "test" else (SERIES[0], "-")
        panel.spines[:].set(linewidth=2, edgecolor=colour, linestyle=dashes)
    for panel in panels[len(chosen) :]:
        panel.set_axis_off()
    return figure.described(
        f"{len(chosen)} of {len(folder.train) + len(folder.test)} images of {folder.path.name}: "
        f"{len(folder.train)} to train (solid frame), {len(folder.test)} to test (dashed frame)",
    )


def masks_beside_truth(store: Store, repeat: Repeat, *, n: int = 3) -> Picture:
    """Images of one repeat beside their ground truth and what the network found.

    Parameters
    ----------
    store : Store
        Where the repeat and its images are.
    repeat : Repeat
    n : int
        How many images, a row each, in order of their names.
    """
    manifest = repeat.manifest
    names = sorted(manifest.masks)[:n]
    if not names:
        raise BadInput(f"{repeat.name} holds no masks of any image to show")
    truths = {name: store.truth(manifest.data.digest, name) for name in names}
    n_columns = 2 if all(truth is None for truth in truths.values()) else 3
    side = WIDTH / 3
    figure = Picture(width=side * n_columns, height=0.4 + len(names) * (side + 0.05))
    grid = figure.subplots(len(names), n_columns, squeeze=False)
    for row, (name, truth) in zip(grid, truths.items(), strict=True):
        masks, image = repeat.masks(name), store.image(manifest.data.digest, name)
        background = _background(image, masks.shape)
        style.image_panel(row[0], with_outlines(background, {}))
        kept = "" if image is not None else "\n(the image was not kept)"
        style.title(row[0], style.clipped(name, _NAME_LETTERS) + kept)
        score = ""
        if truth is not None:
            style.image_panel(row[1], with_outlines(background, {"truth": truth}, solid=True))
            style.title(row[1], f"ground truth: {_objects(truth)}")
            precision = average_precision(truth, masks)[0]
            score = f", AP@0.5 {'undefined' if np.isnan(precision) else f'{precision:.3f}'}"
        elif n_columns == 3:
            row[1].set_axis_off()
            style.title(row[1], "no ground truth")
        style.image_panel(row[-1], with_outlines(background, {"a": masks}))
        style.title(row[-1], f"found: {_objects(masks)}{score}")
    return figure.described(f"Found by {repeat.name}: {len(names)} of {len(manifest.masks)} images")


def difference(
    image: np.ndarray | None,
    a: np.ndarray,
    b: np.ndarray,
    *,
    name_a: str = "A",
    name_b: str = "B",
    truth: np.ndarray | None = None,
    votes: tuple[np.ndarray, int] | None = None,
    side: int = _SIDE,
) -> Picture:
    """Two label images of one image side by side, and where they differ.

    Where few pixels differ, the map shows each as a larger spot, and rings point at places that
    are few and small. Counts are of true pixels.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C), or None
        Without it the outlines stand on black.
    a, b : ndarray of int, shape (Y, X)
        Label images, 0 is background; neither side is the truth.
    name_a, name_b : str
    truth : ndarray of int, shape (Y, X), optional
        Ground truth, dotted under both outlines.
    votes : (ndarray of int, shape (Y, X), int), optional
        How many runs call a pixel cell, and of how many runs; adds a panel.
    side : int
        Longer side of a panel, pixels.
    """
    background = _background(image, a.shape)
    under = {} if truth is None else {"truth": truth}
    map_, result = category_map(a, b), compare_masks(a, b)
    picture, drawn = category_picture(background, map_, side=side)
    names = {"a": style.clipped(name_a, _NAME_LETTERS), "b": style.clipped(name_b, _NAME_LETTERS)}
    panels = [
        (
            f"{names[key]}: {_objects(labels)}",
            with_outlines(background, {**under, key: labels}, side=side),
        )
        for key, labels in (("a", a), ("b", b))
    ]
    panels.append((f"where they differ: {ppm_text(result.ppm)}", picture))
    if votes is not None:
        said = f"called cell by 1 (bright) to {votes[1]} runs (dark)"
        panels.append((said, vote_picture(background, *votes, side=side)))
    n_columns = 3 if len(panels) == 3 else 2
    height = WIDTH / n_columns * min(1.6, map_.shape[0] / map_.shape[1])
    figure = Picture(height=0.9 + len(panels) // n_columns * (height + 0.3))
    grid = figure.subplots(len(panels) // n_columns, n_columns, squeeze=False).ravel()
    for axes, (said, pixels) in zip(grid, panels, strict=True):
        style.image_panel(axes, pixels)
        style.title(axes, said)
    _ring(grid[2], drawn >= 2)
    handles = [
        style.line(names["a"], color=COLOURS["a"], linewidth=2.5),
        style.line(names["b"], color=COLOURS["b"], linewidth=2.5, linestyle=(0, (3, 1.5))),
        style.patch(f"only {names['a']}", fc=COLOURS["only_a"], hatch="////"),
        style.patch(f"only {names['b']}", fc=COLOURS["only_b"], hatch="\\\\\\\\"),
        style.patch("another object", fc=COLOURS["other_object"], hatch="..."),
        style.patch("the same object", fc="#8C8C8C"),
    ]
    if truth is not None:
        handles.insert(2, style.line("truth", color=COLOURS["truth"], linewidth=2.5, linestyle=":"))
    style.legend(figure, handles)
    return figure.described(
        f"{grouped(result.n_differing)} of {grouped(map_.size)} pixels differ; objects lost "
        f"{result.kinds['lost']}, gained {result.kinds['gained']}"
        if result.n_differing
        else "The two outline the same objects",
    )


def _background(image: np.ndarray | None, shape: Sequence[int]) -> np.ndarray:
    return np.zeros(shape, np.uint8) if image is None else grey_image(image)


def _objects(labels: np.ndarray) -> str:
    return amount(len(np.unique(labels[labels > 0])), "object")


def _ring(panel: Axes, differs: np.ndarray) -> None:
    """Circle the places that differ where they are few and small enough to be overlooked."""
    from matplotlib.patches import Circle
    from scipy import ndimage

    places, n = ndimage.label(ndimage.binary_dilation(differs, iterations=_NEAR))
    if n > _MANY_PLACES:
        return
    for rows, columns in ndimage.find_objects(places):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if max(height, width) < max(differs.shape) / 8:
            centre = (columns.start + width / 2, rows.start + height / 2)
            radius = max(height, width) / 2 + _NEAR
            panel.add_patch(Circle(centre, radius, fill=False, ec="white", lw=1))


# -- arrays of colours, which report and explorer show, too --------------------------------


def grey_image(image: np.ndarray) -> np.ndarray:
    """An 8-bit grey image (Y, X), each channel stretched from its 1st to its 99th percentile.

    Channels are averaged. Values that are not finite are drawn black.
    """
    values = np.asarray(image, dtype=np.float64)
    values = values[..., None] if values.ndim == 2 else values
    values = np.where(np.isfinite(values), values, 0.0)
    low, high = np.percentile(values, (1, 99), axis=(0, 1))
    flat = low == high
    low, high = np.where(flat, values.min((0, 1)), low), np.where(flat, values.max((0, 1)), high)
    stretched = np.clip((values - low) / np.where(low == high, 1, high - low), 0, 1)
    return np.rint(stretched.mean(axis=2) * 255).astype(np.uint8)


def with_outlines(
    background: np.ndarray,
    outlines: Mapping[str, np.ndarray],
    *,
    solid: bool = False,
    side: int = _SIDE,
) -> np.ndarray:
    """A grey image with the outlines of label images, as a panel (Y', X', 3) of uint8.

    Outlines go by the keys of `DASHES`, which choose colour and dashes (``solid``: none is
    dashed); where those of ``a`` and ``b`` coincide they are white. ``side``: longer side, pixels.
    """
    shape = panel_shape(background.shape, side)
    picture = np.repeat(enlarged(background, shape)[..., None], 3, axis=2)
    thickness = 1 if shape[0] < background.shape[0] else 2
    panels = {key: enlarged(labels, shape) for key, labels in outlines.items()}
    for key, labels in panels.items():
        dash = None if solid else DASHES[key]
        painted(picture, outlined(labels, thickness=thickness, dash=dash), COLOURS[key])
    if {"a", "b"} <= panels.keys():
        both = [outlined(panels[key], thickness=thickness) for key in "ab"]
        painted(picture, both[0] & both[1], COLOURS["agree"])
    return picture


def category_picture(
    background: np.ndarray, categories: np.ndarray, *, side: int = _SIDE
) -> tuple[np.ndarray, np.ndarray]:
    """A dimmed image under the colours of a categories map, as a panel (Y', X', 3) of uint8.

    Also the map as drawn: no differing pixel is lost, and where few differ each is a larger spot.
    """
    from scipy import ndimage

    shape = panel_shape(categories.shape, side)
    picture = _dimmed(background, shape)
    drawn = enlarged(categories, shape)
    y, x = np.nonzero(categories >= 2)
    if shape[0] < categories.shape[0]:
        scaled = y * shape[0] // categories.shape[0], x * shape[1] // categories.shape[1]
        drawn[scaled] = categories[y, x]
    if len(y) < _FEW * categories.size:
        spots = ndimage.maximum_filter(np.where(drawn >= 2, drawn, 0), size=_SPOT)
        drawn = np.where(spots > 0, spots, drawn)
    for value, name in enumerate(CATEGORIES[1:], start=1):
        here = drawn == value
        opacity = _OPACITY * (AGREE_SHARE if name == "agree" else 1)
        painted(picture, here, COLOURS[name], opacity)
        lined = here & hatched(value, shape)
        picture[lined] = np.rint(picture[lined] * DARKER).astype(np.uint8)
    return picture, drawn


def vote_picture(
    background: np.ndarray, votes: np.ndarray, n_runs: int, *, side: int = _SIDE
) -> np.ndarray:
    """A dimmed image under a colour for each number of runs that call a pixel cell."""
    shape = panel_shape(votes.shape, side)
    picture, panel = _dimmed(background, shape), enlarged(votes, shape)
    for n, colour in enumerate(agreement_colours(n_runs), start=1):
        painted(picture, panel == n, colour, _OPACITY * (AGREED if n == n_runs else 1))
    return picture


def agreement_colours(n_runs: int) -> list[str]:
    """A colour ``#RRGGBB`` for each number of runs from 1 to all, falling in brightness."""
    stops = np.array([rgb(colour) for colour in AGREEMENT])
    places = np.linspace(0, len(stops) - 1, n_runs)
    colours = np.stack([np.interp(places, np.arange(len(stops)), stops[:, i]) for i in range(3)], 1)
    return ["#{:02X}{:02X}{:02X}".format(*np.rint(row).astype(int)) for row in colours]


def hatched(category: int, shape: tuple[int, int], *, unit: int = 1) -> np.ndarray:
    """Which pixels of a picture lie on the pattern of a category, for those who see no colours.

    2 (only A) has lines that rise, 3 (only B) lines that fall, 4 (other object) dots; ``unit``:
    pixels of the picture in one of the page. The browser's `onPattern` is the same rule.
    """
    y, x = np.ogrid[: shape[0], : shape[1]]
    if category == 2:
        return (x + y) % (8 * unit) < 2 * unit
    if category == 3:
        return (x - y) % (8 * unit) < 2 * unit
    if category == 4:
        return (x % (6 * unit) < 3 * unit) & (y % (6 * unit) < 3 * unit)
    return np.zeros(shape, bool)


def outlined(
    labels: np.ndarray, *, thickness: int, dash: tuple[int, int] | None = None
) -> np.ndarray:
    """Which pixels of a label image (Y, X) lie on the inner border of their object.

    Enlarge it first: lines are ``thickness`` of its pixels wide, and dashed by (pixels on, pixels
    off). Objects are closed at the edge of the image. The browser's `outline` is the same rule.
    """
    t = thickness
    height, width = labels.shape
    around = np.pad(labels, t)
    here = around[t:-t, t:-t]
    rows, columns = slice(t, t + height), slice(t, t + width)
    upright = (around[rows, :width] != here) | (around[rows, 2 * t :] != here)
    level = (around[:height, columns] != here) | (around[2 * t :, columns] != here)
    border = (upright | level) & (here > 0)
    if dash is None:
        return border
    on, off = dash
    y, x = np.ogrid[:height, :width]
    # An upright stretch of border is dashed along y, a level one along x.
    return border & (np.where(upright, y, x) % (on + off) < on)


def panel_shape(shape: Sequence[int], side: int = _SIDE) -> tuple[int, int]:
    """Rows and columns of the panel that an image of this shape is enlarged or shrunk to."""
    scale = side / max(shape[0], shape[1])
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def enlarged(array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """An array sampled at the pixels of a panel of that shape (nearest neighbour)."""
    y, x = (
        ((np.arange(n_new) + 0.5) * n_old / n_new).astype(int)
        for n_new, n_old in zip(shape, array.shape, strict=True)
    )
    return array[np.ix_(y, x)]


def painted(
    picture: np.ndarray, where: np.ndarray, colour: str, opacity: float | np.ndarray = 1.0
) -> None:
    """Lay a colour over the chosen pixels of an RGB picture, in place; opacity may be a map."""
    alpha = np.broadcast_to(opacity, where.shape)[where][:, None]
    mixed = picture[where] * (1 - alpha) + np.array(rgb(colour)) * alpha
    picture[where] = np.rint(mixed) if picture.dtype == np.uint8 else mixed


def rgb(colour: str) -> list[int]:
    """Red, green and blue of ``#RRGGBB``."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _dimmed(background: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    grey = np.rint(enlarged(background, shape) * DIMMED).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)
