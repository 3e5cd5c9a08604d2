"""What every part of the work on one repeat has at hand, in the process of that repeat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.images.folder import ImageFolder
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.process.child import Child
from cellrepro.run.plan import Request
from cellrepro.run.training_recorder import TrainingRecorder
from cellrepro.spec.spec import Spec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RepeatWork:
    """What every part of the work on one repeat has at hand."""

    child: Child
    """The line to the caller."""
    request: Request
    """What is to be carried out."""
    device: torch.device
    network: CellposeNetwork
    """Cellpose's; none where another segmenter is wrapped."""
    folder: ImageFolder
    """The images, decoded."""
    recorder: TrainingRecorder
    """Of ledgers and checkpoints."""
    staged: Path
    """The folder in which everything is left."""
    with_images: bool
    """Whether the segmented images and their truth are left there, too."""

    @property
    def spec(self) -> Spec:
        """What was asked for."""
        return self.request.spec
