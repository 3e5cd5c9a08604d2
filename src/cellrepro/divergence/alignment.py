"""Operations of two runs that correspond, with each call of a substitute as one operation.

Where one side has a substitute for what the other ran, the operations inside are a difference of
settings; what can be compared is the result of the call, by its tensors where they were kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from cellrepro.bits.digests import tensor_digest
from cellrepro.determinism.substitutes import stands_in
from cellrepro.same.operation_alignment import Alignment, align
from cellrepro.same.operation_divergence import first_divergence
from cellrepro.store.store import Repeat
from cellrepro.trace.operation_ledger import OperationRow

Kept = Mapping[int, list[Any]]
"""The tensors that came out of some operations, by their order in the step."""


class Pair(NamedTuple):
    """Two operations that correspond."""

    a: OperationRow
    b: OperationRow


class KeptBySide(NamedTuple):
    """The tensors that were kept of each side."""

    a: Kept
    b: Kept


_NOTHING_KEPT = KeptBySide({}, {})


def aligned(
    repeats: Sequence[Repeat],
    a: Sequence[OperationRow],
    b: Sequence[OperationRow],
    kept: KeptBySide = _NOTHING_KEPT,
) -> Alignment:
    """Pair the operations of two runs that correspond.

    Parameters
    ----------
    repeats : sequence of Repeat
        The two; of their manifests the substitutes count.
    a, b : sequence of OperationRow
        Of one step, or of one image.
    kept : KeptBySide
        Results of calls, where they are at hand; else digests of the rows are compared.
    """
    if not any(_only_own_substitutes(repeats)):
        return align(a, b)
    alignment = align(_calls_as_one(a), _calls_as_one(b))
    pairs = tuple(_with_results_of_calls(alignment, kept))
    return replace(alignment, pairs=pairs)


def to_compare(
    repeats: Sequence[Repeat], a: Sequence[OperationRow], b: Sequence[OperationRow]
) -> list[Pair]:
    """Give the operations whose tensors are needed: whole calls, and where the two diverge."""
    alignment = aligned(repeats, a, b)
    pairs = [Pair(*pair) for pair in alignment.pairs if is_call(pair[0])]
    parting = first_divergence(alignment)
    if parting is not None:
        pairs.append(Pair(parting.a, parting.b))
    return pairs


def is_call(row: OperationRow) -> bool:
    """Whether a row stands for a whole call; PyTorch's own names have dots."""
    return "." not in row.op


def whose_substitutes(repeats: Sequence[Repeat]) -> str:
    """Say whose substitutes are compared with what they stand for."""
    by_side = zip("AB", _only_own_substitutes(repeats), strict=True)
    sides = [f"{' and '.join(names)} of {side}" for side, names in by_side if names]
    return f"the substitutes {' and '.join(sides)} and what they stand for"


def _only_own_substitutes(repeats: Sequence[Repeat]) -> tuple[list[str], list[str]]:
    """The substitutes that only one of two runs had in place, of each."""
    a, b = (set(repeat.manifest.switches.get("substitutes") or ()) for repeat in repeats)
    return sorted(a - b), sorted(b - a)


def _with_results_of_calls(alignment: Alignment, kept: KeptBySide) -> Iterator[Pair]:
    """The pairs, each call with digests of its result that can be compared."""
    all_agree = True
    for row_a, row_b in alignment.pairs:
        pair = Pair(row_a, row_b)
        if is_call(row_a):
            # What went in agrees as long as all that came out before does.
            pair = _with_results(pair, kept, inputs_agree=all_agree)
        if pair.a.outputs and pair.b.outputs and pair.a.outputs != pair.b.outputs:
            all_agree = False
        yield pair


def _with_results(pair: Pair, kept: KeptBySide, *, inputs_agree: bool) -> Pair:
    """Two calls with digests of their results, which no layout in memory changes."""
    tensors_a = kept.a.get(pair.a.index)
    tensors_b = kept.b.get(pair.b.index)
    if tensors_a and tensors_b:
        outputs_a = ",".join(map(tensor_digest, tensors_a))
        outputs_b = ",".join(map(tensor_digest, tensors_b))
    elif pair.a.outputs == pair.b.outputs:
        outputs_a = pair.a.outputs
        outputs_b = pair.b.outputs
    else:
        outputs_a = ""
        outputs_b = ""
    return Pair(
        replace(pair.a, inputs="agree", outputs=outputs_a),
        replace(pair.b, inputs="agree" if inputs_agree else "other", outputs=outputs_b),
    )


def _calls_as_one(rows: Sequence[OperationRow]) -> list[OperationRow]:
    """Operations of a step, with each call of a function that has substitutes as one."""
    operations: list[OperationRow] = []
    in_order = sorted(rows, key=lambda row: row.index)
    groups = groupby(in_order, lambda row: (stands_in(row.source), row.module, row.phase))
    for (function, _, _), group in groups:
        inside = list(group)
        if function is None:
            operations += inside
            continue
        last = _end_of_call(inside[-1])
        operations += [_as_call(row, function) for row in inside if _end_of_call(row) == last]
    return operations


def _as_call(row: OperationRow, function: str) -> OperationRow:
    """The last operation of a call, in the place of all inside."""
    return replace(
        row,
        op=function.rpartition(" ")[2],
        source=function,
        shapes="",
        dtypes="",
        inputs="",
        norm=None,
        ulp=None,
        limit=None,
        problem=None,
    )


class _EndOfCall(NamedTuple):
    """What the last operation of every call in a row has in common, and no other of them."""

    op: str
    source: str | None
    n_axes: int
    dtypes: str


def _end_of_call(row: OperationRow) -> _EndOfCall:
    first_shape = row.shapes.partition(",")[0].partition(" ")[0]
    return _EndOfCall(row.op, row.source, first_shape.count("x"), row.dtypes)
