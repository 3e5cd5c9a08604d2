"""Is a training step repeatable: run from one state several times, are the bits equal."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from cellrepro.control.seeding import capture, restore
from cellrepro.errors import BadInput
from cellrepro.record.audit import difference, same_bits
from cellrepro.record.operations import Step


@dataclass(frozen=True)
class Moved:
    """One result that was not the same every time.

    Attributes
    ----------
    name : str
        ``loss``, ``gradient NAME``, ``weights NAME``, ``optimizer …`` or ``generators``.
    n_elements : int
        Most elements that differed from the first time.
    max_abs : float
        Largest difference, in its own units.
    """

    name: str
    n_elements: int
    max_abs: float


@dataclass(frozen=True)
class Repeatability:
    """Whether a step gave the same bits every time.

    Attributes
    ----------
    n : int
        How often it was run.
    n_compared : int
        Results compared each time: loss, gradients, weights, buffers, optimizer, generators.
    moved : tuple of Moved
        Those that differed; empty if none did.
    vacuous : bool
        Whether the step changed neither weights, buffers nor gradients: equality proves nothing.
    """

    n: int
    n_compared: int
    moved: tuple[Moved, ...]
    vacuous: bool

    @property
    def identical(self) -> bool:
        """Whether every result had the same bits every time, and there was one."""
        return not self.moved and not self.vacuous

    def sentence(self) -> str:
        """The answer, over how much."""
        over = f"over {self.n} runs from one state, {self.n_compared} results each"
        if self.vacuous:
            return f"vacuous {over}: the step changed nothing"
        if not self.moved:
            return f"identical {over}"
        worst = max(self.moved, key=lambda moved: moved.max_abs)
        return (
            f"different {over}: {len(self.moved)} results moved, first {self.moved[0].name}, most "
            f"{worst.name} by {worst.max_abs:.2g}"
        )


def check_repeatable(
    step: Step,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    n: int = 3,
    others: Iterable[Any] = (),
) -> Repeatability:
    """Run a training step ``n`` times from one state and compare every result bit by bit.

    Weights, buffers, gradients, optimizer and generators are as before afterwards.

    Parameters
    ----------
    step : callable
        One training step, without arguments; what it returns counts as its loss. It has to take
        its batch from the generators or keep it: the state put back does not include a data
        loader's position.
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer, optional
    n : int
        2 or more. A race may need many to show.
    others : iterable of objects with ``state_dict`` and ``load_state_dict``
        Schedulers and scalers, put back too.

    Returns
    -------
    Repeatability

    Raises
    ------
    BadInput
        If ``n`` is below 2.

    Examples
    --------
    >>> layer = torch.nn.Linear(3, 1)
    >>> update = torch.optim.SGD(layer.parameters(), lr=0.1)
    >>> def step():
    ...     update.zero_grad()
    ...     loss = layer(torch.randn(2, 3)).square().sum()
    ...     loss.backward()
    ...     update.step()
    ...     return loss.item()
    >>> check_repeatable(step, layer, update).sentence()
    'identical over 3 runs from one state, 6 results each'
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise BadInput(f"n is {n!r}; expected 2 or more: one run compares nothing")
    held = [*(() if optimizer is None else (optimizer,)), *others]
    start = _State(model, held)
    worst: dict[str, Moved] = {}
    first: dict[str, Any] = {}
    vacuous = False
    try:
        for index in range(n):
            start.put_back()
            loss = step()
            results = _results(model, held, loss)
            if index == 0:
                first, vacuous = results, not start.left_by(model)
                continue
            for name in [*results, *(name for name in first if name not in results)]:
                a, b = first.get(name), results.get(name)
                if not same_bits(a, b):
                    n_elements, largest = difference(a, b)
                    before = worst.get(name, Moved(name, 0, 0.0))
                    worst[name] = Moved(
                        name,
                        max(before.n_elements, n_elements),
                        max(before.max_abs, largest),
                    )
    finally:
        start.put_back()
    return Repeatability(n, len(first), tuple(worst.values()), vacuous)


class _State:
    """Everything a step starts from."""

    def __init__(self, model: torch.nn.Module, held: list[Any]) -> None:
        self._tensors = {name: (tensor, tensor.detach().clone()) for name, tensor in _named(model)}
        self._gradients = [
            (parameter, None if parameter.grad is None else parameter.grad.detach().clone())
            for parameter in model.parameters()
        ]
        self._held = [(item, copy.deepcopy(item.state_dict())) for item in held]
        self._generators = capture()

    def put_back(self) -> None:
        with torch.no_grad():
            for tensor, kept in self._tensors.values():
                tensor.copy_(kept)
        for parameter, gradient in self._gradients:
            parameter.grad = None if gradient is None else gradient.clone()
        for item, state in self._held:
            item.load_state_dict(copy.deepcopy(state))
        restore(self._generators)

    def left_by(self, model: torch.nn.Module) -> bool:
        """Whether anything of the model has changed since."""
        moved = any(not same_bits(tensor.detach(), kept) for tensor, kept in self._tensors.values())
        return moved or any(
            not same_bits(parameter.grad, gradient) for parameter, gradient in self._gradients
        )


def _named(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _results(model: torch.nn.Module, held: list[Any], loss: Any) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if isinstance(loss, torch.Tensor):
        results["loss"] = loss.detach().clone()
    elif isinstance(loss, int | float):
        results["loss"] = loss
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            results[f"gradient {name}"] = parameter.grad.detach().clone()
    results |= {f"weights {name}": tensor.detach().clone() for name, tensor in _named(model)}
    for item in held:
        kind = "optimizer" if isinstance(item, torch.optim.Optimizer) else type(item).__name__
        results |= {
            f"{kind} {name}": value for name, value in _flat(copy.deepcopy(item.state_dict()))
        }
    results["generators"] = repr(capture())
    return results


def _flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Tensors and numbers of a nested state, by their path."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in _flat(item, f"{name}.{key}")]
    if isinstance(value, list | tuple):
        return [found for i, item in enumerate(value) for found in _flat(item, f"{name}.{i}")]
    if isinstance(value, torch.Tensor):
        return [(name.lstrip("."), value)]
    return []
