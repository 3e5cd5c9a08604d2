"""One image segmented again under other conditions, to find those under which a result was made.

A condition is what is not usual, by name: settings of ``eval``, ``precision``, the version of
Cellpose, and what the image was read as (``image.depth``, ``image.channels``, ``image.crop``).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from cellrepro.asked.segmentation_settings import NAMES, Settings
from cellrepro.bits.digests import value_digest
from cellrepro.errors import BadInput, CellreproError
from cellrepro.model.network import ModelSource
from cellrepro.model.shared_steps import Held
from cellrepro.process.calling import in_child
from cellrepro.process.cellpose_versions import is_installed
from cellrepro.process.child import Child
from cellrepro.same.matching import matches, overlap, partners

PRECISION, MODEL, VERSION = "precision", "model", "cellpose"
DEPTH, CHANNELS, CROP = "image.depth", "image.channels", "image.crop"
Condition = dict[str, Any]
Gap = tuple[int, int]
"""Cells without a counterpart at IoU 0.5, of both sides, and differing pixels."""
_Found = tuple[Gap, Condition]

TRIED: Mapping[str, tuple[Any, ...]] = {
    PRECISION: ("bfloat16", "float32"),
    DEPTH: ("8 bit", "8 bit over its range"),
    CHANNELS: ("reversed", "1", "2", "3", "mean", "1 3 2", "2 1 3", "2 3 1", "3 1 2"),
    "flow_threshold": (0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 1.0),
    "cellprob_threshold": (-6.0, -4.0, -3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0),
    "niter": (20, 50, 100, 150, 300, 500, 1000),
    "min_size": (-1, 5, 30, 50, 100, 200, 500),
    "max_size_fraction": (0.01, 0.05, 0.1, 0.2, 1.0),
    "normalize.normalize": (False,),
    "diameter": (10.0, 12.0, 15.0, 17.0, 20.0, 24.0, 27.0, 35.0, 40.0, 45.0, 50.0, 60.0, 75.0),
    "normalize.percentile": (
        *((0.0, 100.0), (0.1, 99.9), (1.0, 99.9), (2.0, 98.0), (3.0, 97.0), (5.0, 95.0)),
    ),
    "normalize.sharpen": (2.0, 4.0, 8.0),
    "normalize.smooth_radius": (1.0, 2.0, 4.0),
    "normalize.tile_norm_blocksize": (50, 100, 200),
    "normalize.invert": (True,),
    "augment": (True,),
    "tile_overlap": (0.05, 0.25, 0.5),
}  # fmt: skip
"""What is tried of what nobody recorded; of two that explain as much, the first is believed."""

_NUMBERS: Mapping[str, tuple[Any, ...]] = {
    "diameter": tuple(sorted((*TRIED["diameter"], 30.0))),
    "flow_threshold": tuple(sorted((*TRIED["flow_threshold"], 0.4))),
    "cellprob_threshold": tuple(sorted((*TRIED["cellprob_threshold"], 0.0))),
    "niter": tuple(sorted((*TRIED["niter"], 200))),
    "min_size": tuple(sorted((*TRIED["min_size"], 15))),
}
"""Settings that are tried between these values, too."""

_STEPS: Mapping[str, tuple[Any, ...]] = {
    "diameter": (1.0, 0.5, 0.1),
    "flow_threshold": (0.1, 0.05, 0.01),
    "cellprob_threshold": (0.5, 0.1, 0.05, 0.01),
    "niter": (50, 10, 1),
    "min_size": (10, 5, 1),
}
"""How fine a number is tried: people choose round ones, so multiples of these, coarse ones first.
"""
_TELL_SECONDS = 5.0
_MOST_CHANGES = 3
_MOST_ROUNDS = 4  # in which each change is set anew beside the others
_LESS = 0.8  # of the differing pixels that one more change must leave at most
_PAIRS = (("cellprob_threshold", "flow_threshold"), ("diameter", "cellprob_threshold"))
"""Settings that are searched together: the best value of one depends on the other's."""
_FEW: Mapping[str, tuple[float, ...]] = {
    "flow_threshold": (0.0, 0.2, 0.4, 0.6, 1.0),
    "cellprob_threshold": (-3.0, -1.0, 0.0, 1.0, 3.0),
}
_GRID: Mapping[str, tuple[float, ...]] = {
    "cellprob_threshold": _NUMBERS["cellprob_threshold"],
    # A diameter that is wrong by a tenth may give quite other cells: none between shows the way.
    "diameter": (*(float(n) for n in range(10, 41)), 45.0, 50.0, 60.0, 75.0),
}
_STARTS = 2  # pairs of values around which the search goes on
_AS_GOOD_AS_EQUAL = 1e-3  # of the pixels of cells: what rounding on another device changes
_IN_PART = 0.5  # of a result's cells made again pixel for pixel: other settings make none


