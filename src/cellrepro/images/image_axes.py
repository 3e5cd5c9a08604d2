"""The axes of decoded pixels: which are planes and which channels, put in Cellpose's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from samebits.errors import BadInput
from samebits.words import amount

_MOST_CHANNELS = 3  # Cellpose 4 reads three
MOST_LOOKED_AT = 8
"""How many channels of an image can be looked at."""
_NOUNS = {"T": "frame"}


@dataclass(frozen=True)
class Decoded:
    """Pixels as a decoder gave them, without axes of length 1 beyond two."""

    pixels: np.ndarray
    axes: str
    """A letter for each axis, as in tifffile: S and C are channels, Q and I unknown."""
    alpha: bool = False
    """Whether the last channel is transparency."""

    @classmethod
    def of(cls, pixels: np.ndarray, axes: str, *, alpha: bool = False) -> Decoded:
        """Drop axes of length 1 until two are left."""
        while pixels.ndim > 2 and 1 in pixels.shape:
            axis = pixels.shape.index(1)
            pixels = pixels.squeeze(axis)
            axes = axes[:axis] + axes[axis + 1 :]
        return cls(pixels, axes, alpha)


@dataclass(frozen=True)
class Axes:
    """The axes of image files, as the user states them."""

    stacks: bool = False
    """Whether an image may have planes, (Z, Y, X) or (Z, Y, X, C)."""
    channel: int | None = None
    """Index of the axis of channels in `Decoded`."""
    z: int | None = None
    """Index of the axis of planes in `Decoded`."""
    most_channels: int = _MOST_CHANNELS
    """How many channels are used, the first of them; of colours never more than three."""
    planes_of: tuple[int, ...] | None = None
    """Shape of the image's masks, (Z, Y, X): an image that begins with these lengths has the same
    axes, whatever its file calls them."""
    are_settings: bool = False
    """Whether channel and z are settings of the segmentation that reads the image."""


FLAT = Axes()
"""One plane, with its channels where the file says."""


@dataclass(frozen=True)
class Ordered:
    """Pixels in Cellpose's order."""

    pixels: np.ndarray
    """(Y, X) or (Y, X, C), of a stack (Z, Y, X) or (Z, Y, X, C)."""
    is_stack: bool
    left_out: range = range(0)
    """Numbers of the last channels, from 1, that Cellpose does not read; none if all of them are
    constant."""


def in_order(file: Path, decoded: Decoded, axes: Axes) -> Ordered:
    """Put the axes of an image in Cellpose's order, without transparency or a fourth channel."""
    named = _named(file, decoded, axes)
    pixels = named.pixels
    letters = named.axes
    if pixels.ndim == 2:
        return Ordered(native(pixels), is_stack=False)
    is_stack = axes.stacks and "Z" in letters
    if is_stack:
        plane = letters.index("Z")
        pixels = np.moveaxis(pixels, plane, 0)
        letters = letters[:plane] + letters[plane + 1 :]
    if len(letters) == 2:
        return Ordered(native(pixels), is_stack)
    channel = _channel_axis(
        letters,
        pixels.shape[-len(letters) :],
        axes.most_channels,
        is_named=axes.channel is not None,
    )
    if channel is None:
        raise BadInput(
            f"{file}: shape {decoded.pixels.shape} (axes {named.axes}), expected {_expected(axes)}"
        )
    image = np.moveaxis(pixels, channel - len(letters), -1)
    n_channels = image.shape[-1]
    n_kept = min(n_channels, _MOST_CHANNELS if letters[channel] == "S" else axes.most_channels)
    if axes.channel is None and named.alpha:
        n_kept = n_channels - 1
    left_out = range(0)
    if n_kept < n_channels and not _all_constant(image[..., n_kept:]):
        left_out = range(n_kept + 1, n_channels + 1)
    image = image[..., :n_kept]
    if n_kept == 1:
        image = image[..., 0]
    return Ordered(native(image), is_stack, left_out)


def _expected(axes: Axes) -> str:
    """Say which image is expected in place of one with too many axes, and what to do."""
    if axes.planes_of is not None:
        return f"the image of masks of shape {axes.planes_of}, whose channels, if any, come last"
    to_do = (
        f"one plane, (Y, X) or (Y, X, C) with C up to {axes.most_channels}; save each plane of a "
        "z-stack or time series as an image of its own, or a projection, and of many channels the "
        "ones to use, labelled C"
    )
    if axes.are_settings:
        to_do += (
            "; to segment a stack whose axes the file does not name, give --set z_axis=N and "
            "--set channel_axis=N"
        )
    return to_do


