"""Cellpose's own functions and what they share, for those who ask how they behave."""

from __future__ import annotations

import glob
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.model.inference import as_cellpose_model

IMPORTED = ("torchvision", "segment_anything", "cellpose.models")
"""What Cellpose brings in, after NumPy and PyTorch; the last brings in the network module."""


def listed(folder: Path) -> list[Path]:
    """The images of a folder as Cellpose lists them, which knows fewer endings than the lab."""
    from cellpose.io import get_image_files

    try:
        # Its argument is a pattern; brackets in a folder's name are none.
        return [Path(path) for path in get_image_files(glob.escape(str(folder)), "_masks")]
    except ValueError:  # where it finds none
        return []


def shared_defaults() -> dict[str, Any]:
    """The normalisation defaults of the whole process, which ``eval`` reads and writes into."""
    from cellpose import models

    return models.normalize_default


def evaluator(network: Any) -> Callable[[np.ndarray, Any], list[np.ndarray]]:
    """``CellposeModel.eval`` for an image and ``normalize``: flows (2, Y, X) and probability."""
    network.eval()
    model = as_cellpose_model(network)

    def evaluated(image: np.ndarray, normalize: Any) -> list[np.ndarray]:
        channels = None if image.ndim == 2 else -1
        _, given, _ = model.eval(
            image, channel_axis=channels, normalize=normalize, compute_masks=False
        )
        return [np.asarray(part) for part in given[1:3]]

    return evaluated