class Found(StrEnum):
    """Whether the conditions of a result were found; each member equals its word."""

    MADE = "made"  # it was made again
    IN_PART = "in part"  # at least half of its cells were, pixel for pixel
    NOT_FOUND = "not found"
    VACUOUS = "vacuous"  # it has no cell: any condition that finds nothing makes it


@dataclass(frozen=True)
class Fit:
    """The condition that comes closest to a result, and what it leaves."""

    condition: Condition
    start: Condition  # what is recorded, beside which the rest was searched
    gap: Gap
    n_cells: int  # of both sides
    n_target: int  # cells of the result
    n_exact: int  # of these made again pixel for pixel
    n_pixels: int  # of the result's cells
    n_tried: int
    stopped: bool = False  # before everything was tried, since time was up
    empty_with: tuple[tuple[str, Any], ...] = ()  # changes with which nothing is found

    @property
    def found(self) -> Found:
        """Whether this is how the result was made."""
        n_unmatched, n_differing = self.gap
        if self.empty_with or (not self.n_target and n_differing):
            return Found.VACUOUS
        if not n_unmatched and n_differing <= _AS_GOOD_AS_EQUAL * self.n_pixels:
            return Found.MADE
        return Found.IN_PART if self.n_exact >= _IN_PART * self.n_target else Found.NOT_FOUND

    @property
    def believed(self) -> Condition:
        """The condition as far as it may be called a cause."""
        return self.condition if self.found in (Found.MADE, Found.IN_PART) else self.start


@dataclass(frozen=True)
class Cause:
    """One change from A's condition to B's, by itself."""

    name: str
    a: Any
    b: Any
    gap: Gap  # between A and A with this change alone
    n_cells: int  # of these two


@dataclass(frozen=True)
class Replayed:
    """What replaying two results from one condition to the other has shown."""

    a: Fit
    b: Fit
    causes: tuple[Cause, ...]  # the fewest changes that leave no more than all together
    left: Gap  # between B and A with these
    n_cells: int  # of these two


