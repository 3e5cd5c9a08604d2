"""Arrays of colours that figures, report and explorer show: outlines, differences, votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

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

DASHES: dict[str, tuple[int, int] | None] = {"a": None, "b": (6, 4), "truth": (2, 4)}
"""How outlines differ in style: pixels on and off along the line; None is solid."""

AGREE_SHARE = 0.25
"""Of the overlay's opacity for "agree": what agrees must not shout."""
DIMMED = 0.55
"""Of its brightness that the image keeps under the categories."""
DARKER = 0.45
"""Of its brightness that a colour keeps on the lines of its pattern."""

AGREEMENT = ("#F0E442", "#E69F00", "#D55E00", "#8C4A86", "#2F4A7A")
"""From few runs (bright) to all runs (dark): what runs dispute stands out, also without colour."""
AGREED = 0.5
"""Of the opacity for pixels on which all runs agree."""

SIDE = 480
"""Longer side of a picture inside a figure, pixels."""

_OPACITY = 0.85
_FEW = 0.002
"""Share of pixels below which each is drawn as a spot."""


class Plane(NamedTuple):
    """What is shown of a stack, or all of what is flat.

    Attributes
    ----------
    name : str
        For a heading; empty of what is flat.
    image : ndarray or None
    labels : tuple of ndarray or None
    """

    name: str
    image: np.ndarray | None
    labels: tuple[np.ndarray | None, ...]


def flat(image: np.ndarray | None, *labels: np.ndarray | None) -> Plane:
    """Get the plane of a stack that tells most; what is flat stays as it is.

    Parameters
    ----------
    image : ndarray or None
        Of shape (Z, Y, X) or (Z, Y, X, C) where the labels are a stack.
    *labels : ndarray of int or None, shape (Y, X) or (Z, Y, X)
        Of one image; at least one is there.

    Returns
    -------
    Plane
        The plane on which the first two label images differ most; of one alone the fullest.
    """
    first, *others = [each for each in labels if each is not None]
    if first.ndim == 2:
        return Plane("", image, labels)
    marked = first != others[0] if others else first > 0
    plane = int(marked.sum(axis=(1, 2)).argmax())
    image_plane = None if image is None else image[plane]
    label_planes = tuple(None if each is None else each[plane] for each in labels)
    return Plane(f"plane {plane}", image_plane, label_planes)


