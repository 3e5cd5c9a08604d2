"""Distances between all points of two sets, with their gradients."""

from __future__ import annotations

import math

import torch

from samebits.arithmetic.kernels.elementary import square_root
from samebits.arithmetic.kernels.products import multiplied
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type
from samebits.arithmetic.kernels.sums import FORMS as ADDING
from samebits.arithmetic.kernels.sums import pairwise_sum

FORMS = PortableForms()

_TOGETHER = 2**22
"""Differences of coordinates that are in memory at a time."""


@FORMS.of("_euclidean_dist")
def _euclidean_distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By one product of matrices, as PyTorch does it for more than 25 points."""
    check_type(a, b)
    a_squares = pairwise_sum(a * a, [-1], keepdim=True)
    b_squares = pairwise_sum(b * b, [-1], keepdim=True)
    rows = torch.cat([a * -2.0, a_squares, torch.ones_like(a_squares)], -1)
    columns = torch.cat([b, torch.ones_like(b_squares), b_squares], -1)
    n_sets = math.prod(a.shape[:-2])
    squares = multiplied(
        rows.reshape(n_sets, *rows.shape[-2:]), columns.reshape(n_sets, *columns.shape[-2:]).mT
    ).reshape(*a.shape[:-1], b.shape[-2])
    return square_root(
        torch.where(squares > 0, squares, torch.where(squares.isnan(), squares, 0.0))
    )


@FORMS.of("_cdist_forward")
def _distances(
    a: torch.Tensor, b: torch.Tensor, p: float, compute_mode: int | None
) -> torch.Tensor:
    del compute_mode  # only of how PyTorch computes them
    check_type(a, b)
    parts = a.split(_points_together(a, b), dim=-2)
    norm = ADDING["linalg_vector_norm"]
    return torch.cat([norm(_differences(part, b), p, [-1]) for part in parts], -2)


@FORMS.of("_cdist_backward")
def _distances_backward(
    gradient: torch.Tensor, a: torch.Tensor, b: torch.Tensor, p: float, distances: torch.Tensor
) -> torch.Tensor:
    check_type(gradient, a, b, distances)
    n_together = _points_together(a, b)
    parts = zip(
        *(tensor.split(n_together, dim=-2) for tensor in (gradient, a, distances)), strict=True
    )
    gradients = [
        pairwise_sum(own[..., None] * _slopes(_differences(part, b), distance[..., None], p), [-2])
        for own, part, distance in parts
    ]
    return torch.cat(gradients, -2)


def _slopes(differences: torch.Tensor, distances: torch.Tensor, p: float) -> torch.Tensor:
    """How fast distances grow with each coordinate."""
    if p == 1:
        return differences.sign()
    if p == 2:
        return torch.where(distances == 0, 0.0, differences / distances)
    if p == math.inf:
        return torch.where(differences.abs() == distances, differences.sign(), 0.0)
    raise NoPortableForm(f"has a portable form with p=1, 2 and inf, and got p={p}")


def _points_together(a: torch.Tensor, b: torch.Tensor) -> int:
    of_a_point = max(a.shape[:-2].numel(), b.shape[:-2].numel()) * b.shape[-2] * b.shape[-1]
    return max(1, _TOGETHER // max(1, of_a_point))


def _differences(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[..., :, None, :] - b[..., None, :, :]