def as_read(image: np.ndarray, condition: Mapping[str, Any]) -> np.ndarray:
    """The image as another reader may have given it: (Y, X) or (Y, X, C)."""
    depth, channels, crop = (condition.get(name) for name in (DEPTH, CHANNELS, CROP))
    if depth == "8 bit":
        image = (image >> 8 if image.dtype == np.uint16 else image).astype(np.uint8)
    elif depth is not None:
        low, high = float(image.min()), float(image.max())
        image = np.rint((image - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)
    if channels == "reversed":
        image = image[..., ::-1]
    elif channels == "mean":
        image = image.mean(axis=-1).astype(image.dtype)
    elif channels is not None:
        image = image[..., [int(one) - 1 for one in channels.split()]]
        image = image[..., 0] if image.shape[-1] == 1 else image
    if crop is not None:
        (y0, y1), (x0, x1) = crop
        image = image[y0:y1, x0:x1]
    return np.ascontiguousarray(image)


def readings(image: np.ndarray) -> Iterator[Condition]:
    """The conditions of an image that make another one of it."""
    for name in (DEPTH, CHANNELS):
        for value in TRIED[name]:
            if _applies(name, value, image):
                yield {name: value}


def _applies(name: str, value: Any, image: np.ndarray) -> bool:
    if name == DEPTH:
        return image.dtype == np.uint16 or (value != "8 bit" and image.dtype != np.uint8)
    if name == CHANNELS:
        n = image.shape[2] if image.ndim == 3 else 1
        return (
            n > 1
            and all(int(one) <= n for one in value if one.isdigit())
            and value.count(" ") in (0, n - 1)
        )
    return True


@dataclass
class Replay:
    """Segments one image under any condition, each once."""

    image: np.ndarray
    build: Callable[[str, str], Any]  # a network, by model and precision
    usual: Mapping[str, Any]  # model, precision and version
    elsewhere: Callable[[Condition], np.ndarray] | None = None  # labels by another version
    minutes: float = math.inf  # after which a search ends
    tell: Callable[[int], None] = lambda n_tried: None  # is told after each condition
    n_tried: int = 0
    _n_tried_before: int = 0  # this search
    _stop_at: float = math.inf
    _stopped: bool = False
    _made: Held = field(default_factory=Held)
    _evaluators: dict[Any, Any] = field(default_factory=dict)

    def masks(self, condition: Mapping[str, Any]) -> np.ndarray:
        """The labels under a condition; of a crop, the whole of the crop."""
        key = value_digest(sorted((n, str(v)) for n, v in condition.items()))
        return self._made.get(key, lambda: self._segmented(condition))

    def _segmented(self, condition: Mapping[str, Any]) -> np.ndarray:
        from cellrepro.model.inference import evaluator

        self.n_tried += 1
        self.tell(self.n_tried - self._n_tried_before)
        if self._is_elsewhere(condition) and self.elsewhere is not None:
            return self.elsewhere(dict(condition))
        network = tuple(condition.get(name, self.usual[name]) for name in (MODEL, PRECISION))
        if network not in self._evaluators:
            self._evaluators[network] = evaluator(self.build(*network), sharing=True)
        settings = Settings().but(**{n: v for n, v in condition.items() if n in NAMES})
        image = as_read(self.image, condition)
        masks, *_ = self._evaluators[network](image, **settings.arguments())
        return masks.astype(np.uint32)

    def gap(self, condition: Mapping[str, Any], to: np.ndarray) -> Gap:
        """Between a result and the labels under a condition."""
        return gap_between(self.masks(condition), to)

    def fit(self, known: Condition, near: Condition, to: np.ndarray) -> Fit:
        """The condition that comes closest to a result, where only some of it is known.

        What is unknown is first as ``near``; then one change after the other is added, each the
        best of all that are tried, as long as it explains a good part of what is left. Where one
        change does not make the result, some are searched together, too: the best diameter beside
        the usual threshold may be far from the one beside the right threshold.
        """
        self._n_tried_before = self.n_tried
        self._stop_at = time.monotonic() + 60 * self.minutes
        self._stopped = False
        start = self._best([{**near, **known}, known], to)
        if CROP in known and start[0][1]:
            start = self._moved(start, to)
            known = known | {CROP: start[1][CROP]}
        if not to.any():
            return self._fitted(start, start, to, self._empty(start, known, to))
        best = start
        if start[0][1]:
            best = self._with_one_more(start, known, to)
        if best[0][1]:
            firsts = [best]
            for pair in _PAIRS:
                if (
                    firsts[-1][0][1]
                    and not known.keys() & {*pair}
                    and not self._is_elsewhere(known)
                ):
                    firsts.append(self._jointly(pair, start, known, to))
            for first in sorted(firsts, key=_n_differing):
                best = min(best, self._added(first, start, known, to), key=_n_differing)
                if not best[0][1]:
                    break
        return self._fitted(best, start, to)

    def _fitted(
        self,
        best: _Found,
        start: _Found,
        to: np.ndarray,
        empty_with: tuple[tuple[str, Any], ...] = (),
    ) -> Fit:
        made = self.masks(best[1])
        table = overlap(made, to)
        whole = (table.pixels == table.areas_a[table.rows]) & (
            table.pixels == table.areas_b[table.columns]
        )
        return Fit(
            condition=best[1],
            start={**start[1], **{n: v for n, v in best[1].items() if n == CROP}},
            gap=best[0],
            n_cells=table.n_a + table.n_b,
            n_target=table.n_b,
            n_exact=int(np.count_nonzero(whole)),
            n_pixels=int(np.count_nonzero(to)),
            n_tried=self.n_tried - self._n_tried_before,
            stopped=self._stopped,
            empty_with=empty_with,
        )

    def _empty(
        self, start: _Found, known: Condition, to: np.ndarray
    ) -> tuple[tuple[str, Any], ...]:
        """The changes beside a start with which nothing is found; none where it is so already."""
        if not start[0][1]:
            return ()
        found: list[tuple[str, Any]] = []
        for change in self._untried(known):
            if time.monotonic() > self._stop_at:
                self._stopped = True
                break
            gap = _tried(self, {**start[1], **change}, to)
            if gap == (0, 0):
                found += change.items()
        return tuple(found)

    def _added(self, best: _Found, start: _Found, known: Condition, to: np.ndarray) -> _Found:
        """With one change after the other, as long as each explains a good part of what is left."""
        while best[0][1] and len(_changed(start[1], best[1])) < _MOST_CHANGES:
            found = self._with_one_more(best, known, to)
            if found[1] == best[1]:
                break
            best = found
        return best

    def _with_one_more(self, best: _Found, known: Condition, to: np.ndarray) -> _Found:
        """With the one change that leaves least of all that are tried; as it was, if none helps."""
        changes = list(self._untried(known))
        if not changes:
            return best
        found = self._best([{**best[1], **one} for one in changes], to)
        found = self._polished(found, known, to)
        if CROP in known and found[0][1]:
            found = self._moved(found, to)
        return best if found[0][1] > _LESS * best[0][1] else found

    def _jointly(
        self, pair: tuple[str, str], start: _Found, known: Condition, to: np.ndarray
    ) -> _Found:
        """The best values of two settings that hide each other.

        Every value of one is seen beside the value of the other that suits it best, first on a
        coarse grid, then around the best of it.
        """
        one, other = pair

        def best_of(value: Any, among: Iterable[Any]) -> _Found:
            return self._best([{**start[1], one: value, other: near} for near in among], to)

        coarse = [best_of(value, _FEW[other]) for value in _GRID[one]]
        coarse.sort(key=_n_differing)
        found = [self._polished(coarse[0], known, to)]
        for best in coarse[:_STARTS]:
            if self._stopped or not found[-1][0][1]:
                break
            low, high = _neighbours(one, best[1][one])
            for step in _STEPS[one]:
                around = _around(_NUMBERS[other], best[1][other])
                tried = [best_of(value, around) for value in _multiples(low, high, step)]
                best = min([best, *tried], key=_n_differing)
                low = best[1][one] - step
                high = best[1][one] + step
            found.append(self._polished(best, known, to))
        return min(found, key=_n_differing)

    def _moved(self, found: _Found, to: np.ndarray) -> _Found:
        """With a crop that lies a few pixels elsewhere: its masks told only about where it lies."""
        for axis in (0, 1, 0):
            moved = []
            for by in (-1, 1, -2, 2, -3, 3):
                crop = [*found[1][CROP]]
                crop[axis] = tuple(place + by for place in crop[axis])
                if crop[axis][0] >= 0 and crop[axis][1] <= self.image.shape[axis]:
                    moved.append({**found[1], CROP: tuple(crop)})
            found = self._best([found[1], *moved], to)
        return found

    def _polished(self, found: _Found, known: Condition, to: np.ndarray) -> _Found:
        """Each change at its best value beside the others, and without those that do nothing."""
        for _ in range(_MOST_ROUNDS):
            before = found
            for name in _searched(found[1], known):
                values = [{**found[1], name: value} for value in TRIED.get(name, ())]
                found = self._best([found[1], *values], to)
                found = self._refined(found, name, to)
                without = {n: value for n, value in found[1].items() if n != name}
                found = self._best([without, found[1]], to)
            if not found[0][1] or found[0][1] >= before[0][1]:
                break
        return found

    def _untried(self, known: Mapping[str, Any]) -> Iterator[Condition]:
        if self._is_elsewhere(known):
            return  # each would take a process of its own
        for name, values in TRIED.items():
            for value in values if name not in known else ():
                if _applies(name, value, self.image):
                    yield {name: value}

    def _is_elsewhere(self, known: Mapping[str, Any]) -> bool:
        return not is_installed(known.get(VERSION))

    def _best(self, conditions: Iterable[Condition], to: np.ndarray) -> _Found:
        """The first of those with fewest differing pixels: they say more than cells, and sooner."""
        found: list[_Found] = []
        refused: CellreproError = BadInput("no condition was given")
        for condition in conditions:
            if found and time.monotonic() > self._stop_at:
                self._stopped = True
                break
            try:
                found.append((self.gap(condition, to), condition))
            except CellreproError as error:  # Cellpose may ignore one of these beside the others
                refused = error
            if found and not found[-1][0][1]:
                break
        if not found:
            raise refused
        return min(found, key=_n_differing)

    def _refined(self, found: _Found, name: str, to: np.ndarray) -> _Found:
        """With a number between those that were tried, around the one that was best."""
        if name not in _NUMBERS or not isinstance(found[1].get(name), int | float):
            return found
        low, high = _neighbours(name, found[1][name])
        for step in _STEPS[name]:
            if not found[0][1]:
                break
            values = _multiples(low, high, step)
            found = self._best([found[1], *({**found[1], name: value} for value in values)], to)
            low = max(low, found[1][name] - step)
            high = min(high, found[1][name] + step)
        return found


def _n_differing(found: _Found) -> int:
    return found[0][1]


def _searched(condition: Condition, known: Mapping[str, Any]) -> list[str]:
    """What of a condition nobody recorded."""
    return [name for name in condition if name not in known]


def _changed(before: Condition, after: Condition) -> list[str]:
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def _neighbours(name: str, value: Any) -> tuple[Any, Any]:
    """The nearest of the values that are tried, below and above one."""
    below = [one for one in _NUMBERS[name] if one < value]
    above = [one for one in _NUMBERS[name] if one > value]
    return max(below, default=value), min(above, default=value)


def _multiples(low: Any, high: Any, step: Any) -> list[Any]:
    """The multiples of a step between two values, which are left out.

    >>> _multiples(20.0, 22.0, 0.5), _multiples(-1, 16, 5)
    ([20.5, 21.0, 21.5], [0, 5, 10, 15])
    """
    first = math.floor(low / step) + 1
    last = math.ceil(high / step) - 1
    found = [round(i * step, 4) for i in range(first, last + 1)]
    return [value for value in found if low < value < high]


def _around(values: Sequence[float], value: float) -> list[float]:
    """A value, its neighbours among those that are tried, and the middles between."""
    nearest = min(range(len(values)), key=lambda i: abs(values[i] - value))
    low = values[max(nearest - 1, 0)]
    high = values[min(nearest + 1, len(values) - 1)]
    return sorted({low, (low + value) / 2, value, (value + high) / 2, high})


def gap_between(a: np.ndarray, b: np.ndarray) -> Gap:
    """How far two results are apart, counted as `cellrepro.compare_masks` does."""
    if np.array_equal(a, b):
        return 0, 0
    table = overlap(a, b)
    n_shared = int(table.pixels.sum())
    n_agree = int(table.pixels[partners(table)].sum())
    n_differing = int(table.areas_a.sum() + table.areas_b.sum()) - n_shared - n_agree
    return table.n_a + table.n_b - 2 * len(matches(table, 0.5)), n_differing


def replay(
    child: Child,
    *,
    sources: Mapping[str, ModelSource],
    image: np.ndarray,
    sides: Sequence[tuple[Condition, np.ndarray]],
    search_minutes: float,
) -> Replayed:
    """Inside the child: find the conditions of both results, and the changes between them."""
    with child.prepared() as device:
        from cellrepro.determinism.seeds import generators_kept
        from cellrepro.model.network import build

        def built(model: str, precision: str) -> Any:
            return build(sources[model], seed=child.setup.seed, device=device, dtype=precision)

        usual = {MODEL: next(iter(sources)), PRECISION: child.setup.profile.dtype}
        usual |= {VERSION: metadata.version("cellpose")}

        def elsewhere(condition: Condition) -> np.ndarray:
            version = condition.pop(VERSION)
            setup = replace(child.setup, cellpose=version)
            task = partial(masks_under, sources=sources, image=image, condition=condition)
            return in_child(task, setup, label=f"replay with Cellpose {version}")

        side = "A"
        told_at = time.monotonic()

        def tell(n_tried: int) -> None:
            nonlocal told_at
            if time.monotonic() - told_at > _TELL_SECONDS:
                told_at = time.monotonic()
                child.tell("note", f"{side}: {n_tried} settings tried")

        again = Replay(image, built, usual, elsewhere, search_minutes / 2, tell)
        (known_a, masks_a), (known_b, masks_b) = sides
        with generators_kept():
            a = again.fit(known_a, {}, masks_a)
            child.tell("done", "A")
            side = "B"
            near = {name: value for name, value in a.believed.items() if name != CROP}
            b = again.fit(known_b, near, masks_b)
            child.tell("done", "B")
            found = _explained(again, a, b, known_a, known_b, masks_b)
            child.tell("done", "causes")
            return found


def masks_under(
    child: Child, *, sources: Mapping[str, ModelSource], image: np.ndarray, condition: Condition
) -> np.ndarray:
    """Inside a child that has another version of Cellpose: the labels under one condition."""
    from cellrepro.model.network import build

    with child.prepared() as device:
        usual = {MODEL: next(iter(sources)), PRECISION: child.setup.profile.dtype}

        def built(model: str, precision: str) -> Any:
            return build(sources[model], seed=child.setup.seed, device=device, dtype=precision)

        return Replay(image, built, usual).masks(condition)


def _explained(
    again: Replay,
    a: Fit,
    b: Fit,
    known_a: Condition,
    known_b: Condition,
    masks_b: np.ndarray,
) -> Replayed:
    """The smallest set of changes that leaves no more than all of them.

    Of a side that was not found only what is recorded may be called a cause.
    """
    usual = {**Settings().flat, **again.usual}
    sides = ((a, known_a), (b, known_b))
    names = [
        name
        for name in dict.fromkeys([*b.believed, *a.believed])
        if _value(a, name, usual) != _value(b, name, usual)
        and all(_is_settled(name, fit, known) for fit, known in sides)
    ]

    def with_changes(chosen: Iterable[str]) -> Condition:
        condition = dict(a.believed)
        for name in chosen:
            condition.pop(name, None)
            if name in b.believed:
                condition[name] = b.believed[name]
        return condition

    cropped = [name for name in names if name == CROP]
    best: tuple[Gap, tuple[str, ...]] = (again.gap(with_changes(names), masks_b), tuple(names))
    free = [name for name in names if name != CROP]
    for n in range(min(len(free), _MOST_CHANGES + 1)):
        sets = [(*cropped, *chosen) for chosen in itertools.combinations(free, n)]
        found = [(gap, one) for one in sets if (gap := _tried(again, with_changes(one), masks_b))]
        smallest = min(found, key=lambda one: one[0][1], default=None)
        if smallest is not None and smallest[0][1] <= best[0][1]:
            best = smallest
            break
    causes = []
    for name in best[1]:
        before = again.masks(a.believed)
        after = again.masks(with_changes([name]))
        if name == CROP:  # either of the two sides shows a part of the other
            crop = a.believed.get(CROP) or b.believed[CROP]
            before, after = (_cut_out(masks, crop) for masks in (before, after))
        gap = gap_between(before, after)
        n_cells = _n_cells(before) + _n_cells(after)
        causes.append(Cause(name, _value(a, name, usual), _value(b, name, usual), gap, n_cells))
    causes.sort(key=lambda one: (-one.gap[0], -one.gap[1]))
    final = again.masks(with_changes(best[1]))
    return Replayed(a, b, tuple(causes), best[0], _n_cells(final) + _n_cells(masks_b))


def _cut_out(masks: np.ndarray, crop: Any) -> np.ndarray:
    """The part of masks that lies in a crop; those of the crop alone stay as they are."""
    (y0, y1), (x0, x1) = crop
    if masks.shape == (y1 - y0, x1 - x0):
        return masks
    return np.ascontiguousarray(masks[y0:y1, x0:x1])


def _n_cells(masks: np.ndarray) -> int:
    return int(np.count_nonzero(np.unique(masks)))


def _is_settled(name: str, fit: Fit, known: Condition) -> bool:
    """Whether a value of a side is recorded, or found by a search that came to something."""
    return name in known or fit.found in (Found.MADE, Found.IN_PART)


def _value(fit: Fit, name: str, usual: Mapping[str, Any]) -> Any:
    return fit.believed.get(name, usual.get(name))


def _tried(again: Replay, condition: Condition, to: np.ndarray) -> Gap | None:
    try:
        return again.gap(condition, to)
    except CellreproError:
        return None
