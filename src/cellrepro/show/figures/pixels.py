"""Arrays of colours that figures and pages show: outlines, differences, votes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cellrepro.show.figures.colours import (
    AGREE_SHARE,
    AGREED,
    AGREEMENT,
    CATEGORIES,
    CHANNELS,
    COLOURS,
    DARKER,
    DASHES,
    DIMMED,
    rgb,
)
from samebits.errors import BadInput

SIDE = 480
"""Longer side of a picture inside a figure, pixels."""

_OPACITY = 0.85
_RIM = "#000000"
_MOST_SAMPLED = 2**22
"""Values for the contrast of an image; a larger one is sampled."""
_VALUES_AT_ONCE = 2**18
_FEW = 0.002
"""Share of pixels below which each is drawn as a spot."""


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
    equal, the channels of a photograph alike; of a large image these are estimated from a sample of
    rows and columns. The browser's
    `coloured` is the same rule.
    """
    image = np.asarray(image)
    with_channels = image[..., None] if image.ndim == 2 else image
    colours = _channel_colours(with_channels.shape[2])
    values = with_channels[..., : len(colours)]
    every = math.ceil(math.sqrt(values.size / _MOST_SAMPLED))
    sample = _finite(values[::every, ::every])
    low, high = np.percentile(sample, (1, 99), axis=(0, 1))
    if is_photograph(with_channels):
        low = low.min(keepdims=True)
        high = high.max(keepdims=True)
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


def is_photograph(image: np.ndarray) -> bool:
    """Whether an image has red, green and blue of 8 bit.

    They are stretched alike, so that colours stay what they are.
    """
    return image.dtype == np.uint8 and image.shape[-1] == 3


def _finite(values: np.ndarray) -> np.ndarray:
    wide = values.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


def channels_text(image: np.ndarray | None, shape: tuple[int, ...]) -> str:
    """Say which channel, counted from 0, has which colour; nothing of an image with one channel.

    >>> channels_text(np.zeros((8, 8, 2)), (8, 8)), channels_text(np.zeros((8, 8)), (8, 8))
    ('channel 0 green, channel 1 magenta', '')
    >>> channels_text(np.zeros((8, 8, 4)), (8, 8))
    'channel 0 sky, channel 1 orange, channel 2 teal, channel 3 pink'
    """
    if image is None or image.ndim == len(shape) or image.shape[-1] == 1:
        return ""
    colours = _channel_colours(image.shape[-1])
    named = ", ".join(f"channel {n} {name}" for n, name in enumerate(colours))
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
    """Draw the outlines of label images on a panel, white where those of a and b agree.

    Inside of it each has a dark rim, without which it would not be seen on bright cells.
    """
    shape = panel_shape(background.shape, side)
    picture = enlarged(background, shape)
    thickness = 1 if shape[0] < background.shape[0] else 2
    panels = {key: enlarged(labels, shape) for key, labels in outlines.items()}
    for labels in panels.values():
        painted(picture, outlined(labels, thickness=thickness + 1), _RIM)
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
    shape = panel_shape(votes.shape, side)
    picture = dimmed(background, shape)
    panel = enlarged(votes, shape)
    for n in range(1, n_runs + 1):
        painted(picture, panel == n, vote_colour(n, n_runs), _vote_opacity(n, n_runs))
    return picture


def vote_colour(n: int, n_runs: int) -> str:
    """The colour of pixels that so many of some runs call cell."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    return to_hex(LinearSegmentedColormap.from_list("", AGREEMENT, N=n_runs)(n - 1))


def vote_on_cell(n: int, n_runs: int) -> str:
    """The same as it looks over a dimmed cell of middle brightness, for a legend."""
    from matplotlib.colors import to_hex

    cell = np.full((1, 1, 3), 255 * DIMMED / 2)
    painted(cell, np.ones((1, 1), bool), vote_colour(n, n_runs), _vote_opacity(n, n_runs))
    return to_hex(cell[0, 0] / 255)


def _vote_opacity(n: int, n_runs: int) -> float:
    return _OPACITY * (AGREED if n == n_runs else 1)


def hatched(category: int, shape: tuple[int, int]) -> np.ndarray:
    """Find the pixels on the lines or dots of a category's pattern.

    The browser's `onPattern` is the same rule.
    """
    y, x = np.ogrid[: shape[0], : shape[1]]
    if category == 2:
        return (x + y) % 8 < 2
    if category == 3:
        return (x - y) % 8 < 2
    if category == 4:
        return (x % 6 < 3) & (y % 6 < 3)
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
