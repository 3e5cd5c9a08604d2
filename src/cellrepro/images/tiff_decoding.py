"""A TIFF of one image, decoded by tifffile, with bounds on what that takes.

tifffile believes what a description says of planes, fills what is missing with zeros, and decodes
JPEG at whatever size its own header says. So pages and descriptions are checked first. A file of
one of the many other kinds that tifffile knows, or one that may take much more than its pixels, is
decoded in a process with limits: this file, run by `within_limits.arrays_of` with the file's name,
whether a large image may be mapped, and the TIFF on its standard input.
"""

from __future__ import annotations

import io
import logging
import math
import os
import sys
from pathlib import Path

import numpy as np
import tifffile

from cellrepro.images import within_limits
from cellrepro.images.codecs import no_cmyk, refuse_compression
from cellrepro.images.image_axes import Decoded
from cellrepro.images.mapped import Content, is_large, refuse_full_disk
from cellrepro.images.packed_sizes import damaged, refuse_absurd
from cellrepro.images.tiff_descriptions import is_usual, refuse_planes_elsewhere
from cellrepro.images.tiff_strips import (
    PADDING,
    chunk_height,
    may_burst,
    refuse_larger_pictures,
    refuse_missing_strips,
    size_of_jpeg,
)
from cellrepro.store.tiff_pages import IMAGE_DESCRIPTION, TiffPages, TooManyPages, pages_of
from samebits.errors import BadInput
from samebits.words import some

_OF_JPEG = {6, 7, 33007, 34892}
"""Compressions whose strips and tiles begin with the header of a JPEG."""

# What tifffile would log of a damaged file is checked here, and is refused.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


class NeedsLimits(Exception):
    """Nobody knows what the file takes before it is decoded."""


def decode_tiff(file: Path, data: Content, *, may_map: bool = False) -> Decoded:
    """Decode a TIFF of one image."""
    try:
        return decode_whole(file, data, within_limits_already=False, may_map=may_map)
    except NeedsLimits:
        pass
    limits = within_limits.Limits.for_bytes(len(data), answer=2**40)
    try:
        words = (str(file), "may map" if may_map else "")
        arrays = within_limits.arrays_of(__file__, *words, limits=limits, content=data)
    except within_limits.Failed as error:
        raise damaged(file, f"cannot be decoded as TIFF ({error})") from error
    return Decoded(arrays["pixels"], str(arrays["axes"]), bool(arrays["alpha"]))


def decode_whole(
    file: Path, data: Content, *, within_limits_already: bool, may_map: bool
) -> Decoded:
    """Decode a TIFF in this process, which may hold itself to limits."""
    pages = _pages_in(file, data)
    if not (within_limits_already or is_usual(pages)):
        raise NeedsLimits
    refuse_planes_elsewhere(file, pages)
    opened = io.BytesIO(data) if isinstance(data, bytes) else file
    with tifffile.TiffFile(opened, _multifile=False) as tiff:
        series = _only_series(file, tiff, pages)
        if 0 in series.shape:  # of which tifffile knows no strips
            return Decoded(np.zeros(series.shape, series.dtype), series.axes)
        page = series.keyframe
        chunk = math.prod(page.chunks) * series.dtype.itemsize  # a strip or tile
        maps = may_map and is_large(series.nbytes)
        n_bytes = max(series.nbytes, chunk)
        in_memory = chunk if maps else n_bytes
        refuse_absurd(file, data, n_bytes, page.compression, in_memory=in_memory)
        refuse_missing_strips(file, data, tiff, series, pages.n_pages)
        if page.compression in _OF_JPEG:
            height = refuse_larger_pictures(file, data, series, size_of_jpeg)
            if height > chunk_height(page) + PADDING and not within_limits_already:
                raise NeedsLimits  # as large as the whole image, for each strip
        if page.photometric == tifffile.PHOTOMETRIC.SEPARATED:
            raise no_cmyk(file)
        refuse_compression(file, page)
        if within_limits_already:
            _hold_to_limits(file, data, series, chunk)
        elif may_burst(page, series, chunk):
            raise NeedsLimits
        return _decoded(file, series, maps=maps)


def _pages_in(file: Path, data: Content) -> TiffPages:
    try:
        pages = pages_of(data)
    except TooManyPages as error:
        raise BadInput(f"{file}: {error}") from error
    except ValueError as error:
        raise damaged(file, str(error)) from error
    if not pages.n_pages:
        raise damaged(file, "it holds no image")
    return pages


def _hold_to_limits(file: Path, data: Content, series: tifffile.TiffPageSeries, chunk: int) -> None:
    """Limit this process to what the pixels need, and refuse pictures larger than their place."""
    needed = within_limits.Limits.for_bytes(len(data) + series.nbytes + chunk, answer=0)
    within_limits.hold_memory(needed.memory)
    compression = series.keyframe.compression
    if compression in tifffile.TIFF.IMAGE_COMPRESSIONS - _OF_JPEG:
        decompress = tifffile.TIFF.DECOMPRESSORS[compression]
        refuse_larger_pictures(file, data, series, lambda content: np.shape(decompress(content)))


def _decoded(file: Path, series: tifffile.TiffPageSeries, *, maps: bool) -> Decoded:
    if maps:
        refuse_full_disk(file, series.nbytes)
        pixels = series.asarray(out="memmap", maxworkers=os.cpu_count())
    else:
        pixels = series.asarray(maxworkers=1)
    if pixels.shape != series.shape:
        raise damaged(file, f"pixels of shape {pixels.shape} instead of {series.shape}")
    kinds = (tifffile.EXTRASAMPLE.ASSOCALPHA, tifffile.EXTRASAMPLE.UNASSALPHA)
    has_alpha = any(extra in kinds for extra in series.keyframe.extrasamples)
    return Decoded.of(pixels, series.axes, alpha="S" in series.axes and has_alpha)


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


# -- in a process with limits ------------------------------------------------------------------


def main() -> within_limits.Arrays:
    """The pixels of a TIFF on standard input, and what their axes are."""
    file = Path(sys.argv[1])  # for messages
    may_map = sys.argv[2] != ""
    data = sys.stdin.buffer.read()
    decoded = decode_whole(file, data, within_limits_already=True, may_map=may_map)
    return {
        "pixels": decoded.pixels,
        "axes": np.array(decoded.axes),
        "alpha": np.array(decoded.alpha),
    }


if __name__ == "__main__":
    within_limits.answer_with(main)
