"""Masks from the output of Cellpose's network for one tile, by Cellpose's own functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cellrepro.spec.segmentation_settings import Settings

_STEPS = 200  # of the dynamics, where no diameter scales the image (4.2.1.1, models.py)


def masks_of_flows(output: NDArray[np.float32], settings: Settings) -> NDArray[np.uint32]:
    """Make masks of flows at the size at which the network saw the image."""
    from cellpose.dynamics import resize_and_compute_masks

    masks = resize_and_compute_masks(
        output[:2],
        output[2],
        niter=settings.niter or _STEPS,
        cellprob_threshold=settings.cellprob_threshold,
        flow_threshold=settings.flow_threshold,
        min_size=settings.min_size,
        max_size_fraction=settings.max_size_fraction,
    )
    labels: NDArray[np.uint32] = np.asarray(masks).astype(np.uint32)
    return labels
