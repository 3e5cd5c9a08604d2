"""All portable forms, by the name of the operation."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

from cellrepro.arithmetic.kernels import (
    convolutions,
    functions,
    losses,
    made_numbers,
    normalisation,
    order,
    places,
    pooling,
    products,
    resampling,
    single_operations,
    sums,
    updates,
)
from cellrepro.arithmetic.kernels.registry import PortableForm

FORMS: Mapping[str, PortableForm] = ChainMap(
    convolutions.FORMS,
    functions.FORMS,
    losses.FORMS,
    made_numbers.FORMS,
    normalisation.FORMS,
    order.FORMS,
    places.FORMS,
    pooling.FORMS,
    products.FORMS,
    resampling.FORMS,
    single_operations.FORMS,
    sums.FORMS,
    updates.FORMS,
)
"""Without overload and without the ``_`` of writing in place."""
