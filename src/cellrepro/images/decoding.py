"""One image or mask file, decoded to its end, with its axes in Cellpose's order.

Decoders fill what is missing in a damaged file, or believe any header; here it is refused.
"""

import io
import logging
import math
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fastremap
import imagecodecs
import numpy as np
import psutil
import tifffile
from scipy import ndimage

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.images.label_image import LARGEST_LABEL, label_image, refuse_picture
from cellrepro.images.seg_file import SEG_ENDING, read_seg
from cellrepro.words import some

FORMATS = {".tif": "TIFF", ".tiff": "TIFF", ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""The formats by the ending of a file's name, in lower case."""
OTHER_ENDINGS = ", ".join(ending for ending in FORMATS if ending != ".tif")

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
_SMALLEST_SIDE = 16  # pixels; Cellpose's networks work on patches of 8
_LARGEST_OF_TRUTH = int(np.iinfo(np.int32).max)  # what is beside an image becomes int32
_MOST_CHANNELS = 3  # Cellpose 4 reads three

# tifffile 2026.3.3 only logs these and returns what it could read, so a cut-off stack of three
# channels comes back as one plane. Some programs write tags with an offset below 8, which is inside
# the header and harmless; any other invalid offset leads beyond the end of the file.
_DAMAGE_IN_LOG = re.compile(
    r"invalid page offset|corrupted (file|tag list)|invalid value offset ([89]|\d\d)"
)


def read_image(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an image, (Y, X) or (Y, X, C) with C 2 or 3: finite numbers, the dtype as stored."""
    return decode_image(Path(path), read_bytes(Path(path)), [])[0]


def read_masks(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a label image to train on: int32, shape (Y, X), 0 is background."""
    return decode_masks(Path(path), read_bytes(Path(path)), [])[0]


def read_labels(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a label image to compare, also a stack, (Z, Y, X): TIFF, PNG, what `numpy.save` wrote,
    or the masks of Cellpose's ``_seg.npy``."""
    file = Path(path)
    if file.name.endswith(SEG_ENDING):
        return read_seg(file).masks
    decoded = _decode_labels(file, read_bytes(file))
    return _native(_labels(file, decoded, stacks=True, largest=LARGEST_LABEL))


@dataclass(frozen=True)
class Axes:
    """How the axes of image files are understood, beside what the files say."""

    stacks: bool = False  # whether an image may have planes, (Z, Y, X) or (Z, Y, X, C)
    channel: int | None = None  # of the array as the file holds it
    z: int | None = None


FLAT = Axes()


def decode_image(
    file: Path, data: bytes, remarks: list[str], axes: Axes = FLAT
) -> tuple[np.ndarray, bool]:
    """The image in the bytes of a file, as `read_image` or with planes first, and whether it has
    planes; what deserves a look goes to `remarks`."""
    image, is_stack = _channels_last(file, _named(file, _decode(file, data), axes), remarks, axes)
    across = image.shape[1:3] if is_stack else image.shape[:2]
    if image.dtype.kind not in "uif":
        raise BadInput(
            f"{file}: pixels of type {image.dtype}, expected integers or real numbers; "
            f"save the image as 8-bit, 16-bit or 32-bit float"
        )
    if min(across) < _SMALLEST_SIDE:
        raise BadInput(
            f"{file}: (Y, X) = {across}, expected at least {_SMALLEST_SIDE} pixels on a "
            f"side; remove the image or export it at full size"
        )
    _refuse_not_finite(file, image)
    if image.min() == image.max():
        remarks.append(f"constant image, every pixel is {image.min()}")
    return image, is_stack


def decode_masks(
    file: Path, data: bytes, remarks: list[str], axes: Axes = FLAT
) -> tuple[np.ndarray, bool]:
    """The labels in the bytes of a file as `read_masks`, and whether they have planes, (Z, Y, X);
    what deserves a look goes to `remarks`."""
    decoded = _decode_labels(file, data)
    labels = _labels(file, decoded, stacks=axes.stacks, largest=_LARGEST_OF_TRUTH)
    masks = np.ascontiguousarray(labels, dtype=np.int32)
    several = [str(label) for label, _, _, n_pieces in pieces_by_label(masks) if n_pieces > 1]
    if several:
        remarks.append(
            f"labels in several pieces (8-connectivity): {some(several)}; each counts as one "
            "object, so a binary mask needs a number for every object first"
        )
    return masks, masks.ndim == 3


def pieces_by_label(masks: np.ndarray) -> Iterator[tuple[int, tuple[slice, ...], np.ndarray, int]]:
    """Each label, its box, the pieces in it, numbered (8-connectivity), and how many they are."""
    # find_objects makes one entry for each number up to the largest label
    renumbered, new_numbers = fastremap.renumber(masks, preserve_zero=True, in_place=False)
    boxes = ndimage.find_objects(renumbered)
    for label, number in sorted(new_numbers.items()):
        if label:
            box = boxes[number - 1]
            around = np.ones((3,) * masks.ndim)
            yield int(label), box, *ndimage.label(renumbered[box] == number, around)


def read_bytes(file: Path) -> bytes:
    """Read a file whole, so that digest and pixels come from the same bytes."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise BadInput(f"{file}: a folder or a device, expected a file; rename or remove it")
        data = file.read_bytes()
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


@dataclass
class _Decoded:
    """Pixels as the file holds them, without axes of length 1 beyond two."""

    pixels: np.ndarray
    axes: str  # a letter for each dimension, as in tifffile: S and C are channels, Q and I unknown
    alpha: bool = False  # the last channel is transparency

    def __post_init__(self) -> None:
        while self.pixels.ndim > 2 and 1 in self.pixels.shape:
            axis = self.pixels.shape.index(1)
            self.pixels = self.pixels.squeeze(axis)
            self.axes = self.axes[:axis] + self.axes[axis + 1 :]


def _decode(file: Path, data: bytes) -> _Decoded:
    """Decode the bytes of a file by the format that its name promises."""
    expected = FORMATS.get(file.suffix.lower())
    if expected is None:
        raise BadInput(f"{file}: expected an image file (.tif, {OTHER_ENDINGS}); convert it first")
    actual = next((kind for kind, starts in _SIGNATURES.items() if data.startswith(starts)), None)
    if actual != expected:
        raise BadInput(
            f"{file}: begins with {data[:30]!r}, expected {expected} data; give it the name of its "
            "format, export the image again, or run git lfs pull where it is a pointer of Git LFS"
        )
    decoder = {"TIFF": _decode_tiff, "PNG": _decode_png, "JPEG": _decode_jpeg}[actual]
    try:
        return decoder(file, data)
    except CellreproError:
        raise
    except MemoryError as error:
        raise NotPossibleHere(
            f"{file}: too large for the memory of this machine; crop the image into tiles"
        ) from error
    except Exception as error:  # decoders raise nearly any on a damaged file
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise _damaged(file, f"cannot be decoded as {actual} ({reason})") from error


def _decode_labels(file: Path, data: bytes) -> _Decoded:
    """Decode masks: no JPEG, but also what `numpy.save` writes."""
    if FORMATS.get(file.suffix.lower()) == "JPEG":
        raise BadInput(
            f"{file}: a JPEG mask, but JPEG changes label numbers; save the labels as "
            f"{file.stem}.tif or {file.stem}.png"
        )
    if file.suffix.lower() != ".npy":
        return _decode(file, data)
    try:
        pixels = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise BadInput(
            f"{file}: no array of numbers as numpy.save writes it ({reason}); save the masks with "
            "numpy.save(path, masks)"
        ) from error
    return _Decoded(pixels, "ZYX"[-pixels.ndim :] if 2 <= pixels.ndim <= 3 else "")


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


@contextmanager
def _tifffile_errors() -> Iterator[list[str]]:
    """Collect what tifffile logs as an error in this block, and keep it off the terminal."""
    messages: list[str] = []
    collector = logging.Handler(level=logging.ERROR)
    collector.emit = lambda record: messages.append(record.getMessage())  # type: ignore
    logger = logging.getLogger("tifffile")
    logger.addHandler(collector)
    try:
        yield messages
    finally:
        logger.removeHandler(collector)


def _decode_tiff(file: Path, data: bytes) -> _Decoded:
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
        pixels = series.asarray(maxworkers=1)
        kinds = (tifffile.EXTRASAMPLE.ASSOCALPHA, tifffile.EXTRASAMPLE.UNASSALPHA)
        alpha = "S" in series.axes and any(extra in kinds for extra in page.extrasamples)
        axes, shape = series.axes, series.shape
    if pixels.shape != shape:
        raise _damaged(file, f"pixels of shape {pixels.shape} instead of {shape}")
    for message in errors:
        if _DAMAGE_IN_LOG.search(message):
            raise _damaged(file, f"tifffile reports: {message[:120]}")
    return _Decoded(pixels, axes, alpha=alpha)


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


def _decode_png(file: Path, data: bytes) -> _Decoded:
    # The header chunk always comes first: width, height, bit depth, colour type (PNG, section 11.2)
    width, height, depth, colour_type = struct.unpack(">IIBB", data[16:26])
    n_channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colour_type, 4)
    n_bytes = width * height * n_channels * max(1, depth // 8)
    _refuse_absurd(file, data, n_bytes, tifffile.COMPRESSION.ADOBE_DEFLATE)  # PNG's only one
    pixels = imagecodecs.png_decode(data)
    alpha = pixels.ndim == 3 and pixels.shape[2] in (2, 4)
    return _Decoded(pixels, "YXS"[: pixels.ndim], alpha=alpha)


def _decode_jpeg(file: Path, data: bytes) -> _Decoded:
    # libjpeg-turbo, in imagecodecs 2026.3.6 as in OpenCV, fills what is missing with grey. Coded
    # data hold no marker; an embedded preview ends before the last scan of the image starts.
    if data.rfind(b"\xff\xd9") <= data.rfind(b"\xff\xda"):
        raise _damaged(file, "the end-of-image marker is missing")
    pixels = imagecodecs.jpeg_decode(data)
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        raise _no_cmyk(file)
    return _Decoded(pixels, "YXS"[: pixels.ndim])


def _no_cmyk(file: Path) -> BadInput:
    return BadInput(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")


# --- checking -------------------------------------------------------------------------------------


def _named(file: Path, decoded: _Decoded, axes: Axes) -> _Decoded:
    """With the letters of axes that the user has named."""
    letters, n = list(decoded.axes), decoded.pixels.ndim
    for letter, axis in (("C", axes.channel), ("Z", axes.z)):
        if axis is None:
            continue
        if n == 2 or not -n <= axis < n:
            name = {"C": "channel_axis", "Z": "z_axis"}[letter]
            raise BadInput(
                f"{file}: {name} is {axis}, and the image has shape {decoded.pixels.shape} without "
                "axes of length 1; leave it out, or name an axis that it has"
            )
        letters = ["Q" if one in {"C": "CS", "Z": "ZT"}[letter] else one for one in letters]
        letters[axis] = letter
    return _Decoded(decoded.pixels, "".join(letters), alpha=decoded.alpha)


def _channels_last(
    file: Path, decoded: _Decoded, remarks: list[str], given: Axes
) -> tuple[np.ndarray, bool]:
    """The pixels as (Y, X) or (Y, X, C), without transparency or a fourth channel; of a stack with
    its planes first; and whether it is one."""
    pixels, axes = decoded.pixels, decoded.axes
    if pixels.ndim == 2:
        return _native(pixels), False
    plane = axes.find("Z") if given.stacks else -1
    if plane >= 0:
        pixels, axes = np.moveaxis(pixels, plane, 0), axes[:plane] + axes[plane + 1 :]
    n_flat = pixels.ndim - (plane >= 0)
    if n_flat == 2:
        return _native(pixels), True
    channel = next((axis for axis, letter in enumerate(axes) if letter in "CS"), None)
    sizes = pixels.shape[pixels.ndim - n_flat :]
    if n_flat == 3 and channel is None and not set(axes) & set("ZT"):
        # An axis of up to four without a label is taken for channels, as Cellpose takes it
        short = (axis for axis in (2, 0) if sizes[axis] <= _MOST_CHANNELS + 1)
        channel = next(short, None)
    named = given.channel is not None
    if n_flat != 3 or channel is None or (sizes[channel] > _MOST_CHANNELS + 1 and not named):
        raise BadInput(
            f"{file}: shape {decoded.pixels.shape} (axes {decoded.axes}), expected one plane, "
            f"(Y, X) or (Y, X, C) with C up to {_MOST_CHANNELS}; save each plane of a z-stack or "
            "time series as an image of its own, or a projection, and of many channels the ones "
            "to use, labelled C; to segment a stack whose axes the file does not name, give "
            "--set z_axis=N and --set channel_axis=N"
        )
    image = np.moveaxis(pixels, channel - n_flat, -1)
    if decoded.alpha or image.shape[-1] > _MOST_CHANNELS:
        if image[..., -1].min() != image[..., -1].max():
            remarks.append("its last channel (alpha, or a fourth) is not constant and is not used")
        image = image[..., :_MOST_CHANNELS] if named else image[..., :-1]
    return _native(image[..., 0] if image.shape[-1] == 1 else image), plane >= 0


def _native(pixels: np.ndarray) -> np.ndarray:
    """Contiguous pixels in native byte order, which PyTorch needs."""
    return np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("="))


def _refuse_not_finite(file: Path, pixels: np.ndarray) -> None:
    if pixels.dtype.kind != "f":
        return
    n_bad = pixels.size - int(np.count_nonzero(np.isfinite(pixels)))
    if n_bad:
        raise BadInput(
            f"{file}: {n_bad} of {pixels.size} values are NaN or infinite, expected finite "
            f"numbers; replace them (by 0, say) and save again"
        )


def _labels(file: Path, decoded: _Decoded, *, stacks: bool, largest: int) -> np.ndarray:
    """Labels up to ``largest``, (Y, X) or, among ``stacks``, (Z, Y, X).

    Floats become int64, booleans uint8, other types stay.
    """
    labels, axes = decoded.pixels, decoded.axes
    if set(axes) & set("CST") or labels.ndim not in ((2, 3) if stacks else (2,)):
        expected = "(Y, X) or (Z, Y, X)" if stacks else "one plane (Y, X)"
        raise BadInput(
            f"{file}: shape {labels.shape} (axes {axes or 'unknown'}), expected label numbers, "
            f"{expected}; save the labels as 16-bit grey, not as colours or with a palette, the "
            "axes of a stack named ZYX, and each image of a series on its own"
        )
    if labels.dtype.kind == "f":
        _refuse_not_finite(file, labels)
        exact = 2 ** (np.finfo(labels.dtype).nmant + 1)  # above, not every whole number exists
        n_bad = int(np.count_nonzero(labels != np.rint(labels)))
        if n_bad or labels.max(initial=0) > exact:
            raise BadInput(
                f"{file}: labels as {labels.dtype}, of which {n_bad} labels are fractions, "
                f"expected whole numbers up to {exact}; this may be a probability map or a resized "
                "mask, save the labels as 16-bit"
            )
        labels = labels.astype(np.int64)
    elif labels.dtype.kind == "b":
        labels = labels.astype(np.uint8)
    checked = label_image(f"{file}:", labels, largest=largest)
    refuse_picture(f"{file}:", checked)
    return checked
