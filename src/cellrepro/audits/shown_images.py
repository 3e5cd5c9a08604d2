"""What a network is shown in a training, kept for a comparison. Imports PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from cellrepro.trace.watches import Watch


class ShownImages(Watch):
    """Keeps the images of every batch."""

    def __init__(self) -> None:
        self.batches: list[np.ndarray] = []

    def batch(self, names: Any, crops: Any, images: Any, targets: Any) -> None:
        """Keep the images of one batch."""
        self.batches.append(images.detach().cpu().numpy().copy())
