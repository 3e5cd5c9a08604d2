"""A folder of images in Cellpose's own convention, read whole and checked on the way in.

``train/`` and ``test/`` hold ``NAME.tif`` (or png, jpg) beside ``NAME_masks.tif`` (or png); a
folder without the two is all training. What this module returns can be trained on: every file was
decoded to its end, every mask fits its image, and the order does not depend on the file system.
"""

import hashlib
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from natsort import natsorted

from cellrepro.bits.digests import array_digest
from cellrepro.errors import BadInput
from cellrepro.images.decoding import (
    FLAT,
    FORMATS,
    OTHER_ENDINGS,
    Axes,
    decode_image,
    decode_masks,
    read_bytes,
    why_unreadable,
)
from cellrepro.words import some

_MASKS = "_masks"
# What Cellpose itself writes beside images (cellpose/io.py, 4.2.1.1): never an image, never a mask.
_CELLPOSE_ENDINGS = ("_flows", "_flows_0", "_flows_1", "_flows_2", "_cellprob")
_CELLPOSE_PARTS = ("_cp_masks", "_cp_output")
_LITTER = {"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"}  # in lower case
_MOST_PROBLEMS = 10  # listed in one `BadInput`


@dataclass(frozen=True, eq=False)
class LabelledImage:
    """One image and, where there is one, its label image."""

    name: str  # the file's, without extension; unique within a part of the folder
    image: np.ndarray = field(repr=False)  # (Y, X) or (Y, X, C), C 2 or 3; dtype as stored
    masks: np.ndarray | None = field(repr=False)  # int32 (Y, X), 0 is background
    image_path: Path
    stack: bool = False  # planes come first: (Z, Y, X) or (Z, Y, X, C), and masks (Z, Y, X)


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """A folder that can be trained on or segmented.

    Images stand in natural order of their file names, ``img_2`` before ``img_10``, as Cellpose
    sorts them; warnings name what can be used but deserves a look.
    """

    path: Path
    files: dict[str, str] = field(repr=False)  # SHA-256 by path relative to the folder
    digest: str  # equal ones mean the same files under the same names
    train: tuple[LabelledImage, ...]
    test: tuple[LabelledImage, ...]
    warnings: tuple[str, ...]


def read_folder(
    path: str | os.PathLike[str], *, to_train: bool = True, axes: Axes = FLAT
) -> ImageFolder:
    """Read and check every image and mask of a folder.

    Parameters
    ----------
    path : path-like
        A folder with ``train/`` and, optionally, ``test/``; one without the two is all training.
    to_train : bool
        Whether there must be training images, and a mask for each image; False suits segmentation.
    axes : Axes
        Whether images may be stacks, and what their axes are where the files do not say it.

    Returns
    -------
    ImageFolder
        Sorted, checked, with digests and warnings. Nothing is repaired: an object in several
        pieces stays one label, as stored.
    """
    found = _list_folder(Path(path), to_train)
    read: dict[str, list[LabelledImage]] = {"train": [], "test": []}
    for split, files in found.pairs:
        read[split] += _read_pair(split, files, found, axes)
    learnable = any(item.masks is not None and item.masks.any() for item in read["train"])
    if not found.problems and to_train and not learnable:
        found.problems.append(
            f"{path}: none of the {len(read['train'])} training masks holds an object, so there "
            "is nothing to learn; check that the right masks were exported, and images to train on "
            "lie in train/ where the folder has a test/"
        )
    digest = found.digest()
    known = {array_digest(item.image): item for item in read["train"]}
    for item in read["test"]:
        twin = known.get(array_digest(item.image))
        if twin is not None:
            found.warnings.append(
                f"leak: {found.relative(item.image_path)} holds the same image as "
                f"{found.relative(twin.image_path)}, so its score is no held-out score"
            )
    train, test = map(tuple, read.values())
    return ImageFolder(found.folder, found.files, digest, train, test, tuple(found.warnings))


def folder_digest(path: str | os.PathLike[str], *, to_train: bool = True) -> str:
    """Digest the files that `read_folder` would use, without decoding them.

    It is the SHA-256 of the sorted lines ``sha256  relative/path``, each ended by a line feed: what
    ``sha256sum FILES | LC_ALL=C sort | sha256sum`` prints.
    """
    found = _list_folder(Path(path), to_train)
    for _, files in found.pairs:
        for file in files:
            found.read(file)
    return found.digest()


def is_litter(path: str | Path) -> bool:
    """Whether a file, by its path in the user's folder, is left by a desktop or an editor."""
    path = Path(path)
    return path.name.lower() in _LITTER or any(part.startswith(".") for part in path.parts)


# --- names ----------------------------------------------------------------------------------------


