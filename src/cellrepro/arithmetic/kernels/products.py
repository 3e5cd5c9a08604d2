"""Products of matrices and of vectors."""

from __future__ import annotations

from typing import Any

import torch

from cellrepro.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from cellrepro.arithmetic.products import product
from cellrepro.arithmetic.sums import pairwise_sum

FORMS = PortableForms()


@FORMS.of("mm", "bmm")
def _mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype == torch.float64:
        return _product_of_doubles(a, b)
    check_float32("mm", a, b)
    return product(a, b)


@FORMS.of("addmm", "baddbmm")
def _addmm(
    added: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    check_float32("addmm", added, a, b)
    if beta == 1 and alpha == 1:
        return product(a, b, added=added)
    scaled = product(a, b) * alpha
    return scaled if beta == 0 else scaled + added * beta


@FORMS.of("mv")
def _mv(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _mm(a, b[:, None])[:, 0]


@FORMS.of("dot", "vdot")
def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _mm(a[None], b[:, None])[0, 0]


_MOST_PRODUCTS_OF_DOUBLES = 2**26


def _product_of_doubles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Every product by itself, then sums in halves: for small matrices."""
    n_products = a.numel() * b.shape[-1]
    if n_products > _MOST_PRODUCTS_OF_DOUBLES:
        raise NoPortableForm(
            f"has a portable form for float64 up to {_MOST_PRODUCTS_OF_DOUBLES} products, and "
            f"would take {n_products}; use float32"
        )
    return pairwise_sum(a[..., :, :, None] * b[..., None, :, :], [-2])
