"""A TIFF of one image, decoded by tifffile, with bounds on what that takes.

tifffile believes what a description says of planes, fills what is missing with zeros, and decodes
JPEG at whatever size its own header says. So pages and descriptions are checked first. A file of
one of the many other kinds that tifffile knows is decoded in a process with limits: this file, run
as ``python tiff_decoding.py NAME MEMORY SECONDS ANSWER`` with the TIFF on its standard input.
"""

from __future__ import annotations

import io
import logging
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tifffile

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.images import within_limits
from cellrepro.images.codecs import (
    ALWAYS_ALLOWED,
    damaged,
    decoded_by_python,
    jpeg_frame,
    most_unpacked,
    no_cmyk,
    refuse_absurd,
    refuse_compression,
)
from cellrepro.images.image_axes import Decoded
from cellrepro.store.tiff_pages import IMAGE_DESCRIPTION, TiffPages, TooManyPages, pages_of
from cellrepro.words import some

_SOFTWARE = 305
_JPEG_TABLES = 347
_USUAL_TAGS = frozenset(range(254, 348)) | {
    700,  # XMP
    32997,  # depth of an image
    33432,  # copyright
    33550,  # geographic, up to 34737
    33922,
    34264,
    34377,  # of Photoshop
    34675,  # a colour profile
    34735,
    34736,
    34737,
    42112,  # of GDAL
    42113,
    50838,  # of ImageJ
    50839,
}
"""With no tags but these, tifffile takes a file for none of its other kinds."""
_OTHER_SOFTWARE = re.compile(r"SI\.|PerkinElmer|Philips|Ventana|ScanOutput|Indica")
_OTHER_DESCRIPTION = re.compile(r"state\.|Aperio |(?s:.*)scanimage\.SI")
_OF_JPEG = {6, 7, 33007, 34892}
"""Compressions whose strips and tiles begin with the header of a JPEG."""
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
_UNUSUAL_IN_OME = ("Modulo", "<!")  # axes of any length, entities
_MOST_OF_OME = 2**24  # letters
_ORDER_OF_OME = "DimensionOrder"
_COUNTS_OF_OME = ("PlaneCount", "NumPlanes")
_MOST_NAMED = 2**16  # planes, of an OME description
_PADDING = 16  # pixels; JPEG codes blocks, and some programs write their size

# What tifffile would log of a damaged file is checked here, and is refused.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


class NeedsLimits(Exception):
    """Nobody knows what the file takes before it is decoded."""


def decode_tiff(file: Path, data: bytes) -> Decoded:
    """Decode a TIFF of one image."""
    try:
        return decode_whole(file, data, within_limits_already=False)
    except NeedsLimits:
        pass
    limits = within_limits.Limits.for_bytes(len(data), answer=2**40)
    try:
        arrays = within_limits.arrays_of(__file__, str(file), limits=limits, content=data)
    except within_limits.NotHere as error:
        raise NotPossibleHere(str(error)) from error
    except within_limits.Refused as error:
        reason = str(error)
        if reason.startswith(f"{file}: "):
            raise BadInput(reason) from error
        raise damaged(file, f"cannot be decoded as TIFF ({reason})") from error
    return Decoded(arrays["pixels"], str(arrays["axes"]), bool(arrays["alpha"]))