@dataclass
class _Found:
    """What a folder holds, and what is wrong with it, as far as it has been looked at."""

    folder: Path
    pairs: list[tuple[str, list[Path]]] = field(default_factory=list)  # ``train``, [image, masks]
    files: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def relative(self, file: Path) -> str:
        return file.relative_to(self.folder).as_posix()

    def read(self, file: Path) -> bytes:
        """The bytes of a file, whose digest is kept."""
        data = read_bytes(file)
        self.files[self.relative(file)] = hashlib.sha256(data).hexdigest()
        return data

    def digest(self) -> str:
        """The digest of what was read; one `BadInput` for all problems, if there are any."""
        if len(self.problems) == 1:
            raise BadInput(self.problems[0])
        if self.problems:
            head = f"{self.folder} has {len(self.problems)} problems:"
            raise BadInput("\n- ".join([head, *self.problems[:_MOST_PROBLEMS]]))
        lines = sorted(f"{digest}  {name}\n" for name, digest in self.files.items())
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def _list_folder(folder: Path, to_train: bool) -> _Found:
    """Find the pairs of a folder by name alone; a folder without any use raises at once."""
    found = _Found(folder)
    entries = _entries(folder)
    splits = [path for name in ("train", "test") for path in entries if path.name == name]
    loose = [path.name for path in entries if _kind(path) == "image" and not path.is_dir()]
    if splits and loose:
        found.warnings.append(
            f"{len(loose)} images beside {'/ and '.join(path.name for path in splits)}/ are not "
            f"used ({some(loose)}); move them into a subfolder if they should be"
        )
    for directory in splits or [folder]:
        split = directory.name if splits else "train"
        if not _list_split(directory, split, to_train, found):
            wanted = split == "train" and to_train
            (found.problems if wanted else found.warnings).append(_no_images(directory))
    if not found.pairs and not found.problems:
        raise BadInput(_no_images(folder))
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise BadInput(f"{folder}: {why_unreadable(error, 'folder')}") from error


def _kind(path: Path) -> str | None:
    """Whether a file is, by its name, an ``image``, a ``mask`` or neither."""
    if is_litter(path.name) or path.suffix.lower() not in FORMATS:
        return None
    if path.stem.endswith(_CELLPOSE_ENDINGS) or any(part in path.stem for part in _CELLPOSE_PARTS):
        return None
    return "mask" if path.stem.endswith(_MASKS) and path.stem != _MASKS else "image"


def _no_images(folder: Path) -> str:
    """Say that a folder holds no images, and what it does hold."""
    visible = [path.name for path in _entries(folder) if not is_litter(path.name)]
    return (
        f"{folder}: no images, it holds {some(visible) or 'nothing'}; expected NAME.tif (or "
        f"{OTHER_ENDINGS}) with NAME_masks.tif, or the subfolders train/ and test/ with them"
    )


def _list_split(directory: Path, split: str, to_train: bool, found: _Found) -> bool:
    """Pair the images and masks of one folder; whether it holds any."""
    by_stem: dict[str, dict[str, Path]] = {"image": {}, "mask": {}}
    seen: dict[tuple[str, str], Path] = {}
    # Names that differ in leading zeros alone are equal to natsorted, which keeps their order.
    for path in natsorted(_entries(directory), key=lambda entry: entry.name):
        kind = _kind(path)
        if kind is None:
            continue
        if not path.name.isprintable():
            found.problems.append(
                f"{directory / ascii(path.name)}: the name holds characters that cannot be "
                "printed, so digests of it could not be exchanged; rename the file"
            )
        as_some_systems_read_it = unicodedata.normalize("NFC", path.stem).casefold()
        other = seen.setdefault((kind, as_some_systems_read_it), path)
        if other is path:
            by_stem[kind][path.stem] = path
            continue
        found.problems.append(
            f"{path}: the same name as {other.name} up to case and extension, so one would hide "
            "the other; rename or remove one of them"
        )
    masks = by_stem["mask"]
    for stem, path in by_stem["image"].items():
        partner = masks.pop(stem + _MASKS, None)
        found.pairs.append((split, [path] if partner is None else [path, partner]))
        if partner is None and to_train:
            found.problems.append(
                f"{path}: no mask, expected {stem}{_MASKS}.tif (or .png) beside it, spelled like "
                f"that; add it (open a {stem}_seg.npy in the Cellpose GUI and save its masks as "
                "PNG or TIFF), or move the image out of the folder"
            )
    for stem, path in masks.items():
        found.problems.append(
            f"{path}: a mask without its image, expected {stem.removesuffix(_MASKS)}.tif (or "
            f"{OTHER_ENDINGS}) beside it, spelled like that; add the image or remove the mask"
        )
    return bool(seen)


# --- pixels ---------------------------------------------------------------------------------------


def _read_pair(split: str, files: list[Path], found: _Found, axes: Axes) -> Sequence[LabelledImage]:
    """Read an image and its mask, check each and then both together; nothing where that fails."""
    arrays: list[np.ndarray] = []
    stacks: list[bool] = []
    for file, decode in zip(files, (decode_image, decode_masks), strict=False):
        remarks: list[str] = []
        try:
            array, is_stack = decode(file, found.read(file), remarks, axes)
            arrays.append(array)
            stacks.append(is_stack)
        except BadInput as error:
            found.problems.append(str(error))
        found.warnings += [f"{found.relative(file)}: {remark}" for remark in remarks]
    if len(arrays) < len(files):
        return []
    image, masks = arrays[0], arrays[1] if len(arrays) > 1 else None
    if masks is not None:
        shape = image.shape[: 2 + stacks[0]]
        if masks.shape != shape:
            found.problems.append(
                f"{files[1]}: shape {masks.shape}, expected {shape} as in "
                f"{files[0].name}; check that the two belong together, that neither was resized "
                "and Y and X are not swapped"
            )
            return []
        if split == "train" and not masks.any():
            found.warnings.append(f"{found.relative(files[1])}: no object, all background")
    return [LabelledImage(files[0].stem, image, masks, files[0], stacks[0])]
