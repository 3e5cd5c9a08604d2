"""Two lists of operations of one training step: which correspond, and which parts first.

The lists may come of two devices, two versions of PyTorch, or of one side that computes something
by other operations. An operation whose inputs have the same bits on both sides and whose outputs
have not is where the two runs part; what differs after it is its consequence.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput

HANDFUL = 5
"""Most operations that `DivergingOperation.through` names."""

_N_NAMED = 3  # operations that a sentence names before it says "…"


class Operation(Protocol):
    """What is read here of one dispatched operation of one training step."""

    @property
    def step(self) -> int:
        """Training step, from 0."""

    @property
    def index(self) -> int:
        """Order within the step, from 0."""

    @property
    def op(self) -> str:
        """Full name, such as ``aten.index_put.default``."""

    @property
    def module(self) -> str | None:
        """Where in the network, such as ``encoder.blocks.1.attn``."""

    @property
    def source(self) -> str | None:
        """The line that called it: ``FILE:LINE in FUNCTION``."""

    @property
    def phase(self) -> str:
        """``forward``, ``backward`` or ``update``."""

    @property
    def inputs(self) -> str:
        """Digest of all inputs; empty where none was taken."""

    @property
    def outputs(self) -> str:
        """Digest of all outputs; empty for views and where there is no output."""

    @property
    def shapes(self) -> str:
        """Shapes in and out: ``2x3, 4 -> 2x3``."""

    @property
    def dtypes(self) -> str:
        """Dtypes in and out: ``float32, float32 -> float32``."""

    @property
    def norm(self) -> float | None:
        """L2 norm of the outputs."""

    @property
    def draws(self) -> bool:
        """Whether it may draw random numbers."""

    @property
    def ulp(self) -> float | None:
        """Error against a float64 replay of its own inputs, in units of the last place."""

    @property
    def limit(self) -> float | None:
        """What its class of operation may err, in the unit of ``ulp``."""

    @property
    def problem(self) -> str | None:
        """Why its float64 replay failed, where it did."""


# -- which operations correspond -----------------------------------------------------------


@dataclass(frozen=True)
class Alignment:
    """Which operations of two lists correspond.

    Attributes
    ----------
    pairs : tuple of (Operation, Operation)
        One of A and its counterpart of B, in A's order of execution. No operation is in two pairs.
    only_a, only_b : tuple of Operation
        Those without a counterpart, each side in its own order of execution, views included.
    n_moved : int
        Fewest pairs to leave out so that the others ran in the same order on both sides.
    """

    pairs: tuple[tuple[Operation, Operation], ...]
    only_a: tuple[Operation, ...]
    only_b: tuple[Operation, ...]
    n_moved: int = 0

    @property
    def n_comparable(self) -> int:
        """Pairs whose outputs have digests of one algorithm; without any, nothing can part."""
        return sum(_compared(a.outputs, b.outputs) != "unknown" for a, b in self.pairs)

    def sentence(self) -> str:
        """How many correspond, and what only one side ran."""
        if not (self.pairs or self.only_a or self.only_b):
            return "neither side ran an operation"
        only = [("A", self.only_a), ("B", self.only_b)]
        extra = [f"{side} ran {_counted(rows)}" for side, rows in only if rows]
        text = f"{'' if extra else 'all '}{_amount(len(self.pairs))} correspond"
        if len(self.pairs) == 1:
            text = "1 operation corresponds"
        if self.n_moved:
            text += f", {self.n_moved} of them in another order"
        if self.pairs and not self.n_comparable:
            text += ", none with digests that can be compared"
        return "; ".join([text, *(["only " + ", only ".join(extra)] if extra else [])])


def align(a: Sequence[Operation], b: Sequence[Operation]) -> Alignment:
    """Find the operations of two lists that correspond.

    Operations correspond only within one phase and module, and there in their order; modules may
    follow each other in another order. Taken first are as many as possible of equal name, calling
    function and shapes; of several ways to take as many, one that pairs equal digests is preferred,
    then one that pairs equal source lines. What lies between these is paired by base name, which
    ``add.Tensor``, ``add.Scalar`` and ``add_.Tensor`` share: first where function and shapes are
    equal, then where one of them is, then wherever it stands.

    Parameters
    ----------
    a, b : sequence of Operation
        One step each, in any order; ``index`` tells the order of execution. The time for one
        module's n and m operations grows as n m / 64, and they take n m / 8 bytes.

    Returns
    -------
    Alignment

    Raises
    ------
    BadInput
        If a list holds operations of several steps.
    """
    in_order = _in_order(a, "a"), _in_order(b, "b")
    buckets_a, buckets_b = (_buckets(rows) for rows in in_order)
    paired = sorted(
        (buckets_a[bucket][i], buckets_b[bucket][j])
        for bucket in buckets_a.keys() & buckets_b.keys()
        for i, j in _correspond(
            [in_order[0][at] for at in buckets_a[bucket]],
            [in_order[1][at] for at in buckets_b[bucket]],
        )
    )
    used_a, used_b = {i for i, _ in paired}, {j for _, j in paired}
    return Alignment(
        pairs=tuple((in_order[0][i], in_order[1][j]) for i, j in paired),
        only_a=tuple(row for i, row in enumerate(in_order[0]) if i not in used_a),
        only_b=tuple(row for j, row in enumerate(in_order[1]) if j not in used_b),
        n_moved=len(paired) - _longest_rise([j for _, j in paired]),
    )


def _in_order(rows: Sequence[Operation], name: str) -> list[Operation]:
    steps = sorted({row.step for row in rows})
    if len(steps) > 1:
        raise BadInput(
            f"{name} holds operations of {len(steps)} steps ({steps[0]} to {steps[-1]}); "
            "give the operations of one step"
        )
    return sorted(rows, key=lambda row: row.index)


def _buckets(rows: Sequence[Operation]) -> dict[tuple[str, str | None], list[int]]:
    """Positions by phase and module."""
    buckets = defaultdict(list)
    for position, row in enumerate(rows):
        buckets[row.phase, row.module].append(position)
    return dict(buckets)


def _longest_rise(numbers: Sequence[int]) -> int:
    """Length of the longest increasing subsequence of distinct numbers."""
    ends: list[int] = []  # the smallest number on which a rise of each length can end
    for number in numbers:
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
    return len(ends)


# -- within one phase and module -----------------------------------------------------------

_Key = Callable[[Operation], Hashable]
_Positions = list[tuple[int, int]]


def _correspond(a: Sequence[Operation], b: Sequence[Operation]) -> _Positions:
    """Rising pairs of positions of the operations that correspond."""
    exact = _filled(a, b, [], _exact)
    if len(exact) < max(len(a), len(b)):
        for finer in _FINER:
            # Anchors at equal lines mislead where the lines have shifted, and so do the equal
            # digests of all zeros. Both then cost pairs, which is how it is noticed.
            chosen: _Positions = []
            for key in (*finer, _exact):
                chosen = _filled(a, b, chosen, key)
            if len(chosen) == len(exact):
                exact = chosen
                break
    pairs = exact
    for looser in _LOOSE:
        pairs = _filled(a, b, pairs, looser)
    return pairs


def _filled(
    a: Sequence[Operation], b: Sequence[Operation], pairs: _Positions, key: _Key
) -> _Positions:
    """The pairs, and between each two of them the most that agree in a key."""
    filled = []
    start_a = start_b = 0
    for stop_a, stop_b in [*pairs, (len(a), len(b))]:
        if start_a < stop_a and start_b < stop_b:
            keys_a = [key(row) for row in a[start_a:stop_a]]
            keys_b = [key(row) for row in b[start_b:stop_b]]
            filled += [(start_a + i, start_b + j) for i, j in _longest_common(keys_a, keys_b)]
        if stop_a < len(a) and stop_b < len(b):
            filled.append((stop_a, stop_b))
        start_a, start_b = stop_a + 1, stop_b + 1
    return filled


def _longest_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Rising pairs of positions of a longest common subsequence.

    Hyyrö's bit-vector form of the table of lengths ("Bit-parallel LCS-length computation
    revisited", 2004): a row is one integer, in which bit i is 0 where the length grows at i.
    Unlike `difflib` it finds the longest, and no repetition slows it down.
    """
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    tail = next((i for i in range(shorter - head) if a[-1 - i] != b[-1 - i]), shorter - head)
    n_a, n_b = len(a) - head - tail, len(b) - head - tail

    where: dict[Hashable, int] = defaultdict(int)
    for i in range(n_a):
        where[a[head + i]] |= 1 << i
    full = (1 << n_a) - 1
    rows = [full]
    for j in range(n_b):
        row = rows[-1]
        grown = row & where.get(b[head + j], 0)
        rows.append(((row + grown) | (row - grown)) & full)

    middle = []
    i, j = n_a, n_b
    while i and j:
        if rows[j] >> (i - 1) & 1:
            i -= 1
        else:
            j -= 1
            if rows[j] >> (i - 1) & 1:
                i -= 1
                middle.append((head + i, head + j))
    yield from ((i, i) for i in range(head))
    yield from reversed(middle)
    yield from ((len(a) - i, len(b) - i) for i in range(tail, 0, -1))


