"""Arrays of colours that figures, report and explorer show: outlines, differences, votes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.mask_comparison import categories as category_map
from cellrepro.errors import BadInput

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

CHANNELS: tuple[dict[str, str], ...] = (
    {"grey": "#FFFFFF"},
    {"green": "#00FF00", "magenta": "#FF00FF"},
    {"red": "#FF0000", "green": "#00FF00", "blue": "#0000FF"},
)
"""How the channels of an image are shown: of one, of two, of three; of more, the first three."""

DASHES: dict[str, tuple[int, int] | None] = {"a": None, "b": (6, 4), "truth": (2, 4)}
"""How outlines differ in style: pixels on and off along the line; None is solid."""

AGREE_SHARE = 0.25
"""Factor of the overlay's opacity where masks agree: what agrees must not shout."""
DIMMED = 0.55
"""Factor of the image's brightness under the categories."""
DARKER = 0.45
"""Factor of a colour's brightness on the lines of its pattern."""

AGREEMENT = ("#F0E442", "#E69F00", "#D55E00", "#8C4A86", "#2F4A7A")
"""From few runs (bright) to all runs (dark): what runs dispute stands out, also without colour."""
AGREED = 0.5
"""Factor of the opacity of pixels on which all runs agree."""

SIDE = 480
"""Longer side of a picture inside a figure, pixels."""

_OPACITY = 0.85
_MOST_SAMPLED = 2**22
"""Values for the contrast of an image; a larger one is sampled."""
_VALUES_AT_ONCE = 2**18
_FEW = 0.002
"""Share of pixels below which each is drawn as a spot."""


class Plane(NamedTuple):
    """One plane of a stack with its masks, or all of a flat image."""

    name: str
    """For a heading; empty for a flat image."""
    image: np.ndarray | None
    labels: tuple[np.ndarray | None, ...]


def flat(image: np.ndarray | None, *labels: np.ndarray | None) -> Plane:
    """Get the plane of a stack on which the first two label images differ most.

    Of one label image the fullest plane; a flat image stays as it is.
    """
    first, *others = [each for each in labels if each is not None]
    if first.ndim == 2:
        return Plane("", image, labels)
    z = telling_plane(category_map(first, others[0] if others else first))
    image_plane = None if image is None else image[z]
    label_planes = tuple(None if each is None else each[z] for each in labels)
    return Plane(plane_name(z, len(first)), image_plane, label_planes)


def telling_plane(categories: np.ndarray) -> int:
    """Choose the plane of a stack on which two label images differ most; else the fullest."""
    differs = categories >= 2
    marked = differs if differs.any() else categories > 0
    return int(marked.sum(axis=(1, 2)).argmax())


def plane_name(z: int, n_planes: int) -> str:
    """Name a plane of a stack: people count from 1, arrays from 0.

    >>> plane_name(3, 7)
    'plane 4 of 7'
    """
    return f"plane {z + 1} of {n_planes}"


