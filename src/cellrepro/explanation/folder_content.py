"""What a folder that was given in place of a file holds: masks, images alone, or folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cellrepro.explanation.mask_files import mask_files
from cellrepro.images.folder_files import is_litter
from cellrepro.images.image_file import read_labels
from cellrepro.images.image_names import is_named_as_masks
from cellrepro.images.outline_files import is_outline_file
from samebits.errors import BadInput
from samebits.words import amount, joined, some

_MOST_FOLDERS = 4  # named in a sentence
_MOST_LEVELS = 4  # below the folder that was given
_MOST_PARENTS = 50  # folders of one level that are looked into


def folder_content(folder: Path) -> str:
    """Say what a folder holds, as "a folder with masks of 6 images"."""
    try:
        files = mask_files(folder)
    except BadInput:
        return "a folder with masks, several of one image"
    if files and are_masks(files):
        return f"a folder with masks of {amount(len(files), 'image')}"
    if files:
        return f"a folder of {amount(len(files), 'image')} without masks"
    inner = [path.relative_to(folder).as_posix() for path in _folders_of_masks(folder)]
    if inner:
        return f"a folder without masks of its own; they are in {_listed(inner)}"
    return "a folder without masks"


def are_masks(files: Mapping[str, Path]) -> bool:
    """Whether files that `mask_files` found are masks: any file of pixels may be, by its name.

    Where no name tells, the first file does: its pixels are labels, or no labels at all.
    """
    first, *_ = files.values()
    if is_named_as_masks(first.stem) or is_outline_file(first):
        return True
    try:
        read_labels(first)
    except BadInput:
        return False
    return True


def _listed(names: Sequence[str]) -> str:
    return joined(names) if len(names) <= _MOST_FOLDERS else some(names, _MOST_FOLDERS)


def _folders_of_masks(folder: Path) -> list[Path]:
    """Find the nearest folders of masks below a folder: in it, else in the folders of these."""
    level = [folder]
    for _ in range(_MOST_LEVELS):
        level = [path for parent in level[:_MOST_PARENTS] for path in _folders_in(parent)]
        found = [path for path in level if _is_folder_of_masks(path)]
        if found:
            return found
    return []


def _folders_in(folder: Path) -> list[Path]:
    with suppress(OSError):  # one that may not be read
        return [
            path
            for path in sorted(folder.iterdir())
            if path.is_dir() and not path.is_symlink() and not is_litter(path.name)
        ]
    return []


def _is_folder_of_masks(path: Path) -> bool:
    with suppress(OSError):
        try:
            files = mask_files(path)
        except BadInput:  # several of one image
            return True
        return bool(files) and are_masks(files)
    return False
