"""The operations of one training step that correspond on two sides, and how these are named."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from samebits.errors import BadInput
from samebits.known_operations import base_name
from samebits.words import amount

if TYPE_CHECKING:
    from samebits.trace.operation_ledger import OperationRow


Agreement = Literal["agree", "differ", "unknown"]
"""What two digests say; ``unknown`` where one is missing or they are of two kinds."""
_MOST_NAMED = 3
"""Operations that a sentence names before it says "…"."""


@dataclass(frozen=True)
class Alignment:
    """The operations of two lists that correspond, and those that only one list has."""

    pairs: tuple[tuple[OperationRow, OperationRow], ...]
    """They stand in the order in which A executed them; no operation is in two pairs."""
    only_a: tuple[OperationRow, ...]
    """Operations of A without a counterpart, views included, in their order."""
    only_b: tuple[OperationRow, ...]

    def sentence(self) -> str:
        """Say how many correspond, and what only one side ran."""
        if not (self.pairs or self.only_a or self.only_b):
            return "neither side ran an operation"
        extra = [
            f"only {side} ran {len(rows)} ({named_operations(rows)})"
            for side, rows in (("A", self.only_a), ("B", self.only_b))
            if rows
        ]
        text = self._n_pairs_in_words(all_correspond=not extra)
        outputs = [agreement(a.outputs, b.outputs) for a, b in self.pairs]
        if outputs and all(each == "unknown" for each in outputs):
            text += ", none with digests that can be compared"
        return f"{text}; {', '.join(extra)}" if extra else text

    def _n_pairs_in_words(self, *, all_correspond: bool) -> str:
        n_pairs = len(self.pairs)
        if n_pairs == 0:
            return "no operation corresponds"
        if n_pairs == 1:
            return "one operation corresponds"
        return f"{'all ' if all_correspond else ''}{amount(n_pairs, 'operation')} correspond"


def align(a: Sequence[OperationRow], b: Sequence[OperationRow]) -> Alignment:
    """Find the operations of two lists that correspond.

    Only operations of one phase and module do, and these in their order: as many as possible by
    the strictest of `_KEYS`, between them as many as possible by the next.
    """
    if any(len({row.step for row in rows}) > 1 for rows in (a, b)):
        raise BadInput("operations of several steps were given; give those of one step")
    rows_a = sorted(a, key=lambda row: row.index)
    rows_b = sorted(b, key=lambda row: row.index)
    modules_a = _by_module(rows_a)
    modules_b = _by_module(rows_b)
    pairs = [
        (modules_a[module][i], modules_b[module][j])
        for module in modules_a.keys() & modules_b.keys()
        for i, j in _corresponding_positions(modules_a[module], modules_b[module])
    ]
    pairs.sort(key=lambda pair: pair[0].index)
    paired_a = {row_a.index for row_a, _ in pairs}
    paired_b = {row_b.index for _, row_b in pairs}
    return Alignment(
        pairs=tuple(pairs),
        only_a=tuple(row for row in rows_a if row.index not in paired_a),
        only_b=tuple(row for row in rows_b if row.index not in paired_b),
    )


def _by_module(
    rows: Sequence[OperationRow],
) -> dict[tuple[str, str | None], list[OperationRow]]:
    """The rows of each phase and module."""
    groups = defaultdict[tuple[str, str | None], list["OperationRow"]](list)
    for row in rows:
        groups[row.phase, row.module].append(row)
    return groups


@cache
def _function_of(source: str | None) -> str | None:
    """File and function of a source line, which outlast a shift of lines."""
    if source is None:
        return None
    return re.sub(r"(.*):\d+( in .*)?", r"\1\2", source)


_KEYS: tuple[Callable[[OperationRow], Hashable], ...] = (
    lambda row: (row.op, _function_of(row.source), row.shapes),
    lambda row: (base_name(row.op), row.shapes),
    lambda row: base_name(row.op),
)
"""What operations that correspond have in common, the strictest first; ``add.Tensor``,
``add.Scalar`` and ``add_.Tensor`` share a base name."""


def _corresponding_positions(
    a: Sequence[OperationRow], b: Sequence[OperationRow]
) -> list[tuple[int, int]]:
    """Rising pairs of positions of the operations of one module that correspond."""
    pairs: list[tuple[int, int]] = []
    for key in _KEYS:
        keys_a = [key(row) for row in a]
        keys_b = [key(row) for row in b]
        pairs = _with_pairs_between(pairs, keys_a, keys_b)
    return pairs


def _with_pairs_between(
    pairs: Sequence[tuple[int, int]], keys_a: Sequence[Hashable], keys_b: Sequence[Hashable]
) -> list[tuple[int, int]]:
    """The pairs, and between each two of them the most others that have one key."""
    filled: list[tuple[int, int]] = []
    start_a = 0
    start_b = 0
    for stop_a, stop_b in [*pairs, (len(keys_a), len(keys_b))]:
        between = _longest_common(keys_a[start_a:stop_a], keys_b[start_b:stop_b])
        filled += [(start_a + i, start_b + j) for i, j in between]
        filled.append((stop_a, stop_b))
        start_a = stop_a + 1
        start_b = stop_b + 1
    return filled[:-1]  # the last one is the end of both


def _longest_common(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Find a longest common subsequence, which `difflib` may miss.

    Hyyrö's bit-vector form of the table of lengths ("Bit-parallel LCS-length computation
    revisited", 2004), from the ends: a row is one integer, whose bit i is 0 where the length grows.

    >>> list(_longest_common("xabc", "abyc"))
    [(1, 0), (2, 1), (3, 3)]
    """
    positions: dict[Hashable, int] = defaultdict(int)
    for i, item in enumerate(reversed(a)):
        positions[item] |= 1 << i
    full = (1 << len(a)) - 1
    rows = [full]
    for item in reversed(b):
        row = rows[-1]
        grown = row & positions.get(item, 0)
        rows.append(((row + grown) | (row - grown)) & full)
    i = len(a)
    j = len(b)
    while i and j:
        if rows[j] >> (i - 1) & 1:
            i -= 1
        else:
            j -= 1
            if rows[j] >> (i - 1) & 1:
                i -= 1
                yield len(a) - 1 - i, len(b) - 1 - j


def agreement(digest_a: str, digest_b: str) -> Agreement:
    """Compare two digests.

    >>> agreement("12ab", "12ab"), agreement("12ab", "12ac"), agreement("12ab", "")
    ('agree', 'differ', 'unknown')
    """
    if not digest_a or not digest_b or len(digest_a) != len(digest_b):
        return "unknown"
    return "agree" if digest_a == digest_b else "differ"


def named_operation(row: OperationRow) -> str:
    """Name an operation and the module in which it ran."""
    return f"{row.op} in {row.module}" if row.module else f"{row.op} outside any module"


def named_operations(rows: Sequence[OperationRow]) -> str:
    """List the first operation of each kind, at most three; views only where nothing else is."""
    shown = [row for row in rows if row.outputs] or rows
    first_of_kind: dict[str, OperationRow] = {}
    for row in shown:
        first_of_kind.setdefault(row.op, row)
    names = [named_operation(row) for row in list(first_of_kind.values())[:_MOST_NAMED]]
    if len(names) < len(rows):
        names.append("…")
    return ", ".join(names)
