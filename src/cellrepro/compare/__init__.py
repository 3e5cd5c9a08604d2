"""Comparisons: which sameness holds between masks or weights, and where and how far it breaks."""

from cellrepro.compare.changes import ObjectChange, ObjectKind
from cellrepro.compare.masks import (
    LARGEST_LABEL,
    THRESHOLDS,
    Category,
    MaskComparison,
    average_precision,
    canonical,
    categories,
    compare_masks,
    same_objects,
)
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weights import (
    Similarity,
    TensorComparison,
    WeightsComparison,
    compare_weights,
    distribution,
    layer_group,
    magnitudes,
    similarity,
)

__all__ = [
    "LARGEST_LABEL",
    "THRESHOLDS",
    "Category",
    "MaskComparison",
    "ObjectChange",
    "ObjectKind",
    "Similarity",
    "TensorComparison",
    "Verdict",
    "WeightsComparison",
    "average_precision",
    "canonical",
    "categories",
    "combine",
    "compare_masks",
    "compare_weights",
    "distribution",
    "layer_group",
    "magnitudes",
    "same_objects",
    "similarity",
]
