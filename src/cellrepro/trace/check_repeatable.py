"""Is a training step repeatable: run from one state several times, are the bits equal."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.optim import optimizer as torch_optimizer

from cellrepro.determinism.seeding import capture, restore
from cellrepro.errors import BadInput, whole
from cellrepro.store.bits import difference, same_bits
from cellrepro.store.digests import generator_digests
from cellrepro.trace.observer import Step, check_step


class ChangedResult(NamedTuple):
    """One result that was not the same every time."""

    name: str  # ``loss``, ``gradient NAME``, ``weights NAME``, ``optimizer …`` or ``generators``
    n_elements: int  # most that differed from the first time
    max_abs: float  # largest difference, in its own units


@dataclass(frozen=True)
class Repeatability:
    """Whether a step gave the same bits every time."""

    n: int  # how often it was run
    n_compared: int  # results each time: loss, gradients, weights, buffers, optimizer, generators
    changed: tuple[ChangedResult, ...]  # empty if none did
    vacuous: bool  # it changed neither weights, buffers nor gradients: equality proves nothing

    @property
    def identical(self) -> bool:
        """Whether every result had the same bits every time, and there was one."""
        return not self.changed and not self.vacuous

    def sentence(self) -> str:
        """The answer, over how much."""
        over = f"over {self.n} runs from one state, {self.n_compared} results each"
        if self.vacuous:
            return f"vacuous {over}: the step changed nothing"
        if not self.changed:
            return f"identical {over}"
        most = max(self.changed, key=lambda result: result.max_abs)
        return (
            f"different {over}: {len(self.changed)} results changed, first "
            f"{self.changed[0].name}, most {most.name} by {most.max_abs:.2g}"
        )


def check_repeatable(step: Step, *parts: Any, n: int = 3) -> Repeatability:
    """Run a training step ``n`` times from one state and compare every result bit by bit.

    Weights, buffers, gradients, optimizer, generators and the modules' training flags are as
    before afterwards, also when the step raises.

    Parameters
    ----------
    step : callable
        One training step, without arguments; numbers, arrays and tensors in what it returns are
        compared as its loss. It has to draw its batch from the generators or keep it: a data
        loader's position is not put back.
    *parts : modules, optimizers, schedulers, scalers
        What the step changes. By default what its function names or its object holds; if that is
        nothing, the step has to begin anew each time. `BadInput` refuses a step whose optimizer
        goes on from run to run and is not among them.
    n : int
        2 or more. A race may need many to show.
    """
    check_step(step)
    whole("n", n, least=2)
    for part in parts:
        if not hasattr(part, "load_state_dict"):
            raise BadInput(
                f"{type(part).__name__} has no load_state_dict; expected modules, optimizers, "
                "schedulers and scalers"
            )
    parts = parts or tuple(_named_in(step))
    modules = [part for part in parts if isinstance(part, torch.nn.Module)]
    model = modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)
    held = [part for part in parts if not isinstance(part, torch.nn.Module)]
    start = _State(model, held)
    worst: dict[str, Any] = {}
    run, others = 0, dict[Any, int]()

    def refuse_other(optimizer: Any, *_: Any) -> None:
        if optimizer not in held and others.setdefault(optimizer, run) < run:
            raise BadInput(
                f"{type(optimizer).__name__} steps in one run after the other and is not among "
                "what is put back; give the network, it, and what else the step changes: "
                "check_repeatable(step, model, optimizer)"
            )

    hook = torch_optimizer.register_optimizer_step_pre_hook(refuse_other)
    try:
        first = {name: copy.deepcopy(value) for name, value in _results(model, held, step())}
        vacuous = not start.is_left() if parts else len(first) == 1
        for _ in range(n - 1):
            run += 1
            start.put_back()
            results = dict(_results(model, held, step()))
            for name in results | first:
                a, b = first.get(name), results.get(name)
                if not same_bits(a, b):
                    sizes = zip(difference(a, b), worst.get(name, (0, 0.0)), strict=True)
                    worst[name] = tuple(map(max, sizes))
    finally:
        hook.remove()
        start.put_back()
    changed = tuple(ChangedResult(name, *sizes) for name, sizes in worst.items())
    return Repeatability(n, len(first), changed, vacuous)


def _named_in(step: Step) -> list[Any]:
    """What has a state among what a step's function names or its object holds."""
    named = [*getattr(getattr(step, "__self__", step), "__dict__", {}).values()]
    if inspect.isroutine(step):
        variables = inspect.getclosurevars(step)
        named += [*variables.nonlocals.values(), *variables.globals.values()]
    known = {id(one): one for one in named if hasattr(one, "load_state_dict")}
    return [one for one in known.values() if not isinstance(one, type) and one.state_dict()]


