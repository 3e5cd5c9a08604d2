"""Is a training step repeatable: run from one state several times, are the bits equal."""

from __future__ import annotations

import copy
import io
import math
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader

from cellrepro.determinism.generator_states import capture, restore
from cellrepro.digests.same_bits import difference, same_bits
from cellrepro.digests.tensor_digests import generator_digests
from cellrepro.errors import BadInput, whole
from cellrepro.results import Result
from cellrepro.trace.observer import Step, check_step
from cellrepro.trace.replay_plan import is_plain
from cellrepro.trace.step_reach import (
    Binding,
    Reached,
    alive,
    bindings_of,
    parameters_of,
    reached_by,
)
from cellrepro.words import amount, some


class HasState(Protocol):
    """What a step changes beside a network: an optimizer, a scheduler, a scaler."""

    def state_dict(self) -> dict[str, Any]:
        """Give everything that it goes on from."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Go on from there."""


class ChangedResult(NamedTuple):
    """One result that was not the same every time."""

    name: str
    """``loss``, ``gradient NAME``, ``weights NAME``, ``optimizer …`` or ``generators``."""
    n_elements: int
    """Most that differed from the first time."""
    max_abs: float
    """Largest difference, in its own units; infinite where there is none, as of generators."""


@dataclass(frozen=True, repr=False)
class Repeatability(Result):
    """Whether a step gave the same bits every time."""

    n: int
    """How often it was run."""
    n_compared: int
    """Results each time: loss, gradients, weights, buffers, optimizer, generators."""
    changed: tuple[ChangedResult, ...]
    """Empty if none did."""
    vacuous: bool
    """It changed neither weights, buffers nor gradients: equality proves nothing."""
    not_put_back: tuple[str, ...] = ()
    """What the step names and goes on from run to run."""

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
        text = (
            f"different {over}: {amount(len(self.changed), 'result')} changed, first "
            f"{self.changed[0].name}"
        )
        measured = [result for result in self.changed if math.isfinite(result.max_abs)]
        if measured:
            most = max(measured, key=lambda result: result.max_abs)
            text += f", most {most.name} by {most.max_abs:.2g}"
        if self.not_put_back:
            text += (
                f"; this says nothing where the step takes its batch from {some(self.not_put_back)}"
                f", which went on from run to run: {_ONE_BATCH}"
            )
        return text


_ONE_BATCH = (
    "take a batch before, and give every run that one: check_repeatable(lambda: step(batch), …)"
)


@dataclass
class _Difference:
    """How far one result was from the first at most."""

    n_elements: int = 0
    max_abs: float = 0.0

    def include(self, a: Any, b: Any) -> None:
        n_elements, max_abs = difference(a, b)
        self.n_elements = max(self.n_elements, n_elements)
        self.max_abs = max(self.max_abs, max_abs)


def check_repeatable(step: Step, *parts: HasState, n: int = 3) -> Repeatability:
    """Run a training step ``n`` times from one state and compare every result bit by bit.

    Weights, buffers, gradients, optimizer, generators and the modules' training flags are as
    before afterwards, also when the step raises or the check is refused.

    Parameters
    ----------
    step : callable
        One training step, without arguments; numbers, arrays and tensors in what it returns are
        compared as its loss. It has to draw its batch from the global generators or keep it: the
        position of an iterator, of a data loader or of a generator of its own is not put back,
        which the answer says where results differ and the step names one. Nor is a number or an
        array that the step counts or writes in.
    *parts : modules, optimizers, schedulers, scalers
        What the step changes beside what is found: what its code names, however far in, and every
        optimizer that it steps, with the parameters that this holds.
    n : int
        2 or more. A race may need many to show.

    Returns
    -------
    Repeatability
        Whether all results agree, and which parts differ, and how far, where they do not.

    Raises
    ------
    BadInput
        If ``step`` takes arguments, or runs out of batches; if one of ``parts`` is a class, has no
        state, or a network whose parameters are not made yet or cannot be written.
    """
    check_step(step)
    whole("n", n, least=2)
    for part in parts:
        _check_part(part)
    reached = list(reached_by(step))
    state = _State(parts, reached)
    runs = _Runs(step, state, tuple(map(str, filter(_goes_on, reached))))
    differences: dict[str, _Difference] = {}
    with runs.watched():
        try:
            first = {name: copy.deepcopy(value) for name, value in state.results(runs.run())}
            if state.is_empty:
                vacuous = len(first) == 1
            else:
                vacuous = not state.is_left() and not runs.began_anew
            for _ in range(n - 1):
                state.put_back()
                results = dict(state.results(runs.run()))
                for name in results | first:
                    a = first.get(name)
                    b = results.get(name)
                    if not same_bits(a, b):
                        differences.setdefault(name, _Difference()).include(a, b)
        finally:
            state.put_back()
    changed = tuple(
        ChangedResult(name, largest.n_elements, largest.max_abs)
        for name, largest in differences.items()
    )
    not_put_back = runs.not_put_back if changed else ()
    return Repeatability(n, len(first), changed, vacuous, not_put_back)


