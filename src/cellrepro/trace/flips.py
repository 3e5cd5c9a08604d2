"""Audit of a training step: which operations give other bits when executed again on equal inputs.

What can differ, with in-place operations on copies and the generators put back, are races between
threads, atomic additions, and hardware. Memory that nobody has written is followed besides.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import torch

from cellrepro.determinism import known_operations, substitutes
from cellrepro.errors import whole
from cellrepro.store.bits import difference, holds_bits, same_bits
from cellrepro.store.manifest import Place
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.observer import Call, Observer, Step, check_step
from cellrepro.trace.reexecution import (
    Before,
    Buffers,
    Plan,
    devices_of,
    inputs_of,
    plan_of,
    without_warnings,
)
from cellrepro.trace.unwritten import Unwritten

STEPS, REPLAYS, SUSPECTS = 3, 8, 200
"""Steps that are watched, replays of each operation in each, and of one that is documented to
race, if nobody says otherwise. Two executions miss every second race that flips in half of them."""


@dataclass(frozen=True)
class Group:
    """Operations that were replayed equally often, and what could have been missed of them.

    If each possible result i has the chance p_i, all of r replays equal the first execution with
    a chance of sum(p_i ** (r + 1)) <= max(p_i) ** r = (1 - q) ** r, where q is the chance of other
    bits than the commonest ones. This is below 5 % where q > 1 - 0.05 ** (1 / r).
    """

    name: str  # documented to race (or with a substitute), or all others
    least_replays: int  # of the place that was replayed least
    could_miss: float  # a larger chance of other bits would have been seen, with 95 % certainty

    def __str__(self) -> str:
        """As a part of a sentence."""
        share = f"{100 * self.could_miss:.2g} %"
        return f"{share} in {self.name} (at least {self.least_replays} replays each)"


@dataclass(frozen=True)
class Audit:
    """What an audit found, and over how much."""

    ops: tuple[NondeterministicOperation, ...]  # whose bits flip, most flips first
    n_steps: int
    n_replayed: int  # operations; views and what has no output are not
    n_replays: int
    kinds: dict[str, int]  # by operation: calls replayed
    replays: dict[str, int]  # replays
    not_replayed: dict[str, int]  # calls that were not
    n_followed: int  # memories that were handed out unwritten
    groups: tuple[Group, ...]
    threads: int  # of PyTorch on the CPU

    def sentence(self) -> str:
        """What was found, over how much, and what could have been missed."""
        over = (
            f"over {self.n_steps} steps: {self.n_replayed} operations of {len(self.kinds)} kinds, "
            f"{self.n_replays} replays at {self.threads} threads"
        )
        if self.n_followed:
            over += f", unwritten memory followed {self.n_followed} times"
        if self.groups:
            over += (
                f"; a chance of other bits above {' or '.join(map(str, self.groups))} would have "
                "been seen with 95 % certainty"
            )
        if not self.ops:
            nothing = self.n_replayed == 0
            return f"{'vacuous: nothing was replayed' if nothing else 'no operation flips,'} {over}"
        flipping = ", ".join(dict.fromkeys(op.op for op in self.ops if op.read_by is None))
        read = ", ".join(dict.fromkeys(op.op for op in self.ops if op.read_by is not None))
        found = [f"{flipping}: other bits from equal inputs"] if flipping else []
        found += [f"{read}: a result comes from memory that nobody has written"] if read else []
        return f"{'; '.join(found)}, {over}"


def audit(
    step: Step,
    *,
    steps: int = STEPS,
    replays: int = REPLAYS,
    suspects: int = SUSPECTS,
    threads: int | None = None,
    model: torch.nn.Module | None = None,
) -> Audit:
    """Replay every operation of real training steps on equal inputs and compare the bits.

    The steps happen as without the audit: it works on copies and puts generators back.

    Parameters
    ----------
    step : callable
        One training step, without arguments: forward, backward, update.
    steps, replays : int
        How many steps to watch, and how often each operation of them is executed again; ``groups``
        of the answer says which chance of other bits could be missed.
    suspects : int
        How often, if more, those that have a substitute or are documented to race.
    threads : int, optional
        CPU threads of PyTorch meanwhile.
    model : torch.nn.Module, optional
        Modules are named by their path in it; by default in whatever network the step calls.

    Examples
    --------
    >>> layer = torch.nn.Linear(3, 1)
    >>> found = audit(lambda: layer(torch.ones(2, 3)).sum().backward())
    >>> found.ops, found.n_replays > 0
    ((), True)
    >>> (culprit,) = audit(lambda: layer(torch.ones(2, 3)) + torch.empty(2, 1), steps=1).ops
    >>> culprit.op, culprit.phase, culprit.read_by.split(",")[0]
    ('aten.empty.memory_format', 'forward', 'aten.add.Tensor')
    """
    check_step(step)
    whole("steps", steps, least=1)
    if threads is not None:
        whole("threads", threads, least=1)
    auditor = Auditor(replays=replays, suspects=suspects, model=model)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads or before)
        with auditor:
            for _ in range(steps):
                step()
        return auditor.result(n_steps=steps)
    finally:
        torch.set_num_threads(before)


class Auditor(Observer):
    """Replays what it sees; `audit` is the short way to use it, with the same parameters."""

    def __init__(
        self,
        *,
        replays: int = REPLAYS,
        suspects: int = SUSPECTS,
        model: torch.nn.Module | None = None,
    ) -> None:
        super().__init__(model)
        self._replays = whole("replays", replays, least=1)
        self._suspects = max(replays, whole("suspects", suspects, least=0))
        self._spots: dict[int, _Spot] = {}
        self._buffers = Buffers()
        self._unwritten = Unwritten(self._buffers)
        self._problems: Counter[str] = Counter()  # calls, by what went wrong
        # The backward passes of several GPUs run at once, and share the processor's generator.
        self._lock = threading.RLock()

    def __exit__(self, *exception: Any) -> None:
        """Stop watching and give the memory back."""
        super().__exit__(*exception)
        self._buffers.clear()
        self._unwritten.close()

    def observe(self, call: Call) -> Any:
        """Run one operation as it is, then again on equal inputs."""
        spot = self._spots.get(id(call.place))
        if spot is None:  # the spot holds its place, so that no id is given twice
            spot = self._spots[id(call.place)] = _Spot(call.place, plan_of(call.func))
        with self._lock:
            spot.n_calls += 1
            begun = self._unwritten.begin(call, spot.plan)
            returned = self._run(call, spot)
            try:
                self._unwritten.end(call, spot.plan, begun, returned)
            except Exception as error:  # a kind of tensor unknown here: the step goes on
                why = f"{call.place.op}: its memory was not followed, {type(error).__name__}"
                self._problems[why] += 1
            return returned

    def _run(self, call: Call, spot: _Spot) -> Any:
        plan = spot.plan
        if not plan.replayable or (plan.copies and len(devices_of(inputs_of(call))) > 1):
            return call.run()
        before = Before(call, plan, self._buffers) if plan.written or plan.draws else None
        if before is not None and not before.complete:
            return call.run()
        returned = call.run()
        expected = plan.outputs(call.args, call.kwargs, returned)
        if any(map(holds_bits, expected)):
            without_warnings(partial(self._replay, call, spot, before, expected))
        return returned

    def _replay(self, call: Call, spot: _Spot, before: Before | None, expected: list[Any]) -> None:
        func, args, kwargs = call.func, call.args, call.kwargs
        try:
            n_replays = self._suspects if spot.is_suspected(expected) else self._replays
            for index in range(n_replays):
                if before is not None:
                    args, kwargs = before.again(last=index == n_replays - 1)
                replayed: Any = spot.plan.outputs(args, kwargs, func(*args, **kwargs))
                spot.n_replays += 1
                same = len(expected) == len(replayed) and all(map(same_bits, expected, replayed))
                if not same:
                    spot.add(expected, replayed)
                replayed = None  # so that the next one takes its memory
            spot.n_replayed += 1
        except Exception as error:
            # Out of memory, or an operation that cannot be executed twice: the step goes on.
            spot.n_failed += 1
            self._problems[f"{call.place.op}: replay raised {type(error).__name__}"] += 1
        finally:
            if before is not None:
                before.finish()

    def result(self, *, n_steps: int) -> Audit:
        """What was found so far."""
        kinds: Counter[str] = Counter()
        replays: Counter[str] = Counter()
        not_replayed = self._problems.copy()
        spots = list(self._spots.values())
        for spot in spots:
            op = spot.place.op
            kinds[op] += spot.n_replayed
            replays[op] += spot.n_replays
            not_replayed[op] += spot.n_calls - spot.n_replayed - spot.n_failed
        found = [spot.found() for spot in spots if spot.flips] + self._unwritten.found()
        return Audit(
            ops=tuple(sorted(found, key=lambda op: -op.flips)),
            n_steps=n_steps,
            n_replayed=kinds.total(),
            n_replays=replays.total(),
            kinds=dict(sorted((+kinds).items())),
            replays=dict(sorted((+replays).items())),
            not_replayed=dict(sorted((+not_replayed).items())),
            n_followed=self._unwritten.n_followed.total(),
            groups=tuple(_groups(spots)),
            threads=torch.get_num_threads(),
        )


class _Spot:
    """One operation at one place: how often it came and what its replays gave."""

    def __init__(self, place: Place, plan: Plan) -> None:
        self.place, self.plan = place, plan
        self.n_calls = self.n_replayed = self.n_replays = self.n_failed = 0
        self.flips = self.n_elements = 0
        self.max_abs = 0.0
        self.suspected: bool | None = None
        self.substitute = substitutes.for_operation(place.op, place.source)
        self.known: known_operations.Entry | None = None

    def is_suspected(self, outputs: list[Any]) -> bool:
        """Whether it is known to race: it has a substitute, or is documented to on its device."""
        if self.suspected is None:
            tensors = (value for value in outputs if isinstance(value, torch.Tensor))
            device = next((tensor.device.type for tensor in tensors), "cpu")
            self.known = known_operations.for_operation(self.place.op, device)
            # On CUDA even products are listed, as held by a switch; on a CPU the list is short.
            listed = self.known is not None and (self.known.kind == "error" or device == "cpu")
            self.suspected = listed or self.substitute is not None
        return self.suspected

    def add(self, expected: list[Any], replayed: list[Any]) -> None:
        """A replay that gave other bits."""
        self.flips += 1
        for a, b in zip_longest(expected, replayed):
            n_elements, largest = difference(a, b)
            self.n_elements = max(self.n_elements, n_elements)
            self.max_abs = max(self.max_abs, largest)

    def found(self) -> NondeterministicOperation:
        """What is known of it."""
        known = self.known
        return NondeterministicOperation(
            **vars(self.place),
            flips=self.flips,
            replays=self.n_replays,
            warned=known is not None and known.alert is not None,
            substitute=None if self.substitute is None else self.substitute.name,
            max_abs=self.max_abs,
            n_elements=self.n_elements,
            calls=self.n_calls,
            reason=known.reason if known else "",
            remedy=known.remedy if known else "try one thread or another device",
        )


def _groups(spots: list[_Spot]) -> Iterator[Group]:
    """What could have been missed of those documented to race, and of the others."""
    for name, suspected in (("what is documented to race", True), ("all others", False)):
        replays = [s.n_replays for s in spots if s.n_replays and bool(s.suspected) is suspected]
        if replays:
            yield Group(name, min(replays), 1 - 0.05 ** (1 / min(replays)))
