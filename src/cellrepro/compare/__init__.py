"""Comparisons: which sameness holds between masks or weights, and where and how far it breaks."""

from cellrepro.compare.consensus import Agreement, Stability, agree
from cellrepro.compare.metrics import (
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
from cellrepro.compare.object_changes import ObjectChange, ObjectKind
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weights import (
    DifferenceDistributions,
    LayerComparison,
    LayerParting,
    Similarity,
    TensorComparison,
    WeightsComparison,
    compare_weights,
    difference_distributions,
    distribution,
    layer_group,
    magnitudes,
    parting_layers,
    similarity,
)

__all__ = [
    "LARGEST_LABEL",
    "THRESHOLDS",
    "Agreement",
    "Category",
    "DifferenceDistributions",
    "LayerComparison",
    "LayerParting",
    "MaskComparison",
    "ObjectChange",
    "ObjectKind",
    "Similarity",
    "Stability",
    "TensorComparison",
    "Verdict",
    "WeightsComparison",
    "agree",
    "average_precision",
    "canonical",
    "categories",
    "combine",
    "compare_masks",
    "compare_weights",
    "difference_distributions",
    "distribution",
    "layer_group",
    "magnitudes",
    "parting_layers",
    "same_objects",
    "similarity",
]
