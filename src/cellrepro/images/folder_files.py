"""The files of a folder of images, paired by their names alone.

``NAME.tif`` (or png, jpg) stands beside ``NAME_masks.tif`` (or png), or beside the ``NAME_seg.npy``
that Cellpose's GUI saves.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from natsort import natsorted

from cellrepro.errors import no_such_file
from cellrepro.images.decoding import (
    FORMATS,
    OTHER_ENDINGS,
    SEG_ENDING,
    read_bytes,
    why_unreadable,
)
from cellrepro.images.image_names import image_name, is_named_as_masks
from cellrepro.images.mapped import Content
from cellrepro.images.ome_zarr import is_zarr
from samebits.errors import BadInput
from samebits.words import amount, some

Split = Literal["train", "test"]
_SPLITS: tuple[Split, ...] = ("train", "test")
_MASKS = "_masks"
# What Cellpose itself writes beside images (cellpose/io.py, 4.2.1.1): never an image, never a mask.
_CELLPOSE_ENDINGS = ("_flows", "_flows_0", "_flows_1", "_flows_2", "_cellprob")
_CELLPOSE_MASKS = "_cp_masks"
_CELLPOSE_PARTS = (_CELLPOSE_MASKS, "_cp_output")
_LITTER = {"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"}  # in lower case
_MOST_PROBLEMS = 10  # listed in one `BadInput`


def is_litter(path: str | Path) -> bool:
    """Whether a file, by its path in the user's folder, is left by a desktop or an editor."""
    path = Path(path)
    return path.name.lower() in _LITTER or any(part.startswith(".") for part in path.parts)


@dataclass(frozen=True)
class ImagePair:
    """The files of one image."""

    split: Split
    image: Path
    masks: Path | None


