"""Looking at it: tables, figures, explorer, report.

The names below are what the notebooks show; each is loaded on first use.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "explorer.widget": "explore_runs stored_repeats",
    "figures.agreement": "agreement_map least_stable",
    "figures.divergence": "chain step_map",
    "figures.growth": "growth_curve",
    "figures.masks": "data_at_a_glance masks_beside_truth",
    "figures.nondeterminism": (
        "cost_bars flips_by_place learning_rate_start masks_changed results seed_strips "
        "weights_changed"
    ),
    "figures.operations": "operations_map",
    "figures.settings": "setting_bars setting_picture",
    "figures.spread": "spread_axis",
    "figures.training": "rates_by_size scores_of_runs training_curves",
    "figures.weights": "difference_distributions layer_distances weight_distributions",
    "mask_tables": "change_table comparison_sentence kind_table score_table stability_table",
    "operation_tables": "evidence_table operation_table warning_table",
    "report.protocol": "protocol",
    "answers.explanation": "explanation_answer",
    "tables": (
        "decision_table difference_table distance_matrix host_table markdown profile_table "
        "protocol_table rate_table readable repeat_table result_table statistics_table "
        "switch_table weights_table"
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
