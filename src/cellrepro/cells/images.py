"""A folder of images in Cellpose's own convention, read whole and checked on the way in.

``train/`` and ``test/`` hold ``NAME.tif`` (or png, jpg) beside ``NAME_masks.tif`` (or png); a
folder without the two is all training. What this module returns can be trained on: every file was
decoded to its end, every mask fits its image, and the order does not depend on the file system.
"""

import errno
import hashlib
import io
import logging
import math
import os
import re
import stat
import struct
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import fastremap
import imagecodecs
import numpy as np
import tifffile
from natsort import natsorted
from scipy import ndimage

from cellrepro.errors import BadInput, NotPossibleHere

__all__ = [
    "FolderDigest",
    "ImageFolder",
    "LabelledImage",
    "folder_digest",
    "read_folder",
    "read_image",
    "read_masks",
]

_FORMATS = {".tif": "TIFF", ".tiff": "TIFF", ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_MASK_ENDING = "_masks"
# What Cellpose itself writes beside images (cellpose/io.py, 4.2.1.1): never an image, never a mask.
_CELLPOSE_ENDINGS = ("_flows", "_flows_0", "_flows_1", "_flows_2", "_cellprob")
_CELLPOSE_PARTS = ("_cp_masks", "_cp_output")
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
_MOST_PROBLEMS = 10  # shown in one message
_BINARY_LABELS = {1, 255, 65535}
_EIGHT_NEIGHBOURS = np.ones((3, 3), dtype=bool)

_Warn = Callable[[str], None]

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


@dataclass(frozen=True, eq=False)
class LabelledImage:
    """One image and, where there is one, its label image.

    Attributes
    ----------
    name : str
        The file's name without extension; unique within ``train`` and within ``test``.
    image : ndarray, shape (Y, X) or (Y, X, C) with C 2 or 3
        The dtype and values as stored, in native byte order.
    masks : ndarray of int32, shape (Y, X), or None
        0 is background; every other label is one object. None only where masks were optional.
    image_path, masks_path : Path
        The files read.
    """

    name: str
    image: np.ndarray = field(repr=False)
    masks: np.ndarray | None = field(repr=False)
    image_path: Path
    masks_path: Path | None


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """A folder that can be trained on or segmented.

    Attributes
    ----------
    path : Path
        The folder, as it was given.
    train, test : tuple of LabelledImage
        In natural order of their file names, ``img_2`` before ``img_10``, as Cellpose sorts them.
    files : dict of str to str
        SHA-256 of every image and mask used, by its path relative to the folder, with slashes.
    digest : str
        See `folder_digest`; equal digests mean the same files under the same names.
    warnings : tuple of str
        What can be used but deserves a look, one sentence each, paths relative to the folder.
    """

    path: Path
    train: tuple[LabelledImage, ...]
    test: tuple[LabelledImage, ...]
    files: dict[str, str] = field(repr=False)
    digest: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class FolderDigest:
    """The digests of a folder without its pixels; `files` and `digest` as in `ImageFolder`."""

    path: Path
    files: dict[str, str] = field(repr=False)
    digest: str


def read_folder(
    path: str | os.PathLike[str], *, need_masks: bool = True, need_train: bool = True
) -> ImageFolder:
    """Read and check every image and mask of a folder.

    Parameters
    ----------
    path : path-like
        A folder with ``train/`` and, optionally, ``test/``; one without the two is all training.
    need_masks : bool
        Whether an image without a mask is an error. A mask without an image always is.
    need_train : bool
        Whether training images must be there; False suits segmentation.

    Returns
    -------
    ImageFolder
        Sorted, checked, with digests and warnings.

    Raises
    ------
    BadInput
        The folder cannot be used. The message lists up to ten problems, each with the file, what
        was found, what was expected and what to do.
    NotPossibleHere
        An image does not fit into memory.

    Notes
    -----
    An object in several pieces is looked for with 8-connectivity: pixels that touch only at a
    corner are one piece. Nothing is repaired: such an object stays one label, as stored.
    """
    folder = Path(path)
    listing = _list_folder(folder, need_masks=need_masks, need_train=need_train)
    problems = list(listing.problems)
    warnings = list(listing.warnings)
    files: dict[str, str] = {}
    read: dict[str, list[LabelledImage]] = {"train": [], "test": []}
    for pair in listing.pairs:
        try:
            read[pair.split].append(_read_pair(pair, folder, files, warnings))
        except _Problem as problem:
            problems.extend(problem.lines)
    if not problems and need_masks and need_train:
        problems.extend(_find_no_objects(folder, read["train"]))
    _raise_all(folder, problems)
    warnings.extend(_find_leaks(folder, read["train"], read["test"]))
    return ImageFolder(
        path=folder,
        train=tuple(read["train"]),
        test=tuple(read["test"]),
        files=files,
        digest=_digest_of(files),
        warnings=tuple(warnings),
    )


def folder_digest(
    path: str | os.PathLike[str], *, need_masks: bool = True, need_train: bool = True
) -> FolderDigest:
    """Digest the files that `read_folder` would use, without decoding them.

    Parameters
    ----------
    path : path-like
        As for `read_folder`, and so are the other arguments.

    Returns
    -------
    FolderDigest
        ``digest`` is the SHA-256 of the sorted lines ``sha256  relative/path``, each ended by a
        line feed: what ``sha256sum FILES | LC_ALL=C sort | sha256sum`` prints.

    Raises
    ------
    BadInput
        As `read_folder`, as far as names and bytes can tell.
    """
    folder = Path(path)
    listing = _list_folder(folder, need_masks=need_masks, need_train=need_train)
    problems = list(listing.problems)
    files: dict[str, str] = {}
    for pair in listing.pairs:
        for file in pair.files:
            try:
                files[_relative(file, folder)] = hashlib.sha256(_read_bytes(file)).hexdigest()
            except _Problem as problem:
                problems.extend(problem.lines)
    _raise_all(folder, problems)
    return FolderDigest(folder, files, _digest_of(files))


def read_image(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one image file with its axes in Cellpose's order.

    Returns
    -------
    ndarray, shape (Y, X) or (Y, X, C) with C 2 or 3
        The dtype as stored; an alpha channel is dropped.

    Raises
    ------
    BadInput
        The file cannot be read, or is no two-dimensional image of finite numbers.
    """
    file = Path(path)
    try:
        return _check_image(file, _decode(file, _read_bytes(file)), warn=lambda _: None)
    except _Problem as problem:
        raise BadInput("\n".join(problem.lines)) from problem


def read_masks(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one label image.

    Returns
    -------
    ndarray of int32, shape (Y, X)
        0 is background; every other label is one object.

    Raises
    ------
    BadInput
        The file cannot be read, or holds something else than labels.
    """
    file = Path(path)
    try:
        _refuse_lossy_masks(file)
        return _check_masks(file, _decode(file, _read_bytes(file)), warn=lambda _: None)
    except _Problem as problem:
        raise BadInput("\n".join(problem.lines)) from problem


# --- problems -------------------------------------------------------------------------------------


class _Problem(Exception):
    """What is wrong with one file or pair; collected, so that a folder is mended in one go."""

    def __init__(self, *lines: str):
        super().__init__(*lines)
        self.lines = lines


def _raise_all(folder: Path, problems: Sequence[str]) -> None:
    """Raise one `BadInput` for all problems, if there are any."""
    if not problems:
        return
    if len(problems) == 1:
        raise BadInput(problems[0])
    shown = [f"- {problem}" for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        shown.append(f"- and {len(problems) - _MOST_PROBLEMS} more")
    raise BadInput("\n".join([f"{folder} has {len(problems)} problems:", *shown]))


# --- names ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    split: str
    image: Path
    masks: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.image,) if self.masks is None else (self.image, self.masks)


@dataclass(frozen=True)
class _Listing:
    pairs: list[_Pair]
    problems: list[str]
    warnings: list[str]


def _list_folder(folder: Path, *, need_masks: bool, need_train: bool) -> _Listing:
    """Find the pairs of a folder by name alone; a folder without any use raises at once."""
    listing = _Listing([], [], [])
    entries = _entries(folder)
    splits = [split for split in ("train", "test") if split in entries]
    for split in splits:
        if not stat.S_ISDIR(entries[split].st_mode):
            raise BadInput(
                f"{folder / split}: a file, but {split}/ must be a folder of images; "
                f"rename or remove it"
            )
    if splits == ["test"] and need_train:
        raise BadInput(
            f"{folder}: holds test/ but no train/, so there is nothing to train on; "
            f"add {folder / 'train'} with NAME.tif and NAME_masks.tif"
        )
    if not splits:
        _list_split(folder, "train", entries, need_masks, listing)
        if not listing.pairs and not listing.problems:
            raise BadInput(_no_images(folder, entries))
        return listing

    loose = [name for name in _regular(entries) if _kind(name) == "image"]
    if loose:
        listing.warnings.append(
            f"{len(loose)} images beside {'/ and '.join(splits)}/ are not used "
            f"({_some(loose)}); move them into a subfolder if they should be"
        )
    for split in splits:
        split_entries = _entries(folder / split)
        n_pairs, n_problems = len(listing.pairs), len(listing.problems)
        _list_split(folder / split, split, split_entries, need_masks, listing)
        if (len(listing.pairs), len(listing.problems)) != (n_pairs, n_problems):
            continue
        if split == "train" and need_train:
            listing.problems.append(_no_images(folder / split, split_entries))
        else:
            listing.warnings.append(f"{split}/ holds no images")
    if not listing.pairs and not listing.problems:
        raise BadInput(_no_images(folder, entries))
    return listing


def _entries(folder: Path) -> dict[str, os.stat_result]:
    """Return what a folder holds: the name and, through links, the status of each entry.

    An entry that cannot be looked at (a link in a circle or to nowhere) gets the status of the
    link itself, so that it is reported where its name makes it an image.
    """
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise BadInput(
                f"{folder}: a file, but a folder of images was expected; give the folder it is in"
            )
        with os.scandir(folder) as scan:
            found = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        raise BadInput(f"{folder}: {_explain(error, 'folder')}") from error
    entries = {}
    for entry in found:
        try:
            entries[entry.name] = entry.stat()
        except OSError:
            entries[entry.name] = entry.stat(follow_symlinks=False)
    return entries


def _regular(entries: dict[str, os.stat_result]) -> list[str]:
    return [name for name, status in entries.items() if not stat.S_ISDIR(status.st_mode)]


def _kind(name: str) -> str | None:
    """Tell from its name whether a file is an ``image``, a ``mask`` or neither (None).

    Examples
    --------
    >>> [_kind(name) for name in ("a.TIF", "a_masks.png", "a_flows.tif", "a_seg.npy", ".a.tif")]
    ['image', 'mask', None, None, None]
    """
    stem, extension = Path(name).stem, Path(name).suffix
    if name.startswith(".") or extension.lower() not in _FORMATS:
        return None
    if stem.endswith(_CELLPOSE_ENDINGS) or any(part in stem for part in _CELLPOSE_PARTS):
        return None
    return "mask" if stem.endswith(_MASK_ENDING) and stem != _MASK_ENDING else "image"


def _no_images(folder: Path, entries: dict[str, os.stat_result]) -> str:
    """Say that a folder holds no images, and what it does hold."""
    visible = [name for name in entries if not name.startswith(".")]
    found = f"it holds {_some(visible)}" if visible else "it is empty"
    return (
        f"{folder}: no images, {found}; expected NAME.tif (or {_extensions()}) with "
        f"NAME_masks.tif, or the subfolders train/ and test/ with them"
    )


def _extensions() -> str:
    return ", ".join(extension for extension in _FORMATS if extension != ".tif")


def _some(names: Sequence[str], n_shown: int = 5) -> str:
    """Join the first names, and say how many more there are."""
    more = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + more


def _same_name(stem: str) -> str:
    """Return what two names share that a file system or a reader may take for the same."""
    return unicodedata.normalize("NFC", stem).casefold()


def _list_split(
    directory: Path,
    split: str,
    entries: dict[str, os.stat_result],
    need_masks: bool,
    listing: _Listing,
) -> None:
    """Pair the images and masks of one folder; add pairs and problems to the listing."""
    images: dict[str, str] = {}  # stem to file name
    masks: dict[str, str] = {}
    seen: dict[tuple[str, str], str] = {}
    # natsorted alone leaves names that differ in leading zeros in the file system's order
    for name in natsorted(sorted(entries)):
        kind = _kind(name)
        if kind is None:
            continue
        try:
            _refuse_name(directory, name, entries[name])
            if kind == "mask":
                _refuse_lossy_masks(directory / name)
        except _Problem as problem:
            listing.problems.extend(problem.lines)
            # it still counts as there, or its partner would be reported as well
        stem = Path(name).stem
        other = seen.setdefault((kind, _same_name(stem)), name)
        if other != name:
            listing.problems.append(
                f"{directory / name}: the same name as {other} up to case and extension, so one "
                f"would hide the other; rename or remove one of them"
            )
            continue
        (masks if kind == "mask" else images)[stem] = name

    for stem, name in images.items():
        partner = masks.pop(stem + _MASK_ENDING, None)
        if partner is None and need_masks:
            listing.problems.append(_no_mask(directory, stem, name, entries))
        elif partner is None:
            listing.pairs.append(_Pair(split, directory / name, None))
        else:
            listing.pairs.append(_Pair(split, directory / name, directory / partner))
    for stem, name in masks.items():
        wanted = stem[: -len(_MASK_ENDING)]
        near = next((images[s] for s in images if _same_name(s) == _same_name(wanted)), None)
        listing.problems.append(
            f"{directory / name}: a mask without its image, expected {wanted}.tif (or "
            f"{_extensions()}) beside it; "
            + (
                f"{near} is written differently, give both the same name"
                if near
                else "add the image or remove the mask"
            )
        )


def _refuse_name(directory: Path, name: str, status: os.stat_result) -> None:
    """Refuse an entry that cannot be an image file, whatever its name promises."""
    if not name.isprintable():
        raise _Problem(
            f"{directory / ascii(name)}: the name holds characters that cannot be printed, so "
            f"digests of it could not be exchanged; rename the file"
        )
    if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
        return  # a broken link is reported when it is read
    found = "a folder" if stat.S_ISDIR(status.st_mode) else "neither a file nor a folder"
    raise _Problem(
        f"{directory / name}: {found}, but the name promises an image file; rename or remove it"
    )


def _refuse_lossy_masks(file: Path) -> None:
    if _FORMATS.get(file.suffix.lower()) == "JPEG":
        raise _Problem(
            f"{file}: a JPEG mask, but JPEG changes label numbers; save the labels as "
            f"{file.stem}.tif or {file.stem}.png"
        )


def _no_mask(directory: Path, stem: str, name: str, entries: dict[str, os.stat_result]) -> str:
    """Say which mask is missing, and what stands in its place."""
    problem = f"{directory / name}: no mask, expected {stem}{_MASK_ENDING}.tif (or .png) beside it"
    if stem + "_seg.npy" in entries:
        return (
            f"{problem}; {stem}_seg.npy is there: open it in the Cellpose GUI and save the masks "
            f"as PNG or TIFF, then name them {stem}{_MASK_ENDING}"
        )
    endings = {_same_name(stem + ending) for ending in ("_mask", "_masks", "_label", "_labels")}
    near = [n for n in entries if _same_name(Path(n).stem) in endings]
    if near:
        right = stem + _MASK_ENDING + Path(near[0]).suffix
        return f"{problem}; {near[0]} is there: rename it to {right}"
    return f"{problem}; add it, or move the image out of the folder"


# --- bytes ----------------------------------------------------------------------------------------


def _read_bytes(file: Path) -> bytes:
    """Read a file whole, so that digest and pixels come from the same bytes."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise _Problem(f"{file}: no regular file, so it cannot be read; give an image file")
        data = file.read_bytes()
    except OSError as error:
        raise _Problem(f"{file}: {_explain(error, 'file')}") from error
    if not data:
        raise _Problem(f"{file}: empty (0 bytes); copy it again from its source or remove it")
    return data


def _explain(error: OSError, what: str) -> str:
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


def _digest_of(files: dict[str, str]) -> str:
    """Return one SHA-256 for a set of files, the same as over the sorted output of sha256sum."""
    lines = sorted(f"{digest}  {name}\n" for name, digest in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _relative(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix()


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
    expected = _FORMATS.get(file.suffix.lower())
    if expected is None:
        raise _Problem(f"{file}: expected an image file (.tif, {_extensions()}); convert it first")
    actual = next((known for start, known in _SIGNATURES.items() if data.startswith(start)), None)
    if actual is None and data.startswith(b"version https://git-lfs"):
        raise _Problem(f"{file}: a Git LFS pointer, not the image itself; run git lfs pull")
    if actual is None:
        raise _Problem(
            f"{file}: not a {expected} file, it starts with {data[:12]!r}; "
            f"export the image as {expected} again or remove the file"
        )
    if actual != expected:
        right = {"TIFF": ".tif", "PNG": ".png", "JPEG": ".jpg"}[actual]
        raise _Problem(
            f"{file}: holds {actual} data under a {expected} name; rename it to {file.stem}{right}"
        )
    decoder = {"TIFF": _decode_tiff, "PNG": _decode_png, "JPEG": _decode_jpeg}[actual]
    try:
        return decoder(file, data)
    except MemoryError as error:
        raise NotPossibleHere(
            f"{file}: too large for the memory of this machine; crop the image into tiles"
        ) from error
    except _DECODER_ERRORS as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise _Problem(_damaged(file, f"cannot be decoded as {actual} ({reason})")) from error


def _damaged(file: Path, what: str) -> str:
    return f"{file}: damaged or incomplete, {what}; copy it again from its source"


def _refuse_absurd(file: Path, data: bytes, n_bytes: int) -> None:
    """Refuse a header that promises far more pixels than its file can hold.

    Deflate, the strongest of the usual compressions, cannot exceed 1032 to 1, so such a header is
    damaged; believing it would fill the memory with zeros.
    """
    if n_bytes > max(64 * 2**20, 5000 * len(data)):
        raise _Problem(
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
            raise _Problem(_damaged(file, "it holds no image"))
        if len(tiff.series) > 1:
            shapes = _some([str(series.shape) for series in tiff.series])
            raise _Problem(
                f"{file}: {len(tiff.series)} separate images of shapes {shapes}, expected one; "
                f"save the one to use as a TIFF of its own"
            )
        series = tiff.series[0]
        chunk = math.prod(series.keyframe.chunks) * series.dtype.itemsize  # a strip or tile
        _refuse_absurd(file, data, max(series.nbytes, chunk))
        _refuse_missing_strips(file, data, tiff, series)
        if series.keyframe.photometric == tifffile.PHOTOMETRIC.SEPARATED:
            raise _Problem(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")
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
        raise _Problem(_damaged(file, f"pixels of shape {pixels.shape} instead of {shape}"))
    for message in errors:
        if _DAMAGE_IN_LOG.search(message):
            raise _Problem(_damaged(file, f"tifffile reports: {message[:120]}"))
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
        raise _Problem(
            f"{file}: one of several files of a multi-file OME-TIFF; save it as a TIFF of its own"
        )
    end = 0 if series.dataoffset is None else series.dataoffset + series.nbytes
    for page in tiff.pages:
        for offset, n_bytes in zip(page.dataoffsets, page.databytecounts, strict=True):
            if n_bytes == 0:
                raise _Problem(_damaged(file, "a strip or tile without data"))
            end = max(end, offset + n_bytes)
    if end > len(data):
        raise _Problem(
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


def _decode_jpeg(file: Path, data: bytes) -> _Decoded:
    if not _jpeg_is_complete(data):
        raise _Problem(_damaged(file, "the end-of-image marker is missing"))
    pixels = imagecodecs.jpeg_decode(data)
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        raise _Problem(f"{file}: CMYK colours, expected grey or RGB; convert it to RGB")
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


def _read_pair(
    pair: _Pair, folder: Path, files: dict[str, str], warnings: list[str]
) -> LabelledImage:
    """Read an image and its mask, check each and then both together.

    Digests go to `files`, remarks to `warnings`.
    """
    problems: list[str] = []
    arrays: list[np.ndarray] = []
    for file, check in zip(pair.files, (_check_image, _check_masks), strict=False):
        relative = _relative(file, folder)

        def warn(remark: str, relative: str = relative) -> None:
            warnings.append(f"{relative}: {remark}")

        try:
            data = _read_bytes(file)
            files[relative] = hashlib.sha256(data).hexdigest()
            arrays.append(check(file, _decode(file, data), warn))
        except _Problem as problem:
            problems.extend(problem.lines)
    if problems:
        raise _Problem(*problems)

    image = arrays[0]
    masks = arrays[1] if pair.masks is not None else None
    if masks is not None:
        _refuse_other_shape(pair, image, masks)
        if pair.split == "train" and not masks.any():
            warnings.append(f"{_relative(pair.files[1], folder)}: no object, all background")
    return LabelledImage(pair.image.stem, image, masks, pair.image, pair.masks)


def _check_image(file: Path, decoded: _Decoded, warn: _Warn) -> np.ndarray:
    """Return the image with channels last, or raise what is wrong with it."""
    for remark in decoded.remarks:
        warn(remark)
    image = _drop_extra_channels(_channels_last(file, decoded), decoded, warn)
    if image.dtype.kind not in "uif":
        raise _Problem(
            f"{file}: pixels of type {image.dtype}, expected integers or real numbers; "
            f"save the image as 8-bit, 16-bit or 32-bit float"
        )
    if min(image.shape[:2]) < _SMALLEST_SIDE:
        raise _Problem(
            f"{file}: (Y, X) = {image.shape[:2]}, expected at least {_SMALLEST_SIDE} pixels on a "
            f"side; remove the image or export it at full size"
        )
    _refuse_not_finite(file, image)
    if image.min() == image.max():
        warn(f"constant image, every pixel is {image.min()}")
    return image


def _channels_last(file: Path, decoded: _Decoded) -> np.ndarray:
    """Return the pixels as (Y, X) or (Y, X, C), refusing stacks."""
    pixels, axes = decoded.pixels, decoded.axes
    while pixels.ndim > 2 and 1 in pixels.shape:
        axis = pixels.shape.index(1)
        pixels, axes = pixels.squeeze(axis), axes[:axis] + axes[axis + 1 :]
    what = f"{file}: shape {decoded.pixels.shape} (axes {decoded.axes})"
    if pixels.ndim == 2:
        return _native(pixels)
    if pixels.ndim != 3:
        raise _Problem(
            f"{what}, expected one plane, (Y, X) or (Y, X, C); save each plane as an image of its "
            f"own, or a projection"
        )
    stacked = next((axis for axis, letter in enumerate(axes) if letter in "ZT"), None)
    labelled = next((axis for axis, letter in enumerate(axes) if letter in "CS"), None)
    if stacked is not None and labelled is None:
        raise _Problem(
            f"{what} is a {'z-stack' if axes[stacked] == 'Z' else 'time series'} of "
            f"{pixels.shape[stacked]} planes, expected one plane; save each plane as an image of "
            f"its own or a projection (or, if the planes are channels, label them as such)"
        )
    if labelled is not None and pixels.shape[labelled] > _MOST_CHANNELS + 1:
        raise _Problem(
            f"{what} has {pixels.shape[labelled]} channels, Cellpose reads up to "
            f"{_MOST_CHANNELS}; save the ones to use"
        )
    # An axis of up to four without a label is taken for channels, as Cellpose takes it
    short = [axis for axis in (2, 0) if pixels.shape[axis] <= _MOST_CHANNELS + 1]
    channel = labelled if labelled is not None else next(iter(short), None)
    if channel is None:
        raise _Problem(
            f"{what} looks like a z-stack or time series, expected one plane, (Y, X) or (Y, X, C) "
            f"with C up to {_MOST_CHANNELS}; save each plane as an image of its own, or a "
            f"projection"
        )
    return _native(np.moveaxis(pixels, channel, 2))


def _native(pixels: np.ndarray) -> np.ndarray:
    """Return contiguous pixels in native byte order, which PyTorch needs."""
    return np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("="))


def _drop_extra_channels(image: np.ndarray, decoded: _Decoded, warn: _Warn) -> np.ndarray:
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
        raise _Problem(
            f"{file}: {n_bad} of {pixels.size} values are NaN or infinite, expected finite "
            f"numbers; replace them (by 0, say) and save again"
        )


def _check_masks(file: Path, decoded: _Decoded, warn: _Warn) -> np.ndarray:
    """Return labels as int32 (Y, X), or raise what is wrong with them."""
    labels = decoded.pixels
    if labels.ndim > 2:
        labels = labels.squeeze()
    if decoded.palette or labels.ndim != 2:
        found = "a palette of colours" if decoded.palette else f"shape {decoded.pixels.shape}"
        raise _Problem(
            f"{file}: {found}, expected one plane of label numbers, (Y, X); save the labels as "
            f"16-bit grey, not as colours or a stack"
        )
    if labels.dtype.kind not in "buif":
        raise _Problem(
            f"{file}: labels of type {labels.dtype}, expected whole numbers; save them as 16-bit"
        )
    _refuse_not_finite(file, labels)
    if labels.dtype.kind == "f":
        n_bad = int(np.count_nonzero(labels != np.rint(labels)))
        if n_bad:
            raise _Problem(
                f"{file}: {n_bad} labels are fractions, expected whole numbers; this may be a "
                f"probability map or a resized mask, save the labels as 16-bit"
            )
        warn(f"labels stored as {labels.dtype}; they are whole numbers and used as such")
    if labels.size and labels.min() < 0:
        raise _Problem(
            f"{file}: negative labels down to {labels.min():g}, expected 0 for background and "
            f"positive numbers for objects; renumber them"
        )
    if labels.size and labels.max() > np.iinfo(np.int32).max:
        raise _Problem(
            f"{file}: labels up to {labels.max():g}, expected at most {np.iinfo(np.int32).max}; "
            f"renumber them from 1"
        )
    masks = np.ascontiguousarray(labels, dtype=np.int32)
    _warn_of_pieces(masks, warn)
    return masks


def _warn_of_pieces(masks: np.ndarray, warn: _Warn) -> None:
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
    shown = _some([str(label) for label in in_pieces])
    warn(f"labels in several pieces (8-connectivity): {shown}; each counts as one object")


def labels_in_pieces(masks: np.ndarray) -> list[int]:
    """List the labels whose pixels fall into several pieces.

    Parameters
    ----------
    masks : ndarray of int, shape (Y, X)
        0 is background.

    Returns
    -------
    list of int
        Ascending. Pixels that touch at a corner are one piece (8-connectivity).

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


def _refuse_other_shape(pair: _Pair, image: np.ndarray, masks: np.ndarray) -> None:
    expected, actual = image.shape[:2], masks.shape
    if actual == expected:
        return
    remedy = (
        "it is transposed, save it with Y and X swapped"
        if actual == expected[::-1]
        else "check that the two belong together and were not resized"
    )
    raise _Problem(
        f"{pair.masks}: (Y, X) = {actual}, expected {expected} as in {pair.image.name}; {remedy}"
    )


def _find_no_objects(folder: Path, train: Sequence[LabelledImage]) -> list[str]:
    if any(item.masks is not None and item.masks.any() for item in train):
        return []
    return [
        f"{folder}: none of the {len(train)} training masks holds an object, so there is nothing "
        f"to learn; check that the right masks were exported"
    ]


def _find_leaks(
    folder: Path, train: Sequence[LabelledImage], test: Sequence[LabelledImage]
) -> list[str]:
    """Find test images whose pixels were trained on, whatever file they came in."""
    known = {_pixel_digest(item.image): item for item in train}
    return [
        f"leak: {_relative(item.image_path, folder)} holds the same image as "
        f"{_relative(twin.image_path, folder)}, so its score is no held-out score"
        for item in test
        if (twin := known.get(_pixel_digest(item.image))) is not None
    ]


def _pixel_digest(image: np.ndarray) -> str:
    header = f"{image.dtype.str} {image.shape} ".encode()
    return hashlib.sha256(header + image.tobytes()).hexdigest()
