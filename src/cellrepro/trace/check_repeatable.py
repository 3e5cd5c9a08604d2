"""Is a training step repeatable: run from one state several times, are the bits equal."""

from __future__ import annotations

import copy
import inspect
import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader

from cellrepro.bits.same import difference, same_bits
from cellrepro.bits.tensor_digests import generator_digests
from cellrepro.determinism.generator_states import capture, restore
from cellrepro.errors import BadInput, whole
from cellrepro.results import Result
from cellrepro.trace.observer import Step, check_step
from cellrepro.words import some


class HasState(Protocol):
    """What a step changes beside a network: an optimizer, a scheduler, a scaler."""

    def state_dict(self) -> dict[str, Any]:
        """Give everything that it goes on from."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Go on from there."""


class ChangedResult(NamedTuple):
    """One result that was not the same every time.

    Attributes
    ----------
    name : str
        ``loss``, ``gradient NAME``, ``weights NAME``, ``optimizer …`` or ``generators``.
    n_elements : int
        Most that differed from the first time.
    max_abs : float
        Largest difference, in its own units.
    """

    name: str
    n_elements: int
    max_abs: float


@dataclass(frozen=True, repr=False)
class Repeatability(Result):
    """Whether a step gave the same bits every time.

    Attributes
    ----------
    n : int
        How often it was run.
    n_compared : int
        Results each time: loss, gradients, weights, buffers, optimizer, generators.
    changed : tuple of ChangedResult
        Empty if none did.
    vacuous : bool
        It changed neither weights, buffers nor gradients: equality proves nothing.
    not_put_back : tuple of str
        What the step names and goes on from run to run.
    """

    n: int
    n_compared: int
    changed: tuple[ChangedResult, ...]
    vacuous: bool
    not_put_back: tuple[str, ...] = ()

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
        text = (
            f"different {over}: {len(self.changed)} results changed, first "
            f"{self.changed[0].name}, most {most.name} by {most.max_abs:.2g}"
        )
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
    before afterwards, also when the step raises.

    Parameters
    ----------
    step : callable
        One training step, without arguments; numbers, arrays and tensors in what it returns are
        compared as its loss. It has to draw its batch from the global generators or keep it: the
        position of an iterator, of a data loader or of a generator of its own is not put back,
        which the answer says where results differ and the step names one.
    *parts : modules, optimizers, schedulers, scalers
        What the step changes. By default what its function names or its object holds; if that is
        nothing, the step has to begin anew each time.
    n : int
        2 or more. A race may need many to show.

    Returns
    -------
    Repeatability
        Whether all results agree, and which parts differ, and how far, where they do not.

    Raises
    ------
    BadInput
        If ``step`` takes arguments, or runs out of batches; if its optimizer goes on from run to
        run and is not among ``parts``; if one of these is a class, has no state, or a network
        whose parameters are not made yet or cannot be written.
    """
    check_step(step)
    whole("n", n, least=2)
    for part in parts:
        _check_part(part)
    parts = parts or tuple(_parts_named_in(step))
    modules = [part for part in parts if isinstance(part, torch.nn.Module)]
    model = modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)
    others = [part for part in parts if not isinstance(part, torch.nn.Module)]
    _check_parameters(model)
    start = _State(model, others)
    runs = _Runs(step, others)
    differences: dict[str, _Difference] = {}
    with runs.watched():
        try:
            loss = runs.run()
            first = {name: copy.deepcopy(value) for name, value in _results(model, others, loss)}
            vacuous = not start.is_left() if parts else len(first) == 1
            for _ in range(n - 1):
                start.put_back()
                results = dict(_results(model, others, runs.run()))
                for name in results | first:
                    a = first.get(name)
                    b = results.get(name)
                    if not same_bits(a, b):
                        differences.setdefault(name, _Difference()).include(a, b)
        finally:
            start.put_back()
    changed = tuple(
        ChangedResult(name, largest.n_elements, largest.max_abs)
        for name, largest in differences.items()
    )
    not_put_back = tuple(_not_put_back(step)) if changed else ()
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

    def __init__(self, step: Step, put_back: list[HasState]) -> None:
        self._step = step
        self._put_back = put_back
        self._n = 0
        self._first_run: dict[Any, int] = {}  # of an optimizer that is not put back

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the optimizers that make a step are looked at."""
        hook = torch_optimizer.register_optimizer_step_pre_hook(self._refuse_other)
        try:
            yield
        finally:
            hook.remove()

    def run(self) -> Any:
        self._n += 1
        try:
            return self._step()
        except StopIteration as error:
            taken = some(list(_not_put_back(self._step)))
            what = f" ({taken})" if taken else ""
            raise BadInput(
                f"what the step takes its batch from{what} was at its end in run {self._n}; "
                f"{_ONE_BATCH}"
            ) from error

    def _refuse_other(self, optimizer: Any, *_: Any) -> None:
        if optimizer in self._put_back:
            return
        if self._first_run.setdefault(optimizer, self._n) < self._n:
            raise BadInput(
                f"{type(optimizer).__name__} steps in one run after the other and is not among "
                "what is put back; give the network, it, and what else the step changes: "
                "check_repeatable(step, model, optimizer)"
            )


# -- what a step names ---------------------------------------------------------------------


def _named_by(value: Any) -> dict[str, Any]:
    """What a function names of what lies outside it, or an object holds, by name."""
    named = dict(getattr(getattr(value, "__self__", value), "__dict__", {}))
    if inspect.isfunction(value) or inspect.ismethod(value):
        with suppress(ValueError):  # of a function that names what is not there yet
            variables = inspect.getclosurevars(value)
            named |= {**variables.globals, **variables.nonlocals}
    return named


def _parts_named_in(step: Step) -> list[Any]:
    """What has a state among what a step names."""
    known = {id(one): one for one in _named_by(step).values() if hasattr(one, "load_state_dict")}
    return [one for one in known.values() if not isinstance(one, type) and one.state_dict()]


_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def _not_put_back(step: Step) -> Iterator[str]:
    """Of what a step names, and of what that names: iterators, loaders and generators."""
    for name, value in _named_by(step).items():
        if _goes_on(value):
            yield f"`{name}`"
        elif not isinstance(value, type | ModuleType | torch.nn.Module):
            held = _named_by(value)
            yield from (f"`{inner}` of `{name}`" for inner, one in held.items() if _goes_on(one))


def _goes_on(value: Any) -> bool:
    """Whether something gives another value whenever it is asked, from a place of its own."""
    if isinstance(value, DataLoader):
        return value.generator is not None  # else its order comes from PyTorch's global generator
    is_iterator = isinstance(value, Iterator) and not isinstance(value, io.IOBase)
    return is_iterator or isinstance(value, _GENERATORS)


# -- putting back --------------------------------------------------------------------------


class _State:
    """Everything a step starts from."""

    def __init__(self, model: torch.nn.Module, others: list[HasState]) -> None:
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
        self._ways_back = [_way_back(item) for item in others]
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
