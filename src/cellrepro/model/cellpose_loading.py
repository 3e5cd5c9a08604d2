"""A file with a network, loaded as a user of Cellpose loads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.determinism.generator_states import generators_kept
from cellrepro.model.inference import Evaluator

if TYPE_CHECKING:
    import torch


def loaded_by_cellpose(file: Path, *, device: torch.device, dtype: str) -> Evaluator:
    """Load a file through the constructor of ``CellposeModel``; no generator is moved."""
    from cellpose.models import CellposeModel

    with generators_kept():
        model = CellposeModel(
            pretrained_model=str(file), device=device, use_bfloat16=dtype == "bfloat16"
        )
    return Evaluator(model, sharing=False)