def _named(file: Path, decoded: Decoded, axes: Axes) -> Decoded:
    """Letter the axes as the user names them."""
    letters = decoded.axes
    if decoded.pixels.shape[:3] == axes.planes_of:
        letters = "ZYXC"[: decoded.pixels.ndim]
    if axes.channel is not None:
        _refuse_no_axis(file, decoded, "channel_axis", axes.channel)
        letters = _with_letter(letters, "C", axes.channel, instead_of="CS")
    if axes.z is not None:
        _refuse_no_axis(file, decoded, "z_axis", axes.z)
        letters = _with_letter(letters, "Z", axes.z, instead_of="ZT")
    return replace(decoded, axes=letters)


def _refuse_no_axis(file: Path, decoded: Decoded, name: str, axis: int) -> None:
    n_axes = decoded.pixels.ndim
    if n_axes == 2 or not -n_axes <= axis < n_axes:
        raise BadInput(
            f"{file}: {name} is {axis}, and the image has shape {decoded.pixels.shape} without "
            "axes of length 1; leave it out, or name an axis that it has"
        )


def _with_letter(letters: str, letter: str, axis: int, *, instead_of: str) -> str:
    """Give an axis a letter; others that mean the same become unknown."""
    renamed = ["Q" if other in instead_of else other for other in letters]
    renamed[axis] = letter
    return "".join(renamed)


def _channel_axis(letters: str, sizes: tuple[int, ...], most: int, *, is_named: bool) -> int | None:
    """Index of the axis of channels of one plane; None where it cannot be told."""
    if len(letters) != 3:
        return None
    channel = next((axis for axis, letter in enumerate(letters) if letter in "CS"), None)
    if channel is None and not set(letters) & set("ZT"):
        # An axis of up to four without a label is taken for channels, as Cellpose takes it
        channel = next((axis for axis in (2, 0) if sizes[axis] <= _MOST_CHANNELS + 1), None)
    if channel is None or (sizes[channel] > max(most, _MOST_CHANNELS + 1) and not is_named):
        return None
    return channel


def letters_of(decoded: Decoded) -> str:
    """A letter for each axis, Y and X among them; a short axis without one is that of channels."""
    shape = decoded.pixels.shape
    if len(shape) == 2:
        return "YX"
    letters = decoded.axes
    if not {"Y", "X"} <= {*letters} or len(letters) != len(shape):
        is_last = shape[-1] <= _MOST_CHANNELS + 1
        letters = "Q" * (len(shape) - 3) + ("YXC" if is_last else "QYX")
    channel = _channel_axis(letters, shape, MOST_LOOKED_AT, is_named=False)
    return letters if channel is None else f"{letters[:channel]}C{letters[channel + 1 :]}"


def size_text(shape: Sequence[int], axes: str = "") -> str:
    """Say how large an image is, its channels apart; without ``axes`` planes come first.

    >>> size_text((256, 300)), size_text((5, 256, 256)), size_text((2, 64, 64), "CYX")
    ('256 × 300 pixels (Y × X)', '5 planes of 256 × 256 pixels (Y × X)', '64 × 64 pixels (Y × X)')
    """
    letters = axes if len(axes) == len(shape) else "ZYX"[-len(shape) :]
    by_letter = dict(zip(letters, shape, strict=False))
    words = f"{by_letter['Y']} × {by_letter['X']} pixels (Y × X)"
    for letter, n in reversed(by_letter.items()):
        if letter not in "YXCS":
            words = f"{amount(n, _NOUNS.get(letter, 'plane'))} of {words}"
    return words


def _all_constant(channels: np.ndarray) -> bool:
    """Whether each channel, along the last axis, has one value everywhere."""
    others = tuple(range(channels.ndim - 1))
    return bool((channels.min(axis=others) == channels.max(axis=others)).all())


def native(pixels: np.ndarray) -> np.ndarray:
    """Contiguous pixels in native byte order, which PyTorch needs."""
    return np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("="))
