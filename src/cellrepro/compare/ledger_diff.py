"""Two ledgers side by side: the first thing that went in alike and came out otherwise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cellrepro.store.digests import comparable
from cellrepro.store.ledger import BEFORE, STAGES, Entry


@dataclass(frozen=True)
class Difference:
    """One entry in which two ledgers differ.

    Attributes
    ----------
    step, epoch : int or None
        None before the first step and after the last.
    stage : str
        One of `cellrepro.store.ledger.STAGES`.
    name : str
    a, b : Entry or None
        None where only the other ledger has it.
    """

    step: int | None
    epoch: int | None
    stage: str
    name: str
    a: Entry | None
    b: Entry | None

    def said(self) -> str:
        """What each side holds, as short as possible.

        Examples
        --------
        >>> one = Entry(-1, -1, "spec", "seed", "aa", None, "0")
        >>> Difference(None, None, "spec", "seed", one, None).said()
        'seed: 0 in A, missing in B'
        """
        return f"{self.name}: {_said(self.a)} in A, {_said(self.b)} in B"


def _said(entry: Entry | None) -> str:
    if entry is None:
        return "missing"
    if entry.detail is not None:
        return entry.detail if len(entry.detail) <= 60 else entry.detail[:57] + "…"
    if entry.value is not None:
        return f"{entry.value:.9g} ({entry.digest[:8]})"
    return entry.digest[:8]


@dataclass(frozen=True)
class LedgerComparison:
    """What two ledgers have in common and in what they differ.

    Attributes
    ----------
    differences : tuple of Difference
        In the order in which the runs passed them.
    compared : Counter of str
        How many entries of each stage both have in digests of one kind.
    not_comparable : Counter of str
        How many both have in digests of two kinds, of a processor and of a GPU: nothing can be
        said about them.
    n_steps : tuple of int
        Steps of a and of b.
    """

    differences: tuple[Difference, ...]
    compared: Counter[str]
    not_comparable: Counter[str]
    n_steps: tuple[int, int]

    @property
    def n_compared(self) -> int:
        """Entries of all stages that could be compared."""
        return self.compared.total()

    @property
    def n_not_comparable(self) -> int:
        """Entries of all stages about which nothing can be said."""
        return self.not_comparable.total()

    @property
    def first(self) -> Difference | None:
        """The first difference."""
        return self.differences[0] if self.differences else None

    @property
    def first_computed(self) -> Difference | None:
        """The first difference in what a step computed."""
        return next((found for found in self.differences if found.step is not None), None)

    def of_stage(self, stage: str) -> list[Difference]:
        """All differences of one stage."""
        return [found for found in self.differences if found.stage == stage]


def compare_ledgers(
    a: Sequence[Entry],
    b: Sequence[Entry],
    *,
    ignored: Callable[[Entry], bool] = lambda entry: False,
) -> LedgerComparison:
    """Compare two ledgers entry by entry, in the order in which the runs passed them.

    Parameters
    ----------
    a, b : sequence of Entry
    ignored : callable
        Entries that are not to count.

    Returns
    -------
    LedgerComparison
        Steps that only one side made are left out: the spec tells that.
    """
    n_steps = _n_steps(a), _n_steps(b)
    both_steps = min(n_steps)
    held_a, held_b = _held(a, n_steps[0], ignored), _held(b, n_steps[1], ignored)
    differences = []
    compared: Counter[str] = Counter()
    not_comparable: Counter[str] = Counter()
    for place in _in_order(held_a, held_b):
        position, stage, name = place
        one, other = held_a.get(place), held_b.get(place)
        in_step = BEFORE < position < _AFTER
        if one is None or other is None:
            if in_step and position >= both_steps:
                continue  # the spec says that one made more steps
        elif not comparable(one.digest, other.digest):
            not_comparable[stage] += 1
            continue
        else:
            compared[stage] += 1
            if one.digest == other.digest:
                continue
        some = one or other
        assert some is not None
        step, epoch = (some.step, some.epoch) if in_step else (None, None)
        differences.append(Difference(step, epoch, stage, name, one, other))
    return LedgerComparison(tuple(differences), compared, not_comparable, n_steps)


_Place = tuple[float, str, str]
_AFTER = math.inf


def _n_steps(entries: Sequence[Entry]) -> int:
    """Steps made: only a step has a loss."""
    return 1 + max((entry.step for entry in entries if entry.stage == "loss"), default=BEFORE)


def _held(
    entries: Iterable[Entry], n_steps: int, ignored: Callable[[Entry], bool]
) -> dict[_Place, Entry]:
    return {
        (entry.step if entry.step < n_steps else _AFTER, entry.stage, entry.name): entry
        for entry in entries
        if not ignored(entry)
    }


def _in_order(a: dict[_Place, Entry], b: dict[_Place, Entry]) -> list[_Place]:
    """Places of both: before the first step and after the last by stage, steps as they were made.

    What only b has comes at the end of its step or stage.
    """
    rank = {place: index for index, place in enumerate({**a, **b})}

    def order(place: _Place) -> tuple[float, int, int]:
        position, stage, _ = place
        in_step = BEFORE < position < _AFTER
        return position, 0 if in_step else STAGES.index(stage), rank[place]

    return sorted(rank, key=order)
