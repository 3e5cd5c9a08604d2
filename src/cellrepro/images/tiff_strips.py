"""Strips and tiles of a TIFF: whether all are there, and hold no more than the file says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import tifffile

from cellrepro.images.codecs import decoded_by_python
from cellrepro.images.mapped import Content
from cellrepro.images.packed_sizes import ALWAYS_ALLOWED, damaged, jpeg_frame, most_unpacked
from samebits.errors import BadInput

_JPEG_TABLES = 347
_OF_BYTES = (
    tifffile.COMPRESSION.NONE,
    tifffile.COMPRESSION.PACKBITS,
    tifffile.COMPRESSION.LZW,
    tifffile.COMPRESSION.ADOBE_DEFLATE,
    tifffile.COMPRESSION.DEFLATE,
    tifffile.COMPRESSION.LZMA,
    tifffile.COMPRESSION.ZSTD,
    tifffile.COMPRESSION.ZSTD_DEPRECATED,
)
"""Compressions whose decoders are told where to stop; formats of pictures have headers that say."""
PADDING = 16  # pixels; JPEG codes blocks, and some programs write their size


def refuse_missing_strips(
    file: Path,
    data: Content,
    tiff: tifffile.TiffFile,
    series: tifffile.TiffPageSeries,
    n_pages: int,
) -> None:
    """Refuse a TIFF whose pixel data end before its tables say.

    tifffile 2026.3.3 fills what is missing with zeros, and libjpeg with grey.
    """
    if any(page is None for page in series.pages):
        raise BadInput(
            f"{file}: one of several files of a multi-file OME-TIFF; save it as a TIFF of its own"
        )
    if len(tiff.pages) < n_pages:
        raise damaged(file, f"{len(tiff.pages)} of its {n_pages} pages can be read")
    n_chunks = math.prod(series.keyframe.chunked)
    end = 0 if series.dataoffset is None else series.dataoffset + series.nbytes
    for page in tiff.pages:
        for offset, n_bytes in zip(page.dataoffsets, page.databytecounts, strict=True):
            if n_bytes == 0:
                raise damaged(file, "a strip or tile without data")
            end = max(end, offset + n_bytes)
    if end > len(data):
        raise damaged(file, f"its pixels should end at byte {end}, the file at {len(data)}")
    for one in _pages_of(series):
        if len(one.dataoffsets) < n_chunks and not one.is_contiguous:
            n_here = len(one.dataoffsets)
            raise damaged(file, f"{n_here} of the {n_chunks} strips or tiles of a page")


def refuse_larger_pictures(
    file: Path,
    data: Content,
    series: tifffile.TiffPageSeries,
    size_of: Callable[[bytes], tuple[int, ...]],
) -> int:
    """Get the height of the largest picture in a strip or tile, by the picture's own header.

    Pictures larger than their place are refused; but old programs write the height of the whole
    image into each strip, and decoders take the rows that are there.
    """
    page = series.keyframe
    height = page.tilelength if page.is_tiled else page.imagelength
    width = page.tilewidth if page.is_tiled else page.imagewidth
    largest = 0
    for each in _pages_of(series):
        for offset, n_bytes in zip(each.dataoffsets, each.databytecounts, strict=True):
            own_height, own_width, *_ = size_of(data[offset : offset + n_bytes])
            if own_height > height + PADDING or own_width > width + PADDING:
                raise damaged(
                    file,
                    f"a strip or tile of an image of {height} x {width} pixels holds a picture of "
                    f"{own_height} x {own_width}",
                )
            largest = max(largest, own_height)
    return largest


def chunk_height(page: tifffile.TiffPage) -> int:
    """Rows of pixels in a strip or tile."""
    return int(page.tilelength if page.is_tiled else page.rowsperstrip)


def size_of_jpeg(content: bytes) -> tuple[int, int]:
    """Read height and width from the header of a JPEG; zeros where it has none."""
    frame = jpeg_frame(content)
    return (0, 0) if frame is None else (frame.height, frame.width)  # its decoder refuses it


def _pages_of(series: tifffile.TiffPageSeries) -> list[tifffile.TiffPage | tifffile.TiffFrame]:
    return [page for page in series.pages if page is not None]


def may_burst(page: tifffile.TiffPage, series: tifffile.TiffPageSeries, chunk: int) -> bool:
    """Whether a decoder may return more bytes than are expected."""
    if page.compression == tifffile.COMPRESSION.JPEG:
        return _JPEG_TABLES in page.tags and jpeg_frame(page.tags[_JPEG_TABLES].value) is not None
    if page.compression not in _OF_BYTES:
        return True
    if not decoded_by_python(page.compression):
        return False
    largest = max(max(each.databytecounts) for each in _pages_of(series))
    return most_unpacked(largest, page.compression) > max(ALWAYS_ALLOWED, 4 * chunk)
