"""A folder of images in Cellpose's own convention, read whole and checked on the way in.

``train/`` and ``test/`` hold ``NAME.tif`` (or png, jpg) beside ``NAME_masks.tif`` (or png); a
folder without the two is all training. What this module returns can be trained on: every file was
decoded to its end, every mask fits its image, and the order does not depend on the file system.
"""

import hashlib
import os
import stat
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from natsort import natsorted

from cellrepro.errors import BadInput
from cellrepro.images.reading import (
    FORMATS,
    decode_image,
    decode_masks,
    explain,
    extensions,
    read_bytes,
    refuse_lossy_masks,
    some,
)

_MASK_ENDING = "_masks"
# What Cellpose itself writes beside images (cellpose/io.py, 4.2.1.1): never an image, never a mask.
_CELLPOSE_ENDINGS = ("_flows", "_flows_0", "_flows_1", "_flows_2", "_cellprob")
_CELLPOSE_PARTS = ("_cp_masks", "_cp_output")
_LITTER = {"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"}  # in lower case
_MOST_PROBLEMS = 10  # shown in one message


@dataclass(frozen=True, eq=False)
class LabelledImage:
    """One image and, where there is one, its label image."""

    name: str
    """The file's name without extension; unique within ``train`` and within ``test``."""
    image: np.ndarray = field(repr=False)
    """Shape (Y, X) or (Y, X, C) with C 2 or 3; dtype and values as stored, native byte order."""
    masks: np.ndarray | None = field(repr=False)
    """int32 (Y, X), 0 is background; none only where masks were optional."""
    image_path: Path
    masks_path: Path | None


@dataclass(frozen=True)
class FolderDigest:
    """The digests of a folder without its pixels."""

    path: Path
    """The folder, as it was given."""
    files: dict[str, str] = field(repr=False)
    """SHA-256 of every image and mask used, by its path relative to the folder, with slashes."""
    digest: str
    """See `folder_digest`; equal digests mean the same files under the same names."""


