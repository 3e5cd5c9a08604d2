"""Masks of images through Cellpose's own ``CellposeModel.eval``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.images.folder import LabelledImage
from cellrepro.model.cellpose_generation import FLOW_STEPS
from cellrepro.model.evaluator import evaluator
from cellrepro.spec.segmentation_settings import Settings
from samebits.generator_states import generators_kept

if TYPE_CHECKING:
    from cellrepro.model.encoders import CellposeNetwork


@dataclass(frozen=True)
class Segmentation:
    """The masks of one image."""

    name: str
    masks: np.ndarray
    """0 is background, 1..N as numbered by Cellpose; the numbers of planes that were segmented one
    by one follow on from each other."""
    seconds: float
    """Wall time of ``eval`` alone."""
    flows: dict[str, np.ndarray] = field(default_factory=dict)
    """The network's output for the whole image: ``flows``, shape (2, Y, X), in y and x, and
    ``probability``, shape (Y, X), the logit of being cell. Empty where another program segments."""


def segment(
    network: CellposeNetwork, images: tuple[LabelledImage, ...], **options: Any
) -> Iterator[Segmentation]:
    """Segment images one by one; no generator of random numbers is moved."""
    evaluate = evaluator(network)
    for image in images:
        with generators_kept():
            started = time.perf_counter()
            output = evaluate(image.image, stack=image.stack, **options)
            seconds = time.perf_counter() - started
        yield Segmentation(
            name=image.name,
            masks=output.masks.astype(np.uint32),
            seconds=seconds,
            flows={"flows": output.flows, "probability": output.probability},
        )


def masks_of_flows(output: NDArray[np.float32], settings: Settings) -> NDArray[np.uint32]:
    """Make masks of the network's output for one tile, at the size at which it saw the image."""
    from cellpose.dynamics import resize_and_compute_masks

    masks = resize_and_compute_masks(
        output[:2],
        output[2],
        niter=settings.niter or FLOW_STEPS,
        cellprob_threshold=settings.cellprob_threshold,
        flow_threshold=settings.flow_threshold,
        min_size=settings.min_size,
        max_size_fraction=settings.max_size_fraction,
    )
    labels: NDArray[np.uint32] = np.asarray(masks).astype(np.uint32)
    return labels
