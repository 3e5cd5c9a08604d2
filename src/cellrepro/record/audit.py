"""Audit of a training step: which operations give other bits when asked the same thing twice.

Every dispatched operation is run again on equal inputs and its outputs are compared bit by bit.
In-place operations are run again on copies of what they overwrote; random ones with the generator
put back. What is left to move are races between threads, atomic additions, and hardware.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import torch

from cellrepro.control import knowledge, substitutes
from cellrepro.control.alerts import alert_in
from cellrepro.errors import BadInput
from cellrepro.record.bits import Bits, difference, same_bits
from cellrepro.record.operations import Call, Observer, Place, Step, saying_at_once
from cellrepro.record.replay import Before, Buffers, Plan, only_warns, quiet, wait


@dataclass(frozen=True)
class AuditedOp:
    """One operation at one place whose bits flip.

    Attributes
    ----------
    op : str
        As dispatched, with its overload.
    module, source, phase
        As in `Place`.
    calls : int
        How often it ran in the audited steps.
    flips : int
        Replays that gave other bits than the first run.
    replays : int
        Replays made.
    outputs : tuple of int
        Which outputs flipped; what it wrote in place counts as output 0, 1, … too.
    n_elements : int
        Most elements that differed in one replay.
    max_abs : float
        Largest difference between two runs, in the units of the output.
    warned : bool
        Whether PyTorch warns of it when asked to (deterministic algorithms, warn only).
    substitute : str or None
        Name of the substitute for it, see `cellrepro.control.substitutes`.
    reason, remedy : str
        From what PyTorch and cuDNN document, and what is known beyond it.
    """

    op: str
    module: str | None
    source: str | None
    phase: str
    calls: int
    flips: int
    replays: int
    outputs: tuple[int, ...]
    n_elements: int
    max_abs: float
    warned: bool
    substitute: str | None
    reason: str
    remedy: str

    def sentence(self) -> str:
        """What flips, where, and what helps."""
        warned = "PyTorch warns of it" if self.warned else "PyTorch does not warn of it"
        where = f"{self.phase} of {self.module or 'no module'}"
        line = f" ({self.source})" if self.source else ""
        helps = f"substitute: {self.substitute}" if self.substitute else self.remedy
        return (
            f"{self.op}, {where}{line}: {self.flips} of {self.replays} replays gave other bits, "
            f"largest difference {self.max_abs:.2g}; {warned}; {helps}"
        )


@dataclass(frozen=True)
class Audit:
    """What an audit found, and over how much.

    Attributes
    ----------
    ops : tuple of AuditedOp
        Those whose bits flip, most flips first; empty where every replay agreed.
    n_steps : int
    n_calls : int
        Operations dispatched.
    n_replayed : int
        Of these, the ones replayed; views and operations without output are not.
    n_replays : int
        Replays made, all together.
    kinds : dict of str to int
        Calls of each operation replayed.
    not_replayed : dict of str to int
        Calls of each operation that was not, uninitialised memory for example.
    threads : int
        CPU threads PyTorch used.
    seconds : float
    """

    ops: tuple[AuditedOp, ...]
    n_steps: int
    n_calls: int
    n_replayed: int
    n_replays: int
    kinds: dict[str, int]
    not_replayed: dict[str, int]
    threads: int
    seconds: float

    def sentence(self) -> str:
        """What was found, over how much."""
        over = (
            f"over {self.n_steps} steps: {self.n_replayed} operations of {len(self.kinds)} kinds, "
            f"{self.n_replays} replays at {self.threads} threads"
        )
        if self.n_replayed == 0 and not self.ops:
            return f"vacuous: nothing was replayed {over}"
        if not self.ops:
            return f"no operation flips, {over}"
        names = ", ".join(dict.fromkeys(found.op for found in self.ops))
        return f"{names}: other bits from equal inputs, {over}"


def audit(
    step: Step,
    *,
    steps: int = 1,
    replays: int = 2,
    suspects: int = 0,
    threads: int | None = None,
    model: torch.nn.Module | None = None,
) -> Audit:
    """Replay every operation of real training steps on equal inputs and compare the bits.

    The steps happen as without the audit: it works on copies and puts generators back.

    Parameters
    ----------
    step : callable
        One training step, without arguments: forward, backward, update. Called ``steps`` times.
    steps : int
        How many steps to watch.
    replays : int
        How often each operation is run again. A flip that comes once in a hundred calls needs
        many replays or many steps to be seen; no flip is no proof.
    suspects : int
        How often, if more, those operations that have a substitute or are documented to race on
        their device. A race shows when threads collide, on a busy machine in few replays.
    threads : int, optional
        CPU threads of PyTorch while auditing; put back afterwards.
    model : torch.nn.Module, optional
        Modules are named by their path in it; by default in whatever network the step calls.

    Returns
    -------
    Audit

    Raises
    ------
    BadInput
        If ``steps``, ``replays`` or ``threads`` is not a whole number above 0, ``suspects`` is
        none from 0, or ``step`` cannot be called.

    Examples
    --------
    >>> layer = torch.nn.Linear(3, 1)
    >>> found = audit(lambda: layer(torch.ones(2, 3)).sum().backward())
    >>> found.ops, found.n_replays > 0
    ((), True)
    """
    if not callable(step):
        raise BadInput(f"step is {step!r}; expected a function without arguments: one step")
    _checked("steps", steps)
    auditor = Auditor(replays=replays, suspects=suspects, model=model)
    if threads is not None:
        _checked("threads", threads, most=_MOST_THREADS)
    started = time.perf_counter()
    with _threads(threads):
        with auditor:
            for _ in range(steps):
                step()
        return auditor.result(n_steps=steps, seconds=time.perf_counter() - started)


_MOST_THREADS = 1024


def _checked(name: str, number: Any, *, least: int = 1, most: int | None = None) -> int:
    whole = isinstance(number, int) and not isinstance(number, bool) and number >= least
    if not whole or (most is not None and number > most):
        limits = f"{least} or more" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} is {number!r}; expected a whole number, {limits}")
    return number


class Auditor(Observer):
    """Replays what it sees; `audit` is the short way to use it.

    Parameters
    ----------
    replays : int
        How often each operation is run again.
    suspects : int
        How often, if more, the suspected ones; see `audit`.
    model : torch.nn.Module, optional
        See `Observer`.

    Raises
    ------
    BadInput
        If ``replays`` is not a whole number above 0, or ``suspects`` none from 0.
    """

    def __init__(
        self, *, replays: int = 2, suspects: int = 0, model: torch.nn.Module | None = None
    ) -> None:
        super().__init__(model)
        self._replays = _checked("replays", replays)
        self._suspects = max(replays, _checked("suspects", suspects, least=0))
        self._spots: dict[int, _Spot] = {}
        self._buffers = Buffers()
        # The backward passes of several GPUs run at once, and share the processor's generator.
        self._lock = threading.RLock()

    def __exit__(self, *exception: Any) -> None:
        """Stop watching and give the memory back."""
        super().__exit__(*exception)
        self._buffers = Buffers()

    def observe(self, call: Call) -> Any:
        """Run one operation as it is, then again on equal inputs."""
        spot = self._spots.get(id(call.place))
        if spot is None:  # the spot holds its place, so that no id is given twice
            spot = self._spots[id(call.place)] = _Spot(call.place, Plan.of(call.func))
        plan = spot.plan
        with self._lock:
            spot.n_calls += 1
            if not plan.replayable:
                return call.run()
            if plan.non_blocking >= 0:
                wait(call, plan)
            before = None if plan.leaves_no_trace else Before(call, plan, self._buffers)
            if before is not None and not before.complete:
                return call.run()
            returned = call.run()
            expected = [Bits(value) for value in plan.outputs(call.args, call.kwargs, returned)]
            for bits in expected:
                if bits.comparable:
                    replay = partial(self._replay, call, spot, before, expected)
                    if plan.guarded or only_warns():
                        with quiet():
                            saying_at_once(replay)
                    else:
                        replay()
                    break
            return returned

    def result(self, *, n_steps: int, seconds: float) -> Audit:
        """What was found so far."""
        spots = list(self._spots.values())
        kinds: Counter[str] = Counter()
        not_replayed: Counter[str] = Counter()
        for spot in spots:
            kinds[spot.place.op] += spot.n_replayed
            not_replayed[spot.place.op] += spot.n_calls - spot.n_replayed - spot.n_failed
            not_replayed[f"{spot.place.op}: {spot.failure}"] += spot.n_failed
        found = sorted((spot for spot in spots if spot.flips), key=lambda spot: -spot.flips)
        return Audit(
            ops=tuple(_audited(spot) for spot in found),
            n_steps=n_steps,
            n_calls=sum(spot.n_calls for spot in spots),
            n_replayed=kinds.total(),
            n_replays=sum(spot.n_replays for spot in spots),
            kinds={op: n for op, n in sorted(kinds.items()) if n},
            not_replayed={op: n for op, n in sorted(not_replayed.items()) if n},
            threads=torch.get_num_threads(),
            seconds=seconds,
        )

    def _replay(self, call: Call, spot: _Spot, before: Before | None, expected: list[Bits]) -> None:
        func, args, kwargs, outputs = call.func, call.args, call.kwargs, spot.plan.outputs
        try:
            if spot.suspected is None:
                spot.suspected = _suspected(call.place, expected)
            n_replays = self._suspects if spot.suspected else self._replays
            for index in range(n_replays):
                if before is not None:
                    args, kwargs = before.again(last=index == n_replays - 1)
                replayed: Any = outputs(args, kwargs, func(*args, **kwargs))
                if spot.plan.non_blocking >= 0:
                    wait(call, spot.plan)
                spot.n_replays += 1
                if not _all_same(expected, replayed):
                    spot.add(expected, replayed)
                    if spot.warned is None:
                        if before is not None:
                            before.generators_back()
                        spot.warned = _warns(func, args, kwargs)  # on the copies
                replayed = None  # so that the next one takes its memory
            spot.n_replayed += 1
        except Exception as error:
            # Out of memory, or an operation that cannot be asked twice: the step goes on.
            spot.n_failed += 1
            spot.failure = f"replay raised {type(error).__name__}"
        finally:
            if before is not None:
                before.finish()


class _Spot:
    """One operation at one place: how often it came and what its replays gave."""

    def __init__(self, place: Place, plan: Plan) -> None:
        self.place, self.plan = place, plan
        self.n_calls = self.n_replayed = self.n_replays = self.n_failed = 0
        self.failure = ""
        self.flips = 0
        self.outputs: set[int] = set()
        self.n_elements = 0
        self.max_abs = 0.0
        self.warned: bool | None = None
        self.suspected: bool | None = None
        self.device = "cpu"

    def add(self, expected: list[Bits], replayed: list[Any]) -> None:
        """A replay that gave other bits."""
        self.flips += 1
        for index, (bits, b) in enumerate(zip_longest(expected, replayed, fillvalue=None)):
            a = None if bits is None else bits.value
            if same_bits(a, b):
                continue
            self.outputs.add(index)
            n, largest = difference(a, b)
            self.n_elements = max(self.n_elements, n)
            self.max_abs = max(self.max_abs, largest)
            if isinstance(a, torch.Tensor):
                self.device = a.device.type


def _suspected(place: Place, outputs: list[Bits]) -> bool:
    """Whether an operation is known to race: it has a substitute, or is documented to."""
    if substitutes.for_operation(place.op, place.source) is not None:
        return True
    tensors = (bits.value for bits in outputs if isinstance(bits.value, torch.Tensor))
    device = next((tensor.device.type for tensor in tensors), "cpu")
    known = knowledge.for_operation(place.op, device) if device in knowledge.DEVICES else None
    # On CUDA even products are listed, as held by a switch; on a CPU the list is short.
    return known is not None and (known.kind == "error" or device == "cpu")


def _all_same(expected: list[Bits], replayed: list[Any]) -> bool:
    return len(expected) == len(replayed) and all(map(Bits.same, expected, replayed))


def _audited(spot: _Spot) -> AuditedOp:
    place = spot.place
    known = None
    if spot.device in knowledge.DEVICES:
        known = knowledge.for_operation(place.op, spot.device)
    substitute = substitutes.for_operation(place.op, place.source)
    return AuditedOp(
        op=place.op,
        module=place.module,
        source=place.source,
        phase=place.phase,
        calls=spot.n_calls,
        flips=spot.flips,
        replays=spot.n_replays,
        outputs=tuple(sorted(spot.outputs)),
        n_elements=spot.n_elements,
        max_abs=spot.max_abs,
        warned=bool(spot.warned),
        substitute=None if substitute is None else substitute.name,
        reason="" if known is None else known.reason,
        remedy="no documented remedy; try one thread or another device"
        if known is None
        else known.remedy,
    )


def _warns(func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether PyTorch, asked for determinism, warns of this operation."""
    mode = torch.get_deterministic_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.set_deterministic_debug_mode("warn")
            saying_at_once(partial(func, *args, **kwargs))
        finally:
            torch.set_deterministic_debug_mode(mode)
    return any(alert_in(str(warning.message)) for warning in caught)


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if number is not None:
            torch.set_num_threads(before)