@dataclass(frozen=True, eq=False)
class ImageFolder(FolderDigest):
    """A folder that can be trained on or segmented."""

    train: tuple[LabelledImage, ...]
    test: tuple[LabelledImage, ...]
    """In natural order of their file names, ``img_2`` before ``img_10``, as Cellpose sorts them."""
    warnings: tuple[str, ...]
    """What can be used but deserves a look, one sentence each, paths relative to the folder."""


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
    problems, warnings = listing.problems, listing.warnings
    files: dict[str, str] = {}
    read: dict[str, list[LabelledImage]] = {"train": [], "test": []}
    for pair in listing.pairs:
        found = _read_pair(pair, folder, files, warnings, problems)
        if found is not None:
            read[pair.split].append(found)
    learnable = any(item.masks is not None and item.masks.any() for item in read["train"])
    if not problems and need_masks and need_train and not learnable:
        problems.append(
            f"{folder}: none of the {len(read['train'])} training masks holds an object, so there "
            "is nothing to learn; check that the right masks were exported"
        )
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
    """
    folder = Path(path)
    listing = _list_folder(folder, need_masks=need_masks, need_train=need_train)
    files: dict[str, str] = {}
    for file in (file for pair in listing.pairs for file in pair.files):
        try:
            files[_relative(file, folder)] = hashlib.sha256(read_bytes(file)).hexdigest()
        except BadInput as error:
            listing.problems.append(str(error))
    _raise_all(folder, listing.problems)
    return FolderDigest(folder, files, _digest_of(files))


def is_litter(path: str | Path) -> bool:
    """Whether a file, by its path in the user's folder, is left by a desktop or an editor.

    Examples
    --------
    >>> [is_litter(name) for name in (".DS_Store", "train/._a.tif", "Thumbs.db", "train/a.tif")]
    [True, True, True, False]
    """
    path = Path(path)
    return path.name.lower() in _LITTER or any(part.startswith(".") for part in path.parts)


# --- problems -------------------------------------------------------------------------------------


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
    is_folder = {name: stat.S_ISDIR(status.st_mode) for name, status in entries.items()}
    loose = [name for name in entries if _kind(name) == "image" and not is_folder[name]]
    if splits and loose:
        listing.warnings.append(
            f"{len(loose)} images beside {'/ and '.join(splits)}/ are not used "
            f"({some(loose)}); move them into a subfolder if they should be"
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
        raise BadInput(f"{folder}: {explain(error, 'folder')}") from error
    entries = {}
    for entry in found:
        try:
            entries[entry.name] = entry.stat()
        except OSError:
            entries[entry.name] = entry.stat(follow_symlinks=False)
    return entries


def _kind(name: str) -> str | None:
    """Tell from its name whether a file is an ``image``, a ``mask`` or neither (None).

    Examples
    --------
    >>> [_kind(name) for name in ("a.TIF", "a_masks.png", "a_flows.tif", "a_seg.npy", ".a.tif")]
    ['image', 'mask', None, None, None]
    """
    stem, extension = Path(name).stem, Path(name).suffix
    if is_litter(name) or extension.lower() not in FORMATS:
        return None
    if stem.endswith(_CELLPOSE_ENDINGS) or any(part in stem for part in _CELLPOSE_PARTS):
        return None
    return "mask" if stem.endswith(_MASK_ENDING) and stem != _MASK_ENDING else "image"


def _no_images(folder: Path, entries: dict[str, os.stat_result]) -> str:
    """Say that a folder holds no images, and what it does hold."""
    visible = [name for name in entries if not is_litter(name)]
    found = f"it holds {some(visible)}" if visible else "it is empty"
    return (
        f"{folder}: no images, {found}; expected NAME.tif (or {extensions()}) with "
        f"NAME_masks.tif, or the subfolders train/ and test/ with them"
    )


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
                refuse_lossy_masks(directory / name)
        except BadInput as error:
            listing.problems.append(str(error))
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
        masks_path = None if partner is None else directory / partner
        if partner is None and need_masks:
            listing.problems.append(_no_mask(directory, stem, name, entries))
        else:
            listing.pairs.append(_Pair(split, directory / name, masks_path))
    for stem, name in masks.items():
        wanted = stem[: -len(_MASK_ENDING)]
        near = next((images[s] for s in images if _same_name(s) == _same_name(wanted)), None)
        remedy = f"{near} is written differently, give both the same name"
        listing.problems.append(
            f"{directory / name}: a mask without its image, expected {wanted}.tif (or "
            f"{extensions()}) beside it; {remedy if near else 'add the image or remove the mask'}"
        )


def _refuse_name(directory: Path, name: str, status: os.stat_result) -> None:
    """Refuse an entry that cannot be an image file, whatever its name promises."""
    if not name.isprintable():
        raise BadInput(
            f"{directory / ascii(name)}: the name holds characters that cannot be printed, so "
            f"digests of it could not be exchanged; rename the file"
        )
    if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
        return  # a broken link is reported when it is read
    found = "a folder" if stat.S_ISDIR(status.st_mode) else "neither a file nor a folder"
    raise BadInput(
        f"{directory / name}: {found}, but the name promises an image file; rename or remove it"
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


# --- digests --------------------------------------------------------------------------------------


def _digest_of(files: dict[str, str]) -> str:
    """Return one SHA-256 for a set of files, the same as over the sorted output of sha256sum."""
    lines = sorted(f"{digest}  {name}\n" for name, digest in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _relative(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix()


# --- checking -------------------------------------------------------------------------------------


def _read_pair(
    pair: _Pair, folder: Path, files: dict[str, str], warnings: list[str], problems: list[str]
) -> LabelledImage | None:
    """Read an image and its mask, check each and then both together.

    Digests go to `files`, remarks to `warnings`, what is wrong to `problems`.
    """
    arrays: list[np.ndarray] = []
    for file, decode in zip(pair.files, (decode_image, decode_masks), strict=False):
        relative = _relative(file, folder)
        remarks: list[str] = []
        try:
            data = read_bytes(file)
            files[relative] = hashlib.sha256(data).hexdigest()
            arrays.append(decode(file, data, remarks.append))
        except BadInput as error:
            problems.append(str(error))
        warnings += [f"{relative}: {remark}" for remark in remarks]
    if len(arrays) < len(pair.files):
        return None
    image, masks = arrays[0], arrays[1] if pair.masks is not None else None
    if masks is not None:
        expected, actual = image.shape[:2], masks.shape
        if actual != expected:
            remedy = (
                "it is transposed, save it with Y and X swapped"
                if actual == expected[::-1]
                else "check that the two belong together and were not resized"
            )
            problems.append(
                f"{pair.masks}: (Y, X) = {actual}, expected {expected} as in {pair.image.name}; "
                f"{remedy}"
            )
            return None
        if pair.split == "train" and not masks.any():
            warnings.append(f"{_relative(pair.files[1], folder)}: no object, all background")
    return LabelledImage(pair.image.stem, image, masks, pair.image, pair.masks)


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
