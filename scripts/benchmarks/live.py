"""Masks that follow a slider, beside Cellpose's own way from the network's output to masks."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.label_images import grid_of_cells
from benchmarks.measuring import Extent, Figure, seconds_of
from cellrepro.model.evaluator import EvalOutput

_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.3)


def live(extent: Extent) -> Iterator[Figure]:
    """A preview after ``cellprob_threshold`` moved by 0.1, with the masks of Cellpose."""
    sizes = extent.of([(128, 12, "")], [(512, 200, "<= 0.3"), (2048, 3000, "<= 3")])
    for size, n_cells, target in sizes:
        yield from _of_size(size, n_cells, target)


def _of_size(size: int, n_cells: int, target: str) -> Iterator[Figure]:
    from cellpose.dynamics import resize_and_compute_masks

    from cellrepro.model.live_masks import LiveMasks
    from cellrepro.spec.segmentation_settings import Settings

    output = _made_up(grid_of_cells(size, n_cells, 0))

    class Evaluate:
        """Gives the made-up output; no network is needed."""

        n_passes = 0

        def __call__(self, image: np.ndarray, **options: object) -> EvalOutput:
            return output

    masks = LiveMasks(Evaluate(), np.zeros((size, size)), n_threads=torch.get_num_threads())
    masks.exact(Settings())
    masks.preview(Settings())
    seconds = []
    for threshold in _THRESHOLDS:
        settings = Settings(cellprob_threshold=threshold)
        seconds.append(seconds_of(lambda s=settings: masks.preview(s)))
    expected = []
    seconds_of_cellpose = seconds_of(
        lambda: expected.append(
            resize_and_compute_masks(
                output.flows, output.probability, cellprob_threshold=_THRESHOLDS[-1], min_size=15
            )
        )
    )
    previewed = masks.preview(Settings(cellprob_threshold=_THRESHOLDS[-1]))
    assert previewed is not None
    np.testing.assert_array_equal(previewed, expected[0])
    mine = statistics.median(seconds)
    how = (
        f"median of {len(seconds)} steps of 0.1, {int(previewed.max())} cells; once Cellpose: "
        f"{seconds_of_cellpose:.2f} s; the same masks"
    )
    title = f"{size}², {n_cells} cells: preview after cellprob_threshold moved"
    yield Figure(f"{title}, s", mine, target, how)
    yield Figure(f"{title}, Cellpose / preview", seconds_of_cellpose / mine, "", how)


def _made_up(masks: np.ndarray) -> EvalOutput:
    """Flows and probability as a network would give them for some cells, with noise."""
    import fastremap
    from cellpose.dynamics import masks_to_flows_gpu
    from scipy import ndimage

    generator = np.random.default_rng(0)
    masks, _ = fastremap.renumber(masks)  # Cellpose takes numbers without gaps
    flows, _ = masks_to_flows_gpu(masks.astype(np.int32))
    noise = ndimage.gaussian_filter(generator.normal(size=flows.shape), (0, 1.5, 1.5))
    depth = ndimage.distance_transform_edt(masks > 0) - ndimage.distance_transform_edt(masks == 0)
    blur = ndimage.gaussian_filter(generator.normal(size=masks.shape), 1)
    return EvalOutput(
        masks,
        (5 * flows + 3 * noise).astype(np.float32),
        (np.clip(depth, -8, 4) + 3 * blur).astype(np.float32),
    )
