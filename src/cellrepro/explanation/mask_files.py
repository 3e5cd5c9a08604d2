"""Files of masks: the image that each is of, and those of a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.images.decoding import SEG_ENDING
from cellrepro.images.image_file import read_labels
from cellrepro.images.image_names import OME, image_name
from cellrepro.images.ome_zarr import is_zarr
from cellrepro.words import joined

MASK_ENDINGS = (".tif", ".tiff", ".png", ".npy")
MaskReaders = Mapping[str, Callable[[], np.ndarray]]
"""Label images by image; each is read when it is needed."""


def readers(files: Mapping[str, Path]) -> MaskReaders:
    """Give a reader for each mask file, by the same names."""
    return {name: partial(read_labels, file) for name, file in files.items()}


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
        path for path in files if image_name(path.stem) != path.stem.removesuffix(OME)
    ]
    by_image: dict[str, list[Path]] = {}
    for path in named_as_masks or files:
        by_image.setdefault(image_name(path.stem), []).append(path)
    return {name: _only_one(name, paths) for name, paths in by_image.items()}


def newer_seg_notes(folder: Path) -> Iterator[str]:
    """Say which masks of a folder were taken though a ``_seg.npy`` beside them is newer.

    A sentence each, without the name of the side.
    """
    from cellrepro.images.folder_files import is_newer

    for name, file in mask_files(folder).items():
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