def decode_whole(file: Path, data: bytes, *, within_limits_already: bool) -> Decoded:
    """Decode a TIFF in this process, which may hold itself to limits."""
    try:
        pages = pages_of(data)
    except TooManyPages as error:
        raise BadInput(f"{file}: {error}") from error
    except ValueError as error:
        raise damaged(file, str(error)) from error
    if not pages.n_pages:
        raise damaged(file, "it holds no image")
    if not (within_limits_already or _is_usual(pages)):
        raise NeedsLimits
    _refuse_planes_elsewhere(file, pages)
    with tifffile.TiffFile(io.BytesIO(data)) as tiff:
        series = _only_series(file, tiff, pages)
        page = series.keyframe
        if 0 in series.shape:  # of which tifffile knows no strips
            return Decoded(np.zeros(series.shape, series.dtype), series.axes)
        chunk = math.prod(page.chunks) * series.dtype.itemsize  # a strip or tile
        refuse_absurd(file, data, max(series.nbytes, chunk), page.compression)
        _refuse_missing_strips(file, data, tiff, series, pages.n_pages)
        if page.compression in _OF_JPEG:
            height = _refuse_larger_pictures(file, data, series, _size_of_jpeg)
            if height > _chunk_height(page) + _PADDING and not within_limits_already:
                raise NeedsLimits  # as large as the whole image, for each strip
        if page.photometric == tifffile.PHOTOMETRIC.SEPARATED:
            raise no_cmyk(file)
        refuse_compression(file, page)
        if within_limits_already:
            needed = within_limits.Limits.for_bytes(len(data) + series.nbytes + chunk, answer=0)
            within_limits.hold_memory(needed.memory)
            if page.compression in tifffile.TIFF.IMAGE_COMPRESSIONS - _OF_JPEG:
                decompress = tifffile.TIFF.DECOMPRESSORS[page.compression]
                _refuse_larger_pictures(
                    file, data, series, lambda content: np.shape(decompress(content))
                )
        elif _may_burst(page, series, chunk):
            raise NeedsLimits
        pixels = series.asarray(maxworkers=1)
        kinds = (tifffile.EXTRASAMPLE.ASSOCALPHA, tifffile.EXTRASAMPLE.UNASSALPHA)
        alpha = "S" in series.axes and any(extra in kinds for extra in page.extrasamples)
        axes = series.axes
        shape = series.shape
    if pixels.shape != shape:
        raise damaged(file, f"pixels of shape {pixels.shape} instead of {shape}")
    return Decoded.of(pixels, axes, alpha=alpha)


def _is_usual(pages: TiffPages) -> bool:
    """Whether tifffile reads a file as an ordinary TIFF, its own, ImageJ's or OME's."""
    if not pages.numbers <= _USUAL_TAGS:
        return False
    if any(_OTHER_SOFTWARE.match(text) for text in pages.texts(_SOFTWARE)):
        return False
    descriptions = pages.texts(IMAGE_DESCRIPTION)
    for text in descriptions:
        if _OTHER_DESCRIPTION.match(text) or (text.startswith("<") and not _is_ome(text)):
            return False
        is_unusual = len(text) > _MOST_OF_OME or any(word in text for word in _UNUSUAL_IN_OME)
        if _is_ome(text) and is_unusual:
            return False
    return True


def _is_ome(description: str) -> bool:
    return description[-10:].endswith("OME>")


def _refuse_planes_elsewhere(file: Path, pages: TiffPages) -> None:
    """Refuse an OME-TIFF whose description counts more planes than the file has pages."""
    for text in filter(_is_ome, pages.texts(IMAGE_DESCRIPTION)):
        from xml.etree import ElementTree

        try:
            n_planes = _planes_counted(text, pages)
        except (ElementTree.ParseError, ValueError, KeyError):  # tifffile then reads no planes
            continue
        if n_planes > pages.n_pages:
            raise BadInput(
                f"{file}: its OME description counts {n_planes} planes, and it has "
                f"{pages.n_pages}: one of several files of a multi-file OME-TIFF, or cut off; save "
                "the image as one TIFF"
            )


