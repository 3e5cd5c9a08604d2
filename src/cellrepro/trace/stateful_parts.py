"""Objects with a state dict, and how each is given its present state again."""

from __future__ import annotations

import copy
from collections.abc import Callable
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


def way_back(item: HasState) -> Callable[[], None]:
    """A function that gives an optimizer, a scheduler or a scaler its present state again."""
    if not isinstance(item, torch.optim.Optimizer):
        state = copy.deepcopy(item.state_dict())
        return lambda: item.load_state_dict(copy.deepcopy(state))
    # Its own way to load a state rounds it to the parameters' precision (torch 2.15).
    parameters = {id(p): p for group in item.param_groups for p in group["params"]}
    kept = copy.deepcopy((item.state, item.param_groups), dict(parameters))

    def go_back() -> None:
        item.state, item.param_groups = copy.deepcopy(kept, dict(parameters))

    return go_back
