"""A small file to hold later results to, for continuous integration: saved once, checked often."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cellrepro.asked import defaults
from cellrepro.changes.named import MaskReaders, kind_of, masks_of
from cellrepro.errors import BadInput
from cellrepro.results import Result, Row
from cellrepro.same.axes import AXES
from cellrepro.same.labels import canonical
from cellrepro.same.mask_totals import totals_over
from cellrepro.same.metrics import MaskComparison, compare_masks
from cellrepro.same.object_changes import ObjectChange, ObjectKind
from cellrepro.same.seed_spread import Pair, measure_spread
from cellrepro.store import baseline_file
from cellrepro.store.baseline_file import BaselineFile
from cellrepro.store.store import Repeat, Store
from cellrepro.words import amount, ppm_text, share_text, some

Limits = dict[str, float]
"""``max_ppm``: differing pixels per million of any one image; ``max_changed``: share of the cells
of both sides without a match at IoU 0.5; ``max_lost``: cells of the baseline without a counterpart.
One that is left out is not held to."""

# ``reproducibility_tolerance`` of model descriptions 0.5, as bioimageio.spec 0.5.14.3 takes it.
_MOST_FOR_BIOIMAGE_IO = 30_000  # pixels per million
_OF_LABELS = {"relative_tolerance": 0.0, "absolute_tolerance": 0.0}  # the same or not


class Cell(NamedTuple):
    """A cell of a baseline."""

    image: str
    label: int
    """In the baseline."""
    area: int
    """Pixels."""


class ChangedCell(NamedTuple):
    """What became of a cell, and the image in which it lies."""

    image: str
    change: ObjectChange


@dataclass(frozen=True, repr=False)
class BaselineCheck(Result):
    """How masks stand beside a baseline."""

    ok: bool
    ppm: float
    """Differing pixels per million of the image that differs most."""
    changed: float
    """Share of the cells of both sides without a match at IoU 0.5."""
    lost: int
    """Cells of the baseline without a counterpart."""
    broken: tuple[str, ...]
    """What is beyond its limit, in words."""
    limits: Limits
    cells: tuple[ChangedCell, ...]
    """Those that changed at all, most first."""
    hidden: tuple[Cell, ...]
    """Cells of which any one could vanish within the limits, smallest first."""

    def sentence(self) -> str:
        """Say whether the limits are kept, how far the masks are apart, and what is broken."""
        state = "ok" if self.ok else "broken"
        changed = f"{share_text(self.changed)} of the cells changed"
        apart = f"{state}: {ppm_text(self.ppm)}, {changed}, {self.lost} lost"
        return "; ".join([apart, *self.broken])

    def rows(self) -> list[Row]:
        """Give each cell that changed."""
        return [
            {
                "image": image,
                "became": str(change.kind),
                "labels in the baseline": ", ".join(map(str, change.labels_a)),
                "labels now": ", ".join(map(str, change.labels_b)),
                "IoU": f"{change.iou:.3f}",
            }
            for image, change in self.cells
        ]


# -- saving ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Proposal:
    """Limits that every pair of a run along an axis keeps, and which pairs these are."""

    limits: Limits
    proposed_from: str


def save_baseline(
    run: str, file: str | Path, *, propose: str | None = None, store: str | Path = defaults.STORE
) -> dict[str, Any]:
    """Write the masks of a run, a mask file or a folder to a baseline.

    Parameters
    ----------
    run : str
        ``KEY`` or ``KEY/REPEAT`` of the store, or the path of a mask file or a folder of them.
    file : str or Path
        The baseline; nothing may be there.
    propose : str, optional
        An axis of the stored spread, such as ``repeats``, ``seed`` or ``machine``: the limits are
        then what its pairs with this run differ by at most. Without it they are zero.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    dict
        What the baseline records, as JSON: ``from``, ``limits``, ``images``,
        ``reproducibility_tolerance``; of a run also its ``spec``, ``weights`` and ``versions``.

    Raises
    ------
    BadInput
        If the file exists, the masks hold no cell, or nothing is stored to propose limits from.
    """
    path = Path(file)
    if path.exists():
        raise BadInput(f"{path} exists; a baseline is not overwritten: remove it, or name another")
    opened_store = Store(store)
    masks = {name: canonical(read()) for name, read in masks_of(run, opened_store).items()}
    if not any(labels.any() for labels in masks.values()):
        raise BadInput(f"{run} holds no cells, so every result without any would pass; none saved")
    repeat = opened_store.find(run) if kind_of(Path(run)) == "run" else None
    proposal = None
    if propose is not None:
        if repeat is None:
            raise BadInput(f"--propose needs a run of the store and its like, not {run}")
        proposal = _propose(repeat, propose, opened_store)
    limits: Limits = {"max_ppm": 0.0} if proposal is None else proposal.limits
    record: dict[str, Any] = {
        "from": Path(run).name,
        "limits": limits,
        "reproducibility_tolerance": _tolerances(limits["max_ppm"]),
    }
    if repeat is not None:
        record.update(_origin(repeat))
    if proposal is not None:
        record["proposed_from"] = proposal.proposed_from
    return baseline_file.write(path, record, masks).record


def _origin(repeat: Repeat) -> dict[str, Any]:
    weights = repeat.manifest.weights
    return {
        "from": repeat.name,
        "spec": repeat.spec.model_dump(mode="json"),
        "weights": None if weights is None else weights.digest,
        "versions": repeat.manifest.versions,
    }


def _tolerances(max_ppm: float) -> list[dict[str, float]]:
    """What a model description of bioimage.io says of it; nothing where it allows no such limit."""
    ppm = math.ceil(max_ppm)
    if ppm > _MOST_FOR_BIOIMAGE_IO:
        return []
    return [{**_OF_LABELS, "mismatched_elements_per_million": ppm}]


def _propose(repeat: Repeat, axis: str, store: Store) -> _Proposal:
    """The limits that every pair of a repeat along an axis keeps, and which pairs these are."""
    if axis not in AXES:
        raise BadInput(f"--propose is {axis!r}; expected one of {', '.join(AXES)}")
    pairs = _pairs_along(axis, repeat, store)
    if not pairs:
        raise BadInput(
            f"the store {store.root} holds nothing that differs from {repeat.name} in {axis} only "
            "and found cells; run it, or leave --propose out"
        )
    images = [image for pair in pairs for image in pair.images.values()]
    limits = {
        "max_ppm": max(1e6 * (image.n_differing / image.n_pixels) for image in images),
        "max_changed": max(pair.changed for pair in pairs),
        "max_lost": max(_most_lost(pair, repeat.spec.key) for pair in pairs),
    }
    return _Proposal(limits, f"{amount(len(pairs), 'pair')} along {axis}")


def _pairs_along(axis: str, repeat: Repeat, store: Store) -> list[Pair]:
    """Pairs of the run of a repeat with whatever is stored of the same images."""
    run = store.find_run(repeat.spec.key)
    pairs: dict[tuple[str, str], Pair] = {}
    for other in store.runs():
        if (other.spec.task, other.spec.data_digest) != (run.spec.task, run.spec.data_digest):
            continue
        two_runs = {run.key: run, other.key: other}  # one, where the other is the same
        spread = measure_spread(two_runs.values(), axes=[axis]).axis(axis)
        for pair in spread.evidence if spread else ():
            if run.key in (pair.a.spec.key, pair.b.spec.key):
                pairs[pair.a.name, pair.b.name] = pair
    return list(pairs.values())


def _most_lost(pair: Pair, key: str) -> int:
    """The most cells that a side of this run lost in a pair."""
    numbers = []
    if pair.a.spec.key == key:
        numbers.append(pair.kinds["lost"])
    if pair.b.spec.key == key:
        numbers.append(pair.kinds["gained"])
    return max(numbers)


# -- checking --------------------------------------------------------------------------------


def check_baseline(
    file: str | Path,
    masks: str | Path | np.ndarray | Mapping[str, np.ndarray],
    *,
    max_ppm: float | None = None,
    max_changed: float | None = None,
    max_lost: int | None = None,
    store: str | Path = defaults.STORE,
) -> BaselineCheck:
    """Hold masks to a baseline.

    Parameters
    ----------
    file : str or Path
        The baseline.
    masks : str, Path, ndarray or mapping of str to ndarray
        A mask file, a folder, a run, or label images in memory, (Y, X) or (Z, Y, X), by image. One
        image is held to the only one of a baseline, whatever it is called.
    max_ppm : float, optional
        Differing pixels per million of any one image.
    max_changed : float, optional
        Share of the cells of both sides without a match at IoU 0.5.
    max_lost : int, optional
        Cells of the baseline without a counterpart. Without any of the three limits those of the
        baseline count; if one is given, the others are not held to.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    BaselineCheck
        Whether every limit is kept, and what differs in each image.

    Raises
    ------
    BadInput
        If a limit is no number of at least 0, or no image of the baseline can be compared.
    """
    baseline = baseline_file.read(Path(file))
    limits = _limits_from(max_ppm, max_changed, max_lost) or baseline.record["limits"]
    for name, value in limits.items():
        if not 0 <= value < math.inf:
            raise BadInput(f"{name} is {value}; expected a number of at least 0")
    expected_names = list(baseline.record["images"])
    actual = _readers(masks, Store(store))
    if len(actual) == len(expected_names) == 1:  # whatever the file is called
        actual = dict(zip(expected_names, actual.values(), strict=True))
    missing = [name for name in expected_names if name not in actual]
    if len(missing) == len(expected_names):
        raise BadInput(
            f"{masks} has masks of {some([*actual])}, the baseline of {some(expected_names)}"
        )
    comparison = _compared(baseline, actual)
    if not comparison.results:
        raise BadInput("; ".join(comparison.problems))
    broken = [f"no masks of {some(missing)}"] if missing else []
    broken += comparison.problems
    return _judged(comparison, broken, limits)


def _limits_from(max_ppm: float | None, max_changed: float | None, max_lost: int | None) -> Limits:
    given = {"max_ppm": max_ppm, "max_changed": max_changed, "max_lost": max_lost}
    return {name: value for name, value in given.items() if value is not None}


def _readers(
    masks: str | Path | np.ndarray | Mapping[str, np.ndarray], store: Store
) -> MaskReaders:
    if isinstance(masks, str | Path):
        return masks_of(str(masks), store)
    images = masks if isinstance(masks, Mapping) else {"masks": masks}
    return {name: partial(np.asarray, image) for name, image in images.items()}


@dataclass
class _BesideBaseline:
    """The images of a baseline beside others."""

    results: dict[str, MaskComparison]
    """By image; of those that could be compared."""
    problems: list[str]
    """Why the others could not."""
    cells: list[Cell]
    """All of the baseline."""
    n_pixels: dict[str, int]
    """By image."""


def _compared(baseline: BaselineFile, actual: MaskReaders) -> _BesideBaseline:
    comparison = _BesideBaseline({}, [], [], {})
    for name in baseline.record["images"]:
        expected = baseline.masks(name)
        comparison.n_pixels[name] = expected.size
        areas = np.bincount(expected.ravel())[1:].tolist()
        comparison.cells += [Cell(name, label, area) for label, area in enumerate(areas, 1)]
        if name not in actual:
            continue
        try:
            comparison.results[name] = compare_masks(expected, actual[name]())
        except BadInput as error:
            comparison.problems.append(f"the masks of {name} cannot be compared: {error}")
    return comparison


def _judged(comparison: _BesideBaseline, not_compared: list[str], limits: Limits) -> BaselineCheck:
    results = comparison.results
    worst = max(results, key=lambda name: results[name].ppm)
    totals = totals_over(results.values())
    ppm = results[worst].ppm
    changed = totals.n_unmatched / max(1, totals.n_objects)
    lost = totals.kinds[ObjectKind.LOST]
    reached = {"max_ppm": ppm, "max_changed": changed, "max_lost": lost}
    in_words = {
        "max_ppm": f"{ppm_text(ppm)} of the pixels of {worst}",
        "max_changed": f"{share_text(changed)} of the cells changed",
        "max_lost": f"{amount(lost, 'cell')} lost",
    }
    broken = list(not_compared)
    for name, limit in limits.items():
        if reached[name] > limit:
            broken.append(f"{in_words[name]}, at most {limit:g}")
    return BaselineCheck(
        ok=not broken,
        ppm=ppm,
        changed=changed,
        lost=lost,
        broken=tuple(broken),
        limits=limits,
        cells=_changed_cells(results),
        hidden=_hidden_cells(comparison, limits),
    )


def _changed_cells(results: Mapping[str, MaskComparison]) -> tuple[ChangedCell, ...]:
    """Cells that changed at all, those that overlap least first, large ones before small."""
    cells = [
        ChangedCell(image, change)
        for image, result in results.items()
        for change in result.objects
        if change.kind != ObjectKind.KEPT or change.iou < 1
    ]
    cells.sort(key=lambda cell: (cell.change.iou, -max(cell.change.area_a, cell.change.area_b)))
    return tuple(cells)


def _hidden_cells(comparison: _BesideBaseline, limits: Limits) -> tuple[Cell, ...]:
    """Cells of which any one could vanish within the limits, smallest first."""
    n_cells = len(comparison.cells)
    hidden = [
        cell
        for cell in comparison.cells
        if _passes_without(cell, comparison.n_pixels[cell.image], n_cells, limits)
    ]
    return tuple(sorted(hidden, key=lambda cell: cell.area))


def _passes_without(cell: Cell, n_pixels: int, n_cells: int, limits: Limits) -> bool:
    """Whether the limits are kept if this cell is lost and nothing else changes."""
    ppm = 1e6 * (cell.area / n_pixels)
    reached = {"max_ppm": ppm, "max_changed": 1 / (2 * n_cells - 1), "max_lost": 1}
    return all(reached[name] <= limit for name, limit in limits.items())
