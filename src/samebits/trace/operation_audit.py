"""Audit of a training step: which operations differ in bits when executed again on equal inputs.

What can differ, with in-place operations on copies and the generators put back, are races between
threads, atomic additions, and hardware. Memory that nobody has written is followed besides.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any

import torch

from samebits import known_operations, replaying, substitutes
from samebits.bit_equality import LargestDifference, holds_bits, same_bits
from samebits.call_site import Site
from samebits.errors import whole
from samebits.results import Result
from samebits.trace.kept_inputs import Before, devices_of
from samebits.trace.nondeterministic_operation import NondeterministicOperation
from samebits.trace.observer import Call, Observer, Step, check_step
from samebits.trace.quiet_calls import without_warnings
from samebits.trace.replay_plan import ReplayPlan, inputs_of, plan_of
from samebits.trace.unwritten_memory import UnwrittenMemory
from samebits.words import amount, joined


@dataclass(frozen=True, repr=False)
class Audit(Result):
    """The answer of an audit: operations that flip, and the number that were executed again."""

    ops: tuple[NondeterministicOperation, ...]
    """The operations whose bits flip, most flips first."""
    n_steps: int
    n_replayed: int
    """Operations; views and what has no output are not."""
    n_replays: int
    kinds: dict[str, int]
    """Calls that were replayed, by operation."""
    replays: dict[str, int]
    """Replays that were made, by operation."""
    not_replayed: dict[str, int]
    """Calls that were not replayed, by operation."""
    n_followed: int
    """How often an operation handed out memory that nobody had written."""
    least_replays: dict[str, int]
    """The fewest replays that a line of code had, of what is documented to race and of the rest."""
    threads: int
    """Threads of PyTorch on the CPU."""
    uncompiled: tuple[str, ...] = ()
    """Functions and networks made by ``torch.compile``: only their uncompiled form was audited."""

    @property
    def how_sure(self) -> str:
        """Say in short what could have been missed."""
        if not self.least_replays:
            return "nothing was replayed"
        shares = [f"{_seen_from(least)} ({name})" for name, least in self.least_replays.items()]
        return (
            "with 95 % certainty nothing was missed that gives different bits in more than this "
            f"share of its replays: {', '.join(shares)}"
        )

    def sentence(self) -> str:
        """Say what was found, over how much, and what could have been missed."""
        over = (
            f"over {amount(self.n_steps, 'step')}: {amount(self.n_replayed, 'operation')} of "
            f"{amount(len(self.kinds), 'kind')}, {amount(self.n_replays, 'replay')} at "
            f"{amount(self.threads, 'thread')}"
        )
        if self.n_followed:
            over += f", unwritten memory followed {amount(self.n_followed, 'time')}"
        if self.least_replays:
            missed = " or ".join(
                f"{_seen_from(least)} in {name} (at least {amount(least, 'replay')} each)"
                for name, least in self.least_replays.items()
            )
            over += f"; a chance of different bits above {missed} would have been seen with "
            over += "95 % certainty"
        if self.uncompiled:
            over += f"; {ran_uncompiled(self.uncompiled)}"
        if not self.ops:
            nothing = self.n_replayed == 0
            no_flip = "no operation gave different bits,"
            return f"{'vacuous: nothing was replayed' if nothing else no_flip} {over}"
        flipping = ", ".join(dict.fromkeys(op.op for op in self.ops if op.read_by is None))
        read = ", ".join(dict.fromkeys(op.op for op in self.ops if op.read_by is not None))
        clauses = [f"{flipping}: different bits from equal inputs"] if flipping else []
        clauses += [f"{read}: a result comes from memory that nobody has written"] if read else []
        return f"{'; '.join(clauses)}, {over}"


def _seen_from(n_replays: int) -> str:
    """The chance of different bits above which that many replays miss it in 5 % of all cases.

    If each possible result i has the chance p_i, all of r replays equal the first with a chance of
    sum(p_i ** (r + 1)) <= max(p_i) ** r = (1 - q) ** r, where q is the chance of different bits
    than the commonest. This is below 5 % where q > 1 - 0.05 ** (1 / r).
    """
    return f"{100 * (1 - 0.05 ** (1 / n_replays)):.2g} %"


def ran_uncompiled(names: Sequence[str]) -> str:
    """A clause: what was observed is not the compiled form of these."""
    return (
        f"{joined(names)} of torch.compile ran uncompiled, as PyTorch compiles nothing while each "
        "operation is watched: this says nothing of the compiled form, whose operations and bits "
        "are others; samebits.check_repeatable runs that form"
    )


def audit(
    step: Step,
    *,
    steps: int = replaying.AUDITED_STEPS,
    replays: int = replaying.REPLAYS,
    suspects: int = replaying.SUSPECT_REPLAYS,
    threads: int | None = None,
    model: torch.nn.Module | None = None,
) -> Audit:
    """Replay every operation of real training steps on equal inputs and compare the bits.

    The steps happen as without the audit, so weights are changed afterwards: it works on copies and
    puts generators back after each replay. What ``torch.compile`` makes runs uncompiled, and is
    named in the result.

    Parameters
    ----------
    step : callable
        One training step, without arguments: forward, backward, update.
    steps, replays : int
        How many steps to watch, and how often each operation of them is executed again.
    suspects : int
        How often, if more, those that have a substitute or are documented to race.
    threads : int, optional
        CPU threads of PyTorch meanwhile.
    model : torch.nn.Module, optional
        Modules are named by their path in it; by default in whatever network the step calls.

    Returns
    -------
    Audit
        The operations whose bits changed, and how many were replayed.

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
        replays: int = replaying.REPLAYS,
        suspects: int = replaying.SUSPECT_REPLAYS,
        model: torch.nn.Module | None = None,
    ) -> None:
        super().__init__(model)
        self._replays = whole("replays", replays, least=1)
        self._suspects = max(replays, whole("suspects", suspects, least=0))
        self._spots: dict[Site, _Spot] = {}
        self._kinds: Counter[str] = Counter()  # calls replayed, by operation
        self._not_replayed: Counter[str] = Counter()  # others, by operation and what went wrong
        self._unwritten = UnwrittenMemory(self._not_replayed)
        # The backward passes of several GPUs run at once, and share the processor's generator.
        self._lock = threading.RLock()

    def observe(self, call: Call) -> Any:
        """Run one operation as it is, then again on equal inputs."""
        with self._lock:
            if call.site not in self._spots:
                self._spots[call.site] = _Spot(call.site, plan_of(call.func))
            spot = self._spots[call.site]
            spot.n_calls += 1
            return self._unwritten.run(call, spot.plan, partial(self._run, call, spot))

    def _run(self, call: Call, spot: _Spot) -> Any:
        plan = spot.plan
        before = None
        again = plan.replayable and not (plan.copies and len(devices_of(inputs_of(call))) > 1)
        if again and (plan.written or plan.draws):
            before = Before(call, plan)
            again = before.complete
        returned = call.run()
        expected = plan.outputs(call.args, call.kwargs, returned) if again else []
        if any(map(holds_bits, expected)):
            without_warnings(partial(self._replay, call, spot, before, expected))
        else:
            self._not_replayed[call.site.op] += 1
        return returned

    def _replay(self, call: Call, spot: _Spot, before: Before | None, expected: list[Any]) -> None:
        func, args, kwargs = call.func, call.args, call.kwargs
        try:
            for _ in range(self._suspects if spot.is_suspected(expected) else self._replays):
                if before is not None:
                    args, kwargs = before.again()
                replayed: Any = spot.plan.outputs(args, kwargs, func(*args, **kwargs))
                spot.n_replays += 1
                if len(expected) != len(replayed) or not all(map(same_bits, expected, replayed)):
                    spot.add(expected, replayed)
                replayed = None  # so that the next one takes its memory
            self._kinds[call.site.op] += 1
        except Exception as error:
            # Out of memory, or an operation that cannot be executed twice: the step goes on.
            self._not_replayed[f"{call.site.op}: replay raised {type(error).__name__}"] += 1
        finally:
            if before is not None:
                before.finish()

    def result(self, *, n_steps: int) -> Audit:
        """Sum up what was found so far."""
        spots = [spot for spot in self._spots.values() if spot.n_replays]
        replays: Counter[str] = Counter()
        least: dict[str, int] = {}
        for spot in sorted(spots, key=lambda spot: not spot.suspected):
            replays[spot.site.op] += spot.n_replays
            group = "what is documented to race" if spot.suspected else "all others"
            least[group] = min(spot.n_replays, least.get(group, spot.n_replays))
        flipping = [spot.operation() for spot in spots if spot.flips]
        return Audit(
            ops=tuple(sorted(flipping + self._unwritten.operations(), key=lambda op: -op.flips)),
            n_steps=n_steps,
            n_replayed=self._kinds.total(),
            n_replays=replays.total(),
            kinds=dict(sorted(self._kinds.items())),
            replays=dict(sorted(replays.items())),
            not_replayed=dict(sorted(self._not_replayed.items())),
            n_followed=self._unwritten.n_followed.total(),
            least_replays=least,
            threads=torch.get_num_threads(),
            uncompiled=self.uncompiled,
        )


