"""All portable forms, by the name of the operation."""

from __future__ import annotations

from collections.abc import Mapping

from samebits.arithmetic.kernels import (
    activations,
    convolutions,
    creation,
    distances,
    elementary,
    embeddings,
    extremes,
    indexing,
    losses,
    normalisation,
    optimizers,
    pointwise,
    pooling,
    products,
    resampling,
    sorting,
    sums,
    trigonometry,
)
from samebits.arithmetic.kernels.registry import PortableForm

FORMS: Mapping[str, PortableForm] = {
    **activations.FORMS,
    **convolutions.FORMS,
    **creation.FORMS,
    **distances.FORMS,
    **embeddings.FORMS,
    **elementary.FORMS,
    **extremes.FORMS,
    **indexing.FORMS,
    **losses.FORMS,
    **normalisation.FORMS,
    **optimizers.FORMS,
    **pointwise.FORMS,
    **pooling.FORMS,
    **products.FORMS,
    **resampling.FORMS,
    **sorting.FORMS,
    **sums.FORMS,
    **trigonometry.FORMS,
}
"""Without overload and without the ``_`` of writing in place."""
