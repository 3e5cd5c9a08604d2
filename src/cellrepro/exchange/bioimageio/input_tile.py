"""The test input of a package: a tile of an image that the run has segmented."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.errors import BadInput
from cellrepro.spec.segmentation_settings import Normalize
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import joined, some

TILE_SIZE = 256
"""Edge of the network's input in pixels, which is fixed (Cellpose 4.2.1.1)."""

MOST_CHANNELS = 3
"""Channels of the network; Cellpose 4.2.1.1 ignores further ones."""

_PERCENTILES = (1.0, 99.0)  # the default of Cellpose
_EPSILON = 1e-6  # the default `eps` of the specification's scale_range


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