@dataclass
class _Spot:
    """One operation at one site: how often it was called and what its replays gave."""

    site: Site
    plan: ReplayPlan
    n_calls: int = 0
    n_replays: int = 0
    flips: int = 0
    largest: LargestDifference = field(default_factory=LargestDifference)
    suspected: bool | None = None
    substitute: substitutes.Substitute | None = None
    known: known_operations.KnownOperation | None = None

    def is_suspected(self, outputs: list[Any]) -> bool:
        """Whether it is known to race: it has a substitute, or is documented to on its device."""
        if self.suspected is None:
            tensors = (value for value in outputs if isinstance(value, torch.Tensor))
            device = next((tensor.device.type for tensor in tensors), "cpu")
            self.known = known_operations.for_operation(self.site.op, device)
            self.substitute = substitutes.for_operation(self.site.op, self.site.source)
            # On CUDA even products are listed, as held by a switch; on a CPU the list is short.
            listed = self.known is not None and (self.known.kind == "error" or device == "cpu")
            self.suspected = listed or self.substitute is not None
        return self.suspected

    def add(self, expected: list[Any], replayed: list[Any]) -> None:
        """Count a replay that gave different bits."""
        self.flips += 1
        for a, b in zip_longest(expected, replayed):
            self.largest.include(a, b)

    def operation(self) -> NondeterministicOperation:
        """Give it as the result names it."""
        known = self.known
        return NondeterministicOperation(
            op=self.site.op,
            module=self.site.module,
            source=self.site.source,
            phase=self.site.phase,
            flips=self.flips,
            replays=self.n_replays,
            warned=known is not None and known.alert is not None,
            substitute=self.substitute.name if self.substitute else None,
            max_abs=self.largest.max_abs,
            n_elements=self.largest.n_elements,
            calls=self.n_calls,
            reason=known.reason if known else "",
            remedy=known.remedy if known else "try one thread or a different device",
        )