_SOURCE = re.compile(r"(?P<file>.*):(?P<line>\d+)(?P<function> in .*)?")


@cache
def _place(source: str | None) -> tuple[str | None, str | None]:
    """File and function, which outlast a shift of lines, and the line."""
    found = _SOURCE.fullmatch(source or "")
    if found is None:
        return source, None
    return f"{found['file']}{found['function'] or ''}", found["line"]


def _exact(row: Operation) -> Hashable:
    return row.op, _place(row.source)[0], row.shapes


def _located(row: Operation) -> Hashable:
    return row.op, row.source, row.shapes


def _digested(row: Operation) -> Hashable:
    return _exact(row), row.inputs, row.outputs


def _digested_located(row: Operation) -> Hashable:
    return _digested(row), row.source


_FINER: tuple[tuple[_Key, ...], ...] = (
    (_digested_located, _digested, _located),
    (_located,),
)
_LOOSE: tuple[_Key, ...] = (
    lambda row: (base_name(row.op), _place(row.source)[0], row.shapes),
    lambda row: (base_name(row.op), row.shapes),
    lambda row: (base_name(row.op), _place(row.source)[0]),
    lambda row: base_name(row.op),
)


# -- where two runs part -------------------------------------------------------------------


@dataclass(frozen=True)
class DivergingOperation:
    """Where two runs of a step part.

    Attributes
    ----------
    a, b : Operation
        The two that correspond.
    inputs : str
        ``agree``, also where no tensor goes in; ``differ``; or ``unknown``, where a digest is
        missing or the two are of two algorithms.
    kind : str
        ``first``: the first whose inputs agree and whose outputs differ, so it is the cause.
        ``inherited``: there is none such, and this is the first whose outputs differ.
    n_before : int
        Pairs before it whose outputs agree.
    n_after : int
        Pairs after it whose outputs differ.
    n_differ_before : int
        Pairs before it whose outputs differ, none with inputs known to agree.
    through_a, through_b : tuple of Operation
        For ``inherited``: the suspects, operations before it that only one side ran, nearest
        first, `HANDFUL` together. Views are among them only where nothing else is.
    """

    a: Operation
    b: Operation
    inputs: str
    kind: str
    n_before: int
    n_after: int
    n_differ_before: int = 0
    through_a: tuple[Operation, ...] = ()
    through_b: tuple[Operation, ...] = ()

    @property
    def through(self) -> tuple[Operation, ...]:
        """The suspects of both sides, nearest first."""
        near = [(self.a.index - row.index, row) for row in self.through_a]
        near += [(self.b.index - row.index, row) for row in self.through_b]
        return tuple(row for _, row in sorted(near, key=lambda each: each[0]))

    def sentence(self) -> str:
        """Which operation, how it is known, and how far the difference spread."""
        parts = [f"{self._who()} {self._what()}"]
        if self.a.draws or self.b.draws:
            parts.append("it may draw random numbers")
        parts.append(
            f"outputs agree in {_amount(self.n_before)} before it and differ in {self.n_after} "
            "after it"
        )
        if self.n_differ_before:
            parts.append(
                f"{self.n_differ_before} before it differ too, by what went into them as far as "
                "is known"
            )
        if self.kind == "inherited":
            parts.append(self._suspicion())
        return "; ".join(parts)

    def _who(self) -> str:
        details = ", ".join([self.a.phase, *([self.a.source] if self.a.source else [])])
        other = "" if self.a.op == self.b.op else f", B: {self.b.op}"
        return f"{_named(self.a)} ({details}{other})"

    def _what(self) -> str:
        if self.kind == "first":
            return "is the first operation whose inputs agree and whose outputs differ"
        known = {"differ": "its inputs differ already", "unknown": "its inputs cannot be compared"}
        return f"is the first operation whose outputs differ, but {known[self.inputs]}"

    def _suspicion(self) -> str:
        sides = [("A", self.through_a), ("B", self.through_b)]
        if not self.through:
            return (
                "both sides ran the same operations before it, so the difference came in with "
                "what the step was given, or through an operation without comparable digests"
            )
        ran = [f"only {side} ran {_listed(rows)}" for side, rows in sides if rows]
        return f"before it {' and '.join(ran)}"


