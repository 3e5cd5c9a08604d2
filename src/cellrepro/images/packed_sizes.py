"""How many pixels the bytes of an image file can become, and headers that promise more."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import tifffile

from cellrepro.images.mapped import Content
from samebits.errors import BadInput, NotPossibleHere
from samebits.words import amount

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
"""The bound for all others. Formats of pictures, as JPEG 2000, have none: a blank picture of any
size is as small."""
_ALLOWED_OF_OTHERS = 2**29
"""Bytes of pixels that a file of any size may promise in another format, which is decoded in a
process with twice the memory."""


def damaged(file: Path, what: str) -> BadInput:
    """The error for a file that is not whole."""
    return BadInput(f"{file}: damaged or incomplete, {what}; copy it again from its source")


def promises_too_much(data: Content) -> str:
    """Say of a file that no image of the size in its header fits into it."""
    n_bytes = amount(len(data), "byte")
    return f"its header promises a larger image than a file of {n_bytes} can hold"


def most_unpacked(n_bytes: int, compression: int) -> int:
    """The bytes of pixels that packed bytes can become at most."""
    return n_bytes * _MOST_FROM_A_BYTE.get(compression, _MOST_OF_OTHERS)


def refuse_absurd(
    file: Path, data: Content, n_bytes: int, compression: int, *, in_memory: int | None = None
) -> None:
    """Refuse a header that promises more pixels than its compression could pack, or than fit here.

    Every decoder is told how many bytes to expect and stops there, so a file that passes takes the
    memory that its header promises, or as many bytes as are said to be in memory at a time.
    """
    always = ALWAYS_ALLOWED if compression in _MOST_FROM_A_BYTE else _ALLOWED_OF_OTHERS
    if n_bytes <= always:
        return
    most = most_unpacked(len(data), compression)
    if n_bytes > most:
        raise damaged(file, promises_too_much(data))
    import psutil  # takes as long as a small comparison

    available = psutil.virtual_memory().available
    needed = n_bytes if in_memory is None else in_memory
    if needed > available:
        raise NotPossibleHere(
            f"{file}: its {needed} bytes of pixels do not fit into the {available} bytes of "
            "memory that are free on this machine; crop the image into tiles, or use a larger one"
        )


# -- the frame of a JPEG -------------------------------------------------------------------

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN = 0xDA
_JPEG_ALONE = frozenset({0x00, 0x01, 0xFF, *range(0xD0, 0xD9)})
"""Second bytes of JPEG markers without a length, and of what only looks like a marker."""


@dataclass(frozen=True)
class JpegFrame:
    """Height and width in pixels, and number of channels, by the header of a JPEG."""

    height: int
    width: int
    n_channels: int


def jpeg_frame(data: bytes) -> JpegFrame | None:
    """Find the header of a JPEG's image, not that of a preview; None where there is none."""
    at = data.find(b"\xff")
    while 0 <= at < len(data) - 9:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            height, width, n_channels = struct.unpack_from(">HHB", data, at + 5)
            return JpegFrame(height, width, n_channels)
        if marker == _JPEG_SCAN:
            return None
        (length,) = struct.unpack_from(">H", data, at + 2)
        is_alone = marker in _JPEG_ALONE
        at = data.find(b"\xff", at + 1 if is_alone else at + 2 + length)
    return None
