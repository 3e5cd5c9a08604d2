"""A folder of images in Cellpose's own convention, read whole and checked.

``train/`` and ``test/`` hold ``NAME.tif`` (or png, jpg) beside ``NAME_masks.tif`` (or png); a
folder without the two is all training. What `read_folder` returns can be trained on: every file was
decoded to its end, every mask fits its image, and the order does not depend on the file system.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from natsort import natsorted

from cellrepro.digests.digests import array_digest
from cellrepro.errors import BadInput
from cellrepro.images.decoding import FORMATS, OTHER_ENDINGS, read_bytes, why_unreadable
from cellrepro.images.image_axes import FLAT, Axes
from cellrepro.images.image_file import Checked, check_image, check_masks
from cellrepro.results import Result, Row
from cellrepro.words import amount, some

Split = Literal["train", "test"]

_SPLITS: tuple[Split, ...] = ("train", "test")
_MASKS = "_masks"
# What Cellpose itself writes beside images (cellpose/io.py, 4.2.1.1): never an image, never a mask.
_CELLPOSE_ENDINGS = ("_flows", "_flows_0", "_flows_1", "_flows_2", "_cellprob")
_CELLPOSE_MASKS = "_cp_masks"
_CELLPOSE_PARTS = (_CELLPOSE_MASKS, "_cp_output")
_LITTER = {"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"}  # in lower case
_MOST_PROBLEMS = 10  # listed in one `BadInput`


@dataclass(frozen=True, eq=False)
class LabelledImage:
    """One image and, where there is one, its label image."""

    name: str
    """Name of the file without extension; unique within a part of the folder."""
    image: np.ndarray = field(repr=False)
    """(Y, X) or (Y, X, C), in the dtype of the file."""
    masks: np.ndarray | None = field(repr=False)
    """(Y, X); 0 is background."""
    image_path: Path
    stack: bool = False
    """Whether image and masks have planes as their first axis."""

    @property
    def n_objects(self) -> int:
        """Objects in its masks; 0 without masks."""
        return 0 if self.masks is None else np.unique(self.masks[self.masks > 0]).size


@dataclass(frozen=True, eq=False, repr=False)
class ImageFolder(Result):
    """A folder that can be trained on or segmented."""

    path: Path
    """The folder."""
    files: dict[str, str]
    """SHA-256 of each file that was read, by its path relative to the folder."""
    digest: str
    """SHA-256 over ``files``: equal ones mean the same files under the same names."""
    train: tuple[LabelledImage, ...]
    """In natural order of their file names, ``img_2`` before ``img_10``, as Cellpose sorts them."""
    test: tuple[LabelledImage, ...]
    """In natural order of their file names, too."""
    warnings: tuple[str, ...]
    """What can be used but deserves a look."""

    def sentence(self) -> str:
        """Say how many images there are, and what of them deserves a look."""
        n_images = f"{amount(len(self.train), 'training image')} and {len(self.test)} for testing"
        return "; ".join([f"{n_images} in {self.path}", *self.warnings])

    def rows(self) -> list[Row]:
        """Give each image with its shape, dtype and number of cells."""
        return [
            {
                "image": image.name,
                "part": part,
                "shape": "×".join(map(str, image.image.shape)),
                "dtype": image.image.dtype.name,
                "cells": "" if image.masks is None else image.n_objects,
            }
            for part, images in (("train", self.train), ("test", self.test))
            for image in images
        ]


def read_folder(
    path: str | os.PathLike[str], *, to_train: bool = True, axes: Axes = FLAT
) -> ImageFolder:
    """Read and check every image and mask of a folder.

    Parameters
    ----------
    path : path-like
        A folder with ``train/`` and, optionally, ``test/``; one without the two is all training.
        To segment, also one image file.
    to_train : bool
        Whether there must be training images, and a mask for each image; False suits segmentation.
    axes : Axes
        Whether images may be stacks, and what their axes are where the files do not say it.

    Returns
    -------
    ImageFolder
        Sorted, checked, with digests and warnings. Nothing is repaired: an object in several
        pieces stays one label, as stored.

    Raises
    ------
    BadInput
        If the folder holds no images, or a file is damaged, of another kind, or does not fit its
        partner; all such problems at once.
    """
    survey = _list_folder(Path(path), to_train)
    images: dict[Split, list[LabelledImage]] = {"train": [], "test": []}
    for pair in survey.pairs:
        image = _read_pair(pair, survey, axes)
        if image is not None:
            images[pair.split].append(image)
    train = tuple(images["train"])
    test = tuple(images["test"])
    learnable = any(item.masks is not None and item.masks.any() for item in train)
    if not survey.problems and to_train and not learnable:
        survey.problems.append(
            f"{path}: none of the {len(train)} training masks holds an object, so there "
            "is nothing to learn; check that the right masks were exported, and images to train on "
            "lie in train/ where the folder has a test/"
        )
    survey.refuse_problems()
    survey.warnings += _leaks(train, test, survey)
    return ImageFolder(
        path=survey.folder,
        files=survey.files,
        digest=survey.digest(),
        train=train,
        test=test,
        warnings=tuple(survey.warnings),
    )


def _leaks(
    train: Sequence[LabelledImage], test: Sequence[LabelledImage], survey: _Survey
) -> Iterator[str]:
    """Warn of each test image that is one of the training images, too."""
    known = {array_digest(item.image): item for item in train}
    for item in test:
        twin = known.get(array_digest(item.image))
        if twin is not None:
            yield (
                f"leak: {survey.relative(item.image_path)} holds the same image as "
                f"{survey.relative(twin.image_path)}, so its score is no held-out score"
            )


def folder_digest(path: str | os.PathLike[str], *, to_train: bool = True) -> str:
    """Digest the files that `read_folder` would use, without decoding them."""
    survey = _list_folder(Path(path), to_train)
    for pair in survey.pairs:
        survey.read(pair.image)
        if pair.masks is not None:
            survey.read(pair.masks)
    survey.refuse_problems()
    return survey.digest()


def is_litter(path: str | Path) -> bool:
    """Whether a file, by its path in the user's folder, is left by a desktop or an editor."""
    path = Path(path)
    return path.name.lower() in _LITTER or any(part.startswith(".") for part in path.parts)


