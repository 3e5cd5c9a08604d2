"""The causes of a difference: the fewest changes that lead from how A was made to how B was."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cellrepro.explanation.conditions import IMAGE_CROP, Condition, Crop
from cellrepro.explanation.fit import Fit
from cellrepro.explanation.search import MOST_CHANGES
from cellrepro.explanation.trials import Gap, Trials, gap_between, n_cells_in
from cellrepro.spec.segmentation_settings import Settings
from samebits.results import derived


class RecordedResult(NamedTuple):
    """A result, and what is recorded of how it was made."""

    condition: Condition
    masks: np.ndarray
    """(Y, X), 0 is background."""
    is_network_certain: bool = False
    """Whether the digest of the network is the recorded one."""
    other_network: str = ""
    """The network that is recorded, where it is segmented with a different one."""


@dataclass(frozen=True)
class Change:
    """One change from A's condition to B's, and what it does by itself."""

    name: str
    """The setting, or what else was changed."""
    a: Any
    """Its value on each side."""
    b: Any
    """Its value on each side."""
    cells: int
    """Cells that it changes in A's condition, counted in both results."""
    of_cells: int
    """Cells of these two results."""
    n_pixels: int = field(default=0, repr=False)
    """How many pixels it changes, where it was replayed."""

    @derived
    def changed(self) -> float:
        """The share of these cells."""
        return self.cells / max(1, self.of_cells)


@dataclass(frozen=True)
class Replayed:
    """What replaying two results, from the condition of one to that of the other, has shown."""

    a: Fit
    """How each result was made."""
    b: Fit
    """How each result was made."""
    causes: tuple[Change, ...]
    """The fewest changes that leave no more than all together, those of most cells first."""
    left: Gap
    """Between B, and A with these changes."""
    n_cells: int
    """Of these two results."""
    made: np.ndarray = field(repr=False)
    """A with these changes, which is B where they explain it, (Y, X)."""
    cut_short: bool = False
    """Whether the user ended the search, so that each side has the best fit until then."""

    @property
    def fits(self) -> list[tuple[str, Fit]]:
        """How each was made, with its letter."""
        return [("A", self.a), ("B", self.b)]


class _ChangeSet(NamedTuple):
    """Some changes of A, by name, and the gap that they leave to B."""

    gap: Gap
    names: tuple[str, ...]


def _n_differing(changes: _ChangeSet) -> int:
    return changes.gap.n_differing


class CauseSearch:
    """Looks for the fewest changes that lead from A's condition to B's.

    Of a side that was not made again only what is recorded may be called a cause.
    """

    def __init__(
        self, trials: Trials, a: Fit, b: Fit, recorded_a: RecordedResult, recorded_b: RecordedResult
    ) -> None:
        self._trials = trials
        self._a = a
        self._b = b
        self._recorded_a = recorded_a.condition
        self._recorded_b = recorded_b.condition
        self._masks_b = recorded_b.masks
        self._usual = {**Settings().by_name(), **trials.usual.by_name()}

    def replayed(self) -> Replayed:
        """Find the smallest sufficient set of changes, and what each of them does by itself."""
        smallest = self._smallest_set()
        causes = [self._change(name) for name in smallest.names]
        causes.sort(key=lambda cause: (-cause.cells, -cause.n_pixels))
        final = self._trials.masks(self._with_changes(smallest.names))
        return Replayed(
            a=self._a,
            b=self._b,
            causes=tuple(causes),
            left=smallest.gap,
            n_cells=n_cells_in(final) + n_cells_in(self._masks_b),
            made=final,
        )

    def _smallest_set(self) -> _ChangeSet:
        """The fewest changes that leave no more than all of them together."""
        names = self._differing_names()
        everything = _ChangeSet(self._gap_with(names), names)
        # Where one side shows a part of the other, every set has that change.
        always = tuple(name for name in names if name == IMAGE_CROP)
        optional = [name for name in names if name != IMAGE_CROP]
        for n_changes in range(min(len(optional), MOST_CHANGES + 1)):
            sets = [(*always, *chosen) for chosen in itertools.combinations(optional, n_changes)]
            smallest = min(self._possible(sets), key=_n_differing, default=None)
            if smallest is not None and smallest.gap.n_differing <= everything.gap.n_differing:
                return smallest
        return everything

    def _gap_with(self, names: Iterable[str]) -> Gap:
        return self._trials.gap(self._with_changes(names), self._masks_b)

    def _possible(self, sets: Iterable[tuple[str, ...]]) -> Iterator[_ChangeSet]:
        """The gap that each set leaves, but for sets that Cellpose refuses."""
        for names in sets:
            gap = self._trials.gap_if_possible(self._with_changes(names), self._masks_b)
            if gap is not None:
                yield _ChangeSet(gap, names)

    def _differing_names(self) -> tuple[str, ...]:
        """Names whose values differ, and are recorded or found on both sides."""
        names = dict.fromkeys([*self._b.believed, *self._a.believed])
        return tuple(
            name
            for name in names
            if self._value(self._a, name) != self._value(self._b, name)
            and (name in self._recorded_a or self._a.came_to_something)
            and (name in self._recorded_b or self._b.came_to_something)
        )

    def _with_changes(self, names: Iterable[str]) -> Condition:
        """A's condition with B's values of some names."""
        condition = dict(self._a.believed)
        for name in names:
            condition.pop(name, None)
            if name in self._b.believed:
                condition[name] = self._b.believed[name]
        return condition

    def _change(self, name: str) -> Change:
        before = self._trials.masks(self._a.believed)
        after = self._trials.masks(self._with_changes([name]))
        if name == IMAGE_CROP:  # either of the two sides shows a part of the other
            crop = self._a.believed.get(IMAGE_CROP) or self._b.believed[IMAGE_CROP]
            before = _cut_out(before, crop)
            after = _cut_out(after, crop)
        gap = gap_between(before, after)
        return Change(
            name=name,
            a=self._value(self._a, name),
            b=self._value(self._b, name),
            cells=gap.n_unmatched,
            of_cells=n_cells_in(before) + n_cells_in(after),
            n_pixels=gap.n_differing,
        )

    def _value(self, fit: Fit, name: str) -> Any:
        return fit.believed.get(name, self._usual.get(name))


def _cut_out(masks: np.ndarray, crop: Crop) -> np.ndarray:
    """The part of masks that lies in a crop, unless they are of that part already."""
    (top, bottom), (left, right) = crop
    if masks.shape == (bottom - top, right - left):
        return masks
    return np.ascontiguousarray(masks[top:bottom, left:right])
