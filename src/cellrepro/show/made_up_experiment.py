"""An experiment for who has none at hand: images of two groups, their cells, and other masks."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

from cellrepro.images.nuclei_drawing import nuclei
from cellrepro.images.nuclei_look import NucleiLook
from samebits.errors import BadInput

_N_IMAGES = 8  # of each group
_SHAPE = (160, 160)
_N_LARGE = 14
_LARGE = NucleiLook(diameter=22)  # pixels
_SMALL = NucleiLook(diameter=9)
_N_SMALL: Mapping[str, int] = {"control": 3, "drug": 10}
"""After the drug more nuclei are small."""


@dataclass(frozen=True, eq=False)
class MadeUpExperiment:
    """Images of nuclei with and without a drug, which makes small nuclei more frequent."""

    images: Mapping[str, NDArray[np.uint16]]
    masks: Mapping[str, NDArray[np.uint16]]
    """The true cells."""
    groups: Mapping[str, str]

    def without_small(self, min_size: int) -> dict[str, NDArray[np.uint16]]:
        """The masks without cells of fewer pixels, as with Cellpose's setting of that name."""
        return {name: _without_small(masks, min_size) for name, masks in self.masks.items()}

    def write(self, folder: Path, *, min_sizes: Mapping[str, int]) -> None:
        """Write the table of groups, the images, and a folder of masks for each of some smallest
        sizes."""
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise BadInput(f"{folder} is there already, and no empty folder; name a new one")
        folder.parent.mkdir(parents=True, exist_ok=True)
        lines = ["image,group", *(f"{name},{group}" for name, group in self.groups.items())]
        with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
            scratch = Path(parent, folder.name)
            scratch.mkdir()
            (scratch / "groups.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
            (scratch / "images").mkdir()
            brightest = max(int(image.max()) for image in self.images.values())
            for name, image in self.images.items():
                _write(scratch / "images" / f"{name}.tif", image * (255 / brightest))
            for results, min_size in min_sizes.items():
                (scratch / results).mkdir()
                for name, masks in self.without_small(min_size).items():
                    file = scratch / results / f"{name}_masks.tif"
                    _write(file, masks)
            if folder.exists():
                folder.rmdir()
            scratch.rename(folder)


def _write(scratch: Path, pixels: np.ndarray) -> None:
    tifffile.imwrite(scratch, pixels.astype(np.uint8), compression="zlib", metadata=None)


def _without_small(masks: NDArray[np.uint16], min_size: int) -> NDArray[np.uint16]:
    small = np.flatnonzero(np.bincount(masks.ravel()) < min_size)
    return np.where(np.isin(masks, small), 0, masks)


def made_up_experiment() -> MadeUpExperiment:
    """Draw it: the same pixels on every machine."""
    images = {}
    masks = {}
    groups = {}
    seed = 0
    for group, n_small in _N_SMALL.items():
        for number in range(1, _N_IMAGES + 1):
            name = f"{group}_{number}"
            seed += 1
            # Not the same number in each image, as in no experiment.
            large = nuclei(seed, shape=_SHAPE, n_nuclei=_N_LARGE + seed % 4, look=_LARGE)
            small = nuclei(100 + seed, shape=_SHAPE, n_nuclei=n_small + seed % 3, look=_SMALL)
            hidden = np.unique(small.masks[large.masks > 0])
            free = np.where(np.isin(small.masks, hidden), 0, small.masks)
            numbers = np.where(free > 0, free + large.masks.max(), large.masks)
            masks[name] = numbers.astype(np.uint16)
            images[name] = np.where(free > 0, np.maximum(small.image, large.image), large.image)
            groups[name] = group
    return MadeUpExperiment(images, masks, groups)
