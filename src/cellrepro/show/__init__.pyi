from .answer import Answer
from .explorer.live_widget import explore_settings
from .explorer.stored_runs import explore_runs, stored_repeats
from .figures.agreement import agreement_map, least_stable
from .figures.beside_seeds import beside_seeds
from .figures.cost import cost_bars
from .figures.effects import effects_of_runs
from .figures.experiment import groups_at_a_glance
from .figures.growth import growth_curve
from .figures.growth_band import growth_band
from .figures.loose_effects import masks_changed, results, weights_changed
from .figures.masks import cells_changed, data_at_a_glance, masks_beside_truth
from .figures.nondeterminism import flips_by_place
from .figures.operations import operations_map
from .figures.rates import rates_by_size
from .figures.scores import scores_of_runs
from .figures.seeds import seed_strips
from .figures.sensitivity import setting_bars, setting_picture
from .figures.spread import spread_axis
from .figures.stage_chain import chain
from .figures.step_map import step_map
from .figures.training import training_curves
from .figures.weights import difference_histograms, layer_distances, weight_histograms
from .pages.explorer_page import explorer_page
from .report.run_table import table_of_runs
from .tables.causes import cause_table
from .tables.frames import folded, markdown, readable
from .tables.host import host_table, profile_table, switch_table
from .tables.masks import kind_table, score_table
from .tables.operations import operation_table, warning_table
from .tables.runs import protocol_table, rate_table
from .tables.sources import source_table
from .tables.weights import distance_matrix, statistics_table, weights_table

__all__ = [
    "Answer",
    "agreement_map",
    "beside_seeds",
    "cause_table",
    "cells_changed",
    "chain",
    "cost_bars",
    "data_at_a_glance",
    "difference_histograms",
    "distance_matrix",
    "effects_of_runs",
    "explore_runs",
    "explore_settings",
    "explorer_page",
    "flips_by_place",
    "folded",
    "groups_at_a_glance",
    "growth_band",
    "growth_curve",
    "host_table",
    "kind_table",
    "layer_distances",
    "least_stable",
    "markdown",
    "masks_beside_truth",
    "masks_changed",
    "operation_table",
    "operations_map",
    "profile_table",
    "protocol_table",
    "rate_table",
    "rates_by_size",
    "readable",
    "results",
    "score_table",
    "scores_of_runs",
    "seed_strips",
    "setting_bars",
    "setting_picture",
    "source_table",
    "spread_axis",
    "statistics_table",
    "step_map",
    "stored_repeats",
    "switch_table",
    "table_of_runs",
    "training_curves",
    "warning_table",
    "weight_histograms",
    "weights_changed",
    "weights_table",
]
