"""One image or mask file, decoded to its end, with its axes in Cellpose's order.

Decoders fill what is missing in a damaged file, or believe any header; here such a file is refused,
with what is wrong and what to do.
"""

import errno
import io
import logging
import math
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fastremap
import imagecodecs
import numpy as np
import tifffile
from scipy import ndimage

from cellrepro.errors import BadInput, NotPossibleHere

FORMATS = {".tif": "TIFF", ".tiff": "TIFF", ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""The formats by the ending of a file's name, in lower case."""
_SIGNATURES = {
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
}
_SMALLEST_SIDE = 16  # pixels; Cellpose's networks work on patches of 8
_MOST_CHANNELS = 3  # Cellpose 4 reads three
_BINARY_LABELS = {1, 255, 65535}
_EIGHT_NEIGHBOURS = np.ones((3, 3), dtype=bool)

Warn = Callable[[str], None]
"""Takes a remark on what can be used but deserves a look."""

# Every type that tifffile 2026.3.3 and imagecodecs 2026.3.6 raised on 30,000 damaged files (cut
# off, or with bytes changed). Errors of imagecodecs are RuntimeErrors, TiffFileError is not.
_DECODER_ERRORS = (
    tifffile.TiffFileError,
    ArithmeticError,
    AssertionError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)
# tifffile 2026.3.3 only logs these and returns what it could read, so a cut-off stack of three
# channels comes back as one plane. Some programs write tags with an offset below 8, which is inside
# the header and harmless; any other invalid offset leads beyond the end of the file.
_DAMAGE_IN_LOG = re.compile(
    r"invalid page offset|corrupted (file|tag list)|invalid value offset ([89]|\d\d)"
)


def read_image(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one image file with its axes in Cellpose's order.

    Returns
    -------
    ndarray, shape (Y, X) or (Y, X, C) with C 2 or 3
        Finite numbers, the dtype as stored; an alpha channel is dropped.
    """
    return decode_image(Path(path), read_bytes(Path(path)))


def read_masks(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one label image that is to be trained on.

    Returns
    -------
    ndarray of int32, shape (Y, X)
        0 is background; every other label is one object.
    """
    refuse_lossy_masks(Path(path))
    return decode_masks(Path(path), read_bytes(Path(path)))


def read_labels(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a label image that is to be compared: also a stack, and any number up to 2³² - 1.

    Parameters
    ----------
    path : path
        TIFF, PNG, or an array saved by `numpy.save`.

    Returns
    -------
    ndarray of int or uint, shape (Y, X) or (Z, Y, X)
        0 is background; every other label is one object. The dtype as stored, except that booleans
        become uint8, and whole numbers stored as floats int64.
    """
    file = Path(path)
    refuse_lossy_masks(file)
    data = read_bytes(file)
    decoded = _decode_npy(file, data) if file.suffix.lower() == ".npy" else _decode(file, data)
    labels = _labels(file, decoded, stacks=True)
    if labels.dtype.kind in "bf":
        labels = labels.astype(np.uint8 if labels.dtype.kind == "b" else np.int64)
    return _native(labels)


def decode_image(file: Path, data: bytes, warn: Warn = lambda _: None) -> np.ndarray:
    """Decode the bytes of an image as `read_image`."""
    decoded = _decode(file, data)
    for remark in decoded.remarks:
        warn(remark)
    image = _drop_extra_channels(_channels_last(file, decoded), decoded, warn)
    if image.dtype.kind not in "uif":
        raise BadInput(
            f"{file}: pixels of type {image.dtype}, expected integers or real numbers; "
            f"save the image as 8-bit, 16-bit or 32-bit float"
        )
    if min(image.shape[:2]) < _SMALLEST_SIDE:
        raise BadInput(
            f"{file}: (Y, X) = {image.shape[:2]}, expected at least {_SMALLEST_SIDE} pixels on a "
            f"side; remove the image or export it at full size"
        )
    _refuse_not_finite(file, image)
    if image.min() == image.max():
        warn(f"constant image, every pixel is {image.min()}")
    return image


def decode_masks(file: Path, data: bytes, warn: Warn = lambda _: None) -> np.ndarray:
    """Decode the bytes of a label image as `read_masks`."""
    labels = _labels(file, _decode(file, data), stacks=False)
    if labels.dtype.kind == "f":
        warn(f"labels stored as {labels.dtype}; they are whole numbers and used as such")
    masks = np.ascontiguousarray(labels, dtype=np.int32)
    _warn_of_pieces(masks, warn)
    return masks


def some(names: Sequence[str], n_shown: int = 5) -> str:
    """Join the first names, and say how many more there are."""
    more = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + more


def extensions() -> str:
    """The endings an image may have besides .tif, for messages."""
    return ", ".join(extension for extension in FORMATS if extension != ".tif")


def refuse_lossy_masks(file: Path) -> None:
    """Refuse a mask that its name says is a JPEG."""
    if FORMATS.get(file.suffix.lower()) == "JPEG":
        raise BadInput(
            f"{file}: a JPEG mask, but JPEG changes label numbers; save the labels as "
            f"{file.stem}.tif or {file.stem}.png"
        )


# --- bytes ----------------------------------------------------------------------------------------


def read_bytes(file: Path) -> bytes:
    """Read a file whole, so that digest and pixels come from the same bytes."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise BadInput(f"{file}: no regular file, so it cannot be read; give an image file")
        data = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file}: {explain(error, 'file')}") from error
    if not data:
        raise BadInput(f"{file}: empty (0 bytes); copy it again from its source or remove it")
    return data


def explain(error: OSError, what: str) -> str:
    """Say why the system refused a file or folder, and what to do."""
    if error.errno == errno.ELOOP:
        return "a symbolic link that leads back to itself; replace it by what it should point to"
    if error.errno == errno.ENOENT:
        return f"no such {what} (or a link that leads nowhere); check the spelling"
    if error.errno == errno.ENOTDIR:
        return f"no such {what}, a part of this path is a file; check the spelling"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"permission denied; make the {what} readable for this user (chmod u+r)"
    return f"cannot be read ({error.strerror or error}); check the disk or copy the {what} again"


# --- decoding -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Decoded:
    """Pixels as the file holds them.

    `axes` has one letter for each dimension, as in tifffile (S and C are channels, Q and I
    unknown); `alpha` says that the last of the S axis is transparency.
    """

    pixels: np.ndarray
    axes: str
    alpha: bool = False
    palette: bool = False
    remarks: tuple[str, ...] = ()


def _decode(file: Path, data: bytes) -> _Decoded:
    """Decode the bytes of a file by the format that its name promises."""
    expected = FORMATS.get(file.suffix.lower())
    if expected is None:
        raise BadInput(f"{file}: expected an image file (.tif, {extensions()}); convert it first")
    actual = next((known for start, known in _SIGNATURES.items() if data.startswith(start)), None)
    if actual is None and data.startswith(b"version https://git-lfs"):
        raise BadInput(f"{file}: a Git LFS pointer, not the image itself; run git lfs pull")
    if actual is None:
        raise BadInput(
            f"{file}: not a {expected} file, it starts with {data[:12]!r}; "
            f"export the image as {expected} again or remove the file"
        )
    if actual != expected:
        right = {"TIFF": ".tif", "PNG": ".png", "JPEG": ".jpg"}[actual]
        raise BadInput(
            f"{file}: holds {actual} data under a {expected} name; rename it to {file.stem}{right}"
        )
    decoder = {"TIFF": _decode_tiff, "PNG": _decode_png, "JPEG": _decode_jpeg}[actual]
    try:
        return decoder(file, data)
    except BadInput:
        raise
    except MemoryError as error:
        raise NotPossibleHere(
            f"{file}: too large for the memory of this machine; crop the image into tiles"
        ) from error
    except _DECODER_ERRORS as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise BadInput(_damaged(file, f"cannot be decoded as {actual} ({reason})")) from error


def _damaged(file: Path, what: str) -> str:
    return f"{file}: damaged or incomplete, {what}; copy it again from its source"


def _refuse_absurd(file: Path, data: bytes, n_bytes: int) -> None:
    """Refuse a header that promises far more pixels than its file can hold.

    Deflate, the strongest of the usual compressions, cannot exceed 1032 to 1, so such a header is
    damaged; believing it would fill the memory with zeros.
    """
    if n_bytes > max(64 * 2**20, 5000 * len(data)):
        raise BadInput(
            _damaged(file, f"its header promises {n_bytes} bytes in a file of {len(data)}")
        )


@contextmanager
def _tifffile_errors() -> Iterator[list[str]]:
    """Collect what tifffile logs as an error in this block, and keep it off the terminal."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    collector = Collector(level=logging.ERROR)
    logger = logging.getLogger("tifffile")
    logger.addHandler(collector)
    try:
        yield messages
    finally:
        logger.removeHandler(collector)


def _decode_tiff(file: Path, data: bytes) -> _Decoded:
    with _tifffile_errors() as errors, tifffile.TiffFile(io.BytesIO(data)) as tiff:
        if not tiff.series:
            raise BadInput(_damaged(file, "it holds no image"))
        if len(tiff.series) > 1:
            shapes = some([str(series.shape) for series in tiff.series])
            raise BadInput(
                f"{file}: {len(tiff.series)} separate images of shapes {shapes}, expected one; "
                f"save the one to use as a TIFF of its own"
            )
        series = tiff.series[0]
        chunk = math.prod(series.keyframe.chunks) * series.dtype.itemsize  # a strip or tile
        _refuse_absurd(file, data, max(series.nbytes, chunk))
        _refuse_missing_strips(file, data, tiff, series)
        if series.keyframe.photometric == tifffile.PHOTOMETRIC.SEPARATED:
            raise BadInput(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")
        pixels = series.asarray(maxworkers=1)
        alpha = any(
            extra in (tifffile.EXTRASAMPLE.ASSOCALPHA, tifffile.EXTRASAMPLE.UNASSALPHA)
            for extra in series.keyframe.extrasamples
        )
        remarks = (
            ("stored as 'white is zero'; the numbers are used as stored",)
            if series.keyframe.photometric == tifffile.PHOTOMETRIC.MINISWHITE
            else ()
        )
        axes, shape = series.axes, series.shape
    if pixels.shape != shape:
        raise BadInput(_damaged(file, f"pixels of shape {pixels.shape} instead of {shape}"))
    for message in errors:
        if _DAMAGE_IN_LOG.search(message):
            raise BadInput(_damaged(file, f"tifffile reports: {message[:120]}"))
    if errors:
        remarks = (*remarks, f"tifffile reports: {errors[0][:120]}")
    return _Decoded(pixels, axes, alpha=alpha and "S" in axes, remarks=remarks)


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
                raise BadInput(_damaged(file, "a strip or tile without data"))
            end = max(end, offset + n_bytes)
    if end > len(data):
        raise BadInput(
            _damaged(file, f"its pixels should end at byte {end}, the file at {len(data)}")
        )


def _decode_png(file: Path, data: bytes) -> _Decoded:
    # The header chunk always comes first: width, height, bit depth, colour type (PNG, section 11.2)
    width, height, depth, colour_type = struct.unpack(">IIBB", data[16:26])
    n_channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colour_type, 4)
    _refuse_absurd(file, data, width * height * n_channels * max(1, depth // 8))
    pixels = imagecodecs.png_decode(data)
    axes = "YX" if pixels.ndim == 2 else "YXS"
    alpha = pixels.ndim == 3 and pixels.shape[2] in (2, 4)
    return _Decoded(pixels, axes, alpha=alpha, palette=colour_type == 3)


def _decode_npy(file: Path, data: bytes) -> _Decoded:
    try:
        pixels = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise BadInput(
            f"{file}: no array of numbers as numpy.save writes it ({reason}); save the masks with "
            "numpy.save(path, masks)"
        ) from error
    return _Decoded(pixels, "ZYX"[-pixels.ndim :] if 2 <= pixels.ndim <= 3 else "")


def _decode_jpeg(file: Path, data: bytes) -> _Decoded:
    if not _jpeg_is_complete(data):
        raise BadInput(_damaged(file, "the end-of-image marker is missing"))
    pixels = imagecodecs.jpeg_decode(data)
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        raise BadInput(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")
    return _Decoded(pixels, "YX" if pixels.ndim == 2 else "YXS")


def _jpeg_is_complete(data: bytes) -> bool:
    """Whether a JPEG reaches its own end-of-image marker, not that of an embedded preview.

    libjpeg-turbo, in imagecodecs 2026.3.6 as in OpenCV, fills what is missing with grey.
    Segments are skipped by their length, coded data up to the next marker (ITU T.81, annex B).
    """
    position = 2
    while 0 <= position < len(data) - 1:
        if data[position] != 0xFF:  # coded data
            position = data.find(b"\xff", position)
            continue
        marker = data[position + 1]
        if marker == 0xD9:
            return True
        if marker == 0xFF:  # padding
            position += 1
        elif marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD7:  # stuffed byte, restart
            position += 2
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return False


# --- checking -------------------------------------------------------------------------------------


def _squeezed(decoded: _Decoded) -> tuple[np.ndarray, str]:
    """The pixels without axes of length 1 beyond two, and the letters of those that are left."""
    pixels, axes = decoded.pixels, decoded.axes
    while pixels.ndim > 2 and 1 in pixels.shape:
        axis = pixels.shape.index(1)
        pixels, axes = pixels.squeeze(axis), axes[:axis] + axes[axis + 1 :]
    return pixels, axes


def _channels_last(file: Path, decoded: _Decoded) -> np.ndarray:
    """Return the pixels as (Y, X) or (Y, X, C), refusing stacks."""
    pixels, axes = _squeezed(decoded)
    what = f"{file}: shape {decoded.pixels.shape} (axes {decoded.axes})"
    remedy = "save each plane as an image of its own, or a projection"
    if pixels.ndim == 2:
        return _native(pixels)
    if pixels.ndim != 3:
        raise BadInput(f"{what}, expected one plane, (Y, X) or (Y, X, C); {remedy}")
    stacked = next((axis for axis, letter in enumerate(axes) if letter in "ZT"), None)
    labelled = next((axis for axis, letter in enumerate(axes) if letter in "CS"), None)
    if stacked is not None and labelled is None:
        raise BadInput(
            f"{what} is a {'z-stack' if axes[stacked] == 'Z' else 'time series'} of "
            f"{pixels.shape[stacked]} planes, expected one plane; {remedy} (or, if the planes are "
            "channels, label them as such)"
        )
    if labelled is not None and pixels.shape[labelled] > _MOST_CHANNELS + 1:
        raise BadInput(
            f"{what} has {pixels.shape[labelled]} channels, Cellpose reads up to "
            f"{_MOST_CHANNELS}; save the ones to use"
        )
    # An axis of up to four without a label is taken for channels, as Cellpose takes it
    short = [axis for axis in (2, 0) if pixels.shape[axis] <= _MOST_CHANNELS + 1]
    channel = labelled if labelled is not None else next(iter(short), None)
    if channel is None:
        raise BadInput(
            f"{what} looks like a z-stack or time series, expected one plane, (Y, X) or (Y, X, C) "
            f"with C up to {_MOST_CHANNELS}; {remedy}"
        )
    return _native(np.moveaxis(pixels, channel, 2))


def _native(pixels: np.ndarray) -> np.ndarray:
    """Return contiguous pixels in native byte order, which PyTorch needs."""
    return np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("="))


def _drop_extra_channels(image: np.ndarray, decoded: _Decoded, warn: Warn) -> np.ndarray:
    """Drop transparency or a fourth channel, and say so where it held something."""
    if image.ndim == 2:
        return image
    n_channels = image.shape[2]
    if decoded.alpha or n_channels > _MOST_CHANNELS:
        last = image[..., -1]
        if last.min() != last.max():
            kind = "alpha channel" if decoded.alpha else f"channel {n_channels}"
            warn(f"the {kind} is not constant and is not used; Cellpose reads {_MOST_CHANNELS}")
        image = image[..., :-1]
    if image.shape[2] == 1:
        image = image[..., 0]
    return np.ascontiguousarray(image)


def _refuse_not_finite(file: Path, pixels: np.ndarray) -> None:
    if pixels.dtype.kind != "f":
        return
    n_bad = pixels.size - int(np.count_nonzero(np.isfinite(pixels)))
    if n_bad:
        raise BadInput(
            f"{file}: {n_bad} of {pixels.size} values are NaN or infinite, expected finite "
            f"numbers; replace them (by 0, say) and save again"
        )


def _labels(file: Path, decoded: _Decoded, *, stacks: bool) -> np.ndarray:
    """Return labels of the dtype as stored, (Y, X) or, among ``stacks``, (Z, Y, X).

    Those that are no stacks are trained on, where Cellpose's labels are int32.
    """
    labels, axes = _squeezed(decoded)
    expected = (
        "label numbers, (Y, X) or (Z, Y, X)" if stacks else "one plane of label numbers, (Y, X)"
    )
    colours = decoded.palette or bool(set(axes) & set("CS"))
    if colours or "T" in axes or labels.ndim not in ((2, 3) if stacks else (2,)):
        found = f"shape {decoded.pixels.shape}" + (f" (axes {axes})" if axes else "")
        if colours:
            found = "a palette of colours" if decoded.palette else f"colours or channels, {found}"
        remedy = (
            "save the labels as 16-bit grey, not as colours, the axes of a stack named ZYX, and "
            "each image of a series on its own"
        )
        if labels.ndim < 2:
            remedy = "save the image as it is, not its values in a row"
        raise BadInput(f"{file}: {found}, expected {expected}; {remedy}")
    if labels.dtype.kind not in "buif":
        raise BadInput(
            f"{file}: labels of type {labels.dtype}, expected whole numbers; save them as 16-bit"
        )
    _refuse_not_finite(file, labels)
    if not labels.size:
        return labels
    lowest, highest = labels.min(), labels.max()
    if labels.dtype.kind == "f":
        exact = 2 ** (np.finfo(labels.dtype).nmant + 1)
        if highest > exact:
            raise BadInput(
                f"{file}: labels up to {highest:.0f} as {labels.dtype}, which does not tell "
                f"neighbouring numbers above {exact} apart; save the labels as whole numbers"
            )
        n_bad = int(np.count_nonzero(labels != np.rint(labels)))
        if n_bad:
            raise BadInput(
                f"{file}: {n_bad} labels are fractions, expected whole numbers; this may be a "
                f"probability map or a resized mask, save the labels as 16-bit"
            )
    if lowest < 0:
        raise BadInput(
            f"{file}: negative labels down to {lowest:g}, expected 0 for background and "
            f"positive numbers for objects; renumber them"
        )
    largest = 2**32 - 1 if stacks else np.iinfo(np.int32).max
    if highest > largest:
        raise BadInput(
            f"{file}: labels up to {highest}, expected at most {largest}; renumber them from 1"
        )
    return labels


def _warn_of_pieces(masks: np.ndarray, warn: Warn) -> None:
    """Warn where one label covers several pieces, or all objects share one."""
    in_pieces = labels_in_pieces(masks)
    if not in_pieces:
        return
    present = fastremap.unique(masks)
    objects = present[present != 0]
    if len(objects) == 1 and int(objects[0]) in _BINARY_LABELS:
        warn(
            f"one label ({objects[0]}) in several pieces: this looks like a binary mask, not "
            f"labels; give every object a number of its own"
        )
        return
    shown = some([str(label) for label in in_pieces])
    warn(f"labels in several pieces (8-connectivity): {shown}; each counts as one object")


def labels_in_pieces(masks: np.ndarray) -> list[int]:
    """List the labels whose pixels fall into several pieces, ascending.

    Pixels that touch at a corner are one piece (8-connectivity).

    Examples
    --------
    >>> labels_in_pieces(np.array([[5, 0, 5], [7, 0, 0], [0, 7, 0]]))
    [5]
    """
    # find_objects makes one entry for each number up to the largest label
    renumbered, new_numbers = fastremap.renumber(masks, preserve_zero=True, in_place=False)
    old_numbers = {new: old for old, new in new_numbers.items()}
    in_pieces = []
    for number, box in enumerate(ndimage.find_objects(renumbered), start=1):
        if box is None:
            continue
        _, n_pieces = ndimage.label(renumbered[box] == number, structure=_EIGHT_NEIGHBOURS)
        if n_pieces > 1:
            in_pieces.append(int(old_numbers[number]))
    return sorted(in_pieces)
