"""One image or mask file, read and checked: pixels and labels that a network can be given."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cellrepro.images.decoding import SEG_ENDING, decode, decode_labels, read_bytes
from cellrepro.images.image_axes import FLAT, MOST_LOOKED_AT, Axes, Decoded, in_order, native
from cellrepro.images.label_image import LARGEST_LABEL, label_image
from cellrepro.images.label_pieces import pieces_by_label
from cellrepro.images.mapped import Content
from cellrepro.images.ome_zarr import is_zarr, read_zarr
from cellrepro.images.outline_files import is_outline_file, read_outlines
from cellrepro.images.pictures import is_like_labels, refuse_picture
from cellrepro.images.size_factor import other_size_text
from samebits.errors import BadInput
from samebits.words import amount, grouped, some, verb_of

LIKE_LABELS = (
    "its values lie in one piece each, as the numbers of masks do: is it the image that was "
    "segmented, and not its masks?"
)
"""The remark on an image that is probably a label image."""
_SMALLEST_SIDE = 16  # pixels; Cellpose's networks work on patches of 8
_LARGEST_OF_TRUTH = int(np.iinfo(np.int32).max)  # what is beside an image becomes int32


@dataclass(frozen=True)
class Checked:
    """The content of a file, known to be usable."""

    pixels: np.ndarray
    """An image as of `read_image`, or masks as of `read_masks`; of a stack with Z first."""
    is_stack: bool
    remarks: tuple[str, ...]
    """Remarks on what deserves a look."""


def read_image(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an image of one plane."""
    return image_in(Path(path)).pixels


