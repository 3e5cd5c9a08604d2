"""The reproducibility lab for Cellpose.

Is it the same; where does it differ; does it matter; how is it pinned. The names below are loaded
on first use, so that ``import cellrepro`` is quick and imports neither PyTorch nor Cellpose.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

# ruff: noqa: F401

if TYPE_CHECKING:  # the same for type checkers and editors
    from cellrepro.audits.cost import measure_cost
    from cellrepro.audits.doctor import diagnose
    from cellrepro.audits.seed_effects import which_seed_changes
    from cellrepro.audits.segmentation import audit_function, audit_segmentation
    from cellrepro.audits.training import audit_training, with_effects
    from cellrepro.changes.baseline import check_baseline, save_baseline
    from cellrepro.changes.compare import compare_repeats
    from cellrepro.changes.describe import describe
    from cellrepro.changes.explain import explain
    from cellrepro.changes.sensitivity import sensitivity
    from cellrepro.changes.tiles import tiles
    from cellrepro.determinism.seeds import (
        add_seed_to,
        check_seed_of,
        generator,
        item_generator,
        loader_arguments,
        rank_seed,
        restore,
        seed_everything,
        seeded,
        split,
    )
    from cellrepro.divergence.find import diverge
    from cellrepro.divergence.growth import growth
    from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
    from cellrepro.grid.file import read_grid
    from cellrepro.grid.pool import run_grid
    from cellrepro.images.folder import read_folder
    from cellrepro.images.seg_file import read_seg
    from cellrepro.run.train import segment, train
    from cellrepro.run.wrap import wrap, wrap_python
    from cellrepro.same.consensus import agree
    from cellrepro.same.metrics import categories, compare_masks
    from cellrepro.same.seed_spread import measure_spread
    from cellrepro.same.verdicts import Verdict
    from cellrepro.same.weight_distributions import difference_distributions, weight_statistics
    from cellrepro.same.weight_similarity import similarity
    from cellrepro.same.weights import compare_weights
    from cellrepro.show.explorer.widget import explore
    from cellrepro.show.live import watch
    from cellrepro.show.report.build import write_report
    from cellrepro.store.store import Store
    from cellrepro.trace.check_dataset import check_dataset
    from cellrepro.trace.check_repeatable import check_repeatable
    from cellrepro.trace.operation_audit import audit
    from cellrepro.trace.torch_warnings import determinism_warnings

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """The module of every public name, as the imports above say."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: str(node.module)
        for node in imports
        if str(node.module).startswith(f"{__name__}.")
        for alias in node.names
    }


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
