"""Masks of one image at several batch sizes, beside those of single tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.images.folder import LabelledImage
from cellrepro.process.child import Child

if TYPE_CHECKING:
    import torch
    from torch import nn

    from cellrepro.model.evaluator import EvalOutput, Evaluator
    from samebits import BatchInvariance

BATCH_SIZES = (1, 3, 8, 16)
"""Batch sizes at which an image is segmented; the others are compared with the first."""
_MOST_TILES = 8
"""Tiles of the batch whose operations are compared."""
_FEW_TILES = 4
"""An image with fewer is given moved copies of them."""
_SHIFTS = (16, 48, 80)
"""Pixels by which the copies are moved."""


@dataclass(frozen=True)
class BatchResult:
    """An image segmented with one batch size, beside tile by tile."""

    batch_size: int
    """Tiles at a time."""
    n_differing: int
    """Values of flows and cell probability that differ."""
    max_abs: float
    """Their largest difference."""
    n_pixels: int
    """Pixels of the masks that differ."""
    n_changed: int
    """Cells of both sides without a match."""
    n_cells: int
    """Cells of both sides."""


class ComparedBatches(NamedTuple):
    """An image at several batch sizes, and the operations on its tiles."""

    batch: BatchInvariance
    """The operations that depend on the batch."""
    batches: tuple[BatchResult, ...]
    """The image at each batch size, the smallest first."""
    n_tiles: int
    """Tiles of the image."""


def batches_compared(
    child: Child,
    network: nn.Module,
    evaluate: Evaluator,
    image: LabelledImage,
    arguments: Mapping[str, Any],
) -> ComparedBatches:
    """Segment an image at each batch size, and compare the operations on its tiles."""
    from samebits import batch_invariance

    segmented = {}
    for batch_size in BATCH_SIZES:
        of_batch = {**arguments, "batch_size": batch_size}
        segmented[batch_size] = evaluate(image.image, stack=image.stack, **of_batch)
        child.tell("done", f"batch size {batch_size}")
    tiles = _tiles(network, evaluate, image, arguments)
    batch = _at_least_two(tiles)[:_MOST_TILES]
    tile_by_tile = segmented[BATCH_SIZES[0]]
    return ComparedBatches(
        batch=batch_invariance(evaluate.model.net, batch, model=network),
        batches=tuple(
            _batch_result(batch_size, tile_by_tile, in_batch)
            for batch_size, in_batch in segmented.items()
        ),
        n_tiles=len(tiles),
    )


def _batch_result(batch_size: int, tile_by_tile: EvalOutput, in_batch: EvalOutput) -> BatchResult:
    pairs = [
        (tile_by_tile.flows, in_batch.flows),
        (tile_by_tile.probability, in_batch.probability),
    ]
    masks = compare_masks(tile_by_tile.masks, in_batch.masks)
    return BatchResult(
        batch_size=batch_size,
        n_differing=sum(int(np.count_nonzero(a != b)) for a, b in pairs),
        max_abs=max(float(np.abs(a - b).max()) for a, b in pairs),
        n_pixels=masks.n_differing,
        n_changed=masks.n_unmatched,
        n_cells=masks.n_objects_a + masks.n_objects_b,
    )


def _tiles(
    network: nn.Module, evaluate: Evaluator, image: LabelledImage, arguments: Mapping[str, Any]
) -> torch.Tensor:
    """All tiles of an image as the network is given them: (N, C, Y, X)."""
    import torch

    inputs_seen: list[torch.Tensor] = []
    hook = network.register_forward_pre_hook(
        lambda _, inputs: inputs_seen.append(inputs[0].clone())
    )
    try:
        in_large_batches = {**arguments, "batch_size": BATCH_SIZES[-1]}
        evaluate(image.image, stack=image.stack, **in_large_batches)
    finally:
        hook.remove()
    return torch.cat(inputs_seen)


def _at_least_two(tiles: torch.Tensor) -> torch.Tensor:
    """Add moved copies of the tiles where there are few."""
    import torch

    if len(tiles) >= _FEW_TILES:
        return tiles
    moved = [torch.roll(tiles, shift, dims=-1) for shift in _SHIFTS]
    return torch.cat([tiles, *moved])
