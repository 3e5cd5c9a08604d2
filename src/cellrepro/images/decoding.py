"""The bytes of an image file, decoded to their end.

Decoders fill what is missing in a damaged file, or believe any header; here it is refused.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tifffile

from cellrepro.errors import CellreproError, no_such_file
from cellrepro.images.codecs import jpeg_pixels, no_cmyk, png_pixels
from cellrepro.images.image_axes import Decoded
from cellrepro.images.mapped import Content, content_of
from cellrepro.images.packed_sizes import (
    damaged,
    jpeg_frame,
    most_unpacked,
    promises_too_much,
    refuse_absurd,
)
from cellrepro.images.tiff_decoding import decode_tiff
from cellrepro.zip_files import opened_zip
from samebits.errors import BadInput, NotPossibleHere
from samebits.words import some

FORMATS = {".tif": "TIFF", ".tiff": "TIFF", ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""The format by the ending of a file's name, in lower case."""

OTHER_ENDINGS = ", ".join(ending for ending in FORMATS if ending != ".tif")
"""All but the usual one, as messages list them."""

ARCHIVE_ENDING = ".npz"
"""Of a file of `numpy.savez`."""

SEG_ENDING = "_seg.npy"
"""What follows the name of an image in that of Cellpose's own file about it."""

_SIGNATURES = {
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "JPEG": (b"\xff\xd8\xff",),
}
_NAMES_OF_MASKS = ("masks", "labels", "mask", "label", "segmentation")
"""Of several arrays in one file, the one with the first of these names holds the masks."""
_MOST_UNPACKED = 2**34  # bytes of an array in an archive
_MOST_SCANS = 500  # of a JPEG; each goes over the whole image, and progressive ones have ten


