"""The bytes of an image file, decoded to their end.

Decoders fill what is missing in a damaged file, or believe any header; here it is refused.
"""

from __future__ import annotations

import io
import logging
import math
import re
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import tifffile

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere, no_such_file
from cellrepro.images.codecs import jpeg_pixels, png_pixels, refuse_compression
from cellrepro.images.file_endings import FORMATS, OTHER_ENDINGS
from cellrepro.store.tiff_pages import refuse_endless
from cellrepro.words import some

_SIGNATURES = {
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "JPEG": (b"\xff\xd8\xff",),
}
_ALWAYS_ALLOWED = 64 * 2**20  # bytes of pixels, whatever the file's size
_MOST_FROM_A_BYTE: dict[int, int] = {
    tifffile.COMPRESSION.NONE: 1,
    tifffile.COMPRESSION.PACKBITS: 64,  # 128 equal bytes are two
    tifffile.COMPRESSION.LZW: 1400,  # strings of up to 3838 bytes in codes of up to 12 bits
    tifffile.COMPRESSION.ADOBE_DEFLATE: 1032,  # a match of 258 bytes in two bits
    tifffile.COMPRESSION.DEFLATE: 1032,
    tifffile.COMPRESSION.LZMA: 8192,  # a match of 273 bytes in a third of a bit; 6869 were measured
    tifffile.COMPRESSION.ZSTD: 32768,  # a block of 128 KiB in four bytes
    tifffile.COMPRESSION.ZSTD_DEPRECATED: 32768,
}
"""Bytes of pixels that one byte of a file can hold, by TIFF's compression. Formats of pictures,
JPEG 2000 for example, have no such bound."""
# tifffile 2026.3.3 only logs these and returns what it could read, so a cut-off stack of three
# channels comes back as one plane. Some programs write tags with an offset below 8, which is inside
# the header and harmless; any other invalid offset leads beyond the end of the file.
_DAMAGE_IN_LOG = re.compile(
    r"invalid page offset|corrupted (file|tag list)|invalid value offset ([89]|\d\d)"
)


