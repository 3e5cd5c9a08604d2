"""Whether a training step repeats: run several times from one state, it gives the same bits."""

from __future__ import annotations

import copy
import io
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader

from samebits.bit_equality import LargestDifference, same_bits
from samebits.contention import contention
from samebits.errors import BadInput, whole
from samebits.results import Result
from samebits.trace.observer import Step, check_step
from samebits.trace.stateful_parts import HasState
from samebits.trace.step_reach import Reached, reached_by
from samebits.trace.step_state import StepState
from samebits.words import amount, some


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
    """Nothing differed, and it changed neither weights, buffers nor gradients: that proves
    nothing."""
    not_put_back: tuple[str, ...] = ()
    """Objects that the step names and that go on from run to run."""
    contended_on: str | None = None
    """The device that another process loaded from the second run on; null if none did."""

    @property
    def identical(self) -> bool:
        """Whether every result had the same bits every time, and there was one."""
        return not self.changed and not self.vacuous

    def sentence(self) -> str:
        """The answer, over how much."""
        over = f"over {self.n} runs from one state, {amount(self.n_compared, 'result')} each"
        if self.contended_on is not None:
            over += f", all but the first while another process loaded {self.contended_on}"
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


def check_repeatable(
    step: Step, *parts: HasState, n: int = 3, contended_on: str | None = None
) -> Repeatability:
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
    contended_on : str, optional
        A device that another process loads from the second run on (``cpu``, ``cuda`` …): on some
        machines only that shows a race.

    Returns
    -------
    Repeatability
        Whether all results agree, and which parts differ, and how far, where they do not.

    Raises
    ------
    BadInput
        If ``step`` takes arguments, or runs out of batches; if one of ``parts`` is a class, has no
        state, or a network whose parameters are not made yet or cannot be written.
    NotPossibleHere
        If no process can compute on the device of ``contended_on``.
    """
    check_step(step)
    whole("n", n, least=2)
    for part in parts:
        _check_part(part)
    reached = list(reached_by(step))
    state = StepState(parts, reached)
    runs = _Runs(step, state, tuple(map(str, filter(_has_a_position, reached))))
    differences: dict[str, LargestDifference] = {}
    with runs.watched():
        try:
            first = {name: copy.deepcopy(value) for name, value in state.results(runs.run())}
            if state.is_empty:
                changes_nothing = len(first) == 1
            else:
                changes_nothing = not state.has_changed() and not runs.began_anew
            load = nullcontext() if contended_on is None else contention(contended_on)
            with load:
                for _ in range(n - 1):
                    state.put_back()
                    results = dict(state.results(runs.run()))
                    for name in results | first:
                        a = first.get(name)
                        b = results.get(name)
                        if not same_bits(a, b):
                            differences.setdefault(name, LargestDifference()).include(a, b)
        finally:
            state.put_back()
    changed = tuple(
        ChangedResult(name, largest.n_elements, largest.max_abs)
        for name, largest in differences.items()
    )
    not_put_back = runs.not_put_back if changed else ()
    is_vacuous = changes_nothing and not changed
    return Repeatability(n, len(first), changed, is_vacuous, not_put_back, contended_on)


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


class _Runs:
    """Runs one step again and again; an error says what to do where runs cannot be compared."""

    def __init__(self, step: Step, state: StepState, not_put_back: tuple[str, ...]) -> None:
        self._step = step
        self._state = state
        self._n = 0
        self.not_put_back = not_put_back
        self.began_anew = False  # an optimizer made in the step has stepped

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notice each optimizer that is about to step."""
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


_FARTHEST = 3  # holders between a step and an iterator that is named
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def _global_generators() -> tuple[Any, ...]:
    """What Python's, NumPy's and PyTorch's functions draw from, which is put back."""
    functions = (random.random, np.random.random)
    own = (getattr(function, "__self__", None) for function in functions)
    return (*own, torch.default_generator, *torch.cuda.default_generators)


def _has_a_position(one: Reached) -> bool:
    """Whether something moves on each time it is asked: an iterator, a loader, a generator."""
    if one.depth > _FARTHEST or any(one.value is each for each in _global_generators()):
        return False  # inside of a library's objects, or put back
    if isinstance(one.value, DataLoader):
        return one.value.generator is not None  # else its order is of PyTorch's global generator
    is_iterator = isinstance(one.value, Iterator) and not isinstance(one.value, io.IOBase)
    return is_iterator or isinstance(one.value, _GENERATORS)
