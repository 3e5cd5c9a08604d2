"""Compressions of image files: how many pixels each can pack, and who unpacks them here.

imagecodecs decodes them where it is installed (the extra ``formats``). Without it Pillow decodes
PNG and JPEG, to the same pixels, and tifffile the usual compressions of TIFF; the rest is refused
with the command that installs imagecodecs. A header that promises more pixels than its compression
can pack, or than fit into memory, is refused before a decoder believes it.
"""

from __future__ import annotations

import io
import struct
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tifffile

from cellrepro.errors import BadInput, NotPossibleHere

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

_WITHOUT_IMAGECODECS = (
    tifffile.COMPRESSION.NONE,
    tifffile.COMPRESSION.PACKBITS,
    tifffile.COMPRESSION.ADOBE_DEFLATE,
    tifffile.COMPRESSION.DEFLATE,
    tifffile.COMPRESSION.LZMA,
)
"""Compressions of TIFF that tifffile decodes with Python's standard library."""

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

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN = 0xDA
_JPEG_ALONE = frozenset({0x00, 0x01, 0xFF, *range(0xD0, 0xD9)})
"""Second bytes of JPEG markers without a length, and of what only looks like a marker."""

_GREY_16_BIT = ("I", "I;16", "I;16B", "I;16L")
"""Pillow's modes for the samples of a grey PNG of 16 bits, by its version and the processor."""


# --- sizes ------------------------------------------------------------------------------------


def damaged(file: Path, what: str) -> BadInput:
    """The error for a file that is not whole."""
    return BadInput(f"{file}: damaged or incomplete, {what}; copy it again from its source")


def no_cmyk(file: Path) -> BadInput:
    """The error for an image in CMYK."""
    return BadInput(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")


def most_unpacked(n_bytes: int, compression: int) -> int:
    """The bytes of pixels that packed bytes can become at most."""
    return n_bytes * _MOST_FROM_A_BYTE.get(compression, _MOST_OF_OTHERS)


def refuse_absurd(file: Path, data: bytes, n_bytes: int, compression: int) -> None:
    """Refuse a header that promises more pixels than its compression could pack, or than fit here.

    Every decoder is told how many bytes to expect and stops there, so a file that passes takes the
    memory that its header promises.
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


# --- decoders ---------------------------------------------------------------------------------


def png_pixels(file: Path, data: bytes) -> NDArray[np.unsignedinteger]:
    """Decode a PNG."""
    if _has_imagecodecs():
        import imagecodecs

        pixels: NDArray[np.unsignedinteger] = imagecodecs.png_decode(data)
        return pixels
    from PIL import Image

    depth = data[24]  # bits a sample, of the header that always comes first (PNG, section 11.2)
    with Image.open(io.BytesIO(data), formats=["PNG"]) as checked:
        checked.verify()  # the checksum of every chunk
    with _opened(file, data, "PNG") as image:
        if depth == 16 and image.mode not in _GREY_16_BIT:
            raise _needs_imagecodecs(file, "its colours have 16 bits")
        if depth == 16 and "transparency" in image.info:
            raise _needs_imagecodecs(file, "one of its grey values is transparent")
        if image.mode in _GREY_16_BIT:
            return np.asarray(image).astype(np.uint16)
        has_alpha = image.mode in ("LA", "RGBA") or "transparency" in image.info
        if image.mode in ("1", "L", "LA"):
            return np.asarray(image.convert("LA" if has_alpha else "L"))
        return np.asarray(image.convert("RGBA" if has_alpha else "RGB"))


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


def jpeg_pixels(file: Path, data: bytes) -> NDArray[np.unsignedinteger]:
    """Decode a JPEG."""
    if _has_imagecodecs():
        import imagecodecs

        pixels: NDArray[np.unsignedinteger] = imagecodecs.jpeg_decode(data)
        return pixels
    with _opened(file, data, "JPEG") as image:
        return np.asarray(image)


def decoded_by_python(compression: int) -> bool:
    """Whether Python's standard library decodes a compression here, which bounds no output."""
    packed = compression in _WITHOUT_IMAGECODECS and compression != tifffile.COMPRESSION.NONE
    return packed and not _has_imagecodecs()


def refuse_compression(file: Path, page: tifffile.TiffPage) -> None:
    """Refuse a TIFF whose compression needs imagecodecs, where that is not installed."""
    if _has_imagecodecs():
        return
    if page.compression not in _WITHOUT_IMAGECODECS:
        name = tifffile.COMPRESSION(page.compression).name
        raise _needs_imagecodecs(file, f"it is compressed by {name}")
    if page.predictor == tifffile.PREDICTOR.FLOATINGPOINT:
        raise _needs_imagecodecs(file, "its numbers are stored as differences of floats")


def _has_imagecodecs() -> bool:
    return find_spec("imagecodecs") is not None


def _opened(file: Path, data: bytes, kind: str) -> Image:
    """Open an image with Pillow, whose own bound on sizes is replaced by `refuse_absurd`."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            return Image.open(io.BytesIO(data), formats=[kind])
        except Image.DecompressionBombError as error:
            raise _needs_imagecodecs(file, "it has more pixels than Pillow reads") from error


def _needs_imagecodecs(file: Path, reason: str) -> NotPossibleHere:
    return NotPossibleHere(
        f"{file}: {reason}, which needs imagecodecs to be read; install it with: "
        'pip install "cellrepro[formats]"'
    )
