"""Describe an image: a file of pixels in which no masks are found."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from cellrepro.explanation.description import Description
from cellrepro.images.decoding import FORMATS, decode, decode_labels, read_bytes
from cellrepro.images.image_axes import letters_of
from cellrepro.images.pixel_size import pixel_size_in
from samebits.digests import file_digest
from samebits.errors import BadInput
from samebits.words import with_verb


def described_image(path: Path) -> Description:
    """Describe a file of pixels by its size, channels, type and values."""
    is_image = path.suffix.lower() in FORMATS
    decoded = (decode if is_image else decode_labels)(path, read_bytes(path))
    pixels = decoded.pixels
    if not np.issubdtype(pixels.dtype, np.number) and pixels.dtype != np.bool_:
        raise BadInput(f"{path}: has dtype {pixels.dtype}, and the pixels of an image are numbers")
    axes = letters_of(decoded)
    finite = pixels[np.isfinite(pixels)]
    n_not_finite = pixels.size - finite.size
    notes = []
    if n_not_finite:
        notes.append(f"{with_verb(n_not_finite, 'value', 'is', 'are')} NaN or infinite")
    ends = (finite.min().item(), finite.max().item()) if finite.size else (None, None)
    if finite.size and ends[0] == ends[1]:
        notes.append("every pixel has the same value")
    pixel_size = pixel_size_in(path)
    return Description(
        "image",
        dtype=str(pixels.dtype),
        digest=file_digest(path),
        details={
            "shape": pixels.shape,
            "axes": axes,
            "n_channels": math.prod(
                n for n, letter in zip(pixels.shape, axes, strict=True) if letter in "CS"
            ),
            "smallest": ends[0],
            "largest": ends[1],
            **({} if pixel_size is None else {"side_of_a_pixel": f"{pixel_size:g} µm"}),
        },
        note="; ".join(notes),
    )
