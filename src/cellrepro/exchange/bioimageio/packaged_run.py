"""The run of which a package is made: its network, and a tile of an image as the test input."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.exchange.bioimageio.measuring import (
    Architecture,
    Measurements,
    PackagedTest,
    measure,
    usual_profiles,
)
from cellrepro.extras import absent, needs
from cellrepro.model.cellpose_generation import generation_of, installed_version
from cellrepro.model.encoders import ENCODERS, PRETRAINED
from cellrepro.model.weight_sources import ModelSource, started_from
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.profiles import profiles
from cellrepro.spec.segmentation_settings import Normalize
from cellrepro.store.store import Store
from cellrepro.store.stored_run import WEIGHTS, Repeat
from samebits.errors import BadInput
from samebits.words import joined, some

NETWORK_FILE = Path(__file__).parents[2] / "model" / "packaged_network.py"
"""Source file that a package includes as its architecture."""
TILE_SIZE = 256
"""Edge of the network's input in pixels, which is fixed (Cellpose 4.2.1.1)."""
MOST_CHANNELS = 3
"""Channels of the network; Cellpose 4.2.1.1 ignores further ones."""
_PERCENTILES = (1.0, 99.0)  # the default of Cellpose
_EPSILON = 1e-6  # the default `eps` of the specification's scale_range
_FIRST_GENERATION = (4, 2)
_PATCH_OF_CELLPOSE = 8  # pixels (4.2.1.1)


@dataclass(frozen=True)
class PackagedRun:
    """A repeat with its network and the test input of its package."""

    repeat: Repeat
    weights: PackagedWeights
    tile: InputTile
    scaling: Scaling

    @functools.cached_property
    def test(self) -> PackagedTest:
        """The network and the scaled test input."""
        return PackagedTest(
            weights=self.weights.file,
            architecture=self.weights.sizes,
            scaled=self.scaling.applied(self.tile.pixels),
        )

    def measured(
        self, profiles: Sequence[str] | None, *, repeats: int, quiet: bool
    ) -> Measurements:
        """Run the network on the test input under these profiles, by default all usual ones."""
        return measure(self.test, profiles or usual_profiles(), repeats=repeats, quiet=quiet)

    def smallest_object(self) -> int | None:
        """Pixels of the smallest object in the masks of the run; None without objects."""
        masks = (self.repeat.masks(image) for image in self.repeat.manifest.masks)
        areas = [np.bincount(labels.ravel())[1:] for labels in masks]
        sizes = [int(area[area > 0].min()) for area in areas if area.any()]
        return min(sizes, default=None)


def refuse_without_libraries() -> None:
    """Refuse where what runs the network is not installed, or what checks a package."""
    missing = absent(("torch", "cellpose", "bioimageio"))
    if missing:
        raise needs(missing, what="a package of bioimage.io")


def packaged_run(repeat: Repeat, store: Store, *, image: str | None, scratch: Path) -> PackagedRun:
    """Find the network of a repeat, and choose the test input, a part of this image."""
    if repeat.spec.task == "wrap":
        raise BadInput(
            f"{repeat.name} is a run of another program, of whose network nothing is known; "
            "expected a run of `cellrepro train` or `cellrepro segment`"
        )
    return PackagedRun(
        repeat=repeat,
        scaling=Scaling.of(repeat.spec.settings.normalize),
        tile=choose_tile(repeat, store, image=image),
        weights=packaged_weights(repeat, store, scratch),
    )


# -- the network -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackagedWeights:
    """The weights of a network, and its architecture."""

    file: Path
    """Safetensors in float32."""
    architecture: str
    """One of `cellrepro.model.encoders.ARCHITECTURES`."""
    n_parameters: int
    """Numbers in all tensors."""

    @property
    def sizes(self) -> Architecture:
        """The arguments of the network's class."""
        if self.architecture == PRETRAINED:
            return Architecture(_PATCH_OF_CELLPOSE)
        encoder = ENCODERS[self.architecture]
        sizes: dict[str, float | list[int]] = {
            "width": encoder.width,
            "depth": encoder.depth,
            "heads": encoder.heads,
            "mlp_ratio": encoder.mlp_ratio,
            "global_blocks": list(encoder.global_blocks),
        }
        return Architecture(encoder.patch, sizes)


def refuse_other_generation() -> None:
    """Refuse a version of Cellpose whose networks a package cannot build."""
    if generation_of().first < _FIRST_GENERATION:
        raise BadInput(
            "packages of bioimage.io need networks of Cellpose 4.2 or newer, and Cellpose "
            f"{installed_version()} is installed; `cellrepro setup FOLDER` makes a lab with a "
            "newer one in an environment of its own"
        )


