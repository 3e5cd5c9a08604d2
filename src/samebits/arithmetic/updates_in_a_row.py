"""Updates of small parameters as one: number by number they are the same, and each operation of an
update is called once instead of once for each parameter."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator, Sequence

import torch

from samebits.arithmetic.kernels.optimizers import Update, in_a_row, small_and_apart, write_back
from samebits.replaced_functions import Replacement, SharedByBlocks, replaced
from samebits.torch_internals import modes_suspended

_UPDATES = ("adadelta", "adagrad", "rmsprop", "sgd")
"""Functions of ``torch.optim``, in modules of the same names, that compute number by number. Their
first arguments are lists: parameters, gradients, states and steps (torch 2.6 to 2.15)."""
_IN_A_WAY_OF_ITS_OWN = (
    "capturable",
    "differentiable",
    "found_inf",
    "fused",
    "grad_scale",
    "has_complex",
    "has_sparse_grad",
)
"""Settings with which PyTorch does not compute number by number, or with other operations."""
_Tensors = Sequence[torch.Tensor]


def _updates_together() -> Iterator[Replacement]:
    for name in _UPDATES:
        yield Replacement(importlib.import_module(f"torch.optim.{name}"), name, _together)


UPDATES_IN_A_ROW = SharedByBlocks(lambda: replaced(_updates_together()))
"""Updates of PyTorch that take small parameters together."""


def _together(update: Update) -> Update:
    names = list(inspect.signature(update).parameters)
    place_of_steps = names.index("state_steps") if "state_steps" in names else None

    @functools.wraps(update)
    def updated(*arguments: object, **settings: object) -> None:
        lists: list[list[torch.Tensor]] = [each for each in arguments if isinstance(each, list)]
        with modes_suspended():
            is_usual = len(lists) == len(arguments)
            small = _small(lists, place_of_steps, settings) if is_usual else []
        if len(small) < 2:
            update(*arguments, **settings)
            return
        with modes_suspended():
            rows = [_row(each, small, is_step=i == place_of_steps) for i, each in enumerate(lists)]
        update(*rows, **settings)
        with modes_suspended():
            for place, (each, row) in enumerate(zip(lists, rows, strict=True)):
                if row and place != _GRADIENTS:
                    _write([each[index] for index in small], row[0], place == place_of_steps)
        chosen = set(small)
        others = [index for index in range(len(lists[0])) if index not in chosen]
        if others:
            left = [[each[index] for index in others] if each else [] for each in lists]
            update(*left, **settings)

    return updated


_GRADIENTS = 1
"""Where they stand among the lists: they are read only."""


def _small(
    lists: Sequence[list[torch.Tensor]], place_of_steps: int | None, settings: dict[str, object]
) -> list[int]:
    """Which parameters are updated together: small ones of one type, device and step; none where
    the update is not number by number, or a state is not there yet."""
    if any(settings.get(name) for name in _IN_A_WAY_OF_ITS_OWN):
        return []
    parameters, gradients, *states = lists
    if not parameters or any(item is None for each in states for item in each):
        return []
    first = parameters[0]
    is_small = small_and_apart(parameters)
    small = [
        index
        for index, parameter in enumerate(parameters)
        if is_small[index]
        and parameter.dtype == gradients[index].dtype == first.dtype
        and parameter.device == first.device
    ]
    if place_of_steps is not None:
        steps = {float(lists[place_of_steps][index]) for index in small}
        if len(steps) > 1:
            return []
    return small


def _row(tensors: _Tensors, chosen: Sequence[int], *, is_step: bool) -> _Tensors:
    """Some of the tensors as one, in a list; the first of their steps."""
    if not tensors:
        return []
    if is_step:
        return [tensors[chosen[0]]]
    return [in_a_row([tensors[index] for index in chosen])]


def _write(tensors: _Tensors, row: torch.Tensor, is_step: bool) -> None:
    """Write the parts of a row back; a step has gone on by itself, and the others follow."""
    if is_step:
        torch._foreach_copy_(list(tensors[1:]), [row] * (len(tensors) - 1))
    else:
        write_back(tensors, row)
