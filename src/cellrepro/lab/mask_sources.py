"""What a user names: a run, a mask file, a folder of them, a baseline, weights; and its masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.images.folder import is_litter
from cellrepro.images.reading import read_labels
from cellrepro.images.seg_file import SEG_ENDING
from cellrepro.store import baseline_file
from cellrepro.store.store import Store

MASK_ENDINGS = (".tif", ".tiff", ".png", ".npy")
_WEIGHTS = (".safetensors", ".pth", ".pt")  # usual endings; Cellpose's files have none
_SUFFIXES = ("_cp_masks", "_masks", "_seg")  # of Cellpose's names: its command line's, GUI's

Reader = Callable[[], np.ndarray]
Masks = Mapping[str, Reader]
"""By image; each is read when it is needed."""


def kind_of(path: Path) -> str:
    """``folder``, ``masks``, ``baseline``, ``weights``, or ``run`` for what is no path."""
    if path.is_dir():
        return "folder"
    if path.suffix.lower() in MASK_ENDINGS:
        return "masks"
    if path.is_file() and baseline_file.is_one(path):
        return "baseline"
    return "weights" if path.exists() or path.suffix.lower() in _WEIGHTS else "run"


def masks_of(reference: str, store: Store) -> Masks:
    """The masks of a run, a mask file, a folder or a baseline, by the name of their image."""
    path = Path(reference)
    kind = kind_of(path)
    if kind == "run":
        repeat = store.find(reference)
        return {name: partial(repeat.masks, name) for name in repeat.manifest.masks}
    if kind == "baseline":
        found = baseline_file.read(path)
        return {name: partial(found.masks, name) for name in found.record["images"]}
    if kind == "weights":
        raise BadInput(f"{reference} is no mask file, folder of masks, baseline or run")
    files = mask_files(path) if kind == "folder" else {path.stem: path}
    return readers({image_name(stem): file for stem, file in files.items()})


def readers(files: Mapping[str, Path]) -> Masks:
    """Of some mask files, by the same names."""
    return {name: partial(read_labels, file) for name, file in files.items()}


def image_name(stem: str) -> str:
    """Of the image whose masks a file holds.

    >>> image_name("a_cp_masks"), image_name("a_masks"), image_name("a_seg"), image_name("a")
    ('a', 'a', 'a', 'a')
    """
    ending = next((one for one in _SUFFIXES if stem.endswith(one)), "")
    return stem.removesuffix(ending)


def mask_files(folder: Path) -> dict[str, Path]:
    """The masks of a folder by name: of those called NAME_masks, or else NAME_seg.npy, where there
    are any."""
    visible = (path for path in sorted(folder.iterdir()) if not is_litter(path.name))
    files = [path for path in visible if path.suffix.lower() in MASK_ENDINGS]
    of_cellpose = [path for path in files if path.name.endswith(SEG_ENDING)]
    chosen: dict[str, Path] = {}
    for path in [path for path in files if path.stem.endswith("_masks")] or of_cellpose or files:
        name = path.stem.removesuffix("_seg") + "_masks" if path in of_cellpose else path.stem
        other = chosen.setdefault(name, path)
        if other != path:
            raise BadInput(f"{other} and {path.name} have one name; remove one of them")
    return chosen
