"""What Cellpose passes on from stage to stage while its own ``eval`` segments an image."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from cellrepro.bits.digests import tensor_digest

PASSED: dict[str, tuple[str, str]] = {
    "channels": ("cellpose.transforms", "convert_image"),
    "normalised": ("cellpose.models", "CellposeModel._run_net"),
    "resized": ("cellpose.transforms", "make_tiles"),
    "tiles": ("cellpose.transforms", "make_tiles"),
    "network": ("cellpose.core", "_forward"),
    "dynamics": ("cellpose.dynamics", "follow_flows"),
    "masks": ("cellpose.dynamics", "compute_masks"),
}
"""By stage the function that is given it, or gives it; ``flows`` and the filtered masks are what
``eval`` returns. Names of Cellpose 4.2.1.1; a stage whose function an older one lacks is not seen.
"""

MADE_BY = {
    "channels": ("cellpose.transforms", "convert_image"),
    "normalised": ("cellpose.transforms", "normalize_img"),
    "resized": ("cellpose.transforms", "resize_image"),
    "tiles": ("cellpose.transforms", "make_tiles"),
    "network": ("cellpose.core", "run_net"),
    "flows": ("cellpose.transforms", "average_tiles"),
    "dynamics": ("cellpose.dynamics", "follow_flows"),
    "masks": ("cellpose.dynamics", "compute_masks"),
    "filtered": ("cellpose.utils", "fill_holes_and_remove_small_masks"),
}
"""By stage the module and the function of Cellpose 4.2.1.1 that makes it."""


class Stages:
    """What one image was at each stage: arrays of each call, plane or tile, or digests of them.

    channels (Y, X, C) or (Z, Y, X, C) and normalised (Z, Y, X, 3); of each plane resized (3, Y, X);
    of each tile tiles (3, Y, X) and network (3, Y, X); of each plane dynamics (2, Y, X), where each
    pixel arrives, and masks (Y, X); in 3-D with one axis more.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.arrays: dict[str, list[np.ndarray]] = {}
        self._keep = keep
        self._digests: dict[str, list[str]] = {}

    def saw(self, stage: str, *arrays: Any) -> None:
        """Take note of arrays; Cellpose goes on to change some of them in place."""
        for array in arrays:
            found = np.asarray(array.cpu() if hasattr(array, "cpu") else array)
            self._digests.setdefault(stage, []).append(tensor_digest(found))
            if self._keep:
                self.arrays.setdefault(stage, []).append(found.copy())

    @property
    def digests(self) -> dict[str, str]:
        """By stage; how many tiles went through the network at a time does not matter."""
        return {stage: tensor_digest(found) for stage, found in self._digests.items()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch Cellpose in this process for one block; what it computes stays the same."""
        saw: dict[str, Callable[..., None]] = {
            "convert_image": lambda result, *_, **__: self.saw("channels", result),
            "CellposeModel._run_net": lambda _, model, x, *__, **___: self.saw("normalised", x),
            "make_tiles": self._tiles,
            "_forward": lambda result, *_, **__: self.saw("network", *result[0]),
            "follow_flows": self._dynamics,
            "compute_masks": lambda result, *_, **__: self.saw("masks", result),
        }
        with ExitStack() as stack:
            for module, name in dict.fromkeys(PASSED.values()):
                place: Any = importlib.import_module(module)
                *outer, attribute = name.split(".")
                for one in outer:
                    place = getattr(place, one)
                if (own := getattr(place, attribute, None)) is not None:
                    stack.callback(setattr, place, attribute, own)
                    setattr(place, attribute, _watched(own, saw[name]))
            yield

    def _tiles(self, result: Any, image: np.ndarray, *_: Any, **__: Any) -> None:
        self.saw("resized", image)
        self.saw("tiles", *result[0].reshape(-1, *result[0].shape[-3:]))

    def _dynamics(self, result: Any, flows: np.ndarray, *_: Any, inds: Any, **__: Any) -> None:
        """Where each pixel arrives; one that is not followed stays where it is."""
        ends = np.indices(flows.shape[1:]).astype(np.float32)
        ends[(slice(None), *inds)] = result.cpu() if hasattr(result, "cpu") else result
        self.saw("dynamics", ends)


def _watched(function: Callable[..., Any], saw: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        saw(result, *arguments, **options)
        return result

    return call
