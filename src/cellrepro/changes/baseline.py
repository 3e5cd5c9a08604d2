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
from cellrepro.changes.named import Masks, kind_of, masks_of
from cellrepro.errors import BadInput
from cellrepro.same.axes import AXES
from cellrepro.same.labels import canonical
from cellrepro.same.metrics import MaskComparison, compare_masks
from cellrepro.same.object_changes import ObjectChange, ObjectKind
from cellrepro.same.over_images import totals_over
from cellrepro.same.seed_spread import measure_spread
from cellrepro.store import baseline_file
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
    label: int  # in the baseline
    area: int  # pixels


@dataclass(frozen=True)
class BaselineCheck:
    """How masks stand beside a baseline."""

    ok: bool
    ppm: float  # of the image that differs most
    changed: float
    lost: int
    broken: tuple[str, ...]  # what is beyond its limit, in words
    limits: Limits
    cells: tuple[tuple[str, ObjectChange], ...]  # with their image: changed at all, most first
    hidden: tuple[Cell, ...]  # of which any one could vanish within the limits, smallest first


def save_baseline(
    run: str, file: str | Path, *, propose: str | None = None, store: str | Path = defaults.STORE
) -> dict[str, Any]:
    """Write the masks of a run, a mask file or a folder to a baseline; gives what it records.

    ``propose`` names an axis of the stored spread, such as ``repeats``, ``seed`` or ``machine``:
    the limits are then what its pairs with this run differ by at most. Without it they are zero.
    """
    path, place = Path(file), Store(store)
    if path.exists():
        raise BadInput(f"{path} exists; a baseline is not overwritten: remove it, or name another")
    masks = {name: canonical(read()) for name, read in masks_of(run, place).items()}
    if not any(each.any() for each in masks.values()):
        raise BadInput(f"{run} holds no cells, so every result without any would pass; none saved")
    repeat = place.find(run) if kind_of(Path(run)) == "run" else None
    record: dict[str, Any] = {"from": Path(run).name, "limits": {"max_ppm": 0.0}}
    if repeat is not None:
        weights = repeat.manifest.weights
        record |= {"from": repeat.name, "spec": repeat.spec.model_dump(mode="json")}
        record |= {"weights": weights and weights.digest, "versions": repeat.manifest.versions}
    if propose is not None:
        if repeat is None:
            raise BadInput(f"--propose needs a run of the store and its like, not {run}")
        record["limits"], record["proposed_from"] = _proposed(repeat, propose, place)
    ppm = math.ceil(record["limits"]["max_ppm"])
    tolerance = {**_OF_LABELS, "mismatched_elements_per_million": ppm}
    record["reproducibility_tolerance"] = [tolerance] if ppm <= _MOST_FOR_BIOIMAGE_IO else []
    return baseline_file.write(path, record, masks).record


def _proposed(repeat: Repeat, axis: str, store: Store) -> tuple[Limits, str]:
    """The limits that every pair of a repeat along an axis keeps, and which pairs these are."""
    if axis not in AXES:
        raise BadInput(f"--propose is {axis!r}; expected one of {', '.join(AXES)}")
    own, pairs = store.find_run(repeat.spec.key), {}
    for other in store.runs():
        if (other.spec.task, other.spec.data_digest) != (own.spec.task, own.spec.data_digest):
            continue
        found = measure_spread({own.key: own, other.key: other}.values(), axes=[axis]).axis(axis)
        for pair in found.evidence if found else ():
            if own.key in (pair.a.spec.key, pair.b.spec.key):
                pairs[pair.a.name, pair.b.name] = pair
    if not pairs:
        raise BadInput(
            f"the store {store.root} holds nothing that differs from {repeat.name} in {axis} only "
            "and found cells; run it, or leave --propose out"
        )
    images = [one for pair in pairs.values() for one in pair.images.values()]
    limits = {
        "max_ppm": max(1e6 * (one.n_differing / one.n_pixels) for one in images),
        "max_changed": max(pair.changed for pair in pairs.values()),
        "max_lost": max(
            pair.kinds[kind]
            for pair in pairs.values()
            for side, kind in ((pair.a, "lost"), (pair.b, "gained"))
            if side.spec.key == own.key
        ),
    }
    return limits, f"{amount(len(pairs), 'pair')} along {axis}"


