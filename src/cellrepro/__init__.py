"""The reproducibility lab for Cellpose.

Is it the same; where does it differ; does it matter; how is it pinned. The names below are loaded
on first use, so that ``import cellrepro`` is quick and imports neither PyTorch nor Cellpose.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cellrepro.auditing import audit_training
    from cellrepro.cells.images import read_folder
    from cellrepro.compare.masks import categories, compare_masks
    from cellrepro.compare.verdicts import Verdict
    from cellrepro.compare.weights import compare_weights
    from cellrepro.control.seeding import seed_everything, seeded
    from cellrepro.diverging import diverge
    from cellrepro.doctor import diagnose
    from cellrepro.effects import effect
    from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
    from cellrepro.grid import read_grid, run_grid
    from cellrepro.growing import growth
    from cellrepro.record.audit import audit
    from cellrepro.record.repeatability import check_repeatable
    from cellrepro.record.seeds import seed_check
    from cellrepro.record.store import Store
    from cellrepro.record.warned import determinism_warnings
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
    "audit",
    "audit_training",
    "categories",
    "check_repeatable",
    "compare_masks",
    "compare_weights",
    "determinism_warnings",
    "diagnose",
    "diverge",
    "effect",
    "explore",
    "growth",
    "read_folder",
    "read_grid",
    "run_grid",
    "seed_check",
    "seed_everything",
    "seeded",
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
    "audit": "record.audit",
    "audit_training": "auditing",
    "categories": "compare.masks",
    "check_repeatable": "record.repeatability",
    "compare_masks": "compare.masks",
    "compare_weights": "compare.weights",
    "determinism_warnings": "record.warned",
    "diagnose": "doctor",
    "diverge": "diverging",
    "effect": "effects",
    "explore": "show.explorer",
    "growth": "growing",
    "read_folder": "cells.images",
    "read_grid": "grid",
    "run_grid": "grid",
    "seed_check": "record.seeds",
    "seed_everything": "control.seeding",
    "seeded": "control.seeding",
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