def first_divergence(
    a: Sequence[Operation], b: Sequence[Operation], alignment: Alignment | None = None
) -> DivergingOperation | None:
    """Name the first operation whose inputs agree and whose outputs do not.

    Parameters
    ----------
    a, b : sequence of Operation
        One step each.
    alignment : Alignment, optional
        Of these two, if it is already known.

    Returns
    -------
    DivergingOperation or None
        In A's order of execution the first pair with equal inputs and other outputs. Where every
        pair that differs in its outputs differs in its inputs too, or these are not known, it is
        the first that differs. None where no outputs differ, and that includes outputs which
        cannot be compared: see `Alignment.n_comparable` and then `judge_round_off`.

    Raises
    ------
    BadInput
        If a list holds operations of several steps.
    """
    alignment = alignment or align(a, b)
    found = [_compared(x.outputs, y.outputs) for x, y in alignment.pairs]
    differing = [at for at, answer in enumerate(found) if answer == "differ"]
    if not differing:
        return None
    cause = next((at for at in differing if _inputs(*alignment.pairs[at]) == "agree"), None)
    at = differing[0] if cause is None else cause
    x, y = alignment.pairs[at]
    through_a, through_b = _suspects(x, y, alignment) if cause is None else ((), ())
    return DivergingOperation(
        a=x,
        b=y,
        inputs=_inputs(x, y),
        kind="inherited" if cause is None else "first",
        n_before=found[:at].count("agree"),
        n_after=found[at + 1 :].count("differ"),
        n_differ_before=found[:at].count("differ"),
        through_a=through_a,
        through_b=through_b,
    )


