"""The decoders of image files: imagecodecs where it is installed, else Pillow and tifffile.

imagecodecs comes with the extra ``formats`` and decodes everything. Without it Pillow decodes PNG
and JPEG, to the same pixels, and tifffile the usual compressions of TIFF; the rest is refused with
the command that installs imagecodecs. Headers that promise too many pixels were refused before, by
`cellrepro.images.packed_sizes`.
"""

from __future__ import annotations

import io
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tifffile

from samebits.errors import BadInput, NotPossibleHere

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

_GREY_16_BIT = ("I", "I;16", "I;16B", "I;16L")
"""Pillow's modes for the samples of a grey PNG of 16 bits, by its version and the processor."""


def no_cmyk(file: Path) -> BadInput:
    """The error for an image in CMYK, which no decoder here is asked for."""
    return BadInput(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")


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
