"""Calls whose warnings PyTorch gives out at once, or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

_ONE = torch.zeros(1, device="cpu")


def saying_at_once(run: Callable[[], Any]) -> Any:
    """Call ``run``, and have PyTorch give out its warnings before this returns.

    An operation called inside another one keeps its warnings until the outer one is over (torch
    2.6). ``Tensor.apply_`` calls a function from C++ and gives the warnings out as it returns.
    """
    returned = []

    def call(element: float) -> float:
        returned.append(run())
        return element

    _ONE.apply_(call)
    return returned[0]


def without_warnings(run: Callable[[], Any]) -> Any:
    """Call ``run`` without PyTorch's warnings, which the operation itself has given before."""
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        return run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return saying_at_once(run)