def read_bytes(file: Path) -> bytes:
    """Read a file whole, so that digest and pixels come from the same bytes."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise BadInput(f"{file}: a folder or a device, expected a file; rename or remove it")
        data = file.read_bytes()
    except FileNotFoundError as error:
        if file.is_symlink():
            raise BadInput(f"{file}: {why_unreadable(error, 'file')}") from error
        raise no_such_file(file) from error
    except OSError as error:
        raise BadInput(f"{file}: {why_unreadable(error, 'file')}") from error
    if not data:
        raise BadInput(f"{file}: empty (0 bytes); copy it again from its source or remove it")
    return data


def why_unreadable(error: OSError, what: str) -> str:
    """Why the system refused a file or folder, and what to do."""
    reason = error.strerror or error
    return f"the {what} cannot be read ({reason}); check its spelling, links, permissions and disk"


# --- decoding -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decoded:
    """Pixels as a file holds them, without axes of length 1 beyond two.

    Attributes
    ----------
    pixels : numpy.ndarray
    axes : str
        A letter for each dimension, as in tifffile: S and C are channels, Q and I unknown.
    alpha : bool
        The last channel is transparency.
    """

    pixels: np.ndarray
    axes: str
    alpha: bool = False

    @classmethod
    def of(cls, pixels: np.ndarray, axes: str, *, alpha: bool = False) -> Decoded:
        """The pixels that a decoder gave; axes of length 1 are dropped until two are left."""
        while pixels.ndim > 2 and 1 in pixels.shape:
            axis = pixels.shape.index(1)
            pixels = pixels.squeeze(axis)
            axes = axes[:axis] + axes[axis + 1 :]
        return cls(pixels, axes, alpha)


def decode(file: Path, data: bytes) -> Decoded:
    """Decode the bytes of a file by the format that its name promises.

    Raises
    ------
    BadInput
        If they are none of that format, damaged, or hold something else than one image.
    NotPossibleHere
        If the image does not fit into memory.
    """
    expected = FORMATS.get(file.suffix.lower())
    if expected is None:
        raise BadInput(f"{file}: expected an image file (.tif, {OTHER_ENDINGS}); convert it first")
    actual = next((kind for kind, starts in _SIGNATURES.items() if data.startswith(starts)), None)
    if actual != expected:
        raise BadInput(
            f"{file}: begins with {data[:30]!r}, expected {expected} data; give it the name of its "
            "format, export the image again, or run git lfs pull where it is a pointer of Git LFS"
        )
    try:
        return _with_pixels(file, _DECODERS[actual](file, data))
    except CellreproError:
        raise
    except MemoryError as error:
        raise NotPossibleHere(
            f"{file}: too large for the memory of this machine; crop the image into tiles"
        ) from error
    except Exception as error:  # decoders raise nearly any on a damaged file
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise _damaged(file, f"cannot be decoded as {actual} ({reason})") from error


def decode_labels(file: Path, data: bytes) -> Decoded:
    """Decode masks: no JPEG, but also what `numpy.save` writes.

    Raises
    ------
    BadInput, NotPossibleHere
        As in `decode`.
    """
    if FORMATS.get(file.suffix.lower()) == "JPEG":
        raise BadInput(
            f"{file}: a JPEG mask, but JPEG changes label numbers; save the labels as "
            f"{file.stem}.tif or {file.stem}.png"
        )
    if file.suffix.lower() != ".npy":
        return decode(file, data)
    try:
        pixels = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # of a damaged header nearly any, TokenError among them
        reason = " ".join(str(error).split())[:120]
        raise BadInput(
            f"{file}: no array of numbers as numpy.save writes it ({reason}); save the masks with "
            "numpy.save(path, masks)"
        ) from error
    axes = "ZYX"[-pixels.ndim :] if 2 <= pixels.ndim <= 3 else ""
    return _with_pixels(file, Decoded.of(pixels, axes))


def _with_pixels(file: Path, decoded: Decoded) -> Decoded:
    """Refuse an image without a pixel, of which nothing can be said."""
    if decoded.pixels.size == 0:
        raise BadInput(
            f"{file}: an image of shape {decoded.pixels.shape} has no pixel; save it again in the "
            "program that made it"
        )
    return decoded


def _damaged(file: Path, what: str) -> BadInput:
    return BadInput(f"{file}: damaged or incomplete, {what}; copy it again from its source")


def _refuse_absurd(file: Path, data: bytes, n_bytes: int, compression: int) -> None:
    """Refuse a header that promises more pixels than its compression could pack, or than fit here.

    Every decoder below is told how many bytes to expect and stops there, so what is let through
    takes the memory that its header promises.
    """
    if n_bytes <= _ALWAYS_ALLOWED:
        return
    most = _MOST_FROM_A_BYTE.get(compression)
    if most is not None and n_bytes > most * len(data):
        raise _damaged(
            file,
            f"its header promises {n_bytes} bytes in a file of {len(data)}, and "
            f"{tifffile.COMPRESSION(compression).name} packs at most {most} to 1",
        )
    available = psutil.virtual_memory().available
    if n_bytes > available:
        raise NotPossibleHere(
            f"{file}: its {n_bytes} bytes of pixels do not fit into the {available} bytes of "
            "memory that are free on this machine; crop the image into tiles, or use a larger one"
        )


class _Collector(logging.Handler):
    """Keeps the messages that are logged."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def _tifffile_errors() -> Iterator[list[str]]:
    """Collect what tifffile logs as an error in this block, and keep it off the terminal."""
    collector = _Collector(level=logging.ERROR)
    logger = logging.getLogger("tifffile")
    logger.addHandler(collector)
    try:
        yield collector.messages
    finally:
        logger.removeHandler(collector)