def _compared(a: str, b: str) -> str:
    """Whether two digests agree, differ, or say nothing about each other."""
    if not a or not b or len(a) != len(b):
        return "unknown"
    return "agree" if a == b else "differ"


def _inputs(a: Operation, b: Operation) -> str:
    if not a.inputs and not b.inputs and _takes_nothing(a) and _takes_nothing(b):
        return "agree"  # as of `randn`: nothing that differs can have come in
    return _compared(a.inputs, b.inputs)


def _takes_nothing(row: Operation) -> bool:
    # By dtypes, not shapes: a tensor without axes may have nothing to show as its shape.
    before, arrow, _ = row.dtypes.partition("->")
    return bool(arrow) and not before.strip()


def _suspects(
    x: Operation, y: Operation, alignment: Alignment
) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """The nearest operations before a pair that only one side ran."""
    near = [(x.index - row.index, "a", row) for row in alignment.only_a if row.index < x.index]
    near += [(y.index - row.index, "b", row) for row in alignment.only_b if row.index < y.index]
    computed = [each for each in near if each[2].outputs]
    nearest = sorted(computed or near, key=lambda each: each[:2])[:HANDFUL]
    through_a = tuple(row for _, side, row in nearest if side == "a")
    return through_a, tuple(row for _, side, row in nearest if side == "b")


# -- whether the difference is round-off ---------------------------------------------------


@dataclass(frozen=True)
class RoundOff:
    """Whether every operation erred no more than its class of operation may.

    Attributes
    ----------
    n_judged, n_unjudged : int
        Operations of both sides with and without a known error and limit. Those without a digest
        of their outputs, as views are, do not count as unjudged.
    failed : tuple of Operation
        Those of the unjudged whose float64 replay was tried and failed.
    faults_a, faults_b : tuple of Operation
        Those that erred more, in the order given.
    worst_a, worst_b : Operation or None
        The largest error relative to its limit; None if nothing was judged on that side.
    verdict : str
        ``round-off``: on both sides something was judged, and nothing erred too much. ``fault``:
        something did. ``unknown``: nothing did, but on one side nothing was judged.
    """

    n_judged: int
    n_unjudged: int
    faults_a: tuple[Operation, ...]
    faults_b: tuple[Operation, ...]
    worst_a: Operation | None
    worst_b: Operation | None
    verdict: str
    failed: tuple[Operation, ...] = ()

    def sentence(self) -> str:
        """The verdict, over how much, and what came closest to its limit."""
        over = f"{_amount(self.n_judged)} judged, {self.n_unjudged} not"
        if self.failed:
            first = self.failed[0]
            over += (
                f", {len(self.failed)} of these because their float64 replay failed: "
                f"{_listed(self.failed)}, for example with {first.problem}"
            )
        if self.verdict == "fault":
            sides = [("A", self.faults_a), ("B", self.faults_b)]
            found = [f"{len(rows)} of {side} ({_listed(rows)})" for side, rows in sides if rows]
            text = f"fault: {' and '.join(found)} erred more than round-off explains"
        elif self.verdict == "round-off":
            text = "round-off: every judged operation of both sides stays within its limit"
        else:
            sides_judged = [("A", self.worst_a), ("B", self.worst_b)]
            missing = " or ".join(side for side, worst in sides_judged if worst is None)
            text = f"unknown: no operation of {missing} was judged"
        worst = max((row for row in (self.worst_a, self.worst_b) if row), key=_strain, default=None)
        if worst is None:
            return f"{text} ({over})"
        closest = f"{_named(worst)} erred most, {worst.ulp:.3g} ulp where {worst.limit:.3g} may be"
        return f"{text} ({over}); {closest}"