def _check_part(part: Any) -> None:
    if isinstance(part, type):
        raise BadInput(
            f"{part.__name__} is a class; expected the object itself: a module, an optimizer, a "
            "scheduler or a scaler"
        )
    if not hasattr(part, "load_state_dict"):
        raise BadInput(
            f"{type(part).__name__} has no load_state_dict; expected modules, optimizers, "
            "schedulers and scalers"
        )


def _check_parameters(model: torch.nn.Module) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if torch.nn.parameter.is_lazy(tensor):
            raise BadInput(
                f"{name} of the network is not made before its first pass; run one batch through "
                "it, and then check the step"
            )
        if tensor.is_inference():
            raise BadInput(
                f"{name} of the network was made in inference mode and cannot be trained or put "
                "back; make the network outside of torch.inference_mode()"
            )


class _Runs:
    """Runs of one step, which end with what to do where they cannot be compared."""

    def __init__(self, step: Step, state: _State, not_put_back: tuple[str, ...]) -> None:
        self._step = step
        self._state = state
        self._n = 0
        self.not_put_back = not_put_back
        self.began_anew = False  # an optimizer made in the step has stepped

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the optimizers that make a step are looked at."""
        hook = torch_optimizer.register_optimizer_step_pre_hook(self._before_update)
        try:
            yield
        finally:
            hook.remove()

    def run(self) -> Any:
        self._n += 1
        try:
            return self._step()
        except StopIteration as error:
            what = f" ({some(self.not_put_back)})" if self.not_put_back else ""
            raise BadInput(
                f"what the step takes its batch from{what} was at its end in run {self._n}; "
                f"{_ONE_BATCH}"
            ) from error

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        """Keep an optimizer that no name led to, with its parameters, before it changes them."""
        if not self._state.keep_hidden(optimizer):
            self.began_anew = True


_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def _goes_on(one: Reached) -> bool:
    """Whether something gives another value whenever it is asked, from a place of its own."""
    if one.depth > _FARTHEST:  # inside of a library's objects
        return False
    if isinstance(one.value, DataLoader):
        return one.value.generator is not None  # else its order is of PyTorch's global generator
    is_iterator = isinstance(one.value, Iterator) and not isinstance(one.value, io.IOBase)
    return is_iterator or isinstance(one.value, _GENERATORS)


# -- putting back --------------------------------------------------------------------------

_FARTHEST = 3  # holders between a step and an iterator that is named
_MOST_BYTES = 1 << 26  # of a tensor that is no weight: what is larger is data


class _Registered(NamedTuple):
    """A tensor of a module, and where: a step may put another tensor in a buffer's place."""

    held: dict[str, Any]
    name: str
    tensor: torch.Tensor
    kept: torch.Tensor


class _Alone(NamedTuple):
    """A tensor of no module that is reached: a parameter, or what the step may write into."""

    name: str
    tensor: torch.Tensor
    kept: torch.Tensor


class _Bound(NamedTuple):
    """A place in which a tensor lies, or a container of some: a step may put another one there."""

    binding: Binding
    kept: Any


