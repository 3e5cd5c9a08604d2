"""The layout of each public set, and how its archives become a folder in Cellpose's convention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import tifffile

from cellrepro.images.decoding import read_bytes
from cellrepro.images.folder import read_folder
from cellrepro.images.image_file import read_image, read_masks
from cellrepro.images.label_pieces import pieces_by_label


@dataclass(frozen=True, eq=False)
class LabelledPair:
    """One image of a set with its masks."""

    split: Literal["train", "test"]
    stem: str
    image: np.ndarray
    masks: np.ndarray


def convert(folder: Path, pairs: Iterator[LabelledPair]) -> dict[str, str]:
    """Write a set in Cellpose's convention, and digest its files."""
    for pair in pairs:
        (folder / pair.split).mkdir(parents=True, exist_ok=True)
        _write_tiff(folder / pair.split / f"{pair.stem}.tif", pair.image)
        _write_tiff(folder / pair.split / f"{pair.stem}_masks.tif", pair.masks.astype(np.uint16))
    return read_folder(folder).files


def _write_tiff(path: Path, pixels: np.ndarray) -> None:
    tifffile.imwrite(path, pixels, photometric="minisblack", compression="zlib")


def _dsb2018(unpacked: Sequence[Path]) -> Iterator[LabelledPair]:
    """``dsb2018/train/images/NAME.tif`` with ``dsb2018/train/masks/NAME.tif``; likewise ``test``.

    The archive also holds the hidden twins that macOS leaves.
    """
    (folder,) = unpacked
    splits: tuple[Literal["train", "test"], ...] = ("train", "test")
    for split in splits:
        for file in sorted((folder / "dsb2018" / split / "images").glob("[!.]*.tif")):
            masks = read_masks(file.parents[1] / "masks" / file.name)
            yield LabelledPair(split, file.stem, read_image(file), masks)


def _bbbc039(unpacked: Sequence[Path]) -> Iterator[LabelledPair]:
    """``images/NAME.tif``, ``masks/NAME.png`` and lists of names in ``metadata/``.

    Masks are colour images; an object is a connected region of one value in the first channel
    (https://gist.github.com/jccaicedo/15e811722fca51e3ae90e8b43057f075, where skimage's ``label``
    joins equal values at edges and corners).
    """
    images, masks, metadata = unpacked
    lists: dict[Literal["train", "test"], str] = {
        "train": "metadata/training.txt",
        "test": "metadata/test.txt",
    }
    for split, file in lists.items():
        for line in read_bytes(metadata / file)[:].decode(errors="replace").split():
            name = PurePosixPath(line).stem
            image = read_image(images / "images" / f"{name}.tif")
            colours = read_image(masks / "masks" / f"{name}.png")
            first = colours if colours.ndim == 2 else colours[..., 0]
            yield LabelledPair(split, name, image, _label_by_value(first))


LAYOUTS: dict[str, Callable[[Sequence[Path]], Iterator[LabelledPair]]] = {
    "dsb2018": _dsb2018,
    "bbbc039": _bbbc039,
}
"""The reader of each set, given the folders of its archives in the registry's order."""


def _label_by_value(values: np.ndarray) -> np.ndarray:
    """Number the connected regions of equal value (8-connectivity), those of small values first."""
    labels = np.zeros(values.shape, np.int32)
    n_labels = 0
    for one in pieces_by_label(values):
        inside = one.pieces > 0
        labels[one.box][inside] = one.pieces[inside] + n_labels
        n_labels += one.n_pieces
    return labels
