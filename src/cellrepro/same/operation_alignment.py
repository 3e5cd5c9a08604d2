"""Two lists of operations of one training step: which correspond, and which diverges first.

An operation whose inputs have the same bits on both sides and whose outputs have not is where the
two runs diverge; what differs after it is its consequence.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput
from cellrepro.words import amount, that_differ

if TYPE_CHECKING:
    from cellrepro.trace.operation_ledger import OperationRow

_N_NAMED = 3  # operations that a sentence names before it says "…"


@dataclass(frozen=True)
class Alignment:
    """Which operations of two lists correspond, each in its order of execution."""

    pairs: tuple[tuple[OperationRow, OperationRow], ...]  # in A's order; none is in two pairs
    only_a: tuple[OperationRow, ...]  # those without a counterpart, views included
    only_b: tuple[OperationRow, ...]

    def sentence(self) -> str:
        """How many correspond, and what only one side ran."""
        if not (self.pairs or self.only_a or self.only_b):
            return "neither side ran an operation"
        only = [("A", self.only_a), ("B", self.only_b)]
        extra = [f"only {side} ran {len(rows)} ({_listed(rows)})" for side, rows in only if rows]
        n_pairs = len(self.pairs)
        text = f"{'' if extra else 'all '}{n_pairs} operations correspond"
        if n_pairs < 2:
            text = f"{'one' if n_pairs else 'no'} operation corresponds"
        if self.pairs and all(_compared(a.outputs, b.outputs) == "unknown" for a, b in self.pairs):
            text += ", none with digests that can be compared"
        return "; ".join([text, ", ".join(extra)] if extra else [text])


def align(a: Sequence[OperationRow], b: Sequence[OperationRow]) -> Alignment:
    """Find the operations of two lists, one step each, that correspond: only within one phase and
    module, and there in their order, as many as possible by the strictest of `_KEYS`."""
    if any(len({row.step for row in rows}) > 1 for rows in (a, b)):
        raise BadInput("operations of several steps were given; give those of one step")
    a, b = (sorted(rows, key=lambda row: row.index) for rows in (a, b))
    sides: list[dict] = [defaultdict(list), defaultdict(list)]
    for side, rows in zip(sides, (a, b), strict=True):
        for row in rows:
            side[row.phase, row.module].append(row)
    pairs = [
        (sides[0][place][i], sides[1][place][j])
        for place in sides[0].keys() & sides[1].keys()
        for i, j in _correspond(sides[0][place], sides[1][place])
    ]
    pairs.sort(key=lambda pair: pair[0].index)
    of_a, of_b = {x.index for x, _ in pairs}, {y.index for _, y in pairs}
    return Alignment(
        pairs=tuple(pairs),
        only_a=tuple(row for row in a if row.index not in of_a),
        only_b=tuple(row for row in b if row.index not in of_b),
    )


@cache
def _function(source: str | None) -> str | None:
    """File and function of a source line, which outlast a shift of lines."""
    return source and re.sub(r"(.*):\d+( in .*)?", r"\1\2", source)


_KEYS: tuple[Callable[[OperationRow], Hashable], ...] = (
    lambda row: (row.op, _function(row.source), row.shapes),
    lambda row: (base_name(row.op), row.shapes),
    lambda row: base_name(row.op),
)
"""What operations that correspond have in common, the strictest first; ``add.Tensor``,
``add.Scalar`` and ``add_.Tensor`` share a base name."""


def _correspond(a: Sequence[OperationRow], b: Sequence[OperationRow]) -> list[tuple[int, int]]:
    """Rising pairs of positions of the operations of one module that correspond."""
    pairs: list[tuple[int, int]] = []
    for key in _KEYS:  # between each two pairs the most that agree in the next key
        filled = []
        start_a = start_b = 0
        for stop_a, stop_b in [*pairs, (len(a), len(b))]:
            between = map(key, a[start_a:stop_a]), map(key, b[start_b:stop_b])
            found = _longest_common(*map(list, between))
            filled += [(start_a + i, start_b + j) for i, j in found]
            filled.append((stop_a, stop_b))
            start_a, start_b = stop_a + 1, stop_b + 1
        pairs = filled[:-1]
    return pairs


def _longest_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Rising pairs of positions of a longest common subsequence, which `difflib` may miss.

    Hyyrö's bit-vector form of the table of lengths ("Bit-parallel LCS-length computation
    revisited", 2004), from the ends: a row is one integer, whose bit i is 0 where the length grows.
    """
    where: dict[Hashable, int] = defaultdict(int)
    for i, each in enumerate(reversed(a)):
        where[each] |= 1 << i
    full = (1 << len(a)) - 1
    rows = [full]
    for each in reversed(b):
        row = rows[-1]
        grown = row & where.get(each, 0)
        rows.append(((row + grown) | (row - grown)) & full)
    i, j = len(a), len(b)
    while i and j:
        if rows[j] >> (i - 1) & 1:
            i -= 1
        else:
            j -= 1
            if rows[j] >> (i - 1) & 1:
                i -= 1
                yield len(a) - 1 - i, len(b) - 1 - j


