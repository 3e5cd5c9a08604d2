"""Whether an image is the one that a script segmented: by the digest of the pixels it passed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cellrepro.digests.digests import array_digest
from cellrepro.explanation.conditions import CHANNELS, DEPTH, Condition
from cellrepro.explanation.image_readings import as_read, readings
from cellrepro.explanation.recorded_settings import (
    IMAGE_DIGEST,
    IMAGE_DTYPE,
    IMAGE_SHAPE,
    NOT_RECORDED,
    RecordedSettings,
)

if TYPE_CHECKING:
    from cellrepro.images.integer_images import Integers


class ReceivedPixels(NamedTuple):
    """How a script read an image, as far as the digest of its pixels tells."""

    reading: Condition
    """Its depth and channels; empty where nothing is recorded, or the pixels are others."""
    remark: str
    """Whether the image is the one that was segmented; empty where nothing is recorded."""


def received_pixels(record: RecordedSettings, image: Integers) -> ReceivedPixels:
    """Compare an image with the pixels that ``eval`` received."""
    digest = record.value(IMAGE_DIGEST)
    if digest == NOT_RECORDED:
        return ReceivedPixels({}, "")
    dtype = str(record.value(IMAGE_DTYPE))
    usual: Condition = {DEPTH: None, CHANNELS: None}
    for reading in ({}, *readings(image)):
        if any(array_digest(array) == digest for array in _as_passed(image, reading, dtype)):
            read_as = ", ".join(f"{name} {value}" for name, value in reading.items())
            how = f", read with {read_as}" if reading else ""
            remark = f"the image is the one that eval received{how}: its pixels have that digest"
            return ReceivedPixels({**usual, **reading}, remark)
    return ReceivedPixels(
        {},
        f"the image is not the one that eval received: that was {dtype} of shape "
        f"{record.value(IMAGE_SHAPE)}, and this is {image.dtype} of shape {[*image.shape]}, and "
        "its pixels have a different digest, also in 8 bits and with other channels. Give the file "
        "that was segmented; or the script changed the pixels (scaled, cropped, filtered) before "
        "eval, which is not replayed",
    )


def _as_passed(image: Integers, reading: Condition, dtype: str) -> Iterator[Integers]:
    """The pixels as scripts pass them: with channels last, first, or one; in the type recorded."""
    pixels = as_read(image, reading)
    for array in (pixels, pixels.astype(dtype)):
        yield array
        yield array[..., None]
        if array.ndim == 3:
            yield np.moveaxis(array, -1, 0)