def _planes_counted(ome: str, pages: TiffPages) -> int:
    """The most planes that an element of an OME description counts; too many are added up."""
    from xml.etree import ElementTree

    n_planes = 0
    n_named = 0  # tifffile looks each of them up
    for element in ElementTree.fromstring(ome).iter():
        if element.tag.endswith("Pixels"):
            sizes = [int(element.attrib[f"Size{axis}"]) for axis in element.attrib[_ORDER_OF_OME]]
            n_planes = max(n_planes, math.prod(sizes) // pages.samples_of_page)
        elif element.tag.endswith("TiffData"):
            counts = [int(element.attrib.get(name, 0)) for name in _COUNTS_OF_OME]
            n_planes = max(n_planes, *counts)
            n_named += max(counts) or ("IFD" in element.attrib or pages.n_pages)
    return n_named if n_named > max(_MOST_NAMED, 4 * pages.n_pages) else n_planes


def _only_series(file: Path, tiff: tifffile.TiffFile, pages: TiffPages) -> tifffile.TiffPageSeries:
    if not tiff.series:
        raise damaged(file, "it holds no image")
    if len(tiff.series) > 1:
        n_images = len(tiff.series)
        shapes = [series.shape for series in tiff.series]
        if len(set(shapes)) == 1:
            raise BadInput(
                f"{file}: {n_images} separate images of shape {shapes[0]}, expected one; planes "
                "that a program wrote one by one are no stack, and Cellpose reads the first alone: "
                "tifffile.imwrite('stack.tif', numpy.stack([page.asarray() for page in "
                "tifffile.TiffFile(FILE).pages]), metadata={'axes': 'ZYX'}) makes one of them"
            )
        raise BadInput(
            f"{file}: {n_images} separate images of shapes {some(list(map(str, shapes)))}, "
            "expected one; save the one to use as a TIFF of its own"
        )
    series = tiff.series[0]
    if series.kind in ("uniform", "generic") and any(
        text.startswith("ImageJ=") for text in pages.texts(IMAGE_DESCRIPTION)
    ):  # which has one page for all planes: tifffile then gives the first
        raise damaged(file, "its description by ImageJ counts more planes than it holds")
    return series


def _refuse_missing_strips(
    file: Path,
    data: bytes,
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


def _refuse_larger_pictures(
    file: Path,
    data: bytes,
    series: tifffile.TiffPageSeries,
    size_of: Callable[[bytes], tuple[int, ...]],
) -> int:
    """The height of the largest picture in a strip or tile, by the picture's own header.

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
            if own_height > height + _PADDING or own_width > width + _PADDING:
                raise damaged(
                    file,
                    f"a strip or tile of an image of {height} x {width} pixels holds a picture of "
                    f"{own_height} x {own_width}",
                )
            largest = max(largest, own_height)
    return largest


def _chunk_height(page: tifffile.TiffPage) -> int:
    return int(page.tilelength if page.is_tiled else page.rowsperstrip)


def _size_of_jpeg(content: bytes) -> tuple[int, int]:
    frame = jpeg_frame(content)
    return (0, 0) if frame is None else (frame.height, frame.width)  # its decoder refuses it


def _pages_of(series: tifffile.TiffPageSeries) -> list[tifffile.TiffPage | tifffile.TiffFrame]:
    return [page for page in series.pages if page is not None]


def _may_burst(page: tifffile.TiffPage, series: tifffile.TiffPageSeries, chunk: int) -> bool:
    """Whether a decoder may return more bytes than are expected."""
    if page.compression == tifffile.COMPRESSION.JPEG:
        return _JPEG_TABLES in page.tags and jpeg_frame(page.tags[_JPEG_TABLES].value) is not None
    if page.compression not in _OF_BYTES:
        return True
    if not decoded_by_python(page.compression):
        return False
    largest = max(max(each.databytecounts) for each in _pages_of(series))
    return most_unpacked(largest, page.compression) > max(ALWAYS_ALLOWED, 4 * chunk)


# -- in a process with limits ------------------------------------------------------------------


def main() -> within_limits.Arrays:
    """The pixels of a TIFF on standard input, and what their axes are."""
    file = Path(sys.argv[1])  # for messages
    try:
        decoded = decode_whole(file, sys.stdin.buffer.read(), within_limits_already=True)
    except NotPossibleHere as error:
        raise within_limits.NotHere(str(error)) from error
    except CellreproError as error:
        raise within_limits.Refused(str(error)) from error
    return {
        "pixels": decoded.pixels,
        "axes": np.array(decoded.axes),
        "alpha": np.array(decoded.alpha),
    }


if __name__ == "__main__":
    within_limits.answer_with(main)