class _State:
    """Everything a step starts from."""

    def __init__(self, model: torch.nn.Module, held: list[Any]) -> None:
        # By the module that holds it: a step may put another tensor in a buffer's place.
        self._tensors: list[tuple[dict[str, Any], str, torch.Tensor, torch.Tensor]] = [
            (registered, name, tensor, tensor.detach().clone())
            for module in model.modules()
            for registered in (module._parameters, module._buffers)
            for name, tensor in registered.items()
            if tensor is not None
        ]
        self._gradients = [(p, copy.deepcopy(p.grad)) for p in model.parameters()]
        self._training = [(module, module.training) for module in model.modules()]
        self._ways_back = [_way_back(item) for item in held]
        self._generators = capture()

    def put_back(self) -> None:
        with torch.no_grad():
            for registered, name, tensor, kept in self._tensors:
                registered[name] = tensor
                tensor.copy_(kept)
        for parameter, gradient in self._gradients:
            parameter.grad = copy.deepcopy(gradient)
        for module, training in self._training:
            module.training = training
        for go_back in self._ways_back:
            go_back()
        restore(self._generators)

    def is_left(self) -> bool:
        tensors: list[Any] = [(held[name], kept) for held, name, _, kept in self._tensors]
        tensors += [(parameter.grad, kept) for parameter, kept in self._gradients]
        return not all(same_bits(now, kept) for now, kept in tensors)


def _way_back(item: Any) -> Callable[[], None]:
    """What gives an optimizer, a scheduler or a scaler the state that it has now."""
    if not isinstance(item, torch.optim.Optimizer):
        state = copy.deepcopy(item.state_dict())
        return lambda: item.load_state_dict(copy.deepcopy(state))
    # Its own way to load a state rounds it to the parameters' precision (torch 2.15).
    parameters = {id(p): p for group in item.param_groups for p in group["params"]}
    kept = copy.deepcopy((item.state, item.param_groups), dict(parameters))

    def go_back() -> None:
        item.state, item.param_groups = copy.deepcopy(kept, dict(parameters))

    return go_back


def _results(model: torch.nn.Module, held: list[Any], loss: Any) -> Iterator[tuple[str, Any]]:
    """Every tensor and number that a step gave, by name."""
    yield from flat(loss, "loss")
    for name, parameter in model.named_parameters():
        yield from flat(parameter.grad, f"gradient {name}")
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        yield from flat(tensor, f"weights {name}")
    for item in held:
        if isinstance(item, torch.optim.Optimizer):
            yield from flat(item.state_dict()["state"], "optimizer")
        else:
            yield from flat(item.state_dict(), type(item).__name__)
    yield "generators", repr(generator_digests())


def flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Tensors, arrays of numbers as tensors, and numbers of a nested value, by their path."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{name} {key}")
    elif isinstance(value, torch.Tensor):
        yield name, value.detach()
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        yield name, torch.tensor(value.astype(value.dtype.newbyteorder("=")))
    elif isinstance(value, int | float | complex):
        yield name, value
