"""Looking at it: tables, figures, explorer, report.

The names below are what the notebooks show; each is loaded on first use.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "agreement_map": "figures.agreement",
    "chain": "figures.divergence",
    "change_table": "mask_tables",
    "comparison_sentence": "mask_tables",
    "cost_bars": "figures.nondeterminism",
    "data_at_a_glance": "figures.masks",
    "decision_table": "tables",
    "difference_distributions": "figures.weights",
    "difference_table": "tables",
    "distance_matrix": "tables",
    "evidence_table": "operation_tables",
    "explore_runs": "explorer.widget",
    "flips_by_place": "figures.nondeterminism",
    "growth_curve": "figures.growth",
    "host_table": "tables",
    "inference_times": "figures.training",
    "kind_table": "mask_tables",
    "layer_distances": "figures.weights",
    "learning_rate_start": "figures.nondeterminism",
    "least_stable": "figures.agreement",
    "markdown": "tables",
    "masks_beside_truth": "figures.masks",
    "masks_changed": "figures.nondeterminism",
    "operation_table": "operation_tables",
    "operations_map": "figures.operations",
    "profile_table": "tables",
    "protocol": "report.protocol",
    "protocol_table": "tables",
    "readable": "tables",
    "repeat_table": "tables",
    "result_table": "tables",
    "results": "figures.nondeterminism",
    "score_table": "mask_tables",
    "scores_of_runs": "figures.training",
    "seed_strips": "figures.nondeterminism",
    "spread_axis": "figures.spread",
    "stability_table": "mask_tables",
    "step_map": "figures.divergence",
    "stored_repeats": "explorer.stored_runs",
    "switch_table": "tables",
    "training_curves": "figures.training",
    "warning_table": "operation_tables",
    "weight_distributions": "figures.weights",
    "weights_changed": "figures.nondeterminism",
    "weights_table": "tables",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
