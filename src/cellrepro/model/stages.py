"""The arrays that Cellpose hands from stage to stage while its ``eval`` segments an image."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cellrepro.model.patching import replaced
from samebits.tensor_digests import tensor_digest


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
"""The function, by stage, at which its arrays are seen: an argument or the result. ``flows`` and
the filtered masks are not here, since ``eval`` returns them. Names of Cellpose 4.2.1.1; a stage
whose function an older version lacks is not seen.
"""

_PADDING = CellposeFunction("cellpose.transforms", "get_pad_yx")
"""Is given the size of a resized image, and says how wide an edge tiles need."""

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
"""The function of Cellpose 4.2.1.1, by stage, that computes it."""


@dataclass(frozen=True)
class _FinishedCall:
    """A call of one of Cellpose's functions that has returned."""

    result: Any
    arguments: tuple[Any, ...]
    """Positional ones; a method's object comes first."""
    options: dict[str, Any]
    """Arguments by name."""


class Stages:
    """One image at each stage.

    Once an image: channels, (Y, X, C) or (Z, Y, X, C), and normalised, (Z, Y, X, 3). Once a plane:
    resized, (3, Y, X), dynamics, (2, Y, X), where each pixel arrives, and masks, (Y, X). Once a
    tile: tiles and network, (3, Y, X). In 3-D dynamics and masks have one axis more.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.arrays: dict[str, list[np.ndarray]] = {}
        self.resized_to: list[tuple[int, int]] = []
        """Y and X of each resized image, before the edge is added that tiles need."""
        self._keep = keep
        self._digests: dict[str, list[str]] = {}

    def saw(self, stage: str, *arrays: Any) -> None:
        """Record arrays or tensors now, as Cellpose goes on to change some of them in place."""
        for array in arrays:
            values = np.asarray(array.cpu() if hasattr(array, "cpu") else array)
            self._digests.setdefault(stage, []).append(tensor_digest(values))
            if self._keep:
                self.arrays.setdefault(stage, []).append(values.copy())

    @property
    def digests(self) -> dict[str, str]:
        """Digests by stage, whatever the batch size of the tiles."""
        return {stage: tensor_digest(digests) for stage, digests in self._digests.items()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record what Cellpose computes in this process, for one block."""
        notes: dict[CellposeFunction, Callable[[_FinishedCall], None]] = {
            PASSED["channels"]: self._note_channels,
            PASSED["normalised"]: self._note_normalised,
            _PADDING: self._note_size,
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

    def _note_size(self, call: _FinishedCall) -> None:
        n_y, n_x, *_ = call.arguments
        self.resized_to.append((int(n_y), int(n_x)))

    def _note_tiles(self, call: _FinishedCall) -> None:
        self.saw("resized", call.arguments[0])
        tiles = call.result[0]
        self.saw("tiles", *tiles.reshape(-1, *tiles.shape[-3:]))

    def _note_network(self, call: _FinishedCall) -> None:
        self.saw("network", *call.result[0])

    def _note_dynamics(self, call: _FinishedCall) -> None:
        """Note the end point of each pixel; one that is not followed stays where it is."""
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
    """Wrap a function so that each of its calls is noted."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        note(_FinishedCall(result, arguments, options))
        return result

    return call