def judge_round_off(a: Sequence[Operation], b: Sequence[Operation]) -> RoundOff:
    """Judge each operation by its own error, whatever the other side computed.

    Operations need no counterpart and digests need not be comparable, so this holds between any
    two machines. An error that is not a number is a fault.

    Parameters
    ----------
    a, b : sequence of Operation

    Returns
    -------
    RoundOff
    """
    judged_a, judged_b = ([row for row in rows if _is_judged(row)] for rows in (a, b))
    unjudged = [row for row in (*a, *b) if row.outputs and not _is_judged(row)]
    faults_a, faults_b = (
        tuple(row for row in rows if _strain(row) > 1) for rows in (judged_a, judged_b)
    )
    enough = "round-off" if judged_a and judged_b else "unknown"
    return RoundOff(
        n_judged=len(judged_a) + len(judged_b),
        n_unjudged=len(unjudged),
        faults_a=faults_a,
        faults_b=faults_b,
        worst_a=max(judged_a, key=_strain, default=None),
        worst_b=max(judged_b, key=_strain, default=None),
        verdict="fault" if faults_a or faults_b else enough,
        failed=tuple(row for row in unjudged if row.problem is not None),
    )


def _is_judged(row: Operation) -> bool:
    return row.ulp is not None and row.limit is not None


def _strain(row: Operation) -> float:
    """Error in units of its limit; infinite where none is allowed or it is not a number."""
    assert row.ulp is not None
    assert row.limit is not None
    if math.isnan(row.ulp) or math.isnan(row.limit):
        return math.inf
    if row.ulp <= row.limit:
        return row.ulp / row.limit if 0 < row.limit < math.inf else 0.0
    return row.ulp / row.limit if row.limit else math.inf


def growth(alignment: Alignment) -> list[tuple[int, float]]:
    """How far apart the outputs of each pair are at least, for a picture.

    By the triangle inequality the norm of the difference is no less than the difference of the
    norms, so a small value proves no closeness: outputs of equal norm may differ in every element.

    Parameters
    ----------
    alignment : Alignment

    Returns
    -------
    list of (int, float)
        Index in A and abs(norm of A - norm of B) / larger norm, from 0 to 1, of every pair with
        finite norms whose outputs differ. Where digests are of two algorithms, norms that differ
        count as outputs that do.
    """
    return [
        (a.index, abs(a.norm - b.norm) / (max(a.norm, b.norm) or 1.0))
        for a, b in alignment.pairs
        if a.norm is not None and b.norm is not None
        if math.isfinite(a.norm) and math.isfinite(b.norm)
        if _outputs_differ(a, b)
    ]


def _outputs_differ(a: Operation, b: Operation) -> bool:
    answer = _compared(a.outputs, b.outputs)
    return answer == "differ" or (answer == "unknown" and a.norm != b.norm)


# -- words ---------------------------------------------------------------------------------


def _amount(n: int) -> str:
    return f"{n} operation" if n == 1 else f"{n} operations"


def _named(row: Operation) -> str:
    return f"{row.op} in {row.module}" if row.module else f"{row.op} outside any module"


def _listed(rows: Sequence[Operation]) -> str:
    """The first of each kind of operation, a few of them."""
    kinds: dict[str, Operation] = {}
    for row in rows:
        kinds.setdefault(row.op, row)
    named = [_named(row) for row in list(kinds.values())[:_N_NAMED]]
    return ", ".join([*named, *(["…"] if len(named) < len(rows) else [])])


def _counted(rows: Sequence[Operation]) -> str:
    """How many, which, and apart from them those without a digest: mostly views."""
    computed = [row for row in rows if row.outputs]
    if not computed:
        return f"{len(rows)} without a digest"
    text = f"{len(computed)} ({_listed(computed)})"
    rest = len(rows) - len(computed)
    return f"{text} and {rest} without a digest" if rest else text
