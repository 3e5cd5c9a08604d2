"""Operations of two runs, paired so that each call of a substitute counts as one operation.

Where one side has a substitute for what the other ran, the operations inside differ by choice; what
can be compared is the result of the call, by its tensors where these were kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from cellrepro.comparison.operation_diff import first_divergence
from cellrepro.store.stored_run import Repeat
from samebits import Alignment, OperationRow, align
from samebits.digests import value_digest
from samebits.substitutes import stands_in
from samebits.tensor_digests import tensor_digest

if TYPE_CHECKING:
    import torch

Outputs = Mapping[int, Sequence["torch.Tensor"]]
"""The output tensors of some operations, by their order in the step."""

_INPUTS_OF_A = value_digest("what went into a call of A")
_OTHER_INPUTS = value_digest("what went into a call of B, and differs")
"""Stand in for digests of a whole call's inputs, which nobody took: they are equal, or differ."""


class OperationPair(NamedTuple):
    """Two operations that correspond."""

    a: OperationRow
    b: OperationRow


@dataclass(frozen=True)
class OutputsBySide:
    """Output tensors of some operations of each run."""

    a: Outputs
    b: Outputs


_NO_OUTPUTS = OutputsBySide({}, {})


def align_operations(
    repeats: Sequence[Repeat],
    a: Sequence[OperationRow],
    b: Sequence[OperationRow],
    outputs: OutputsBySide = _NO_OUTPUTS,
) -> Alignment:
    """Pair the corresponding operations of two runs."""
    if not any(_only_own_substitutes(repeats)):
        return align(a, b)
    alignment = align(_calls_as_one(a), _calls_as_one(b))
    pairs = tuple(_with_results_of_calls(alignment, outputs))
    return replace(alignment, pairs=pairs)


def pairs_to_compare(
    repeats: Sequence[Repeat], a: Sequence[OperationRow], b: Sequence[OperationRow]
) -> list[OperationPair]:
    """Choose the operations whose tensors are needed: whole calls, and where the two diverge."""
    alignment = align_operations(repeats, a, b)
    pairs = [OperationPair(*pair) for pair in alignment.pairs if is_call(pair[0])]
    parting = first_divergence(alignment)
    if parting is not None:
        pairs.append(OperationPair(parting.a, parting.b))
    return pairs


def is_call(row: OperationRow) -> bool:
    """Whether a row stands for a whole call: the names of PyTorch's operations have dots."""
    return "." not in row.op


def whose_substitutes(repeats: Sequence[Repeat]) -> str:
    """Say whose substitutes are compared with what they stand for."""
    by_side = zip("AB", _only_own_substitutes(repeats), strict=True)
    sides = [f"{' and '.join(names)} of {side}" for side, names in by_side if names]
    return f"the substitutes {' and '.join(sides)} and what they stand for"


def _only_own_substitutes(repeats: Sequence[Repeat]) -> tuple[list[str], list[str]]:
    """The substitutes that only A had in place, and those that only B had."""
    a, b = (set(repeat.manifest.switches.get("substitutes") or ()) for repeat in repeats)
    return sorted(a - b), sorted(b - a)


def _with_results_of_calls(alignment: Alignment, outputs: OutputsBySide) -> Iterator[OperationPair]:
    """Give each call digests of its result that can be compared."""
    all_agree = True
    for row_a, row_b in alignment.pairs:
        pair = OperationPair(row_a, row_b)
        if is_call(row_a):
            # Its inputs agree if all outputs before it do.
            pair = _with_results(pair, outputs, inputs_agree=all_agree)
        if pair.a.outputs and pair.b.outputs and pair.a.outputs != pair.b.outputs:
            all_agree = False
        yield pair


def _with_results(
    pair: OperationPair, outputs: OutputsBySide, *, inputs_agree: bool
) -> OperationPair:
    """Give two calls digests of their results, which no layout in memory changes."""
    tensors_a = outputs.a.get(pair.a.index)
    tensors_b = outputs.b.get(pair.b.index)
    if tensors_a and tensors_b:
        outputs_a = ",".join(map(tensor_digest, tensors_a))
        outputs_b = ",".join(map(tensor_digest, tensors_b))
    elif pair.a.outputs == pair.b.outputs:
        outputs_a = pair.a.outputs
        outputs_b = pair.b.outputs
    else:
        outputs_a = ""
        outputs_b = ""
    return OperationPair(
        replace(pair.a, inputs=_INPUTS_OF_A, outputs=outputs_a),
        replace(pair.b, inputs=_INPUTS_OF_A if inputs_agree else _OTHER_INPUTS, outputs=outputs_b),
    )


def _calls_as_one(rows: Sequence[OperationRow]) -> list[OperationRow]:
    """Merge the operations of each call of a function that has substitutes into one."""
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
    """Turn the last operation of a call into the call."""
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
    """The mark by which the last operation of each of several calls in succession is known."""

    op: str
    source: str | None
    n_axes: int
    dtypes: str


def _end_of_call(row: OperationRow) -> _EndOfCall:
    first_shape = row.shapes.partition(",")[0].partition(" ")[0]
    return _EndOfCall(row.op, row.source, first_shape.count("x"), row.dtypes)