def background_of(image: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Get what outlines of masks stand on: the image in grey, or black.

    Parameters
    ----------
    image : ndarray or None, shape (Y, X) or (Y, X, C)
    shape : tuple of int
        Of the masks.

    Returns
    -------
    ndarray of uint8, shape (Y, X)

    Raises
    ------
    BadInput
        If the masks are not flat, or the image has a different shape.
    """
    if len(shape) != 2 or (image is not None and image.shape[:2] != shape):
        of_image = "" if image is None else f"the image has shape {image.shape}, and "
        raise BadInput(
            f"{of_image}the masks have shape {shape}; expected masks of shape (Y, X), such as "
            "masks[z] of every run, and the image of shape (Y, X) or (Y, X, C)"
        )
    return np.zeros(shape, np.uint8) if image is None else grey_image(image)


def grey_image(image: np.ndarray) -> np.ndarray:
    """Get an image in 8 bits of grey: the mean of its channels, each stretched.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C)
        NaN and infinities count as 0.

    Returns
    -------
    ndarray of uint8, shape (Y, X)
        Each channel from percentile 1 to 99; from least to most where these are equal.
    """
    values = np.asarray(image, dtype=np.float64)
    if values.ndim == 2:
        values = values[..., None]
    values = np.where(np.isfinite(values), values, 0.0)
    low, high = np.percentile(values, (1, 99), axis=(0, 1))
    is_flat = low == high
    low = np.where(is_flat, values.min((0, 1)), low)
    high = np.where(is_flat, values.max((0, 1)), high)
    stretched = np.clip((values - low) / np.where(low == high, 1, high - low), 0, 1)
    return np.rint(stretched.mean(axis=2) * 255).astype(np.uint8)


def with_outlines(
    background: np.ndarray,
    outlines: Mapping[str, np.ndarray],
    *,
    solid: bool = False,
    side: int = SIDE,
) -> np.ndarray:
    """Draw the outlines of label images on a panel, white where those of a and b agree.

    Parameters
    ----------
    background : ndarray of uint8, shape (Y, X)
    outlines : mapping of str to ndarray of int, shape (Y, X)
        Label images by the keys of `DASHES`.
    solid : bool
        Whether no line is dashed.
    side : int
        Longer side of the panel, pixels.

    Returns
    -------
    ndarray of uint8, shape (Y', X', 3)
    """
    shape = panel_shape(background.shape, side)
    picture = np.repeat(enlarged(background, shape)[..., None], 3, axis=2)
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
    """Paint where two label images differ over the dimmed image.

    Parameters
    ----------
    background : ndarray of uint8, shape (Y, X)
    categories : ndarray of uint8, shape (Y, X)
        Positions in `CATEGORIES`, from `cellrepro.same.metrics.categories`.
    side : int
        Longer side of the panel, pixels.

    Returns
    -------
    picture : ndarray of uint8, shape (Y', X', 3)
    drawn : ndarray of uint8, shape (Y', X')
        The categories as they are drawn: no pixel that differs is lost.
    """
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
    """Paint how many runs call a pixel cell over the dimmed image, a colour for each number.

    Parameters
    ----------
    background : ndarray of uint8, shape (Y, X)
    votes : ndarray of int, shape (Y, X)
        0 is what no run calls cell.
    n_runs : int
    side : int
        Longer side of the panel, pixels.

    Returns
    -------
    ndarray of uint8, shape (Y', X', 3)
    """
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

    Parameters
    ----------
    category : int
        Position in `CATEGORIES`; the first two have no pattern.
    shape : pair of int
        Rows and columns.
    unit : int
        Pixels of the panel that one of the pattern has.

    Returns
    -------
    ndarray of bool, shape (Y, X)
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

    Parameters
    ----------
    labels : ndarray of int, shape (Y, X)
        Enlarge it first: lines are measured in its pixels.
    thickness : int
        Pixels.
    dash : pair of int, optional
        Pixels on and pixels off along the line; default solid.

    Returns
    -------
    ndarray of bool, shape (Y, X)
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

    Parameters
    ----------
    shape : sequence of int
        Of the image, rows and columns first.
    side : int
        Longer side of the panel, pixels.

    Returns
    -------
    pair of int

    Examples
    --------
    >>> panel_shape((100, 50), side=480)
    (480, 240)
    """
    scale = side / max(shape[0], shape[1])
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def enlarged(array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Sample an array at the pixels of a panel (nearest neighbour).

    Parameters
    ----------
    array : ndarray, shape (Y, X)
    shape : pair of int
        Rows and columns of the panel.

    Returns
    -------
    ndarray, of that shape

    Examples
    --------
    >>> enlarged(np.array([[1, 2]]), (2, 4))
    array([[1, 1, 2, 2],
           [1, 1, 2, 2]])
    """
    rows, columns = (
        ((np.arange(n_new) + 0.5) * n_old / n_new).astype(int)
        for n_new, n_old in zip(shape, array.shape, strict=True)
    )
    return array[np.ix_(rows, columns)]


def all_seen(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Sample as `enlarged`, but lose nothing above 0.

    Parameters
    ----------
    values : ndarray, shape (Y, X)
        Of several at one pixel of the panel the largest is kept.
    shape : pair of int
        Rows and columns of the panel.

    Returns
    -------
    ndarray, of that shape
        Where little is above 0, each pixel of it is a larger spot.
    """
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
    """Make a darker panel of a grey image.

    Parameters
    ----------
    background : ndarray of uint8, shape (Y, X)
    shape : pair of int
        Rows and columns of the panel.
    share : float
        Of its brightness that the image keeps.

    Returns
    -------
    ndarray of uint8, shape (Y', X', 3)
    """
    grey = np.rint(enlarged(background, shape) * share).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)


def painted(
    picture: np.ndarray, where: np.ndarray, colour: str, opacity: float | np.ndarray = 1.0
) -> None:
    """Lay a colour over the chosen pixels of a picture, in place.

    Parameters
    ----------
    picture : ndarray, shape (Y, X, 3)
        Red, green and blue from 0 to 255.
    where : ndarray of bool, shape (Y, X)
    colour : str
        ``#RRGGBB``.
    opacity : float or ndarray of float, shape (Y, X)
        1 hides what was there.
    """
    alpha = np.broadcast_to(opacity, where.shape)[where][:, None]
    mixed = picture[where] * (1 - alpha) + np.array(rgb(colour)) * alpha
    picture[where] = np.rint(mixed) if picture.dtype == np.uint8 else mixed


def rgb(colour: str) -> list[int]:
    """Read red, green and blue of ``#RRGGBB``.

    >>> rgb("#0072B2")
    [0, 114, 178]
    """
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
