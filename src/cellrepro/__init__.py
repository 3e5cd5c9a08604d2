"""The reproducibility lab for Cellpose.

Is it the same; where does it differ; does it matter; how is it pinned. The names below are loaded
on first use, so that ``import cellrepro`` is quick and imports neither PyTorch nor Cellpose.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cellrepro.cells.images import read_folder
    from cellrepro.compare.masks import categories, compare_masks
    from cellrepro.compare.verdicts import Verdict
    from cellrepro.compare.weights import compare_weights
    from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
    from cellrepro.grid import read_grid, run_grid
    from cellrepro.record.store import Store
    from cellrepro.run import segment, train
    from cellrepro.show.explorer import explore
    from cellrepro.show.report import write_report

__version__ = "0.1.0"

__all__ = [
    "BadInput",
    "CellreproError",
    "NotPossibleHere",
    "Store",
    "Verdict",
    "categories",
    "compare_masks",
    "compare_weights",
    "explore",
    "read_folder",
    "read_grid",
    "run_grid",
    "segment",
    "train",
    "write_report",
]

_HOMES = {
    "BadInput": "errors",
    "CellreproError": "errors",
    "NotPossibleHere": "errors",
    "Store": "record.store",
    "Verdict": "compare.verdicts",
    "categories": "compare.masks",
    "compare_masks": "compare.masks",
    "compare_weights": "compare.weights",
    "explore": "show.explorer",
    "read_folder": "cells.images",
    "read_grid": "grid",
    "run_grid": "grid",
    "segment": "run",
    "train": "run",
    "write_report": "show.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
