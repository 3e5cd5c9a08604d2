"""Objects with a state dict: which are alive, what they update, and a way back to their state."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Protocol

import torch


class HasState(Protocol):
    """An object with a state dict: a module, an optimizer, a scheduler, a scaler."""

    def state_dict(self) -> dict[str, Any]:
        """Give its state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take over a state."""


def has_state(value: Any) -> bool:
    """Whether an object has a state dict, or is a network that is not empty."""
    if isinstance(value, torch.nn.Module):
        return next(value.parameters(), None) is not None or next(value.buffers(), None) is not None
    kind = type(value)
    return (
        hasattr(kind, "load_state_dict")
        and hasattr(kind, "state_dict")
        and not isinstance(value, type)
    )


def alive() -> list[Any]:
    """All networks, optimizers and schedulers that Python's garbage collector knows."""
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
    objects = gc.get_objects()
    present = {kind for kind in set(map(type, objects)) if issubclass(kind, kinds)}
    return [one for one in objects if type(one) in present]


def parameters_of(item: Any) -> Iterator[torch.Tensor]:
    """The tensors that an optimizer, or an object like one, updates."""
    groups = getattr(item, "param_groups", ())
    yield from chain.from_iterable(group["params"] for group in groups)


def way_back(item: HasState) -> Callable[[], None]:
    """A function that gives an optimizer, a scheduler or a scaler its present state again."""
    if not isinstance(item, torch.optim.Optimizer):
        state = copy.deepcopy(item.state_dict())
        return lambda: item.load_state_dict(copy.deepcopy(state))
    # Its `load_state_dict` would round the state to the parameters' precision (torch 2.15).
    parameters = {id(p): p for group in item.param_groups for p in group["params"]}
    kept = copy.deepcopy((item.state, item.param_groups), dict(parameters))

    def go_back() -> None:
        item.state, item.param_groups = copy.deepcopy(kept, dict(parameters))

    return go_back
