"""Images with outlines of their masks, and where two label images of one image differ.

The lower half draws arrays of colours, which report and explorer show, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.same.metrics import average_precision, compare_masks
from cellrepro.same.metrics import categories as category_map
from cellrepro.show.figures import style
from cellrepro.show.figures.style import WIDTH, Picture
from cellrepro.words import amount, grouped, ppm_text

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
_FEW = 0.002  # share of pixels below which each is drawn as a spot
_MANY_PLACES = 12  # beyond this many separate differences, rings would hide them
_NAME_LETTERS = 34  # above a panel


def data_at_a_glance(folder: ImageFolder, *, n: int = 6) -> Picture:
    """Up to ``n`` images of a folder with the outlines of their masks, by name.

    Training and test images are both shown if there are both. From `cellrepro.read_folder`.
    """
    n_test = min(len(folder.test), max(n - len(folder.train), -(-n // 3)))
    chosen = [("train", item) for item in folder.train[: n - n_test]]
    chosen += [("test", item) for item in folder.test[:n_test]]
    if not chosen:
        raise BadInput(f"{folder.path} holds no images to show; expected one or more")
    n_columns = min(3, len(chosen))
    n_rows = -(-len(chosen) // n_columns)
    figure = Picture(height=0.5 + n_rows * (WIDTH / n_columns + 0.3))
    for i, (split, item) in enumerate(chosen, start=1):
        panel = figure.add_subplot(n_rows, n_columns, i)
        height, width = item.image.shape[:2]
        outlines = {} if item.masks is None else {"truth": item.masks}
        style.image_panel(panel, with_outlines(grey_image(item.image), outlines, solid=True))
        objects = "no masks" if item.masks is None else _objects(item.masks)
        name = style.clipped(item.name, _NAME_LETTERS)
        style.title(panel, f"{split}: {name}\n{width} × {height} pixels, {objects}")
    return figure.described(
        f"{len(chosen)} of {len(folder.train) + len(folder.test)} images of {folder.path.name}: "
        f"{len(folder.train)} to train, {len(folder.test)} to test",
    )


def masks_beside_truth(store: Store, repeat: Repeat, *, n: int = 3) -> Picture:
    """Up to ``n`` images of one repeat beside their ground truth and what the network found."""
    manifest = repeat.manifest
    names = sorted(manifest.masks)[:n]
    if not names:
        raise BadInput(f"{repeat.name} holds no masks of any image to show")
    side = WIDTH / 3
    figure = Picture(height=0.4 + len(names) * (side + 0.05))
    for row, name in zip(figure.subplots(len(names), 3, squeeze=False), names, strict=True):
        masks, truth = repeat.masks(name), store.truth(manifest.data.images_digest, name)
        image = store.image(manifest.data.images_digest, name)
        named, image, (masks, truth) = flat(image, masks, truth)
        background = background_of(image, masks.shape)
        kept = f", {named}" if named else ""
        kept += "" if image is not None else "\n(the image was not kept)"
        titles = [style.clipped(name, _NAME_LETTERS) + kept, "no ground truth", _objects(masks)]
        outlines = [{}, {}, {"a": masks}]
        if truth is not None:
            titles[1], outlines[1] = f"ground truth: {_objects(truth)}", {"truth": truth}
            titles[2] += f", AP@0.5 {average_precision(truth, masks)[0]:.3f}"
        titles[2] = f"found: {titles[2]}"
        for axes, title, drawn in zip(row, titles, outlines, strict=True):
            style.image_panel(axes, with_outlines(background, drawn, solid=True))
            style.title(axes, title)
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
    """Two label images side by side, and where they differ; ``votes`` of n runs add a panel."""
    named, image, (a, b, truth) = flat(image, a, b, truth)
    background = background_of(image, a.shape)
    under = {} if truth is None else {"truth": truth}
    result = compare_masks(a, b)
    picture, drawn = category_picture(background, category_map(a, b), side=side)
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
    height = WIDTH / n_columns * min(1.6, a.shape[0] / a.shape[1])
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
        f"{f'{named}: ' if named else ''}{grouped(result.n_differing)} of {grouped(a.size)} pixels "
        "differ; objects lost "
        f"{result.kinds['lost']}, gained {result.kinds['gained']}"
        if result.n_differing
        else "The two outline the same objects",
    )


def _objects(labels: np.ndarray) -> str:
    return amount(len(np.unique(labels[labels > 0])), "object")


def _ring(panel: Axes, differs: np.ndarray) -> None:
    """Circle the places that differ, where they are few and small enough to be overlooked."""
    from scipy import ndimage

    places, n = ndimage.label(ndimage.binary_dilation(differs, iterations=6))
    if 0 < n <= _MANY_PLACES and np.count_nonzero(differs) < 0.003 * differs.size:
        y, x = np.transpose(ndimage.center_of_mass(places, places, range(1, n + 1)))
        panel.scatter(x, y, s=250, facecolors="none", edgecolors="white")


# -- arrays of colours, which report and explorer show, too --------------------------------


def flat(
    image: np.ndarray | None, *labels: np.ndarray | None
) -> tuple[str, np.ndarray | None, Any]:
    """Of a stack the plane on which the first two differ most, else the fullest: its name for a
    heading, the image and label images of it. What is flat stays as it is, without a name."""
    a, *others = [one for one in labels if one is not None]
    if a.ndim == 2:
        return "", image, labels
    differs = a != others[0] if others else a > 0
    plane = int(differs.any(axis=(1, 2)).any() and differs.sum(axis=(1, 2)).argmax())
    shown = None if image is None else image[plane]
    return f"plane {plane}", shown, tuple(None if one is None else one[plane] for one in labels)


def background_of(image: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """What outlines of masks of that shape stand on: the image in grey, or black."""
    if len(shape) != 2 or (image is not None and image.shape[:2] != shape):
        given = "" if image is None else f"the image has shape {image.shape}, and "
        raise BadInput(
            f"{given}the masks have shape {shape}; expected masks of shape (Y, X), such as "
            "masks[z] of every run, and the image of shape (Y, X) or (Y, X, C)"
        )
    return np.zeros(shape, np.uint8) if image is None else grey_image(image)


def grey_image(image: np.ndarray) -> np.ndarray:
    """8 bits (Y, X): the mean of channels stretched from percentile 1 to 99; NaN is black."""
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
    """A panel (Y', X', 3) of uint8: outlines by the keys of `DASHES`, white where a and b agree."""
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
    """A dimmed image under the colours of a categories map, and the map as drawn, no pixel lost."""
    shape = panel_shape(categories.shape, side)
    picture = dimmed(background, shape)
    spots = all_seen(np.where(categories >= 2, categories, 0), shape)
    drawn = np.where(spots, spots, enlarged(categories, shape))
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
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    colours = LinearSegmentedColormap.from_list("", AGREEMENT, N=n_runs)
    shape = panel_shape(votes.shape, side)
    picture, panel = dimmed(background, shape), enlarged(votes, shape)
    for n in range(1, n_runs + 1):
        opacity = _OPACITY * (AGREED if n == n_runs else 1)
        painted(picture, panel == n, to_hex(colours(n - 1)), opacity)
    return picture


def hatched(category: int, shape: tuple[int, int], *, unit: int = 1) -> np.ndarray:
    """Pixels on the lines or dots of a category; the browser's `onPattern` is the same rule."""
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


def all_seen(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """As `enlarged`, but nothing above 0 is lost, and where that is rare, each is a larger spot."""
    from scipy import ndimage

    panel = enlarged(values, shape)
    y, x = np.nonzero(values)
    if shape[0] < values.shape[0]:
        scaled = y * shape[0] // values.shape[0], x * shape[1] // values.shape[1]
        np.maximum.at(panel, scaled, values[y, x])
    if len(y) < _FEW * values.size:
        panel = ndimage.maximum_filter(panel, size=max(3, max(shape) // 96))
    return panel


def dimmed(background: np.ndarray, shape: tuple[int, int], share: float = DIMMED) -> np.ndarray:
    """A grey image as a panel (Y', X', 3) of uint8 that keeps a share of its brightness."""
    grey = np.rint(enlarged(background, shape) * share).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)


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