def check_baseline(
    file: str | Path,
    masks: str | Path | np.ndarray | Mapping[str, np.ndarray],
    *,
    max_ppm: float | None = None,
    max_changed: float | None = None,
    max_lost: int | None = None,
    store: str | Path = defaults.STORE,
) -> BaselineCheck:
    """Hold masks to a baseline: a mask file, a folder, a run, or label images in memory.

    Without any limit those of the baseline count; what of given ones is left out, is not held to.
    """
    baseline = baseline_file.read(Path(file))
    given = {"max_ppm": max_ppm, "max_changed": max_changed, "max_lost": max_lost}
    limits: Limits = {name: value for name, value in given.items() if value is not None}
    limits = limits or baseline.record["limits"]
    for name, value in limits.items():
        if not 0 <= value < math.inf:
            raise BadInput(f"{name} is {value}; expected a number of at least 0")
    actual = _readers(masks, Store(store))
    names = list(baseline.record["images"])
    if len(actual) == len(names) == 1:  # whatever the file is called
        actual = dict(zip(names, actual.values(), strict=True))
    missing = [name for name in names if name not in actual]
    if len(missing) == len(names):
        raise BadInput(f"{masks} has masks of {some([*actual])}, the baseline of {some(names)}")
    results: dict[str, MaskComparison] = {}
    problems: dict[str, str] = {}
    cells: list[Cell] = []
    n_pixels = {}
    for name in names:
        expected = baseline.masks(name)
        n_pixels[name] = expected.size
        areas = np.bincount(expected.ravel())[1:].tolist()
        cells += [Cell(name, label, area) for label, area in enumerate(areas, 1)]
        if name not in actual:
            continue
        try:
            results[name] = compare_masks(expected, actual[name]())
        except BadInput as error:
            problems[name] = f"the masks of {name} cannot be compared: {error}"
    if not results:
        raise BadInput("; ".join(problems.values()))
    hidden = [cell for cell in cells if _passes_without(cell, n_pixels, len(cells), limits)]
    broken = [f"no masks of {some(missing)}"] if missing else []
    broken += problems.values()
    return _judged(results, broken, limits, tuple(sorted(hidden, key=lambda cell: cell.area)))


def _judged(
    results: Mapping[str, MaskComparison],
    not_compared: list[str],
    limits: Limits,
    hidden: tuple[Cell, ...],
) -> BaselineCheck:
    worst = max(results, key=lambda name: results[name].ppm)
    totals = totals_over(results.values())
    changed = totals.n_unmatched / max(1, totals.n_objects)
    lost = totals.kinds[ObjectKind.LOST]
    reached = {"max_ppm": results[worst].ppm, "max_changed": changed, "max_lost": lost}
    told = {
        "max_ppm": f"{ppm_text(reached['max_ppm'])} of the pixels of {worst}",
        "max_changed": f"{share_text(changed)} of the cells changed",
        "max_lost": f"{amount(lost, 'cell')} lost",
    }
    broken = list(not_compared)
    broken += [f"{told[n]}, at most {most:g}" for n, most in limits.items() if reached[n] > most]
    changes = [
        (image, change)
        for image, result in results.items()
        for change in result.objects
        if change.kind != ObjectKind.KEPT or change.iou < 1
    ]
    changes.sort(key=lambda each: (each[1].iou, -max(each[1].area_a, each[1].area_b)))
    return BaselineCheck(
        not broken, results[worst].ppm, changed, lost, tuple(broken), limits, tuple(changes), hidden
    )


def _passes_without(cell: Cell, n_pixels: Mapping[str, int], n_cells: int, limits: Limits) -> bool:
    """Whether the limits are kept if this cell is lost and nothing else changes."""
    ppm = 1e6 * (cell.area / n_pixels[cell.image])
    reached = {"max_ppm": ppm, "max_changed": 1 / (2 * n_cells - 1), "max_lost": 1}
    return all(reached[name] <= most for name, most in limits.items())


def _readers(masks: Any, store: Store) -> Masks:
    if isinstance(masks, str | Path):
        return masks_of(str(masks), store)
    images = masks if isinstance(masks, Mapping) else {"masks": masks}
    return {name: partial(np.asarray, image) for name, image in images.items()}
