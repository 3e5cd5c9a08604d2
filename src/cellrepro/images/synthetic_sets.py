"""Sets of synthetic images: the looks in them, and their files, the same bytes everywhere."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

from cellrepro.images.folder import LabelledImage
from cellrepro.images.folder_files import is_litter
from cellrepro.images.nuclei_drawing import SyntheticImage, nuclei
from cellrepro.images.nuclei_look import NucleiLook
from cellrepro.store.whole_files import whole_file
from samebits.errors import BadInput, whole

DIGESTS_FILE = "SHA256SUMS"
_USUAL_SHAPE = (256, 256)


@dataclass(frozen=True)
class ImageOfSet:
    """The number and the look of nuclei in one image of a set."""

    n_nuclei: int
    """Per 256 x 256 pixels."""
    look: NucleiLook


# Each image of a set has a look of its own; a set of more images starts again from the first. The
# last three, the test images of the default set, resemble the others without repeating one.
IMAGES = (
    ImageOfSet(36, NucleiLook(diameter=22, brightness=900, blur=1.0, elongation=1.4)),
    ImageOfSet(20, NucleiLook(diameter=30, brightness=1500, blur=1.0, texture=0.26)),
    ImageOfSet(52, NucleiLook(diameter=18, brightness=700, blur=0.8, elongation=1.25)),
    ImageOfSet(62, NucleiLook(diameter=21, brightness=1000, blur=1.0, touching=0.8, haze=0.35)),
    ImageOfSet(22, NucleiLook(diameter=26, brightness=320, blur=1.6, unevenness=0.45)),
    ImageOfSet(
        26, NucleiLook(diameter=24, brightness=1300, blur=0.9, chromocentres=8, elongation=1.15)
    ),
    ImageOfSet(38, NucleiLook(diameter=20, brightness=800, blur=1.2, elongation=1.9)),
    ImageOfSet(
        16, NucleiLook(diameter=34, brightness=1100, blur=1.4, elongation=1.5, texture=0.25)
    ),
    ImageOfSet(56, NucleiLook(diameter=20, brightness=900, blur=1.1, touching=0.6)),
    ImageOfSet(22, NucleiLook(diameter=28, brightness=1200, blur=1.2, elongation=1.5)),
    ImageOfSet(32, NucleiLook(diameter=23, brightness=450, blur=1.0, unevenness=0.4)),
)


def labelled_nuclei(
    n: int,
    *,
    shape: tuple[int, int] = _USUAL_SHAPE,
    n_nuclei: int | None = None,
    diameter: float = NucleiLook.diameter,
) -> list[LabelledImage]:
    """Nuclei of the seeds 0 to ``n`` - 1, as a folder gives them, but without files."""
    images = []
    for seed in range(n):
        made = nuclei(seed, shape=shape, n_nuclei=n_nuclei, look=NucleiLook(diameter))
        masks = made.masks.astype(np.int32)
        images.append(LabelledImage(f"synth_{seed}", made.image, masks, Path()))
    return images


def write_folder(
    folder: Path,
    *,
    seed: int = 0,
    n_train: int = 8,
    n_test: int = 3,
    shape: tuple[int, int] = _USUAL_SHAPE,
    n_cells: int | None = None,
) -> dict[str, str]:
    """Write a set of synthetic images in Cellpose's layout.

    Test images are numbered after those to train on, and image number i depends on `seed`, i,
    `shape` and `n_cells` alone. ``SHA256SUMS`` is written last, so a folder that holds it is whole.
    Existing files of the same content are kept.
    """
    folder = Path(folder)
    contents = _draw_set(
        whole("seed", seed, 0),
        n_train=whole("n_train", n_train, 0),
        n_test=whole("n_test", n_test, 0),
        shape=shape,
        n_cells=n_cells,
    )
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)}
    listing = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    contents[DIGESTS_FILE] = listing.encode("ascii")
    _refuse_other_files(folder, contents)
    for name, content in contents.items():
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as scratch:
                scratch.write_bytes(content)
    return digests


def _refuse_other_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Refuse a folder with a file that the set does not have, or has otherwise."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        ours = name in contents and path.read_bytes() == contents[name]
        if not (ours or path.is_dir() or is_litter(name)):
            raise BadInput(
                f"{path} is no file of this synthetic set, or a different one (different seed or "
                "shape, or changed since); choose an empty folder"
            )


def _draw_set(
    seed: int, *, n_train: int, n_test: int, shape: tuple[int, int], n_cells: int | None
) -> dict[str, bytes]:
    """Every image file of a set, by relative path."""
    contents = {}
    for number in range(n_train + n_test):
        made = _draw_image(seed, number, shape, n_cells)
        part = "train" if number < n_train else "test"
        contents[f"{part}/synth_{number:03d}.tif"] = _tiff(made.image)
        contents[f"{part}/synth_{number:03d}_masks.tif"] = _tiff(made.masks)
    return contents


def _draw_image(
    seed: int, number: int, shape: tuple[int, int], n_cells: int | None
) -> SyntheticImage:
    """One image of a set."""
    usual = IMAGES[number % len(IMAGES)]
    look = usual.look
    n_pixels = shape[0] * shape[1]
    n_nuclei = max(1, usual.n_nuclei * n_pixels // 256**2)
    if n_cells is not None:
        room = (n_pixels / (3 * max(n_cells, 1))) ** 0.5  # a quarter is then covered
        look = replace(look, diameter=min(look.diameter, room))
        n_nuclei = n_cells
    sequence = np.random.SeedSequence(seed, spawn_key=(number,))
    own_seed = int(sequence.generate_state(1, np.uint64)[0])
    return nuclei(own_seed, shape=shape, n_nuclei=n_nuclei, look=look)


def _tiff(pixels: NDArray[np.uint16]) -> bytes:
    """Encode a TIFF without compression, date, software name or description."""
    buffer = io.BytesIO()
    tifffile.imwrite(
        buffer,
        pixels,
        byteorder="<",
        photometric="minisblack",
        metadata=None,
        software=False,
    )
    return buffer.getvalue()
