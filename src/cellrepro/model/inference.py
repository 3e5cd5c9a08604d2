"""Masks of images, through Cellpose's own ``CellposeModel.eval``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cellrepro.determinism.seeding import generators_kept
from cellrepro.images.folder import LabelledImage


@dataclass(frozen=True)
class Segmentation:
    """The masks of one image."""

    name: str
    masks: np.ndarray  # uint32, shape (Y, X): 0 is background, 1..N as numbered by Cellpose
    seconds: float  # wall time of ``eval`` alone
    # What the network gave for the whole image, float32: ``flows``, shape (2, Y, X), in y and x,
    # and ``probability``, shape (Y, X), of being cell, as a logit.
    flows: dict[str, np.ndarray] = field(default_factory=dict)


def segment(network: Any, images: tuple[LabelledImage, ...]) -> Iterator[Segmentation]:
    """Segment images one by one, on the network's own device, moving no generator.

    The network (``cellpose.vit.CPSAM``) is put into evaluation mode; ground truth is not looked at.
    """
    network.eval()
    model = as_cellpose_model(network)
    for image in images:
        with generators_kept():
            started = time.perf_counter()
            masks, given, _ = model.eval(
                image.image, channel_axis=None if image.image.ndim == 2 else -1
            )
            seconds = time.perf_counter() - started
        flows = {"flows": np.asarray(given[1]), "probability": np.asarray(given[2])}
        yield Segmentation(image.name, np.asarray(masks).astype(np.uint32), seconds, flows)


def as_cellpose_model(network: Any) -> Any:
    """A ``CellposeModel`` around a network that is already loaded.

    Cellpose 4.2.1.1 builds one only from a file of weights of its own size.
    """
    from cellpose.models import CellposeModel

    class LoadedModel(CellposeModel):
        def __init__(self) -> None:
            self.net = network
            self.device = network.device
            self.gpu = network.device.type != "cpu"
            self.backbone = network.backbone
            self.pretrained_model = ""

    return LoadedModel()