class _State:
    """Everything a step starts from: what is given, what it reaches, and what it steps."""

    def __init__(self, parts: Iterable[Any], reached: list[Reached]) -> None:
        self._modules: list[torch.nn.Module] = []  # none inside another
        self._others: list[Any] = []
        self._registered: list[_Registered] = []
        self._parameters: list[_Alone] = []  # of optimizers, or by themselves
        self._tensors: list[_Alone] = []  # what is no parameter; a result if it was written
        self._gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self._training: list[tuple[torch.nn.Module, bool]] = []
        self._ways_back: list[Callable[[], None]] = []
        self._known: dict[int, Any] = {}  # also so that no number is used again
        self._hidden: dict[int, Any] = {}
        found = [one.value for one in reached if _has_state(one.value)]
        for part in (*parts, *found):
            self._keep(part)
        for one in reached:
            if isinstance(one.value, torch.Tensor):
                self._keep_tensor(one.name, one.value)
        self._bound = list(_bound(reached))
        self._keep_hidden_parts()
        self._generators = capture()

    @property
    def is_empty(self) -> bool:
        return not (self._modules or self._others or self._parameters)

    def keep_hidden(self, optimizer: Any) -> bool:
        """Keep an optimizer about to step; whether it lived before the step."""
        if id(optimizer) in self._hidden:
            schedules = [
                one
                for one in self._hidden.values()
                if isinstance(one, torch.optim.lr_scheduler.LRScheduler)
                and one.optimizer is optimizer
            ]
            for part in (optimizer, *schedules):
                self._keep(part)
        return id(optimizer) in self._known

    def _keep_hidden_parts(self) -> None:
        """Of networks and optimizers that no name leads to: what a step changes before an update.

        Gradients, buffers and training flags. Weights are kept when their optimizer is about to
        step, for few of these objects belong to the step.
        """
        for one in alive():
            if isinstance(one, torch.nn.Module):
                self._training.append((one, one.training))
            if id(one) in self._known:
                continue
            self._hidden[id(one)] = one
            if isinstance(one, torch.nn.Module):
                for name, buffer in one._buffers.items():
                    if buffer is not None:
                        self._keep_tensor(f"{type(one).__name__} {name}", buffer)
                for own_parameter in one._parameters.values():
                    if own_parameter is not None:
                        self._keep_gradient(own_parameter)
            for parameter in parameters_of(one):
                self._keep_gradient(parameter)

    def _keep(self, part: Any) -> None:
        if id(part) in self._known:
            return
        self._known[id(part)] = part
        if isinstance(part, torch.nn.Module):
            self._keep_module(part)
            return
        self._others.append(part)
        for index, parameter in enumerate(parameters_of(part)):
            self._keep_parameter(f"{type(part).__name__}.{index}", parameter)
        self._ways_back.append(_way_back(part))

    def _keep_module(self, model: torch.nn.Module) -> None:
        _check_parameters(model)
        self._modules = [one for one in self._modules if one not in set(model.modules())]
        self._modules.append(model)
        for module in model.modules():
            if module is not model and id(module) in self._known:
                continue  # with all that is inside it
            self._known[id(module)] = module
            for held in (module._parameters, module._buffers):
                for name, tensor in held.items():
                    if tensor is not None and id(tensor) not in self._known:
                        self._known[id(tensor)] = tensor
                        kept = tensor.detach().clone()
                        self._registered.append(_Registered(held, name, tensor, kept))
            for parameter in module._parameters.values():
                if parameter is not None:
                    self._keep_gradient(parameter)

    def _keep_parameter(self, name: str, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._known:
            self._known[id(tensor)] = tensor
            self._parameters.append(_Alone(name, tensor, tensor.detach().clone()))
            self._keep_gradient(tensor)

    def _keep_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Keep a tensor by itself, but not what another one was computed from, or large data."""
        if not is_plain(tensor) or tensor.is_inference() or tensor.grad_fn is not None:
            return
        if tensor.requires_grad:
            self._keep_parameter(name, tensor)
        elif id(tensor) not in self._known and tensor.nbytes <= _MOST_BYTES:
            self._known[id(tensor)] = tensor
            self._tensors.append(_Alone(name, tensor, tensor.clone()))

    def _keep_gradient(self, parameter: torch.Tensor) -> None:
        self._gradients.setdefault(id(parameter), (parameter, copy.deepcopy(parameter.grad)))

    def put_back(self) -> None:
        with torch.no_grad():
            for held, name, tensor, kept in self._registered:
                held[name] = tensor
                _write(tensor, kept)
            for _, tensor, kept in (*self._parameters, *self._tensors):
                _write(tensor, kept)
        for binding, kept in self._bound:
            if binding.read() is not kept:
                binding.write(kept)
        for parameter, gradient in self._gradients.values():
            parameter.grad = copy.deepcopy(gradient)
        for module, training in self._training:
            module.training = training
        for go_back in self._ways_back:
            go_back()
        restore(self._generators)

    def is_left(self) -> bool:
        """Whether a tensor is not as it was."""
        tensors: list[Any] = [(held[name], kept) for held, name, _, kept in self._registered]
        tensors += [(tensor, kept) for _, tensor, kept in (*self._parameters, *self._tensors)]
        tensors += [(parameter.grad, kept) for parameter, kept in self._gradients.values()]
        if not all(same_bits(now, kept) for now, kept in tensors):
            return True
        return any(not _same_tensors(now, kept) for _, now, kept in self._bound_anew())

    def _bound_anew(self) -> Iterator[tuple[str, Any, Any]]:
        """The places in which other weights stand than before, and both."""
        for binding, kept in self._bound:
            now = binding.read()
            if now is not kept:
                yield binding.name, now, kept

    def results(self, loss: Any) -> Iterator[tuple[str, Any]]:
        """Every tensor and number that a step gave, by name."""
        modules = self._modules
        model = modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)
        own = {id(parameter) for parameter in model.parameters()}
        alone = [(name, one) for name, one, _ in self._parameters if id(one) not in own]
        yield from flat(loss, "loss")
        for name, parameter in (*model.named_parameters(), *alone):
            yield from flat(parameter.grad, f"gradient {name}")
        for name, tensor in (*model.named_parameters(), *model.named_buffers(), *alone):
            yield from flat(tensor, f"weights {name}")
        for name, tensor, kept in self._tensors:
            if not same_bits(tensor, kept):
                yield from flat(tensor, f"tensor {name}")
        for name, now, _ in self._bound_anew():
            yield from flat(now, f"weights {name}")
        for item in self._others:
            if isinstance(item, torch.optim.Optimizer):
                yield from flat(item.state_dict()["state"], "optimizer")
            else:
                yield from flat(item.state_dict(), type(item).__name__)
        yield "generators", repr(generator_digests())


def _has_state(value: Any) -> bool:
    """Whether something reached is part of what a step starts from."""
    if isinstance(value, torch.nn.Module):
        return next(value.parameters(), None) is not None or next(value.buffers(), None) is not None
    kind = type(value)
    return (
        hasattr(kind, "load_state_dict")
        and hasattr(kind, "state_dict")
        and not isinstance(value, type)
    )


def _bound(reached: Iterable[Reached]) -> Iterator[_Bound]:
    """The places of weights: a step that computes new ones puts them there."""
    for one in reached:
        for binding in bindings_of(one):
            kept = binding.read()
            if _are_weights(kept):
                yield _Bound(binding, kept)


def _are_weights(value: Any) -> bool:
    """Whether a value is a tensor that is trained, or a plain container with one."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad and value.is_leaf
    if type(value) is dict:
        value = list(value.values())
    return type(value) in (list, tuple) and any(
        isinstance(item, torch.Tensor) and _are_weights(item) for item in value
    )


def _same_tensors(a: Any, b: Any) -> bool:
    tensors_a = dict(flat(a, ""))
    tensors_b = dict(flat(b, ""))
    return tensors_a.keys() == tensors_b.keys() and all(
        same_bits(tensor, tensors_b[name]) for name, tensor in tensors_a.items()
    )


def _write(tensor: torch.Tensor, kept: torch.Tensor) -> None:
    if not same_bits(tensor.detach(), kept):
        tensor.copy_(kept)


def _way_back(item: HasState) -> Callable[[], None]:
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