@dataclass
class Survey:
    """The files of a folder, and its problems as far as they are known."""

    folder: Path
    pairs: list[ImagePair] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 by relative path."""
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def relative(self, file: Path) -> str:
        """A file's path relative to the folder, with slashes."""
        return file.relative_to(self.folder).as_posix()

    def read(self, file: Path) -> Content:
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
            shown = self.problems[:_MOST_PROBLEMS]
            n_more = len(self.problems) - len(shown)
            raise BadInput("\n- ".join([head, *shown, *[f"and {n_more} more"] * bool(n_more)]))

    def digest(self) -> str:
        """The digest of the files that were read."""
        lines = sorted(f"{digest}  {name}\n" for name, digest in self.files.items())
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def list_folder(folder: Path, to_train: bool) -> Survey:
    """Find the pairs of a folder by their names alone."""
    if folder.is_file() and not to_train:
        return _list_one(folder)
    survey = Survey(folder)
    entries = {path.name: path for path in _entries(folder)}
    splits = {split: entries[split] for split in _SPLITS if split in entries}
    loose = [name for name, path in entries.items() if _kind(path) == "image" and not path.is_dir()]
    if splits and loose:
        are, them, they = ("is", "it", "it") if len(loose) == 1 else ("are", "them", "they")
        survey.warnings.append(
            f"{amount(len(loose), 'image')} next to {'/ and '.join(splits)}/ {are} not used "
            f"({some(loose)}); move {them} into a subfolder if {they} should be"
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


def is_read_with(folder: Path, data: Path) -> bool:
    """Whether what lies in a folder is read with these images, as of no other subfolder."""
    images = (data.parent if data.is_file() else data).resolve()
    return folder.resolve() in (images, *(images / split for split in _SPLITS))


def is_folder_of_images(path: str | Path) -> bool:
    """Whether a path is a folder, and no OME-Zarr, which is one image."""
    return Path(path).is_dir() and not is_zarr(Path(path))


def images_by_name(folder: Path) -> dict[str, Path]:
    """Find the images of a folder, or the one that is given, by the name that their masks share."""
    by_name: dict[str, Path] = {}
    for pair in list_folder(folder, to_train=False).pairs:
        name = image_name(pair.image.stem)
        if name not in by_name or pair.image.stem == name:  # not NAME_mask beside NAME
            by_name[name] = pair.image
    return by_name


def image_of_name(folder: str | Path, name: str) -> Path:
    """Find the image of a name in a folder."""
    by_name = images_by_name(Path(folder))
    if not by_name:
        raise BadInput(_no_images(Path(folder)))
    if name not in by_name:
        raise BadInput(
            f"{folder} holds no image of the name {name}, but {some(list(by_name), 3)}; expected "
            "images that are called as their masks, but for _masks, _cp_masks or _seg"
        )
    return by_name[name]


def _list_one(image: Path) -> Survey:
    """Find one image file that is to be segmented, and the mask beside it, if there is one."""
    survey = Survey(image.parent)
    own = [
        path
        for path in _entries(image.parent)
        if path.name in (image.name, f"{image.stem}{SEG_ENDING}")
        or (_kind(path) == "mask" and path.stem == image.stem + _MASKS)
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
    except FileNotFoundError as error:
        raise no_such_file(folder, expected="images", noun="file or folder") from error
    except NotADirectoryError as error:
        raise BadInput(
            f"{folder}: a file, expected a folder; give the folder of images that it lies in"
        ) from error
    except OSError as error:
        raise BadInput(f"{folder}: {why_unreadable(error, 'folder')}") from error


def _kind(path: Path) -> Literal["image", "mask"] | None:
    """Say whether a file is an image or a mask, by its name."""
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


def _is_of_masks(path: Path) -> bool:
    return path.suffix.lower() in FORMATS and is_named_as_masks(path.stem)


def _no_images(folder: Path) -> str:
    """Say that a folder holds no images, and what it does hold."""
    visible = [path for path in _entries(folder) if not is_litter(path.name)]
    only = "masks alone: " if visible and all(_is_of_masks(path) for path in visible) else ""
    names = some([path.name for path in visible]) or "nothing"
    return (
        f"{folder}: no images, it holds {only}{names}; expected NAME.tif (or "
        f"{OTHER_ENDINGS}) with NAME_masks.tif, or the subfolders train/ and test/ with them"
    )


def _list_split(
    directory: Path, split: Split, to_train: bool, survey: Survey, *, entries: Sequence[Path]
) -> bool:
    """Pair the images and masks of one folder, and say whether it holds any."""
    # Names that differ in leading zeros alone are equal to natsorted, which keeps their order.
    entries = natsorted(entries, key=lambda entry: entry.name)
    found = _by_stem(directory, entries, survey)
    masks = dict(found.masks)
    for stem, path in found.images.items():
        partner = masks.pop(stem + _MASKS, None) or found.seg_files.get(stem)
        survey.pairs.append(ImagePair(split, path, partner))
        if partner is None and to_train:
            survey.problems.append(
                f"{path}: no mask, expected {stem}{_MASKS}.tif (or .png), or {stem}{SEG_ENDING} of "
                f"the Cellpose GUI, beside it, spelled like that; {_how_to_get_masks(path)}, or "
                "move the image out of the folder"
            )
        elif partner is not None and is_newer(path.with_name(f"{stem}_seg.npy"), partner):
            survey.warnings.append(
                f"{survey.relative(path)}: {stem}_seg.npy was changed after {partner.name}, which "
                "is used; save the masks anew in the Cellpose GUI if they were edited there"
            )
    survey.warnings += _taken_from_seg(split, survey)
    survey.warnings += _passed_over(entries, found.images, survey, to_train=to_train)
    for stem, path in masks.items():
        survey.problems.append(
            f"{path}: a mask without its image, expected {stem.removesuffix(_MASKS)}.tif (or "
            f"{OTHER_ENDINGS}) beside it, spelled like that; add the image, or move the mask "
            "to another folder"
        )
    return found.any_seen


class _FilesByStem(NamedTuple):
    """The images and masks of one folder by their names without extension."""

    images: Mapping[str, Path]
    masks: Mapping[str, Path]
    seg_files: Mapping[str, Path]
    """What Cellpose's GUI saved, by the name of the image; it counts where there are no masks."""
    any_seen: bool
    """Whether there is an image or a mask, also one whose name is a problem."""


def _by_stem(directory: Path, entries: Sequence[Path], survey: Survey) -> _FilesByStem:
    """Sort files into images and masks; names that cannot be used are problems of the survey."""
    by_kind: dict[str, dict[str, Path]] = {"image": {}, "mask": {}}
    seen: dict[tuple[str, str], Path] = {}
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
                "hide the other; rename one of them, or move it to "
                "another folder"
            )
        else:
            by_kind[kind][path.stem] = path
    seg_files = {
        path.name.removesuffix(SEG_ENDING): path
        for path in entries
        if path.name.endswith(SEG_ENDING) and not is_litter(path.name) and path.is_file()
    }
    return _FilesByStem(by_kind["image"], by_kind["mask"], seg_files, bool(seen))


def _taken_from_seg(split: Split, survey: Survey) -> Iterator[str]:
    """Say which masks are those of a ``_seg.npy``."""
    taken = [
        survey.relative(pair.masks)
        for pair in survey.pairs
        if pair.split == split and pair.masks is not None
        if pair.masks.name.endswith(SEG_ENDING)
    ]
    if taken:
        yield (
            f"the masks that the Cellpose GUI saved in {some(taken)} are taken for the truth, as "
            f"no NAME{_MASKS}.tif lies there: a score beside them says how good a result is only "
            "where somebody corrected them"
        )


def _how_to_get_masks(image: Path) -> str:
    """Say how a file that Cellpose wrote beside an image becomes its mask."""
    for ending in FORMATS:
        written = image.with_name(f"{image.stem}{_CELLPOSE_MASKS}{ending}")
        if written.exists():
            return (
                f"rename {written.name}, which Cellpose's command line wrote, to "
                f"{image.stem}{_MASKS}{ending} if its masks are to be learnt"
            )
    return "add it"


def is_newer(file: Path, other: Path) -> bool:
    """Whether a file is there and was changed after another."""
    try:
        return file.stat().st_mtime_ns > other.stat().st_mtime_ns
    except OSError:
        return False


def _passed_over(
    entries: Sequence[Path], images: Mapping[str, Path], survey: Survey, *, to_train: bool
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
