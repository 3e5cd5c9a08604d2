"""What Cellpose passes on from stage to stage while its own ``eval`` segments an image."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cellrepro.digests.tensor_digests import tensor_digest
from cellrepro.model.patching import replaced


class CellposeFunction(NamedTuple):
    """A function of Cellpose, or a method of one of its classes."""

    module: str
    name: str
    """``FUNCTION`` or ``CLASS.METHOD``."""


PASSED = {
    "channels": CellposeFunction("cellpose.transforms", "convert_image"),
    "normalised": CellposeFunction("cellpose.models", "CellposeModel._run_net"),
    "resized": CellposeFunction("cellpose.transforms", "make_tiles"),
    "tiles": CellposeFunction("cellpose.transforms", "make_tiles"),
    "network": CellposeFunction("cellpose.core", "_forward"),
    "dynamics": CellposeFunction("cellpose.dynamics", "follow_flows"),
    "masks": CellposeFunction("cellpose.dynamics", "compute_masks"),
}
"""By stage the function that is given it, or gives it; ``flows`` and the filtered masks are what
``eval`` returns. Names of Cellpose 4.2.1.1; a stage whose function an older one lacks is not seen.
"""

MADE_BY = {
    "channels": CellposeFunction("cellpose.transforms", "convert_image"),
    "normalised": CellposeFunction("cellpose.transforms", "normalize_img"),
    "resized": CellposeFunction("cellpose.transforms", "resize_image"),
    "tiles": CellposeFunction("cellpose.transforms", "make_tiles"),
    "network": CellposeFunction("cellpose.core", "run_net"),
    "flows": CellposeFunction("cellpose.transforms", "average_tiles"),
    "dynamics": CellposeFunction("cellpose.dynamics", "follow_flows"),
    "masks": CellposeFunction("cellpose.dynamics", "compute_masks"),
    "filtered": CellposeFunction("cellpose.utils", "fill_holes_and_remove_small_masks"),
}
"""By stage the function of Cellpose 4.2.1.1 that makes it."""


@dataclass(frozen=True)
class _FinishedCall:
    """A call of one of Cellpose's functions that has returned."""

    result: Any
    arguments: tuple[Any, ...]
    """By position; of a method the object first."""
    options: dict[str, Any]
    """By name."""


class Stages:
    """What one image was at each stage.

    channels (Y, X, C) or (Z, Y, X, C) and normalised (Z, Y, X, 3); of each plane resized (3, Y, X);
    of each tile tiles (3, Y, X) and network (3, Y, X); of each plane dynamics (2, Y, X), where each
    pixel arrives, and masks (Y, X); in 3-D with one axis more.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.arrays: dict[str, list[np.ndarray]] = {}
        self._keep = keep
        self._digests: dict[str, list[str]] = {}

    def saw(self, stage: str, *arrays: Any) -> None:
        """Take note of arrays or tensors; Cellpose goes on to change some of them in place."""
        for array in arrays:
            values = np.asarray(array.cpu() if hasattr(array, "cpu") else array)
            self._digests.setdefault(stage, []).append(tensor_digest(values))
            if self._keep:
                self.arrays.setdefault(stage, []).append(values.copy())

    @property
    def digests(self) -> dict[str, str]:
        """By stage; how many tiles went through the network at a time does not matter."""
        return {stage: tensor_digest(digests) for stage, digests in self._digests.items()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch Cellpose in this process for one block; what it computes stays the same."""
        notes: dict[CellposeFunction, Callable[[_FinishedCall], None]] = {
            PASSED["channels"]: self._note_channels,
            PASSED["normalised"]: self._note_normalised,
            PASSED["tiles"]: self._note_tiles,
            PASSED["network"]: self._note_network,
            PASSED["dynamics"]: self._note_dynamics,
            PASSED["masks"]: self._note_masks,
        }
        with ExitStack() as stack:
            for function, note in notes.items():
                owner: Any = importlib.import_module(function.module)
                *outer_names, name = function.name.split(".")
                for outer_name in outer_names:
                    owner = getattr(owner, outer_name)
                original = getattr(owner, name, None)
                if original is not None:
                    stack.enter_context(replaced(owner, name, _noted(original, note)))
            yield

    def _note_channels(self, call: _FinishedCall) -> None:
        self.saw("channels", call.result)

    def _note_normalised(self, call: _FinishedCall) -> None:
        _model, pixels, *_ = call.arguments
        self.saw("normalised", pixels)

    def _note_tiles(self, call: _FinishedCall) -> None:
        self.saw("resized", call.arguments[0])
        tiles = call.result[0]
        self.saw("tiles", *tiles.reshape(-1, *tiles.shape[-3:]))

    def _note_network(self, call: _FinishedCall) -> None:
        self.saw("network", *call.result[0])

    def _note_dynamics(self, call: _FinishedCall) -> None:
        """Where each pixel arrives; one that is not followed stays where it is."""
        flows = call.arguments[0]
        inds = call.options["inds"]
        ends = np.indices(flows.shape[1:]).astype(np.float32)
        followed = call.result
        ends[(slice(None), *inds)] = followed.cpu() if hasattr(followed, "cpu") else followed
        self.saw("dynamics", ends)

    def _note_masks(self, call: _FinishedCall) -> None:
        self.saw("masks", call.result)


def _noted(
    function: Callable[..., Any], note: Callable[[_FinishedCall], None]
) -> Callable[..., Any]:
    """The same function, of whose calls something is noted; parameters are Cellpose's."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        note(_FinishedCall(result, arguments, options))
        return result

    return call