def _decode_tiff(file: Path, data: bytes) -> Decoded:
    """Decode a TIFF of one image."""
    try:
        refuse_endless(data)
    except ValueError as error:
        raise _damaged(file, str(error)) from error
    with _tifffile_errors() as errors, tifffile.TiffFile(io.BytesIO(data)) as tiff:
        if not tiff.series:
            raise _damaged(file, "it holds no image")
        if len(tiff.series) > 1:
            shapes = some([str(series.shape) for series in tiff.series])
            raise BadInput(
                f"{file}: {len(tiff.series)} separate images of shapes {shapes}, expected one; "
                f"save the one to use as a TIFF of its own"
            )
        series = tiff.series[0]
        page = series.keyframe
        chunk = math.prod(page.chunks) * series.dtype.itemsize  # a strip or tile
        _refuse_absurd(file, data, max(series.nbytes, chunk), page.compression)
        _refuse_missing_strips(file, data, tiff, series)
        if page.photometric == tifffile.PHOTOMETRIC.SEPARATED:
            raise _no_cmyk(file)
        refuse_compression(file, page)
        pixels = series.asarray(maxworkers=1)
        kinds = (tifffile.EXTRASAMPLE.ASSOCALPHA, tifffile.EXTRASAMPLE.UNASSALPHA)
        alpha = "S" in series.axes and any(extra in kinds for extra in page.extrasamples)
        axes = series.axes
        shape = series.shape
    if pixels.shape != shape:
        raise _damaged(file, f"pixels of shape {pixels.shape} instead of {shape}")
    for message in errors:
        if _DAMAGE_IN_LOG.search(message):
            raise _damaged(file, f"tifffile reports: {message[:120]}")
    return Decoded.of(pixels, axes, alpha=alpha)


def _refuse_missing_strips(
    file: Path, data: bytes, tiff: tifffile.TiffFile, series: tifffile.TiffPageSeries
) -> None:
    """Refuse a TIFF whose pixel data end before its tables say.

    tifffile 2026.3.3 fills what is missing with zeros, and libjpeg with grey.
    """
    if any(page is None for page in series.pages):
        raise BadInput(
            f"{file}: one of several files of a multi-file OME-TIFF; save it as a TIFF of its own"
        )
    end = 0 if series.dataoffset is None else series.dataoffset + series.nbytes
    for page in tiff.pages:
        for offset, n_bytes in zip(page.dataoffsets, page.databytecounts, strict=True):
            if n_bytes == 0:
                raise _damaged(file, "a strip or tile without data")
            end = max(end, offset + n_bytes)
    if end > len(data):
        raise _damaged(file, f"its pixels should end at byte {end}, the file at {len(data)}")


def _decode_png(file: Path, data: bytes) -> Decoded:
    # The header chunk always comes first: width, height, bit depth, colour type (PNG, section 11.2)
    width, height, depth, colour_type = struct.unpack(">IIBB", data[16:26])
    n_channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colour_type, 4)
    n_bytes = width * height * n_channels * max(1, depth // 8)
    _refuse_absurd(file, data, n_bytes, tifffile.COMPRESSION.ADOBE_DEFLATE)  # PNG's only one
    pixels = png_pixels(file, data)
    alpha = pixels.ndim == 3 and pixels.shape[2] in (2, 4)
    return Decoded.of(pixels, "YXS"[: pixels.ndim], alpha=alpha)


def _decode_jpeg(file: Path, data: bytes) -> Decoded:
    # libjpeg-turbo, in imagecodecs 2026.3.6 as in OpenCV, fills what is missing with grey. Coded
    # data hold no marker; an embedded preview ends before the last scan of the image starts.
    if data.rfind(b"\xff\xd9") <= data.rfind(b"\xff\xda"):
        raise _damaged(file, "the end-of-image marker is missing")
    pixels = jpeg_pixels(file, data)
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        raise _no_cmyk(file)
    return Decoded.of(pixels, "YXS"[: pixels.ndim])


def _no_cmyk(file: Path) -> BadInput:
    return BadInput(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")


_DECODERS: dict[str, Callable[[Path, bytes], Decoded]] = {
    "TIFF": _decode_tiff,
    "PNG": _decode_png,
    "JPEG": _decode_jpeg,
}
