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
    from cellrepro.compare.consensus import agree
    from cellrepro.compare.metrics import categories, compare_masks
    from cellrepro.compare.seed_spread import measure_spread
    from cellrepro.compare.verdicts import Verdict
    from cellrepro.compare.weight_similarity import (
        difference_distributions,
        similarity,
        weight_statistics,
    )
    from cellrepro.compare.weights import compare_weights
    from cellrepro.determinism.seeding import (
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
    from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
    from cellrepro.images.folder import read_folder
    from cellrepro.images.seg_file import read_seg
    from cellrepro.lab.audit_segmentation import audit_function, audit_segmentation
    from cellrepro.lab.audit_training import audit_training, with_effects
    from cellrepro.lab.baseline import check_baseline, save_baseline
    from cellrepro.lab.compare_results import compare_repeats
    from cellrepro.lab.cost_of_determinism import measure_cost
    from cellrepro.lab.describe import describe
    from cellrepro.lab.divergence.find import diverge
    from cellrepro.lab.doctor import diagnose
    from cellrepro.lab.explain import explain
    from cellrepro.lab.grid.file import read_grid
    from cellrepro.lab.grid.pool import run_grid
    from cellrepro.lab.growth import growth
    from cellrepro.lab.run import segment, train
    from cellrepro.lab.seed_effect import which_seed_changes
    from cellrepro.lab.sensitivity import sensitivity
    from cellrepro.lab.tiles import tiles
    from cellrepro.lab.wrap import wrap, wrap_python
    from cellrepro.show.explorer.widget import explore
    from cellrepro.show.live_table import watch
    from cellrepro.show.report.build import write_report
    from cellrepro.store.store import Store
    from cellrepro.trace.check_dataset import check_dataset
    from cellrepro.trace.check_repeatable import check_repeatable
    from cellrepro.trace.flips import audit
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
