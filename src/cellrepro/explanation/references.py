"""What a path or name of a user refers to, a run, masks, a baseline or weights; and its masks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cellrepro.errors import BadInput, no_such_file
from cellrepro.images.decoding import SEG_ENDING
from cellrepro.images.image_file import read_labels
from cellrepro.images.ome_zarr import is_zarr
from cellrepro.words import joined

if TYPE_CHECKING:
    from cellrepro.store.store import Store

MASK_ENDINGS = (".tif", ".tiff", ".png", ".npy")
_WEIGHTS = (".safetensors", ".pth", ".pt")  # usual endings; Cellpose's files have none
_SUFFIXES = ("_cp_masks", "_masks", "_mask", "_seg")
"""What follows the name of an image in that of its masks: as Cellpose's command line writes them,
as it reads them (and as `cellrepro segment --masks-into` does), as other programs do, as its GUI
does. Longest first."""
_OME = ".ome"  # of NAME_masks.ome.tif

MaskReaders = Mapping[str, Callable[[], np.ndarray]]
"""Label images by image; each is read when it is needed."""

ReferenceKind = Literal["folder", "masks", "baseline", "weights", "run"]

_KINDS_IN_WORDS: Mapping[ReferenceKind, str] = {
    "folder": "a folder",
    "masks": "a mask file",
    "baseline": "a baseline",
    "weights": "a weights file",
    "run": "a run",
}


def reference_kind(path: Path) -> ReferenceKind:
    """Tell what a path refers to, by what lies there or else by its ending."""
    if is_zarr(path):
        return "masks"
    if path.is_dir():
        from cellrepro.store import checkpoints

        return "weights" if checkpoints.is_one(path) else "folder"
    if path.suffix.lower() in MASK_ENDINGS:
        return "masks"
    from cellrepro.explanation.recognition import recognised
    from cellrepro.store import baseline_file

    if path.is_file() and baseline_file.is_one(path):
        return "baseline"
    other = recognised(path)
    if other is not None:
        raise BadInput(f"{path} is {other.name}; {other.next_step}")
    return "weights" if path.exists() or path.suffix.lower() in _WEIGHTS else "run"


def file_or_run(reference: str | Path, *, name: str) -> Path:
    """Check that a reference is a path or names a run, and that its file exists."""
    if not isinstance(reference, str | os.PathLike):
        raise BadInput(
            f"{name} is of the type {type(reference).__name__}; expected the path of a file, or "
            "KEY/REPEAT of a stored run. Arrays are compared by cellrepro.compare_masks(a, b), and "
            "shown by cellrepro.explore(image, a, b)"
        )
    path = Path(reference)
    if reference_kind(path) != "run" and not path.exists():
        raise no_such_file(reference)
    return path


def kind_in_words(path: Path) -> str:
    """Say in words what a path refers to: "a mask file", "a folder"."""
    kind = reference_kind(path)
    ending = path.suffix.lower()
    if kind == "weights" and ending and ending not in _WEIGHTS:
        return f"a file with the ending {ending}"
    return _KINDS_IN_WORDS[kind]


def masks_of(reference: str, store: Store) -> MaskReaders:
    """Find the masks of a run, a mask file, a folder or a baseline, by image."""
    path = Path(reference)
    kind = reference_kind(path)
    if kind == "run":
        repeat = store.find(reference)
        return {name: partial(repeat.masks, name) for name in repeat.manifest.masks}
    if kind == "baseline":
        from cellrepro.store import baseline_file

        baseline = baseline_file.read(path)
        return {name: partial(baseline.masks, name) for name in baseline.record["images"]}
    if kind == "weights":
        raise BadInput(f"{reference} is no mask file, folder of masks, baseline or run")
    if kind == "folder":
        return readers(mask_files(path))
    return readers({image_name(path.stem): path})


def readers(files: Mapping[str, Path]) -> MaskReaders:
    """Give a reader for each mask file, by the same names."""
    return {name: partial(read_labels, file) for name, file in files.items()}


def image_name(stem: str) -> str:
    """Give the name of the image whose masks a file holds.

    The one rule by which files, folders, baselines and runs are paired.
    """
    stem = stem.removesuffix(_OME) or stem
    ending = next((suffix for suffix in _SUFFIXES if stem.endswith(suffix)), "")
    return stem.removesuffix(ending) or stem


def mask_files(folder: Path) -> dict[str, Path]:
    """Find the masks in a folder, one file for each image, in the order of the files' names.

    Where files are named as masks (``NAME_masks``, ``NAME_cp_masks``, ``NAME_seg``) these alone
    count, since the others are the images; and ``NAME_seg.npy`` counts for an image that has no
    other masks, since the GUI writes it beside them.
    """
    from cellrepro.images.folder_files import is_litter

    visible = (path for path in sorted(folder.iterdir()) if not is_litter(path.name))
    files = [path for path in visible if path.suffix.lower() in MASK_ENDINGS or is_zarr(path)]
    named_as_masks = [
        path for path in files if image_name(path.stem) != path.stem.removesuffix(_OME)
    ]
    by_image: dict[str, list[Path]] = {}
    for path in named_as_masks or files:
        by_image.setdefault(image_name(path.stem), []).append(path)
    return {name: _only_one(name, paths) for name, paths in by_image.items()}


def newer_seg_notes(path: Path) -> Iterator[str]:
    """Say which masks of a folder were taken though a ``_seg.npy`` beside them is newer.

    A sentence each, without the name of the side.
    """
    if reference_kind(path) != "folder":
        return
    from cellrepro.images.folder_files import is_newer

    for name, file in mask_files(path).items():
        seg = file.with_name(f"{name}{SEG_ENDING}")
        if is_newer(seg, file):
            yield (
                f"{file.name} was compared, and {seg.name} was changed after it; if cells were "
                f"edited there, save the masks anew in the Cellpose GUI, or compare {seg.name} "
                "itself"
            )


def _only_one(name: str, paths: Sequence[Path]) -> Path:
    """Choose the file with the masks of an image; two label images are refused."""
    label_images = [path for path in paths if not path.name.endswith(SEG_ENDING)]
    candidates = label_images or paths
    if len(candidates) > 1:
        names = joined([path.name for path in candidates])
        raise BadInput(
            f"{candidates[0].parent} holds {names}, which are all masks of the image {name}; "
            "expected one file for each image: move the others into a folder of their own, or give "
            "the file itself"
        )
    return candidates[0]
