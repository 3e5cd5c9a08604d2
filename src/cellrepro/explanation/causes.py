"""What makes two results differ: both are made again, and the fewest changes between them found."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from cellrepro.explanation.conditions import IMAGE_CROP, VERSION, Condition, Crop, without
from cellrepro.explanation.search import MOST_CHANGES, NETWORK_NOTE, Fit, Search
from cellrepro.explanation.search_duration import SearchDuration
from cellrepro.explanation.trials import Gap, Trials, Usual, gap_between, n_cells_in
from cellrepro.model.weight_sources import ModelSource
from cellrepro.model.window import Window
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.interrupts import EndRequest
from cellrepro.results import derived
from cellrepro.spec.segmentation_settings import Settings


class RecordedResult(NamedTuple):
    """A result, and what is recorded of how it was made."""

    condition: Condition
    masks: np.ndarray
    """(Y, X), 0 is background."""
    is_network_certain: bool = False
    """Whether the digest of the network is the recorded one."""


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
    cut_short: bool = False
    """Whether the user ended the search, so that each side has the best fit until then."""


def replay(
    child: Child,
    *,
    sources: Mapping[str, ModelSource],
    image: np.ndarray,
    sides: Sequence[RecordedResult],
    search_minutes: float,
    end_request: EndRequest,
    shorter: str = "",
    window: Window | None = None,
) -> Replayed:
    """Runs in a child process: find the conditions of both results, and the changes between."""
    recorded_a, recorded_b = sides
    duration = SearchDuration(
        most_minutes=search_minutes, shorter=shorter, say=partial(child.tell, "note")
    )
    with child.prepared() as device:
        from cellrepro.determinism.generator_states import generators_kept

        trials = Trials(
            image,
            partial(_built, child=child, sources=sources, device=device),
            _usual(child, sources, metadata.version("cellpose")),
            window=window,
            elsewhere=partial(
                _with_another_version, child=child, sources=sources, image=image, window=window
            ),
            tell=duration.add,
        )
        search = partial(
            Search, trials, minutes=search_minutes / 2, is_ended=lambda: end_request.is_made
        )
        search_a, search_b = (
            search(each.masks, known=each.condition, is_network_certain=each.is_network_certain)
            for each in (recorded_a, recorded_b)
        )
        duration.expect("a", search_a.first_round())
        duration.expect("b", search_b.first_round())
        with generators_kept():
            doubts = {"A": search_a.doubts_network(), "B": search_b.doubts_network()}
            for letter in (letter for letter, is_doubted in doubts.items() if is_doubted):
                child.tell("note", _network_note(letter, next(iter(sources))))
            if doubts["B"] and not search_a.is_settled:
                duration.begin("b")
                b = search_b.fit(near={})
                child.tell("done", "B")
                duration.begin("a")
                a = _fit_beside(search_a, b)
                child.tell("done", "A")
            else:
                a = search_a.fit(near={})
                child.tell("done", "A")
                duration.begin("b")
                b = _fit_beside(search_b, a)
                child.tell("done", "B")
            replayed = _Causes(trials, a, b, recorded_a, recorded_b).replayed()
            child.tell("done", "causes")
            return replace(replayed, cut_short=end_request.is_made)


def _fit_beside(search: Search, other: Fit) -> Fit:
    """Search near the condition of the other result, unless that has another network."""
    near = without(other.believed, IMAGE_CROP)
    if other.network_doubt and not search.is_settled:
        return search.start_alone(near=near)
    return search.fit(near=near)


def _network_note(letter: str, network: str) -> str:
    return (
        f"{NETWORK_NOTE} than {network}, or the image was read otherwise: {letter} records the "
        "settings that decide, and with them less than half of its cells are made again. What "
        "nobody recorded is still tried, one value after the other, and no combinations; --model "
        "takes the right network"
    )


def masks_under(
    child: Child,
    *,
    sources: Mapping[str, ModelSource],
    image: np.ndarray,
    condition: Condition,
    window: Window | None = None,
) -> np.ndarray:
    """Runs in a child process with a different version of Cellpose: segment under a condition."""
    with child.prepared() as device:
        build = partial(_built, child=child, sources=sources, device=device)
        return Trials(image, build, _usual(child, sources), window=window).masks(condition)


def _built(
    model: str, precision: str, *, child: Child, sources: Mapping[str, ModelSource], device: Any
) -> Any:
    from cellrepro.model.network import build

    return build(sources[model], seed=child.setup.seed, device=device, dtype=precision)


def _usual(child: Child, sources: Mapping[str, ModelSource], version: str | None = None) -> Usual:
    return Usual(next(iter(sources)), child.setup.profile.dtype, version)


def _with_another_version(
    condition: Condition,
    *,
    child: Child,
    sources: Mapping[str, ModelSource],
    image: np.ndarray,
    window: Window | None,
) -> np.ndarray:
    """Segment under a condition, in a process that has its version of Cellpose."""
    version = condition[VERSION]
    task = partial(
        masks_under,
        sources=sources,
        image=image,
        condition=without(condition, VERSION),
        window=window,
    )
    setup = replace(child.setup, cellpose=version)
    return in_child(task, setup, label=f"replay with Cellpose {version}")


# -- the changes between the two -------------------------------------------------------------


class _ChangeSet(NamedTuple):
    """Some changes of A, by name, and the gap that they leave to B."""

    gap: Gap
    names: tuple[str, ...]


def _n_differing(changes: _ChangeSet) -> int:
    return changes.gap.n_differing


class _Causes:
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
