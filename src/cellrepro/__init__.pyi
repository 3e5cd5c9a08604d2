"""The public names, by the question that they answer; editors and type checkers read them here."""

# The order is that of the questions, not of the alphabet.
# ruff: noqa: I001

# Is it the same?
from .show.pages.compare import compare as compare
from .explanation.compare_repeats import compare_repeats as compare_repeats
from .explanation.baseline_check import check_baseline as check_baseline
from .explanation.baseline_saving import save_baseline as save_baseline
from .run.train import train as train
from .run.segment import segment as segment
from .run.wrap import wrap as wrap
from .run.wrap import wrap_python as wrap_python
from .comparison.verdicts import Verdict as Verdict
from .comparison.weight_comparison import compare_weights as compare_weights
from .comparison.weight_similarity import similarity as similarity

# Where does it differ?
from .explanation.explain import explain as explain
from .explanation.tiles import tiles as tiles
from .comparison.category_map import categories as categories
from .comparison.mask_comparison import compare_masks as compare_masks
from .comparison.weight_distributions import difference_distributions as difference_distributions
from .comparison.weight_statistics import weight_statistics as weight_statistics
from .show.explorer.widget import explore as explore

# When did they diverge, and at which operation?
from .audits.function import audit_function as audit_function
from .audits.segmentation import audit_segmentation as audit_segmentation
from .audits.torch_warning import explain_warning as explain_warning
from .audits.training import audit_training as audit_training
from .divergence.diverge import diverge as diverge
from .divergence.growth import growth as growth
from .show.watched_grids import watch as watch
from .any_pytorch import check_dataset as check_dataset
from .any_pytorch import check_repeatable as check_repeatable
from .any_pytorch import audit as audit
from .any_pytorch import determinism_warnings as determinism_warnings

# Does it matter, compared with what seeds and settings do?
from .audits.seed_effects import which_seed_changes as which_seed_changes
from .audits.training_effects import measure_effects as measure_effects
from .show.forecast import forecast as forecast
from .show.sensitivity import sensitivity as sensitivity
from .grid.grid import run_grid as run_grid
from .grid.points import read_grid as read_grid
from .comparison.consensus import agree as agree
from .comparison.seed_spread import measure_spread as measure_spread
from .explanation.conclude_files import conclusion as conclusion
from .explanation.conclude_files import conclusion_over_runs as conclusion_over_runs
from .show.report.build import write_report as write_report

# How do I pin it, and what does that cost?
from .audits.cost import measure_cost as measure_cost
from .audits.doctor import diagnose as diagnose
from .audits.portable_witness import witness as witness
from .any_pytorch import portable as portable
from .any_pytorch import portable_operations as portable_operations
from .any_pytorch import add_seed_to as add_seed_to
from .any_pytorch import check_seed_of as check_seed_of
from .any_pytorch import item_generator as item_generator
from .any_pytorch import loader_arguments as loader_arguments
from .any_pytorch import split as split
from .any_pytorch import restore as restore
from .any_pytorch import generator as generator
from .any_pytorch import rank_seed as rank_seed
from .any_pytorch import seed_everything as seed_everything
from .any_pytorch import seeded as seeded

# Is it still what it was, and can somebody else check it?
from .exchange.bundle import read_bundle as read_bundle
from .exchange.passport_files import export_passports as export_passports
from .exchange.passport_files import import_passports as import_passports
from .exchange.cellpose_file import export_cellpose_file as export_cellpose_file
from .exchange.export import export_runs as export_runs
from .exchange.importing import import_runs as import_runs
from .exchange.store_check import check_store as check_store
from .exchange.verification import verify as verify

# How do I hand it on?
from .exchange.bioimageio.package import export_bioimageio as export_bioimageio
from .exchange.tracking import track as track

# What these work on.
from .exchange.description import describe as describe
from .any_pytorch import BadInput as BadInput
from .errors import CellreproError as CellreproError
from .any_pytorch import NotPossibleHere as NotPossibleHere
from .images.folder import read_folder as read_folder
from .images.image_sets import provide_data as provide_data
from .images.seg_file import read_seg as read_seg
from .store.store import Store as Store