# -- where two runs diverge ------------------------------------------------------------------


@dataclass(frozen=True)
class DivergingOperation:
    """The operation, on either side, at which two runs of a step diverge."""

    a: OperationRow
    b: OperationRow
    inputs: str  # agree (also where no tensor goes in): it is the cause; else differ, or unknown
    in_words: str  # which operation, how it is known, and how far the difference spread


def first_divergence(alignment: Alignment) -> DivergingOperation | None:
    """The first operation, in A's order, whose inputs agree and whose outputs do not; without one
    the first whose outputs differ."""
    found = [_compared(x.outputs, y.outputs) for x, y in alignment.pairs]
    differing = [at for at, answer in enumerate(found) if answer == "differ"]
    if not differing:
        return None
    at = next((i for i in differing if _inputs(*alignment.pairs[i]) == "agree"), differing[0])
    x, y = alignment.pairs[at]
    inputs = _inputs(x, y)
    details = ", ".join(filter(None, [x.phase, x.source, "" if x.op == y.op else f"B: {y.op}"]))
    text = f"{_named(x)} ({details}) is the first operation whose "
    text += {
        "agree": "inputs agree and whose outputs differ",
        "differ": "outputs differ, but its inputs differ already",
        "unknown": "outputs differ, but its inputs cannot be compared",
    }[inputs]
    if x.draws or y.draws:
        text += "; it may draw random numbers"
    text += (
        f"; outputs agree in {amount(found[:at].count('agree'), 'operation')} before it and "
        f"differ in {found[at + 1 :].count('differ')} after it"
    )
    if at != differing[0]:
        n_before = found[:at].count("differ")
        text += f"; before it {that_differ(n_before, 'operation')} too, by what went in"
    return DivergingOperation(x, y, inputs, text)


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


# -- whether the difference is round-off -----------------------------------------------------


def judge_round_off(a: Sequence[OperationRow], b: Sequence[OperationRow]) -> tuple[str, str]:
    """A verdict and a sentence: whether every operation erred no more than its class may."""
    judged = [row for row in (*a, *b) if _is_judged(row)]
    faults = [row for row in judged if _strain(row) > 1]
    if faults:
        verdict, text = "fault", f"{_listed(faults)} erred more than round-off explains"
    elif any(map(_is_judged, a)) and any(map(_is_judged, b)):
        verdict = "round-off"
        text = "every judged operation of both sides stays within its limit"
    else:
        verdict, text = "unknown", "on one side no operation was judged"
    unjudged = [row for row in (*a, *b) if row.outputs and not _is_judged(row)]
    text = f"{verdict}: {text} ({amount(len(judged), 'operation')} judged, {len(unjudged)} not)"
    failed = [row for row in unjudged if row.problem is not None]
    if failed:
        text += f"; the float64 replay failed of {_listed(failed)}: {failed[0].problem}"
    if judged:
        worst = max(judged, key=_strain)
        text += f"; {_named(worst)} erred most, {worst.ulp:.3g} ulp where {worst.limit:.3g} may be"
    return verdict, text


def _is_judged(row: OperationRow) -> bool:
    return row.ulp is not None and row.limit is not None


def _strain(row: OperationRow) -> float:
    """Error in units of its limit; infinite where none is allowed or it is not a number."""
    error, limit = row.ulp or 0.0, row.limit or 0.0
    if not error or error <= limit == math.inf:
        return 0.0
    strain = error / limit if limit else math.inf
    return math.inf if math.isnan(strain) else strain


def _named(row: OperationRow) -> str:
    return f"{row.op} in {row.module}" if row.module else f"{row.op} outside any module"


def _listed(rows: Sequence[OperationRow]) -> str:
    """The first of each kind of operation, a few of them; views only where nothing else is."""
    shown = [row for row in rows if row.outputs] or rows
    kinds = {row.op: row for row in reversed(shown)}
    named = [_named(row) for row in sorted(kinds.values(), key=shown.index)[:_N_NAMED]]
    return ", ".join([*named, *(["…"] if len(named) < len(rows) else [])])