# --- names ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """The files of one image."""

    split: Split
    image: Path
    masks: Path | None


@dataclass
class _Survey:
    """The files of a folder, and its problems as far as they are known."""

    folder: Path
    pairs: list[_Pair] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 by relative path."""
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def relative(self, file: Path) -> str:
        """A file's path relative to the folder, with slashes."""
        return file.relative_to(self.folder).as_posix()

    def read(self, file: Path) -> bytes:
        """Read a file, and keep its digest."""
        data = read_bytes(file)
        self.files[self.relative(file)] = hashlib.sha256(data).hexdigest()
        return data

    def refuse_problems(self) -> None:
        """Raise one `BadInput` for all problems, if there are any."""
        if len(self.problems) == 1:
            raise BadInput(self.problems[0])
        if self.problems:
            head = f"{self.folder} has {len(self.problems)} problems:"
            raise BadInput("\n- ".join([head, *self.problems[:_MOST_PROBLEMS]]))

    def digest(self) -> str:
        """The digest of the files that were read."""
        lines = sorted(f"{digest}  {name}\n" for name, digest in self.files.items())
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def _list_folder(folder: Path, to_train: bool) -> _Survey:
    """Find the pairs of a folder by their names alone."""
    if folder.is_file() and not to_train:
        return _list_one(folder)
    survey = _Survey(folder)
    entries = {path.name: path for path in _entries(folder)}
    splits = {split: entries[split] for split in _SPLITS if split in entries}
    loose = [name for name, path in entries.items() if _kind(path) == "image" and not path.is_dir()]
    if splits and loose:
        survey.warnings.append(
            f"{len(loose)} images next to {'/ and '.join(splits)}/ are not "
            f"used ({some(loose)}); move them into a subfolder if they should be"
        )
    for split, directory in (splits or {_SPLITS[0]: folder}).items():
        if _list_split(directory, split, to_train, survey, entries=_entries(directory)):
            continue
        if split == "train" and to_train:
            survey.problems.append(_no_images(directory))
        else:
            survey.warnings.append(_no_images(directory))
    if not survey.pairs and not survey.problems:
        raise BadInput(_no_images(folder))
    return survey


