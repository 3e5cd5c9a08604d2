"""All portable forms, by the name of the operation."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

from samebits.arithmetic.kernels import (
    activations,
    convolutions,
    creation,
    elementary,
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
)
from samebits.arithmetic.kernels.registry import PortableForm

FORMS: Mapping[str, PortableForm] = ChainMap(
    activations.FORMS,
    convolutions.FORMS,
    creation.FORMS,
    elementary.FORMS,
    indexing.FORMS,
    losses.FORMS,
    normalisation.FORMS,
    optimizers.FORMS,
    pointwise.FORMS,
    pooling.FORMS,
    products.FORMS,
    resampling.FORMS,
    sorting.FORMS,
    sums.FORMS,
)
"""Without overload and without the ``_`` of writing in place."""
