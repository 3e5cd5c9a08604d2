"""Masks of images, through Cellpose's own ``CellposeModel.eval``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellrepro.cells.images import LabelledImage
from cellrepro.control.seeding import generators_kept


@dataclass(frozen=True)
class Segmentation:
    """The masks of one image.

    Attributes
    ----------
    name : str
        The image's name.
    masks : ndarray of uint32, shape (Y, X)
        0 is background, 1..N are objects, as numbered by Cellpose.
    seconds : float
        Wall time of ``eval`` alone.
    """

    name: str
    masks: np.ndarray
    seconds: float


def segment(network: Any, images: tuple[LabelledImage, ...]) -> Iterator[Segmentation]:
    """Segment images one by one, on the network's own device, moving no generator.

    Parameters
    ----------
    network : cellpose.vit.CPSAM
        Put into evaluation mode.
    images : tuple of LabelledImage
        Ground truth is not looked at.

    Yields
    ------
    Segmentation
        In the order of the images.
    """
    network.eval()
    model = _as_cellpose_model(network)
    for image in images:
        with generators_kept():
            started = time.perf_counter()
            masks, _, _ = model.eval(
                image.image, channel_axis=None if image.image.ndim == 2 else -1
            )
            seconds = time.perf_counter() - started
        yield Segmentation(image.name, np.asarray(masks).astype(np.uint32), seconds)


def _as_cellpose_model(network: Any) -> Any:
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
