"""What a decoder gives, and what it is refused before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tifffile

from cellrepro.errors import BadInput, NotPossibleHere

if TYPE_CHECKING:
    import numpy as np

ALWAYS_ALLOWED = 64 * 2**20
"""Bytes of pixels that a file of any size may promise."""
_COMPRESSION = tifffile.COMPRESSION
_MOST_FROM_A_BYTE: dict[int, int] = {
    _COMPRESSION.NONE: 1,
    _COMPRESSION.PACKBITS: 64,  # 128 equal bytes are two
    _COMPRESSION.LZW: 1400,  # strings of up to 3838 bytes in codes of up to 12 bits
    _COMPRESSION.ADOBE_DEFLATE: 1032,  # a match of 258 bytes in two bits
    _COMPRESSION.DEFLATE: 1032,
    _COMPRESSION.JPEG: 2048,  # 3072 samples of coarse colours in 18 bits
    _COMPRESSION.LZMA: 8192,  # a match of 273 bytes in a third of a bit; 6869 were measured
    _COMPRESSION.ZSTD: 32768,  # a block of 128 KiB in four bytes
    _COMPRESSION.ZSTD_DEPRECATED: 32768,
}
"""Bytes of pixels that one byte of a file can hold, by TIFF's compression."""
_MOST_OF_OTHERS = 32768
"""Of formats of pictures, as JPEG 2000, which have no bound: a picture of nothing is as small."""
_ALLOWED_OF_OTHERS = 2**29
"""Bytes of their pixels that a file of any size may promise: its process has twice the memory."""


@dataclass(frozen=True)
class Decoded:
    """Pixels as a file holds them, without axes of length 1 beyond two."""

    pixels: np.ndarray
    axes: str
    """A letter for each dimension, as in tifffile: S and C are channels, Q and I unknown."""
    alpha: bool = False
    """The last channel is transparency."""

    @classmethod
    def of(cls, pixels: np.ndarray, axes: str, *, alpha: bool = False) -> Decoded:
        """The pixels that a decoder gave; axes of length 1 are dropped until two are left."""
        while pixels.ndim > 2 and 1 in pixels.shape:
            axis = pixels.shape.index(1)
            pixels = pixels.squeeze(axis)
            axes = axes[:axis] + axes[axis + 1 :]
        return cls(pixels, axes, alpha)


def damaged(file: Path, what: str) -> BadInput:
    """The error for a file that is not whole."""
    return BadInput(f"{file}: damaged or incomplete, {what}; copy it again from its source")


def no_cmyk(file: Path) -> BadInput:
    """The error for an image in the colours of a printer."""
    return BadInput(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")


def most_unpacked(n_bytes: int, compression: int) -> int:
    """The bytes of pixels that so many packed bytes can become."""
    return n_bytes * _MOST_FROM_A_BYTE.get(compression, _MOST_OF_OTHERS)


def refuse_absurd(file: Path, data: bytes, n_bytes: int, compression: int) -> None:
    """Refuse a header that promises more pixels than its compression could pack, or than fit here.

    Every decoder is told how many bytes to expect and stops there, so what is let through takes
    the memory that its header promises.
    """
    always = ALWAYS_ALLOWED if compression in _MOST_FROM_A_BYTE else _ALLOWED_OF_OTHERS
    if n_bytes <= always:
        return
    most = most_unpacked(len(data), compression)
    if n_bytes > most:
        raise damaged(
            file,
            f"its header promises {n_bytes} bytes in a file of {len(data)}, and "
            f"{_COMPRESSION(compression).name} packs at most {most // len(data)} to 1",
        )
    import psutil  # takes as long as a small comparison

    available = psutil.virtual_memory().available
    if n_bytes > available:
        raise NotPossibleHere(
            f"{file}: its {n_bytes} bytes of pixels do not fit into the {available} bytes of "
            "memory that are free on this machine; crop the image into tiles, or use a larger one"
        )
