"""One image segmented again under other conditions, to find those under which a result was made.

A condition is what is not usual, by name: settings of ``eval``, ``precision``, the version of
Cellpose, and what the image was read as (``image.depth``, ``image.channels``, ``image.crop``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

import numpy as np

from cellrepro.compare.metrics import compare_masks
from cellrepro.errors import BadInput, CellreproError
from cellrepro.lab.environments import is_installed
from cellrepro.lab.process import Child, call
from cellrepro.model.network import ModelSource
from cellrepro.store.digests import value_digest
from cellrepro.store.settings import NAMES, Settings

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
    "diameter": (*TRIED["diameter"], 30.0),
    "flow_threshold": (*TRIED["flow_threshold"], 0.4),
    "cellprob_threshold": (*TRIED["cellprob_threshold"], 0.0),
    "niter": (*TRIED["niter"], 200),
    "min_size": (*TRIED["min_size"], 15),
}
"""Settings that are tried between these values, too."""
_MOST_CHANGES = 3
_LESS = 0.8  # of the differing pixels that one more change must leave at most


@dataclass(frozen=True)
class Fit:
    """The condition that comes closest to a result, and what it leaves."""

    condition: Condition
    gap: Gap
    n_cells: int  # of both sides
    n_tried: int


@dataclass(frozen=True)
class Cause:
    """One change from A's condition to B's, by itself."""

    name: str
    a: Any
    b: Any
    gap: Gap  # between A and A with this change alone
    n_cells: int


@dataclass(frozen=True)
class Replayed:
    """What replaying two results from one condition to the other has shown."""

    a: Fit
    b: Fit
    causes: tuple[Cause, ...]  # the fewest changes that leave no more than all together
    left: Gap  # between B and A with these
    n_cells: int


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
    n_tried: int = 0
    _made: dict[str, np.ndarray] = field(default_factory=dict)
    _evaluators: dict[Any, Any] = field(default_factory=dict)

    def masks(self, condition: Mapping[str, Any]) -> np.ndarray:
        """The labels under a condition; of a crop, the whole of the crop."""
        from cellrepro.model.inference import evaluator

        key = value_digest(sorted((n, str(v)) for n, v in condition.items()))
        version = condition.get(VERSION)
        if key not in self._made and not is_installed(version) and self.elsewhere is not None:
            self._made[key] = self.elsewhere(dict(condition))
            self.n_tried += 1
        if key not in self._made:
            network = tuple(condition.get(name, self.usual[name]) for name in (MODEL, PRECISION))
            if network not in self._evaluators:
                self._evaluators[network] = evaluator(self.build(*network), sharing=True)
            settings = Settings().but(**{n: v for n, v in condition.items() if n in NAMES})
            image = as_read(self.image, condition)
            masks, *_ = self._evaluators[network](image, **settings.arguments())
            self._made[key] = masks.astype(np.uint32)
            self.n_tried += 1
        return self._made[key]

    def gap(self, condition: Mapping[str, Any], to: np.ndarray) -> Gap:
        """Between a result and the labels under a condition."""
        return gap_between(self.masks(condition), to)

    def fit(self, known: Condition, near: Condition, to: np.ndarray) -> Fit:
        """The condition that comes closest to a result, where only some of it is known.

        What is unknown is first as ``near``; then one change after the other is added, each the
        best of all that are tried, as long as it explains a good part of what is left.
        """
        best = self._best([{**near, **known}, known], to)
        if CROP in known and best[0][1]:
            best = self._moved(best, to)
            known = known | {CROP: best[1][CROP]}
        for _ in range(_MOST_CHANGES):
            if not best[0][1]:
                break
            found = self._best([{**best[1], **one} for one in self._untried(known)], to)
            found = self._polished(found, known, to)
            if CROP in known and found[0][1]:
                found = self._moved(found, to)
            if found[0][1] > _LESS * best[0][1]:
                break
            best = found
            known = known | {name: best[1][name] for name in known if name == CROP}
        n_cells = sum(int(np.count_nonzero(np.unique(m))) for m in (self.masks(best[1]), to))
        return Fit(best[1], best[0], n_cells, self.n_tried)

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
        for name in [name for name in found[1] if name not in known]:
            values = [{**found[1], name: value} for value in TRIED.get(name, ())]
            found = self._best([found[1], *values], to)
            found = self._best([found[1], *self._between(found[1], name)], to)
            without = {n: value for n, value in found[1].items() if n != name}
            found = self._best([without, found[1]], to)
        return found

    def _untried(self, known: Mapping[str, Any]) -> Iterator[Condition]:
        if not is_installed(known.get(VERSION)):
            return  # each would take a process of its own
        for name, values in TRIED.items():
            for value in values if name not in known else ():
                if _applies(name, value, self.image):
                    yield {name: value}

    def _best(self, conditions: Iterable[Condition], to: np.ndarray) -> _Found:
        """The first of those with fewest differing pixels: they say more than cells, and sooner."""
        found: list[_Found] = []
        refused: CellreproError = BadInput("no condition was given")
        for condition in conditions:
            try:
                found.append((self.gap(condition, to), condition))
            except CellreproError as error:  # Cellpose may ignore one of these beside the others
                refused = error
            if found and not found[-1][0][1]:
                break
        if not found:
            raise refused
        return min(found, key=lambda one: one[0][1])

    def _between(self, condition: Condition, name: str) -> list[Condition]:
        """Values between those that were tried, around the one that was best."""
        values = sorted(_NUMBERS.get(name, ()))
        if condition.get(name) not in values:
            return []
        i = values.index(condition[name])
        between = np.linspace(values[max(i - 1, 0)], values[min(i + 1, len(values) - 1)], 21)[1:-1]
        whole = isinstance(condition[name], int)
        fine = [round(value) if whole else round(value, 2) for value in between.tolist()]
        return [{**condition, name: value} for value in fine]


def gap_between(a: np.ndarray, b: np.ndarray) -> Gap:
    """How far two results are apart."""
    if np.array_equal(a, b):
        return 0, 0
    found = compare_masks(a, b)
    return found.n_unmatched, found.n_differing


def replay(
    child: Child,
    *,
    sources: Mapping[str, ModelSource],
    image: np.ndarray,
    sides: Sequence[tuple[Condition, np.ndarray]],
) -> Replayed:
    """Inside the child: find the conditions of both results, and the changes between them."""
    with child.prepared() as device:
        from cellrepro.determinism.seeding import generators_kept
        from cellrepro.model.network import build

        def built(model: str, precision: str) -> Any:
            return build(sources[model], seed=child.setup.seed, device=device, dtype=precision)

        usual = {MODEL: next(iter(sources)), PRECISION: child.setup.profile.dtype}
        usual |= {VERSION: metadata.version("cellpose")}

        def elsewhere(condition: Condition) -> np.ndarray:
            version = condition.pop(VERSION)
            setup = replace(child.setup, cellpose=version)
            work, label = f"{__name__}:masks_under", f"replay with Cellpose {version}"
            given: Any = {"sources": sources, "image": image, "condition": condition}
            return call(work, setup, label=label, **given)

        again = Replay(image, built, usual, elsewhere)
        (known_a, masks_a), (known_b, masks_b) = sides
        with generators_kept():
            a = again.fit(known_a, {}, masks_a)
            child.tell("done", "A")
            near = {name: value for name, value in a.condition.items() if name != CROP}
            b = again.fit(known_b, near, masks_b)
            child.tell("done", "B")
            return _explained(again, a, b, masks_b)


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


def _explained(again: Replay, a: Fit, b: Fit, masks_b: np.ndarray) -> Replayed:
    """The smallest set of changes that leaves no more than all of them."""
    usual = {**Settings().flat, **again.usual}
    names = [
        n
        for n in dict.fromkeys([*b.condition, *a.condition])
        if _value(a, n, usual) != _value(b, n, usual)
    ]

    def with_changes(chosen: Iterable[str]) -> Condition:
        condition = dict(a.condition)
        for name in chosen:
            condition.pop(name, None)
            if name in b.condition:
                condition[name] = b.condition[name]
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
        base = {n: v for n, v in a.condition.items() if n != CROP}
        changed = with_changes([name])
        crop = changed.get(CROP)
        before = again.masks(base)
        if crop is not None:
            (y0, y1), (x0, x1) = crop
            before = before[y0:y1, x0:x1]
        gap = _tried(again, changed, before) or (0, 0)
        n_cells = sum(int(np.count_nonzero(np.unique(m))) for m in (before, again.masks(changed)))
        causes.append(Cause(name, _value(a, name, usual), _value(b, name, usual), gap, n_cells))
    causes.sort(key=lambda one: (-one.gap[0], -one.gap[1]))
    final = again.masks(with_changes(best[1]))
    n_cells = sum(int(np.count_nonzero(np.unique(m))) for m in (final, masks_b))
    return Replayed(a, b, tuple(causes), best[0], n_cells)


def _value(fit: Fit, name: str, usual: Mapping[str, Any]) -> Any:
    return fit.condition.get(name, usual.get(name))


def _tried(again: Replay, condition: Condition, to: np.ndarray) -> Gap | None:
    try:
        return again.gap(condition, to)
    except CellreproError:
        return None
