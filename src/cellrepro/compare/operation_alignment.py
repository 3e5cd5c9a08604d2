"""Two lists of operations of one training step: which correspond, and which diverges first.

The lists may come of two devices, two versions of PyTorch, or of one side that computes something
by other operations. An operation whose inputs have the same bits on both sides and whose outputs
have not is where the two runs diverge; what differs after it is its consequence.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput
from cellrepro.text import amount

if TYPE_CHECKING:
    from cellrepro.trace.operation_ledger import OperationRow

HANDFUL = 5
"""Most operations that are named as suspects."""

_N_NAMED = 3  # operations that a sentence names before it says "…"


# -- which operations correspond -------------------------------------------------------------


@dataclass(frozen=True)
class Alignment:
    """Which operations of two lists correspond.

    Attributes
    ----------
    pairs : tuple of (OperationRow, OperationRow)
        One of A and its counterpart of B, in A's order of execution. No operation is in two pairs.
    only_a, only_b : tuple of OperationRow
        Those without a counterpart, each side in its own order of execution, views included.
    n_reordered : int
        Fewest pairs to leave out so that the others ran in the same order on both sides.
    """

    pairs: tuple[tuple[OperationRow, OperationRow], ...]
    only_a: tuple[OperationRow, ...]
    only_b: tuple[OperationRow, ...]
    n_reordered: int = 0

    def sentence(self) -> str:
        """How many correspond, and what only one side ran."""
        if not (self.pairs or self.only_a or self.only_b):
            return "neither side ran an operation"
        only = [("A", self.only_a), ("B", self.only_b)]
        extra = [f"{side} ran {_counted(rows)}" for side, rows in only if rows]
        text = f"{'' if extra else 'all '}{amount(len(self.pairs), 'operation')} correspond"
        if len(self.pairs) == 1:
            text = "1 operation corresponds"
        if self.n_reordered:
            text += f", {self.n_reordered} of them in another order"
        if self.pairs and all(_compared(a.outputs, b.outputs) == "unknown" for a, b in self.pairs):
            text += ", none with digests that can be compared"
        return "; ".join([text, *(["only " + ", only ".join(extra)] if extra else [])])


def align(a: Sequence[OperationRow], b: Sequence[OperationRow]) -> Alignment:
    """Find the operations of two lists, one step each, that correspond.

    Operations correspond only within one phase and module, and there in their order; modules may
    follow each other in another order. Taken first are as many as possible of equal name, calling
    function and shapes; of several ways to take as many, one that pairs equal digests is preferred,
    then one that pairs equal source lines. What lies between these is paired by base name, which
    ``add.Tensor``, ``add.Scalar`` and ``add_.Tensor`` share: first where function and shapes are
    equal, then where one of them is, then wherever it stands. The time for one module's n and m
    operations grows as n m / 64.
    """
    in_order = _in_order(a, "a"), _in_order(b, "b")
    buckets: tuple[dict, dict] = defaultdict(list), defaultdict(list)
    for side, rows in zip(buckets, in_order, strict=True):
        for position, row in enumerate(rows):
            side[row.phase, row.module].append(position)
    paired = []
    for place in buckets[0].keys() & buckets[1].keys():
        at_a, at_b = buckets[0][place], buckets[1][place]
        found = _correspond([in_order[0][i] for i in at_a], [in_order[1][j] for j in at_b])
        paired += [(at_a[i], at_b[j]) for i, j in found]
    paired.sort()
    used_a, used_b = {i for i, _ in paired}, {j for _, j in paired}
    return Alignment(
        pairs=tuple((in_order[0][i], in_order[1][j]) for i, j in paired),
        only_a=tuple(row for i, row in enumerate(in_order[0]) if i not in used_a),
        only_b=tuple(row for j, row in enumerate(in_order[1]) if j not in used_b),
        n_reordered=len(paired) - _longest_rise([j for _, j in paired]),
    )


def _in_order(rows: Sequence[OperationRow], name: str) -> list[OperationRow]:
    steps = sorted({row.step for row in rows})
    if len(steps) > 1:
        raise BadInput(
            f"{name} holds operations of {len(steps)} steps ({steps[0]} to {steps[-1]}); "
            "give the operations of one step"
        )
    return sorted(rows, key=lambda row: row.index)


def _longest_rise(numbers: Sequence[int]) -> int:
    """Length of the longest increasing subsequence of distinct numbers."""
    ends: list[int] = []  # the smallest number on which a rise of each length can end
    for number in numbers:
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
    return len(ends)


# Within one phase and module

_Positions = list[tuple[int, int]]
_SOURCE = re.compile(r"(?P<file>.*):(?P<line>\d+)(?P<function> in .*)?")


@cache
def _function(source: str | None) -> str | None:
    """File and function of a source line, which outlast a shift of lines."""
    found = _SOURCE.fullmatch(source or "")
    return source if found is None else f"{found['file']}{found['function'] or ''}"


def _exact(row: OperationRow) -> Hashable:
    return row.op, _function(row.source), row.shapes


def _at_line(row: OperationRow) -> Hashable:
    return row.op, row.source, row.shapes


def _with_digests(row: OperationRow) -> Hashable:
    return _exact(row), row.inputs, row.outputs


_Key = Callable[["OperationRow"], Hashable]
_FINER: tuple[tuple[_Key, ...], ...] = (
    (lambda row: (_with_digests(row), row.source), _with_digests, _at_line),
    (_at_line,),
)
_LOOSER: tuple[_Key, ...] = (
    lambda row: (base_name(row.op), _function(row.source), row.shapes),
    lambda row: (base_name(row.op), row.shapes),
    lambda row: (base_name(row.op), _function(row.source)),
    lambda row: base_name(row.op),
)


def _correspond(a: Sequence[OperationRow], b: Sequence[OperationRow]) -> _Positions:
    """Rising pairs of positions of the operations that correspond."""
    pairs = _filled(a, b, [], _exact)
    if len(pairs) < max(len(a), len(b)):
        for finer in _FINER:
            # Anchors at equal lines mislead where the lines have shifted, and so do the equal
            # digests of all zeros. Both then cost pairs, which is how it is noticed.
            chosen: _Positions = []
            for key in (*finer, _exact):
                chosen = _filled(a, b, chosen, key)
            if len(chosen) == len(pairs):
                pairs = chosen
                break
    for looser in _LOOSER:
        pairs = _filled(a, b, pairs, looser)
    return pairs


def _filled(
    a: Sequence[OperationRow], b: Sequence[OperationRow], pairs: _Positions, key: _Key
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


# -- where two runs diverge ------------------------------------------------------------------


@dataclass(frozen=True)
class DivergingOperation:
    """The operation at which two runs of a step diverge.

    Attributes
    ----------
    a, b : OperationRow
        The two that correspond.
    inputs : str
        ``agree``, also where no tensor goes in: then it is the cause. ``differ``, or ``unknown``
        where a digest is missing or the two are of two algorithms: then no operation is known to
        be the cause, and this is the first whose outputs differ.
    n_before : int
        Pairs before it whose outputs agree.
    n_after : int
        Pairs after it whose outputs differ.
    n_differ_before : int
        Pairs before it whose outputs differ, none with inputs known to agree.
    only_a, only_b : tuple of OperationRow
        Where it is not the cause, the suspects: operations before it that only one side ran,
        nearest first, `HANDFUL` together. Views are among them only where nothing else is.
    """

    a: OperationRow
    b: OperationRow
    inputs: str
    n_before: int
    n_after: int
    n_differ_before: int = 0
    only_a: tuple[OperationRow, ...] = ()
    only_b: tuple[OperationRow, ...] = ()

    def sentence(self) -> str:
        """Which operation, how it is known, and how far the difference spread."""
        details = ", ".join([self.a.phase, *([self.a.source] if self.a.source else [])])
        other = "" if self.a.op == self.b.op else f", B: {self.b.op}"
        what = {
            "agree": "is the first operation whose inputs agree and whose outputs differ",
            "differ": "is the first operation whose outputs differ, but its inputs differ already",
            "unknown": "is the first operation whose outputs differ, but its inputs cannot be "
            "compared",
        }[self.inputs]
        parts = [f"{_named(self.a)} ({details}{other}) {what}"]
        if self.a.draws or self.b.draws:
            parts.append("it may draw random numbers")
        parts.append(
            f"outputs agree in {amount(self.n_before, 'operation')} before it and differ in "
            f"{self.n_after} after it"
        )
        if self.n_differ_before:
            parts.append(
                f"{self.n_differ_before} before it differ too, by what went into them as far as "
                "is known"
            )
        if self.inputs != "agree":
            sides = [("A", self.only_a), ("B", self.only_b)]
            ran = [f"only {side} ran {_listed(rows)}" for side, rows in sides if rows]
            parts.append(
                f"before it {' and '.join(ran)}"
                if ran
                else "both sides ran the same operations before it, so the difference came in with "
                "what the step was given, or through an operation without comparable digests"
            )
        return "; ".join(parts)


def first_divergence(alignment: Alignment) -> DivergingOperation | None:
    """Name the first operation whose inputs agree and whose outputs do not.

    Returns
    -------
    DivergingOperation or None
        In A's order of execution the first pair with equal inputs and other outputs. Where every
        pair that differs in its outputs differs in its inputs too, or these are not known, it is
        the first that differs. None where no outputs are known to differ.
    """
    found = [_compared(x.outputs, y.outputs) for x, y in alignment.pairs]
    differing = [at for at, answer in enumerate(found) if answer == "differ"]
    if not differing:
        return None
    at = next((i for i in differing if _inputs(*alignment.pairs[i]) == "agree"), differing[0])
    x, y = alignment.pairs[at]
    inputs = _inputs(x, y)
    suspects = [] if inputs == "agree" else _suspects(x, y, alignment)
    return DivergingOperation(
        a=x,
        b=y,
        inputs=inputs,
        n_before=found[:at].count("agree"),
        n_after=found[at + 1 :].count("differ"),
        n_differ_before=found[:at].count("differ"),
        only_a=tuple(row for side, row in suspects if side == "a"),
        only_b=tuple(row for side, row in suspects if side == "b"),
    )


def _compared(a: str, b: str) -> str:
    """Whether two digests agree, differ, or say nothing about each other."""
    if not a or not b or len(a) != len(b):
        return "unknown"
    return "agree" if a == b else "differ"


def _inputs(a: OperationRow, b: OperationRow) -> str:
    # Of dtypes, not shapes: a tensor without axes may have nothing to show as its shape.
    nothing = all(re.match(r"\s*->", row.dtypes) and not row.inputs for row in (a, b))
    # As of `randn`: nothing that differs can have come in.
    return "agree" if nothing else _compared(a.inputs, b.inputs)


def _suspects(
    x: OperationRow, y: OperationRow, alignment: Alignment
) -> list[tuple[str, OperationRow]]:
    """The nearest operations before a pair that only one side ran."""
    near = [(x.index - row.index, "a", row) for row in alignment.only_a if row.index < x.index]
    near += [(y.index - row.index, "b", row) for row in alignment.only_b if row.index < y.index]
    computed = [each for each in near if each[2].outputs]
    nearest = sorted(computed or near, key=lambda each: each[:2])[:HANDFUL]
    return [(side, row) for _, side, row in nearest]


# -- whether the difference is round-off -----------------------------------------------------


@dataclass(frozen=True)
class RoundOff:
    """Whether every operation erred no more than its class of operation may.

    Attributes
    ----------
    verdict : str
        ``round-off``: on both sides something was judged, and nothing erred too much. ``fault``:
        something did. ``unknown``: nothing did, but on one side nothing was judged.
    judged_a, judged_b : tuple of OperationRow
        With a known error and limit.
    unjudged : tuple of OperationRow
        Of both sides, without; those that computed nothing, as views, are left out.
    """

    verdict: str
    judged_a: tuple[OperationRow, ...]
    judged_b: tuple[OperationRow, ...]
    unjudged: tuple[OperationRow, ...]

    def sentence(self) -> str:
        """The verdict, over how much, and what came closest to its limit."""
        judged = [*self.judged_a, *self.judged_b]
        over = f"{amount(len(judged), 'operation')} judged, {len(self.unjudged)} not"
        failed = [row for row in self.unjudged if row.problem is not None]
        if failed:
            over += (
                f", {len(failed)} of these because their float64 replay failed: "
                f"{_listed(failed)}, for example with {failed[0].problem}"
            )
        sides = [("A", self.judged_a), ("B", self.judged_b)]
        if self.verdict == "fault":
            faults = [(side, [row for row in rows if _strain(row) > 1]) for side, rows in sides]
            found = [f"{len(rows)} of {side} ({_listed(rows)})" for side, rows in faults if rows]
            text = f"fault: {' and '.join(found)} erred more than round-off explains"
        elif self.verdict == "round-off":
            text = "round-off: every judged operation of both sides stays within its limit"
        else:
            missing = " or ".join(side for side, rows in sides if not rows)
            text = f"unknown: no operation of {missing} was judged"
        if not judged:
            return f"{text} ({over})"
        worst = max(judged, key=_strain)
        closest = f"{_named(worst)} erred most, {worst.ulp:.3g} ulp where {worst.limit:.3g} may be"
        return f"{text} ({over}); {closest}"


def judge_round_off(a: Sequence[OperationRow], b: Sequence[OperationRow]) -> RoundOff:
    """Judge each operation by its own error, whatever the other side computed.

    Operations need no counterpart and digests need not be comparable, so this holds between any
    two machines. An error that is not a number is a fault.
    """
    judged_a, judged_b = (
        tuple(row for row in rows if row.ulp is not None and row.limit is not None)
        for rows in (a, b)
    )
    unjudged = (row for row in (*a, *b) if row.outputs and (row.ulp is None or row.limit is None))
    verdict = "round-off" if judged_a and judged_b else "unknown"
    if any(_strain(row) > 1 for row in (*judged_a, *judged_b)):
        verdict = "fault"
    return RoundOff(verdict, judged_a, judged_b, tuple(unjudged))


def _strain(row: OperationRow) -> float:
    """Error in units of its limit; infinite where none is allowed or it is not a number."""
    error, limit = row.ulp or 0.0, row.limit or 0.0
    if math.isnan(error) or math.isnan(limit):
        return math.inf
    if error <= limit:
        return error / limit if 0 < limit < math.inf else 0.0
    return error / limit if limit else math.inf


def growth(alignment: Alignment) -> list[tuple[int, float]]:
    """How far apart the outputs of each pair are at least, for a picture.

    By the triangle inequality the norm of the difference is no less than the difference of the
    norms, so a small value proves no closeness: outputs of equal norm may differ in every element.

    Returns
    -------
    list of (int, float)
        Index in A and abs(norm of A - norm of B) / larger norm, from 0 to 1, of every pair with
        finite norms whose outputs differ. Where digests are of two algorithms, norms that differ
        count as outputs that do.
    """
    found = []
    for a, b in alignment.pairs:
        if a.norm is None or b.norm is None or not math.isfinite(a.norm + b.norm):
            continue
        answer = _compared(a.outputs, b.outputs)
        if answer == "differ" or (answer == "unknown" and a.norm != b.norm):
            found.append((a.index, abs(a.norm - b.norm) / (max(a.norm, b.norm) or 1.0)))
    return found


# -- words -----------------------------------------------------------------------------------


def _named(row: OperationRow) -> str:
    return f"{row.op} in {row.module}" if row.module else f"{row.op} outside any module"


def _listed(rows: Sequence[OperationRow]) -> str:
    """The first of each kind of operation, a few of them."""
    kinds: dict[str, OperationRow] = {}
    for row in rows:
        kinds.setdefault(row.op, row)
    named = [_named(row) for row in list(kinds.values())[:_N_NAMED]]
    return ", ".join([*named, *(["…"] if len(named) < len(rows) else [])])


def _counted(rows: Sequence[OperationRow]) -> str:
    """How many, which, and apart from them those without a digest: mostly views."""
    computed = [row for row in rows if row.outputs]
    if not computed:
        return f"{len(rows)} without a digest"
    text = f"{len(computed)} ({_listed(computed)})"
    rest = len(rows) - len(computed)
    return f"{text} and {rest} without a digest" if rest else text