def _list_one(image: Path) -> _Survey:
    """Find one image file that is to be segmented, and the mask beside it, if there is one."""
    survey = _Survey(image.parent)
    own = [
        path
        for path in _entries(image.parent)
        if path.name == image.name or (_kind(path) == "mask" and path.stem == image.stem + _MASKS)
    ]
    _list_split(image.parent, _SPLITS[0], False, survey, entries=own)
    if not survey.pairs and not survey.problems:
        raise BadInput(
            f"{image} is no image; expected a folder of images, or one file (.tif, {OTHER_ENDINGS})"
        )
    return survey


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise BadInput(f"{folder}: {why_unreadable(error, 'folder')}") from error


def _kind(path: Path) -> Literal["image", "mask"] | None:
    """What a file is by its name."""
    if is_litter(path.name) or path.suffix.lower() not in FORMATS:
        return None
    if _is_named_as_result(path):
        return None
    return "mask" if path.stem.endswith(_MASKS) and path.stem != _MASKS else "image"


def _is_named_as_result(path: Path) -> bool:
    """Whether an image file has a name that Cellpose gives to what it writes beside images."""
    if is_litter(path.name) or path.suffix.lower() not in FORMATS:
        return False
    return path.stem.endswith(_CELLPOSE_ENDINGS) or any(
        part in path.stem for part in _CELLPOSE_PARTS
    )


def _no_images(folder: Path) -> str:
    """Say that a folder holds no images, and what it does hold."""
    visible = [path.name for path in _entries(folder) if not is_litter(path.name)]
    return (
        f"{folder}: no images, it holds {some(visible) or 'nothing'}; expected NAME.tif (or "
        f"{OTHER_ENDINGS}) with NAME_masks.tif, or the subfolders train/ and test/ with them"
    )


def _list_split(
    directory: Path, split: Split, to_train: bool, survey: _Survey, *, entries: Sequence[Path]
) -> bool:
    """Pair the images and masks of one folder, and say whether it holds any."""
    images: dict[str, Path] = {}  # by stem
    masks: dict[str, Path] = {}
    seen: dict[tuple[str, str], Path] = {}
    # Names that differ in leading zeros alone are equal to natsorted, which keeps their order.
    entries = natsorted(entries, key=lambda entry: entry.name)
    for path in entries:
        kind = _kind(path)
        if kind is None:
            continue
        if not path.name.isprintable():
            survey.problems.append(
                f"{directory / ascii(path.name)}: the name holds characters that cannot be "
                "printed, so digests of it could not be exchanged; rename the file"
            )
        as_some_systems_read_it = unicodedata.normalize("NFC", path.stem).casefold()
        other = seen.setdefault((kind, as_some_systems_read_it), path)
        if other is not path:
            survey.problems.append(
                f"{path}: the same name as {other.name} up to case and extension, so one would "
                "hide the other; rename or remove one of them"
            )
        elif kind == "image":
            images[path.stem] = path
        else:
            masks[path.stem] = path
    for stem, path in images.items():
        partner = masks.pop(stem + _MASKS, None)
        survey.pairs.append(_Pair(split, path, partner))
        if partner is None and to_train:
            survey.problems.append(
                f"{path}: no mask, expected {stem}{_MASKS}.tif (or .png) beside it, spelled like "
                f"that; {_how_to_get_masks(path)}, or move the image out of the folder"
            )
        elif partner is not None and is_newer(path.with_name(f"{stem}_seg.npy"), partner):
            survey.warnings.append(
                f"{survey.relative(path)}: {stem}_seg.npy was changed after {partner.name}, which "
                "is used; save the masks anew in the Cellpose GUI if they were edited there"
            )
    survey.warnings += _passed_over(entries, images, survey, to_train=to_train)
    for stem, path in masks.items():
        survey.problems.append(
            f"{path}: a mask without its image, expected {stem.removesuffix(_MASKS)}.tif (or "
            f"{OTHER_ENDINGS}) beside it, spelled like that; add the image or remove the mask"
        )
    return bool(seen)


