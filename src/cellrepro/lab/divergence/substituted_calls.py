"""Operations of two runs that correspond, with each call of a substitute as one operation.

Where one side has a substitute for what the other ran, the operations inside are a difference of
settings; what can be compared is the result of the call, by its tensors where they were kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from cellrepro.compare.operation_alignment import Alignment, align, first_divergence
from cellrepro.determinism.substitutes import stands_in
from cellrepro.store.digests import tensor_digest
from cellrepro.store.store import Repeat
from cellrepro.text import amount

Kept = Mapping[int, list[Any]]
"""The tensors that came out of some operations, by their order in the step."""


def aligned(
    repeats: Sequence[Repeat],
    a: Sequence[Any],
    b: Sequence[Any],
    kept: Sequence[Kept] = ({}, {}),
) -> Alignment:
    """The operations of two runs that correspond."""
    if not any(_own_substitutes(repeats)):
        return align(a, b)
    alignment = align(_calls_as_one(a), _calls_as_one(b))
    pairs, all_agree = [], True
    for x, y in alignment.pairs:
        if is_call(x):
            x, y = _with_results(x, y, kept)
            # What went in agrees as long as all that came out before does.
            y = replace(y, inputs="agree" if all_agree else "other")
        if x.outputs and y.outputs and x.outputs != y.outputs:
            all_agree = False
        pairs.append((x, y))
    return replace(alignment, pairs=tuple(pairs))


def to_compare(
    repeats: Sequence[Repeat], a: Sequence[Any], b: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """The operations whose tensors are needed: whole calls, and where the two diverge."""
    alignment = aligned(repeats, a, b)
    parting = first_divergence(alignment)
    calls = [pair for pair in alignment.pairs if is_call(pair[0])]
    return calls + ([] if parting is None else [(parting.a, parting.b)])


def _own_substitutes(repeats: Sequence[Repeat]) -> tuple[list[str], list[str]]:
    """The substitutes that only one of two runs had in place, of each."""
    a, b = (set(repeat.manifest.switches.get("substitutes") or ()) for repeat in repeats)
    return sorted(a - b), sorted(b - a)


def _calls_as_one(rows: Sequence[Any]) -> list[Any]:
    """Operations of a step, with each call of a function that has substitutes as one."""
    nothing: dict[str, Any] = dict.fromkeys(("shapes", "dtypes", "inputs"), "")
    nothing |= dict.fromkeys(("norm", "ulp", "limit", "problem"), None)
    found: list[Any] = []
    in_order = sorted(rows, key=lambda row: row.index)
    for (function, _, _), group in groupby(
        in_order, lambda row: (stands_in(row.source), row.module, row.phase)
    ):
        inside = list(group)
        if function is None:
            found += inside
            continue
        last = _end_of_call(inside[-1])
        found += [
            replace(row, op=function.rpartition(" ")[2], source=function, **nothing)
            for row in inside
            if _end_of_call(row) == last
        ]
    return found


def _end_of_call(row: Any) -> tuple[Any, ...]:
    """What the last operation of every call in a row has in common, and no other of them."""
    n_axes = row.shapes.partition(",")[0].partition(" ")[0].count("x")
    return row.op, row.source, n_axes, row.dtypes


def is_call(row: Any) -> bool:
    """Whether a row stands for a whole call; PyTorch's own names have dots."""
    return "." not in row.op


def _with_results(x: Any, y: Any, kept: Sequence[Kept]) -> tuple[Any, Any]:
    """Two calls with digests of their results, which no layout in memory changes."""
    results = [side.get(row.index) for side, row in zip(kept, (x, y), strict=True)]
    if all(results):
        digests = [",".join(map(tensor_digest, result or ())) for result in results]
    else:
        digests = [x.outputs, y.outputs] if x.outputs == y.outputs else ["", ""]
    return replace(x, inputs="agree", outputs=digests[0]), replace(y, outputs=digests[1])


def substituted(repeats: Sequence[Repeat], alignment: Alignment) -> str | None:
    """In how many calls the substitutes of one side gave what they stand for."""
    calls = [(x.outputs, y.outputs) for x, y in alignment.pairs if is_call(x)]
    if not calls:
        return None
    n_unknown = sum(not x or not y for x, y in calls)
    n_equal = sum(x == y for x, y in calls) - n_unknown
    unknown = f", {n_unknown} could not be compared" if n_unknown else ""
    over = amount(len(calls), "call")
    return f"{n_equal} of {over} gave equal bits{unknown}: {whose(repeats)}"


def whose(repeats: Sequence[Repeat]) -> str:
    """Whose substitutes are compared with what they stand for."""
    own = zip("AB", _own_substitutes(repeats), strict=True)
    sides = [f"{' and '.join(names)} of {side}" for side, names in own if names]
    return f"the substitutes {' and '.join(sides)} and what they stand for"
