"""The run of which a package is made: its network, and the test input."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.exchange.bioimageio.input_tile import InputTile, Scaling, choose_tile
from cellrepro.exchange.bioimageio.measuring import (
    Measurements,
    PackagedTest,
    measure,
    usual_profiles,
)
from cellrepro.exchange.bioimageio.packaged_weights import PackagedWeights, packaged_weights
from cellrepro.extras import absent, needs
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat


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


def refuse_without_libraries(*, with_specification: bool = True) -> None:
    """Refuse where what runs the network is not installed, or what checks a package."""
    needed = ("torch", "cellpose", *(("bioimageio",) if with_specification else ()))
    missing = absent(needed)
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
