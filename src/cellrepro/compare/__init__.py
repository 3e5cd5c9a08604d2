"""Are two results the same: masks, weights, ledgers, runs, and how far apart where they are not."""

from cellrepro.compare.consensus import agree
from cellrepro.compare.labels import canonical
from cellrepro.compare.metrics import average_precision, categories, compare_masks
from cellrepro.compare.names import Names, place_of
from cellrepro.compare.seed_spread import measure_spread
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weight_histograms import difference_distributions
from cellrepro.compare.weight_similarity import similarity
from cellrepro.compare.weights import compare_weights

__all__ = [
    "Names",
    "Verdict",
    "agree",
    "average_precision",
    "canonical",
    "categories",
    "combine",
    "compare_masks",
    "compare_weights",
    "difference_distributions",
    "measure_spread",
    "place_of",
    "similarity",
]