def read_bytes(file: Path) -> Content:
    """Read a file whole, so that digest and pixels come from the same bytes; map a large one."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise _no_file(file)
        data = content_of(file)
    except FileNotFoundError as error:
        if file.is_symlink():
            raise BadInput(f"{file}: {why_unreadable(error, 'file')}") from error
        raise no_such_file(file) from error
    except OSError as error:
        raise BadInput(f"{file}: {why_unreadable(error, 'file')}") from error
    if not data:
        raise empty_file(file)
    return data


def _no_file(path: Path) -> BadInput:
    """The error for what is there and no file: a user may have given it, or a folder may hold it.

    It names no way to be rid of it, since what is there may be someone's data.
    """
    if path.is_dir():
        return BadInput(f"{path}: a folder, expected one file; give the path of a file in it")
    return BadInput(
        f"{path}: a device or a pipe, expected a file; save what it gives as a file, and give that"
    )


def empty_file(file: Path) -> BadInput:
    """The error for a file without a byte."""
    return BadInput(f"{file}: empty (0 bytes); copy it again from its source, or leave it out")


def why_unreadable(error: OSError, what: str) -> str:
    """Say why the system refused a file or folder, and what to do."""
    reason = error.strerror or error
    return f"the {what} cannot be read ({reason}); check its spelling, links, permissions and disk"


# --- decoding -------------------------------------------------------------------------------------


def decode(file: Path, data: Content, *, may_map: bool = False) -> Decoded:
    """Decode the bytes of a file by the format that its name promises.

    Pixels that are too many for memory are mapped where the caller reads them a block at a time.
    """
    expected = FORMATS.get(file.suffix.lower())
    if expected is None:
        raise BadInput(f"{file}: expected an image file (.tif, {OTHER_ENDINGS}); convert it first")
    head = data[:30]
    actual = next((kind for kind, starts in _SIGNATURES.items() if head.startswith(starts)), None)
    if actual != expected:
        raise BadInput(
            f"{file}: begins with {head!r}, expected {expected} data; give it the name of its "
            "format, export the image again, or run git lfs pull where it is a pointer of Git LFS"
        )
    try:
        match actual:
            case "TIFF":
                decoded = decode_tiff(file, data, may_map=may_map)
            case "PNG":
                decoded = _decode_png(file, data[:])
            case "JPEG":
                decoded = _decode_jpeg(file, data[:])
        return _with_pixels(file, decoded)
    except CellreproError:
        raise
    except MemoryError as error:
        raise NotPossibleHere(
            f"{file}: too large for the memory of this machine; crop the image into tiles"
        ) from error
    except Exception as error:  # decoders raise nearly any on a damaged file
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise damaged(file, f"cannot be decoded as {actual} ({reason})") from error


def decode_labels(file: Path, data: Content, *, may_map: bool = False) -> Decoded:
    """Decode masks, which may be a file of `numpy.save`, but no JPEG."""
    if FORMATS.get(file.suffix.lower()) == "JPEG":
        raise BadInput(
            f"{file}: a JPEG mask, but JPEG changes label numbers; save the labels as "
            f"{file.stem}.tif or {file.stem}.png"
        )
    if file.suffix.lower() == ARCHIVE_ENDING:
        data = _masks_in_archive(file)
    elif file.suffix.lower() != ".npy":
        return decode(file, data, may_map=may_map)
    try:
        if may_map and not isinstance(data, bytes):  # no archive
            pixels: np.ndarray = np.lib.format.open_memmap(file, mode="r")
        else:
            pixels = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # of a damaged header nearly any, TokenError among them
        reason = " ".join(str(error).split())[:120]
        raise BadInput(
            f"{file}: no array of numbers as numpy.save writes it ({reason}); save the masks with "
            "numpy.save(path, masks)"
        ) from error
    axes = "ZYX"[-pixels.ndim :] if 2 <= pixels.ndim <= 3 else ""
    return _with_pixels(file, Decoded.of(pixels, axes))


def _masks_in_archive(file: Path) -> bytes:
    """The bytes of the array of masks in a file of ``numpy.savez``."""
    import psutil

    try:
        with opened_zip(file) as archive:
            arrays = {
                part.filename.removesuffix(".npy"): part
                for part in archive.infolist()
                if part.filename.endswith(".npy")
            }
            name = _name_of_masks(file, archive, arrays)
            part = arrays[name]
            if part.file_size > min(_MOST_UNPACKED, psutil.virtual_memory().available // 4):
                raise NotPossibleHere(
                    f"{file}: {name} takes {part.file_size / 1e9:.1f} GB, too many for the free "
                    "memory of this machine; save a part of it"
                )
            with archive.open(part) as stream:
                return stream.read(part.file_size)
    except CellreproError:
        raise
    except Exception as error:  # a damaged archive ends in nearly any
        reason = " ".join(str(error).split())[:200]
        raise BadInput(
            f"{file}: no masks as numpy.savez writes them ({reason}); save them with "
            "numpy.savez(path, masks=masks)"
        ) from error


def _name_of_masks(
    file: Path, archive: zipfile.ZipFile, arrays: Mapping[str, zipfile.ZipInfo]
) -> str:
    """Which of several arrays holds masks: by its name, or as the only one that may."""
    named = [name for name in _NAMES_OF_MASKS if name in arrays]
    if named or len(arrays) == 1:
        return next(iter(named or arrays))
    headers = {name: _header_of(archive, part) for name, part in arrays.items()}
    may_be = [
        name
        for name, (shape, dtype) in headers.items()
        if len(shape) in (2, 3) and dtype.kind in "iub"
    ]
    if len(may_be) == 1:
        return may_be[0]
    listed = [
        f"{name} ({' × '.join(map(str, shape)) or 'one number'}, {dtype})"
        for name, (shape, dtype) in headers.items()
    ]
    first = next(iter(may_be or arrays), "NAME")
    raise BadInput(
        f"{file} holds {some(listed) or 'no array'}; expected one array, or one named "
        f"{_NAMES_OF_MASKS[0]}. Save the one with the cells by itself: "
        f"numpy.save('masks.npy', numpy.load({file.name!r})[{first!r}])"
    )


def _header_of(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype]:
    with archive.open(part) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    return shape, dtype


def _with_pixels(file: Path, decoded: Decoded) -> Decoded:
    """Refuse an image without a pixel."""
    if decoded.pixels.size == 0:
        raise BadInput(
            f"{file}: an image of shape {decoded.pixels.shape} has no pixel; save it again in the "
            "program that made it"
        )
    return decoded


def _decode_png(file: Path, data: bytes) -> Decoded:
    # The header chunk always comes first: width, height, bit depth, colour type (PNG, section 11.2)
    width, height, depth, colour_type = struct.unpack(">IIBB", data[16:26])
    n_channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colour_type, 4)
    n_bytes = width * height * n_channels * max(1, depth // 8)
    refuse_absurd(file, data, n_bytes, tifffile.COMPRESSION.ADOBE_DEFLATE)  # PNG's only one
    pixels = png_pixels(file, data)
    alpha = pixels.ndim == 3 and pixels.shape[2] in (2, 4)
    return Decoded.of(pixels, "YXS"[: pixels.ndim], alpha=alpha)


def _decode_jpeg(file: Path, data: bytes) -> Decoded:
    # libjpeg-turbo, in imagecodecs 2026.3.6 as in OpenCV, fills what is missing with grey. Coded
    # data hold no marker; an embedded preview ends before the last scan of the image starts.
    if data.rfind(b"\xff\xd9") <= data.rfind(b"\xff\xda"):
        raise damaged(file, "the end-of-image marker is missing")
    frame = jpeg_frame(data)
    if frame is None or data.count(b"\xff\xda") > _MOST_SCANS:
        raise damaged(file, "it has no header of an image, or one image many times")
    n_bytes = frame.height * frame.width * frame.n_channels
    if n_bytes > most_unpacked(len(data), tifffile.COMPRESSION.JPEG):  # the rest would be grey
        raise damaged(file, promises_too_much(data))
    refuse_absurd(file, data, n_bytes, tifffile.COMPRESSION.JPEG)
    pixels = jpeg_pixels(file, data)
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        raise no_cmyk(file)
    return Decoded.of(pixels, "YXS"[: pixels.ndim])