def _how_to_get_masks(image: Path) -> str:
    """Say how a file that Cellpose wrote beside an image becomes its mask."""
    for ending in FORMATS:
        written = image.with_name(f"{image.stem}{_CELLPOSE_MASKS}{ending}")
        if written.exists():
            return (
                f"rename {written.name}, which Cellpose's command line wrote, to "
                f"{image.stem}{_MASKS}{ending} if its masks are to be learnt"
            )
    return (
        f"add it (open a {image.stem}_seg.npy in the Cellpose GUI and save its masks as PNG or "
        "TIFF)"
    )


def is_newer(file: Path, other: Path) -> bool:
    """Whether a file is there and was changed after another."""
    try:
        return file.stat().st_mtime_ns > other.stat().st_mtime_ns
    except OSError:
        return False


def _passed_over(
    entries: Sequence[Path], images: Mapping[str, Path], survey: _Survey, *, to_train: bool
) -> Iterator[str]:
    """Warn of files that are not read because they are named like results of Cellpose."""
    passed = [path for path in entries if _is_named_as_result(path)]
    flows = [path for path in passed if path.stem.removesuffix("_flows") in images]
    strange = [
        path
        for path in passed
        if not any(path.stem.startswith(f"{name}_") for name in images) and path.is_file()
    ]
    if strange:
        names = some([survey.relative(path) for path in strange])
        yield (
            f"not read, since Cellpose names its results so: {names}; rename what is an image of "
            "its own"
        )
    if flows and to_train:
        names = some([survey.relative(path) for path in flows])
        yield (
            f"not used: {names}; Cellpose's own training takes such flows as they are, and here "
            "they are computed anew from the masks"
        )


# --- pixels ---------------------------------------------------------------------------------------


def _read_pair(pair: _Pair, survey: _Survey, axes: Axes) -> LabelledImage | None:
    """Read and check an image and its mask; None where there is a problem."""
    image = _checked(pair.image, check_image, survey, axes)
    if pair.masks is None:
        masks = None
    else:
        masks = _checked(pair.masks, check_masks, survey, axes)
        if image is None or masks is None:
            return None
        shape = image.pixels.shape[:3] if image.is_stack else image.pixels.shape[:2]
        if masks.pixels.shape != shape:
            survey.problems.append(
                f"{pair.masks}: shape {masks.pixels.shape}, expected {shape} as in "
                f"{pair.image.name}; check that the two belong together, that neither was resized "
                "and Y and X are not swapped"
            )
            return None
        if pair.split == "train" and not masks.pixels.any():
            survey.warnings.append(f"{survey.relative(pair.masks)}: no object, all background")
    if image is None:
        return None
    return LabelledImage(
        name=pair.image.stem,
        image=image.pixels,
        masks=None if masks is None else masks.pixels,
        image_path=pair.image,
        stack=image.is_stack,
    )


def _checked(
    file: Path, check: Callable[[Path, bytes, Axes], Checked], survey: _Survey, axes: Axes
) -> Checked | None:
    """Read and check a file; problems and warnings go to the survey."""
    try:
        checked = check(file, survey.read(file), axes)
    except BadInput as error:
        survey.problems.append(str(error))
        return None
    survey.warnings += [f"{survey.relative(file)}: {remark}" for remark in checked.remarks]
    return checked
