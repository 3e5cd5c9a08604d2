"""Calls of Cellpose's own ``CellposeModel.eval`` that do not depend on the calls before.

Around it stand three choices: whether the network sees one tile at a time, whether it sees only the
tiles of a window, and whether steps that many calls repeat come from a cache.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.model.cellpose_generation import generation_of
from cellrepro.model.patching import replaced
from cellrepro.model.segmentation_limits import refuse_impossible
from cellrepro.model.shared_steps import RecentResults, SharedSteps
from cellrepro.model.window import Window, WindowedNetwork
from samebits.digests import array_digest, value_digest
from samebits.errors import BadInput
from samebits.generator_states import generators_kept

if TYPE_CHECKING:
    import torch

    from cellrepro.model.encoders import CellposeNetwork


@dataclass(frozen=True)
class EvalOutput:
    """The output of ``CellposeModel.eval`` for one image; of a stack, shapes have Z before Y."""

    masks: np.ndarray
    """Shape (Y, X); 0 is background, and planes that were segmented one by one share no number."""
    flows: np.ndarray
    """Flows in y and x, shape (2, Y, X)."""
    probability: np.ndarray
    """The logit of being cell, shape (Y, X)."""


def evaluator(
    network: CellposeNetwork,
    *,
    sharing: bool = False,
    tile_by_tile: bool | None = None,
    window: Window | None = None,
    before_step: Callable[[], None] = lambda: None,
) -> Evaluator:
    """Wrap a network for calls of ``CellposeModel.eval``.

    With ``sharing``, steps that several calls have in common are cached, and ``before_step`` is
    called before each that is not; what it raises ends the call of ``eval``. ``tile_by_tile`` is by
    default as mode ``strict`` needs it. With a ``window`` only the tiles on it are computed.
    """
    from cellpose.models import CellposeModel

    network.eval()
    loaded_model = getattr(network, "loaded_by", None)
    if loaded_model is None:
        loaded_model = _model_around(network, CellposeModel)
    model = copy.copy(loaded_model)
    model.net = _TileByTile(network, tile_by_tile)
    if window is not None:
        model.net = WindowedNetwork(model.net)
    model.device = network.device
    return Evaluator(model, sharing=sharing, window=window, before_step=before_step)


def loaded_by_cellpose(file: Path, *, device: torch.device, dtype: str) -> Evaluator:
    """Load a file through the constructor of ``CellposeModel``, as a user of Cellpose does."""
    from cellpose.models import CellposeModel

    with generators_kept():
        model = CellposeModel(
            pretrained_model=str(file), device=device, use_bfloat16=dtype == "bfloat16"
        )
    return Evaluator(model, sharing=False)


def _model_around(network: CellposeNetwork, model_class: Any) -> Any:
    """A ``CellposeModel`` without its constructor, which takes only files of weights (4.2.1.1)."""
    model = model_class.__new__(model_class)
    model.net = network
    model.device = network.device
    model.gpu = network.device.type != "cpu"
    model.backbone = getattr(network, "backbone", "vit_l")  # not known before 4.2
    model.pretrained_model = ""
    return model


def _strict_is_in_force() -> bool:
    """Whether PyTorch refuses what is not deterministic, as mode ``strict`` has it do."""
    import torch

    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled() and not only_warns


class _TileByTile:
    """A network that sees one tile at a time: always, never, or in mode ``strict`` (None).

    The last bits of a tile's output depend on how many others are in its batch.
    """

    def __init__(self, network: CellposeNetwork, tile_by_tile: bool | None) -> None:
        self._network = network
        self._tile_by_tile = tile_by_tile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self, tiles: torch.Tensor) -> Any:
        import torch

        one_by_one = self._tile_by_tile
        if one_by_one is None:
            one_by_one = _strict_is_in_force()
        if len(tiles) == 1 or not one_by_one:
            return self._network(tiles)
        outputs = [self._network(tiles[i : i + 1])[:2] for i in range(len(tiles))]
        return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))


class Evaluator:
    """A function of an image: ``CellposeModel.eval``; `evaluator` makes it, with its parameters."""

    def __init__(
        self,
        model: Any,
        *,
        sharing: bool,
        window: Window | None = None,
        before_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.model = model
        self.n_passes = 0  # through the network, in calls that share steps
        self._sharing = sharing
        self._window = window
        self._usual_normalisation = _usual_normalisation()
        self._passes = RecentResults(before=before_step)
        self._steps = SharedSteps(RecentResults(before=before_step))

    def __call__(
        self,
        image: np.ndarray,
        *,
        stack: bool = False,
        normalize: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> EvalOutput:
        """Segment an image, (Y, X) or (Y, X, C), of a ``stack`` with Z first.

        Options are those of ``eval``. Every field of its normalisation is given to it each time.
        """
        refuse_impossible(
            image.shape,
            {**options, "normalize": normalize},
            stack=stack,
            n_channels=generation_of().n_channels,
        )
        planes_together = bool(options.get("do_3D") or options.get("stitch_threshold"))
        if planes_together and not stack:
            raise BadInput("do_3D and stitch_threshold are for stacks, and the image is one plane")
        has_channels = image.ndim > 2 + stack
        pixels = image if has_channels else image[..., None]
        axes = {"channel_axis": pixels.ndim - 1}
        if planes_together:
            axes["z_axis"] = 0
        whole_normalisation = {**self._usual_normalisation, **(normalize or {})}
        with ExitStack() as borrowed:
            if self._window is not None:
                borrowed.enter_context(self._window.in_force(image.shape))
            if self._sharing:
                self._share(borrowed)
            masks, network_output, _ = self.model.eval(
                pixels, normalize=whole_normalisation, **axes, **options
            )
        masks = np.asarray(masks)
        if stack and not planes_together:
            masks = _with_distinct_numbers(masks)
        _picture, flows, probability, *_ = network_output
        return EvalOutput(masks, np.asarray(flows), np.asarray(probability))

    def _share(self, borrowed: ExitStack) -> None:
        """Take the network's output and the steps beside it from the cache for one call."""
        run_network = self.model._run_net
        shared_pass = functools.partial(self._shared_pass, run_network)
        borrowed.enter_context(replaced(self.model, "_run_net", shared_pass))
        borrowed.enter_context(self._steps.in_force())

    def _shared_pass(self, run_network: Any, x: np.ndarray, **options: Any) -> Any:
        """Cache the network's output for normalised pixels; the options are Cellpose's."""
        key = value_digest([array_digest(x), sorted((n, str(v)) for n, v in options.items())])

        def run() -> Any:
            self.n_passes += 1
            return run_network(x, **options)

        return self._passes.get(key, run)


def _with_distinct_numbers(masks: np.ndarray) -> np.ndarray:
    """Renumber planes so that they share no number: their objects are not one another's."""
    most = masks.max(axis=(1, 2), initial=0).astype(np.int64)
    n_before = np.concatenate([[0], np.cumsum(most)])
    return np.where(masks > 0, masks + n_before[:-1, None, None], 0)


@functools.cache
def _usual_normalisation() -> dict[str, Any]:
    """A copy of `shared_defaults`, made before the first call of ``eval`` can change them."""
    return dict(shared_defaults())


def shared_defaults() -> dict[str, Any]:
    """Cellpose's own dictionary of normalisation defaults, not a copy.

    ``eval`` writes the fields that a call gives into it, and a later call that leaves a field out
    takes what an earlier one has left there (4.2.1.1).
    """
    from cellpose import models

    return models.normalize_default