def read_masks(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a label image to train on."""
    return check_masks(Path(path), read_bytes(Path(path))).pixels


def read_labels(
    path: str | os.PathLike[str], *, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """Read a label image to compare, also a stack; outlines are drawn in an image of a shape."""
    file = Path(path)
    if is_outline_file(file):
        return read_outlines(file).drawn(shape).labels
    if file.name.endswith(SEG_ENDING):
        from cellrepro.images.seg_file import read_seg

        return read_seg(file).masks
    if is_zarr(file):
        decoded = read_zarr(file, may_map=True)
    else:
        decoded = decode_labels(file, read_bytes(file), may_map=True)
    return native(_labels(file, decoded, stacks=True, largest=LARGEST_LABEL))


def image_in(path: Path, axes: Axes = FLAT) -> Checked:
    """The image in a file, or in a folder of Zarr."""
    if is_zarr(path):
        return _checked_image(path, read_zarr(path), axes)
    return check_image(path, read_bytes(path), axes)


def image_of_masks(path: str | os.PathLike[str], masks_shape: Sequence[int]) -> np.ndarray:
    """Read the image whose masks have a shape: of theirs the planes are the image's, too."""
    shape = tuple(masks_shape)
    is_stack = len(shape) == 3
    axes = Axes(
        stacks=is_stack, most_channels=MOST_LOOKED_AT, planes_of=shape if is_stack else None
    )
    return image_in(Path(path), axes).pixels


def refuse_labels_as_image(
    image: str | Path, pixels: np.ndarray, *, a: np.ndarray, b: np.ndarray
) -> None:
    """Refuse an image whose pixels are the labels of a result; nothing was ever made from it."""
    for letter, labels in (("A", a), ("B", b)):
        if labels.any() and np.array_equal(pixels, labels):
            raise BadInput(
                f"image is {image}, which holds the masks of {letter}, pixel for pixel; expected "
                "the image that was segmented, such as the microscope's"
            )


def refuse_other_size(name: object, image: np.ndarray, masks_shape: Sequence[int]) -> None:
    """Refuse an image that has not the size of its masks; channels are its last axis."""
    shape = tuple(masks_shape)
    size = image.shape[: len(shape)]
    if size == shape and image.ndim - len(shape) in (0, 1):
        return
    raise BadInput(
        f"{name} has shape {image.shape}, and the masks have {shape}"
        + (
            other_size_text(shape, size)
            or "; is it the right file? Expected the image of these masks, neither cropped nor "
            "turned"
        )
    )


def check_image(file: Path, data: Content, axes: Axes = FLAT) -> Checked:
    """The image in the bytes of a file."""
    return _checked_image(file, decode(file, data), axes)


def _checked_image(file: Path, decoded: Decoded, axes: Axes) -> Checked:
    ordered = in_order(file, decoded, axes)
    image = ordered.pixels
    across = image.shape[1:3] if ordered.is_stack else image.shape[:2]
    if image.dtype.kind not in "uif":
        raise BadInput(
            f"{file}: pixels of type {image.dtype}, expected integers or real numbers; "
            f"save the image as 8-bit, 16-bit or 32-bit float"
        )
    if min(across) < _SMALLEST_SIDE:
        raise BadInput(
            f"{file}: (Y, X) = {across}, expected at least {_SMALLEST_SIDE} pixels on a "
            f"side; export it at full size, or leave it out"
        )
    _refuse_not_finite(file, image)
    remarks = []
    if len(ordered.left_out) == 1:
        remarks.append("its last channel (alpha, or a fourth) is not constant and is not used")
    elif ordered.left_out:
        first, *_, last = ordered.left_out
        remarks.append(f"its channels {first} to {last} are not all constant and are not used")
    if image.min() == image.max():
        remarks.append(f"constant image, every pixel is {image.min()}")
    if image.dtype.kind in "ui" and not ordered.is_stack and image.ndim == 2:
        remarks += [LIKE_LABELS] if is_like_labels(image) else []
    return Checked(image, ordered.is_stack, tuple(remarks))


def check_masks(file: Path, data: Content, axes: Axes = FLAT) -> Checked:
    """The labels in the bytes of a file: int32, (Y, X) or, where there may be stacks, (Z, Y, X)."""
    if file.name.endswith(SEG_ENDING):
        from cellrepro.images.seg_file import seg_in

        seg = seg_in(file, io.BytesIO(data[:]), len(data))
        decoded = Decoded.of(seg.masks, "ZYX"[-seg.masks.ndim :])
    else:
        decoded = decode_labels(file, data)
    labels = _labels(file, decoded, stacks=axes.stacks, largest=_LARGEST_OF_TRUTH)
    masks = np.ascontiguousarray(labels, dtype=np.int32)
    several = [str(one.label) for one in pieces_by_label(masks) if one.n_pieces > 1]
    remarks: tuple[str, ...] = ()
    if several:
        remarks = (
            f"labels in several pieces (8-connectivity): {some(several)}; each counts as one "
            "object, so a binary mask needs a number for every object first",
        )
    return Checked(masks, masks.ndim == 3, remarks)


def _refuse_not_finite(file: Path, pixels: np.ndarray) -> None:
    if pixels.dtype.kind != "f":
        return
    n_bad = pixels.size - int(np.count_nonzero(np.isfinite(pixels)))
    if n_bad:
        raise BadInput(
            f"{file}: {grouped(n_bad)} of {grouped(pixels.size)} values are NaN or infinite, "
            f"expected finite numbers; replace them (by 0, say) and save again"
        )


def _labels(file: Path, decoded: Decoded, *, stacks: bool, largest: int) -> np.ndarray:
    """Labels up to ``largest``, (Y, X) or, among ``stacks``, (Z, Y, X).

    Floats become int64, booleans uint8, other types stay.
    """
    labels = decoded.pixels
    is_stack = stacks and _is_stack_of_labels(decoded)
    if (set(decoded.axes) & set("CST") and not is_stack) or labels.ndim not in (
        (2, 3) if stacks else (2,)
    ):
        expected = "(Y, X) or (Z, Y, X)" if stacks else "one plane (Y, X)"
        raise BadInput(
            f"{file}: shape {labels.shape} (axes {decoded.axes or 'unknown'}), expected label "
            f"numbers, {expected}; save the labels as 16-bit grey, not as colours or with a "
            "palette, the axes of a stack named ZYX, and each image of a series on its own"
        )
    if labels.dtype.kind == "f":
        labels = _whole_numbers(file, labels)
    elif labels.dtype.kind == "b":
        labels = labels.astype(np.uint8)
    checked = label_image(f"{file}:", labels, largest=largest)
    refuse_picture(f"{file}:", checked)
    return checked


def _is_stack_of_labels(decoded: Decoded) -> bool:
    """Whether an axis that is named otherwise counts planes.

    tifffile, and so Cellpose, calls a stack of 3 or 4 planes, or one 3 or 4 pixels wide, colours
    when it writes it. Colours have 8 bits; what has 16 and is read as labels is a stack, as
    Cellpose reads it; but grey values that were saved as colours are equal in all three. Frames of
    a time series are compared as planes are.
    """
    if decoded.axes in ("SYX", "YXS"):
        is_grey = decoded.axes == "YXS" and bool((decoded.pixels == decoded.pixels[..., :1]).all())
        return decoded.pixels.dtype == np.uint16 and not is_grey
    return decoded.axes == "TYX"


def _whole_numbers(file: Path, labels: np.ndarray) -> np.ndarray:
    """Labels that are stored as floating-point numbers, as int64."""
    _refuse_not_finite(file, labels)
    exact = 2 ** (np.finfo(labels.dtype).nmant + 1)  # above, not every whole number exists
    fractions = labels[labels != np.rint(labels)]
    largest = float(labels.max(initial=0))
    if fractions.size or largest > exact:
        several = len(np.unique(fractions))
        what = f"of which the largest is {largest:.0f}"
        if several:
            what = (
                f"of which {amount(several, 'label')} in {amount(fractions.size, 'pixel')} "
                f"{verb_of(several, 'is a fraction', 'are fractions')}"
            )
        raise BadInput(
            f"{file}: labels as {labels.dtype}, {what}, expected whole numbers up to {exact}; "
            "this may be a probability map or a resized mask, save the labels as 16-bit"
        )
    return labels.astype(np.int64)