def packaged_weights(repeat: Repeat, store: Store, scratch: Path) -> PackagedWeights:
    """Find the weights with which a repeat segmented; those of a segmentation are written anew."""
    refuse_other_generation()
    architecture = repeat.manifest.model.architecture
    file = repeat.weights
    if file is None and repeat.manifest.weights is not None:
        raise BadInput(
            f"the weights of {repeat.name} are not in this store; export the run there with "
            "--weights, and import it again"
        )
    if file is None:
        file = in_child(
            functools.partial(
                written_weights, source=started_from(repeat, store), file=scratch / WEIGHTS
            ),
            Setup(profiles.load("cpu"), seed=repeat.spec.seed),
            label="reading the network",
        )
    return PackagedWeights(file, architecture, _checked_parameters(file))


def written_weights(child: Child, *, source: ModelSource, file: Path) -> Path:
    """Runs in a child process: load a network as a run does, and write its weights."""
    from cellrepro.model.weights_file import save_weights

    with child.opened(source, dtype="float32") as opened:
        save_weights(opened.network, file, architecture=source.architecture)
    return file


def _checked_parameters(file: Path) -> int:
    """Count the parameters, and refuse a network that a package cannot build."""
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as weights:
        shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
    if "W2" not in shapes or "encoder.cls_token" in shapes:
        kind = "a CPDINO" if "encoder.cls_token" in shapes else "no Cellpose-SAM"
        raise BadInput(
            f"{file} holds {kind} network; a package of bioimage.io can hold a network of "
            "Cellpose-SAM alone, whose class is in the cellpose package that everyone can install"
        )
    return sum(math.prod(shape) for shape in shapes.values())


# -- the test input --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scaling:
    """How a package scales intensities before the network."""

    percentiles: tuple[float, float] | None = _PERCENTILES
    """Percentiles of each channel that become 0 and 1; None without scaling."""

    @classmethod
    def of(cls, normalize: Normalize) -> Scaling:
        """The scaling of a segmentation."""
        if not normalize.normalize:
            return cls(None)
        unknown = [name for name in normalize.changed if name not in ("percentile", "norm3D")]
        if unknown:
            raise BadInput(
                f"the run was segmented with {joined([f'normalize.{name}' for name in unknown])}, "
                "which a package of bioimage.io has no operation for: its users would get other "
                "masks; segment again without, and export that run"
            )
        return cls(normalize.percentile or _PERCENTILES)

    def applied(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scale as ``scale_range`` and ``ensure_dtype`` of bioimageio.core 0.11.0 do."""
        if self.percentiles is None:
            return pixels
        shares = np.array(self.percentiles) / 100
        low, high = np.quantile(pixels, shares, axis=(2, 3), keepdims=True, method="linear")
        return ((pixels - low) / (high - low + _EPSILON)).astype(np.float32)


@dataclass(frozen=True)
class InputTile:
    """A tile of an image."""

    image: str
    """Name of the image."""
    y: int
    """Upper edge of the tile in the image."""
    x: int
    """Left edge of the tile in the image."""
    pixels: NDArray[np.float32]
    """Intensities as they were read; shape (1, channel, Y, X)."""

    @property
    def n_channels(self) -> int:
        """One to three."""
        return int(self.pixels.shape[1])


def choose_tile(repeat: Repeat, store: Store, *, image: str | None = None) -> InputTile:
    """Choose the tile with most labelled pixels, by default of the image with most cells."""
    records = repeat.manifest.masks
    if image is None:
        image = max(sorted(records), key=lambda name: records[name].n_objects)
    if image not in records:
        raise BadInput(
            f"{repeat.name} has segmented no image {image!r}; expected one of "
            f"{some(sorted(records), 8)}"
        )
    pixels = store.image(repeat.manifest.data.images_digest, image)
    if pixels is None:
        raise BadInput(
            f"the store {store.root} has not kept the image {image}, of which a part becomes the "
            "test input of the package; import the run from a file that was exported with --images"
        )
    labelled = repeat.masks(image) > 0
    if labelled.ndim == 3:
        plane = int(labelled.sum(axis=(1, 2)).argmax())
        labelled = labelled[plane]
        pixels = pixels[plane]
    channels = np.moveaxis(np.atleast_3d(pixels), 2, 0)[:MOST_CHANNELS].astype(np.float32)
    y, x = _corner_of_most(labelled)
    part = _padded(channels[:, y : y + TILE_SIZE, x : x + TILE_SIZE])
    return InputTile(image=image, y=y, x=x, pixels=np.ascontiguousarray(part[None]))


def _corner_of_most(labelled: NDArray[np.bool_]) -> tuple[int, int]:
    """Upper left corner of the tile with most labelled pixels, by a summed-area table."""
    sums = np.pad(labelled.astype(np.int64), ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    height, width = (min(TILE_SIZE, size) for size in labelled.shape)
    totals = (sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width]) + sums[
        :-height, :-width
    ]
    y, x = np.unravel_index(int(totals.argmax()), totals.shape)
    return int(y), int(x)


def _padded(channels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Extend to the size of a tile by mirroring at the lower and right border."""
    missing = [max(0, TILE_SIZE - size) for size in channels.shape[1:]]
    return np.pad(channels, ((0, 0), (0, missing[0]), (0, missing[1])), mode="symmetric")