def background_of(image: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Get the image as it is shown, or black where there is none."""
    if len(shape) != 2 or (image is not None and image.shape[:2] != shape):
        of_image = "" if image is None else f"the image has shape {image.shape}, and "
        raise BadInput(
            f"{of_image}the masks have shape {shape}; expected masks of shape (Y, X), such as "
            "masks[z] of every run, and the image of shape (Y, X) or (Y, X, C)"
        )
    return np.zeros((*shape, 3), np.uint8) if image is None else shown_image(image)


def shown_image(image: np.ndarray) -> np.ndarray:
    """Get an image as it is shown: its channels, each stretched and in its colour, added up.

    A channel is stretched from percentile 1 to 99, or from minimum to maximum where these are
    equal; of a large image they are estimated from a sample of rows and columns. The browser's
    `coloured` is the same rule.
    """
    image = np.asarray(image)
    with_channels = image[..., None] if image.ndim == 2 else image
    colours = _channel_colours(with_channels.shape[2])
    values = with_channels[..., : len(colours)]
    every = math.ceil(math.sqrt(values.size / _MOST_SAMPLED))
    sample = _finite(values[::every, ::every])
    low, high = np.percentile(sample, (1, 99), axis=(0, 1))
    is_flat = low == high
    low = np.where(is_flat, sample.min((0, 1)), low)
    high = np.where(is_flat, sample.max((0, 1)), high)
    span = np.where(low == high, 1, high - low)
    weights = np.array([rgb(colour) for colour in colours.values()], float)
    shown = np.empty((*values.shape[:2], 3), np.uint8)
    rows = max(1, _VALUES_AT_ONCE // values[0].size)
    for start in range(0, len(values), rows):  # wider numbers of a large image take too much memory
        stretched = np.clip((_finite(values[start : start + rows]) - low) / span, 0, 1)
        shown[start : start + rows] = np.rint(np.minimum(stretched @ weights, 255))
    return shown


def _finite(values: np.ndarray) -> np.ndarray:
    wide = values.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


def channels_text(image: np.ndarray | None, shape: tuple[int, ...]) -> str:
    """Say which channel has which colour in a picture; nothing of an image with one channel.

    >>> channels_text(np.zeros((8, 8, 2)), (8, 8)), channels_text(np.zeros((8, 8)), (8, 8))
    ('channel 1 green, channel 2 magenta', '')
    >>> channels_text(np.zeros((8, 8, 5)), (8, 8))
    'channel 1 red, channel 2 green, channel 3 blue; the other 2 are not shown'
    """
    if image is None or image.ndim == len(shape) or image.shape[-1] == 1:
        return ""
    colours = _channel_colours(image.shape[-1])
    named = ", ".join(f"channel {n} {name}" for n, name in enumerate(colours, start=1))
    n_more = image.shape[-1] - len(colours)
    return f"{named}; the other {n_more} are not shown" if n_more else named


def _channel_colours(n_channels: int) -> dict[str, str]:
    return CHANNELS[min(n_channels, len(CHANNELS)) - 1]


def with_outlines(
    background: np.ndarray,
    outlines: Mapping[str, np.ndarray],
    *,
    solid: bool = False,
    side: int = SIDE,
) -> np.ndarray:
    """Draw the outlines of label images on a panel, white where those of a and b agree."""
    shape = panel_shape(background.shape, side)
    picture = enlarged(background, shape)
    thickness = 1 if shape[0] < background.shape[0] else 2
    panels = {key: enlarged(labels, shape) for key, labels in outlines.items()}
    for key, labels in panels.items():
        dash = None if solid else DASHES[key]
        painted(picture, outlined(labels, thickness=thickness, dash=dash), COLOURS[key])
    if {"a", "b"} <= panels.keys():
        of_a = outlined(panels["a"], thickness=thickness)
        of_b = outlined(panels["b"], thickness=thickness)
        painted(picture, of_a & of_b, COLOURS["agree"])
    return picture


def category_picture(
    background: np.ndarray, categories: np.ndarray, *, side: int = SIDE
) -> tuple[np.ndarray, np.ndarray]:
    """Paint where two label images differ over the dimmed image."""
    shape = panel_shape(categories.shape, side)
    picture = dimmed(background, shape)
    spots = all_seen(np.where(categories >= 2, categories, 0), shape)
    drawn = np.where(spots, spots, enlarged(categories, shape))
    for value, name in enumerate(CATEGORIES[1:], start=1):
        region = drawn == value
        opacity = _OPACITY * (AGREE_SHARE if name == "agree" else 1)
        painted(picture, region, COLOURS[name], opacity)
        lined = region & hatched(value, shape)
        picture[lined] = np.rint(picture[lined] * DARKER).astype(np.uint8)
    return picture, drawn


def vote_picture(
    background: np.ndarray, votes: np.ndarray, n_runs: int, *, side: int = SIDE
) -> np.ndarray:
    """Paint how many runs call a pixel cell over the dimmed image, a colour for each number."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    colours = LinearSegmentedColormap.from_list("", AGREEMENT, N=n_runs)
    shape = panel_shape(votes.shape, side)
    picture = dimmed(background, shape)
    panel = enlarged(votes, shape)
    for n in range(1, n_runs + 1):
        opacity = _OPACITY * (AGREED if n == n_runs else 1)
        painted(picture, panel == n, to_hex(colours(n - 1)), opacity)
    return picture


def hatched(category: int, shape: tuple[int, int], *, unit: int = 1) -> np.ndarray:
    """Find the pixels on the lines or dots of a category's pattern.

    The browser's `onPattern` is the same rule.
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
    """Find the pixels on the inner border of their object.

    Objects are closed at the edge of the image. The browser's `outline` is the same rule.
    """
    height, width = labels.shape
    around = np.pad(labels, thickness)
    rows = slice(thickness, thickness + height)
    columns = slice(thickness, thickness + width)
    left = around[rows, :width]
    right = around[rows, 2 * thickness :]
    above = around[:height, columns]
    below = around[2 * thickness :, columns]
    is_upright = (left != labels) | (right != labels)
    is_level = (above != labels) | (below != labels)
    border = (is_upright | is_level) & (labels > 0)
    if dash is None:
        return border
    n_on, n_off = dash
    y, x = np.ogrid[:height, :width]
    # An upright stretch of border is dashed along y, a level one along x.
    return border & (np.where(is_upright, y, x) % (n_on + n_off) < n_on)


def panel_shape(shape: Sequence[int], side: int = SIDE) -> tuple[int, int]:
    """Get rows and columns of the panel that an image is enlarged or shrunk to.

    >>> panel_shape((100, 50), side=480)
    (480, 240)
    """
    scale = side / max(shape[0], shape[1])
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def enlarged(array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Sample an array at the pixels of a panel (nearest neighbour).

    >>> enlarged(np.array([[1, 2]]), (2, 4))
    array([[1, 1, 2, 2],
           [1, 1, 2, 2]])
    """
    rows, columns = (
        ((np.arange(n_new) + 0.5) * n_old / n_new).astype(int)
        for n_new, n_old in zip(shape, array.shape[:2], strict=True)
    )
    return array[np.ix_(rows, columns)]


def all_seen(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Sample as `enlarged`, but lose nothing above 0."""
    from scipy import ndimage

    panel = enlarged(values, shape)
    y, x = np.nonzero(values)
    if shape[0] < values.shape[0]:
        rows = y * shape[0] // values.shape[0]
        columns = x * shape[1] // values.shape[1]
        np.maximum.at(panel, (rows, columns), values[y, x])
    if len(y) < _FEW * values.size:
        panel = ndimage.maximum_filter(panel, size=max(3, max(shape) // 96))
    return panel


def dimmed(background: np.ndarray, shape: tuple[int, int], share: float = DIMMED) -> np.ndarray:
    """Make a darker panel of an image."""
    return np.rint(enlarged(background, shape) * share).astype(np.uint8)


def painted(
    picture: np.ndarray, where: np.ndarray, colour: str, opacity: float | np.ndarray = 1.0
) -> None:
    """Lay a colour over the chosen pixels of a picture, in place."""
    alpha = np.broadcast_to(opacity, where.shape)[where][:, None]
    mixed = picture[where] * (1 - alpha) + np.array(rgb(colour)) * alpha
    picture[where] = np.rint(mixed) if picture.dtype == np.uint8 else mixed


def rgb(colour: str) -> list[int]:
    """Read red, green and blue of ``#RRGGBB``.

    >>> rgb("#0072B2")
    [0, 114, 178]
    """
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
