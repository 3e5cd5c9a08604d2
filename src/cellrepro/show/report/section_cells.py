"""The report on cells: where they differ between runs, and from the ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cellrepro.compare.axes import AXES, Pair
from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.compare.object_changes import ObjectKind
from cellrepro.compare.seed_spread import Axis
from cellrepro.compare.verdicts import Verdict
from cellrepro.show.figures.training import scores_of_runs
from cellrepro.show.report.page import Shown, View, figure, table, table_file
from cellrepro.show.report.panels import CHANGES, changed, difference_panels
from cellrepro.show.report.summary import Chapter
from cellrepro.store.store import Repeat, Run

_EQUALITY = {True: Verdict.IDENTICAL, False: Verdict.DIFFERENT, None: None}
_MOST_LINES = 30  # of a figure with a line per spec
_COUNTS = [str(kind) for kind in CHANGES if kind != ObjectKind.KEPT]
_KINDS = {
    "weights": "verdict",
    "masks": "verdict",
    "pixels": "ppm",
    "cells changed": "share",
    "AP@0.5": "{:.2g}",
    **dict.fromkeys([*_COUNTS, "images"], "number"),
    **dict.fromkeys(["run a", "run b"], "file"),
}


# -- the worst image -----------------------------------------------------------------------


def worst_of_all(chapters: Sequence[Chapter]) -> View | None:
    """By cells that changed, then by pixels, over all chapters; none where no masks differ."""
    places = [
        (chapter, axis, *_most_different(axis))
        for chapter in chapters
        for axis in chapter.spread.axes
        if axis.differing
    ]
    if not places:
        return None
    chapter, axis, pair, image = max(places, key=lambda place: _weight(*place[2:]))
    n = sum(len(axis.pairs) for axis in chapter.spread.axes)
    return _worst(chapter, axis, pair, image, n, file=f"cells-{image}")


def _most_different(axis: Axis) -> tuple[Pair, str]:
    places = [(pair, image) for pair in axis.differing for image in pair.images]
    return max(places, key=lambda place: _weight(*place))


def _weight(pair: Pair, image: str) -> tuple[bool, float, float]:
    """A run that found nothing differs most from every other, and says least: it comes last."""
    one, other = pair.a.manifest.masks[image], pair.b.manifest.masks[image]
    found = pair.images[image]
    return (
        bool(one.n_objects and other.n_objects),
        found.n_unmatched / max(1, found.n_objects),
        found.n_differing / max(1, found.n_pixels),
    )


def _worst(chapter: Chapter, axis: Axis, pair: Pair, image: str, n: int, *, file: str) -> View:
    found, shown = _beside(chapter, pair.a.masks(image), pair.b.masks(image), image, file)
    return View(axis=axis, pair=pair, image=image, n_comparisons=n, comparison=found, figure=shown)


def _beside(
    chapter: Chapter, a: np.ndarray, b: np.ndarray, image: str, file: str
) -> tuple[MaskComparison, Shown]:
    """Two label images of one image compared, with pictures and every cell."""
    found = compare_masks(a, b)
    panels = difference_panels(chapter.store.image(chapter.data_digest, image), a, b, found)
    return found, Shown(panels, table_file(file, _cell_rows(found, image)))


def _cell_rows(comparison: MaskComparison, image: str) -> list[dict[str, Any]]:
    """Every cell of both sides and what became of it, those that are not kept first."""
    kept = [change for change in comparison.objects if change.kind == ObjectKind.KEPT]
    rows = []
    for change in [*changed(comparison), *kept]:
        y, x = (round(place, 1) for place in change.position[-2:])
        row = {"image": image, "what": str(change.kind), "y": y, "x": x, "iou": change.iou}
        for side in "ab":
            row[f"area_{side}"] = getattr(change, f"area_{side}")
            row[f"labels_{side}"] = " ".join(map(str, getattr(change, f"labels_{side}")))
        rows.append(row)
    return rows or [{"image": image, "what": "no cell on either side"}]


# -- along every axis ----------------------------------------------------------------------


def axis_view(chapter: Chapter, axis: Axis, shown: View | None) -> View:
    """The comparisons along one axis, the largest differences first; its worst image, unless that
    is the one `shown` at the top of the page."""
    worst, above = None, False
    if axis.name in AXES and axis.differing:
        pair, image = _most_different(axis)
        above = shown is not None and (shown.pair, shown.image) == (pair, image)
        if not above:
            file = f"cells-{axis.name}-{image}"
            worst = _worst(chapter, axis, pair, image, len(axis.pairs), file=file)
    weights = [pair.weights_equal for pair in axis.pairs if pair.weights_equal is not None]
    pairs = sorted(axis.pairs, key=lambda pair: (-np.nan_to_num(pair.changed), -pair.ppm))
    every = table(list(map(_row, pairs)), _KINDS, file=f"{axis.name}-{chapter.data}")
    return View(axis=axis, weights=weights, worst=worst, above=above, every=every)


def _row(pair: Pair) -> dict[str, Any]:
    one, other = pair.a.manifest.ap50, pair.b.manifest.ap50
    return {
        "with": pair.context or None,
        "between": pair.name_a,
        "and": pair.name_b,
        "run a": pair.a.name,
        "run b": pair.b.name,
        "weights": _EQUALITY[pair.weights_equal],
        "masks": Verdict.VACUOUS if pair.vacuous else pair.verdict,
        "pixels": pair.ppm,
        "cells changed": pair.changed,
        **{kind: pair.kinds[kind] for kind in _COUNTS},
        "AP@0.5": None if one is None or other is None else abs(one - other),
        "images": pair.n_images,
    }


# -- ground truth --------------------------------------------------------------------------


def truth_view(chapter: Chapter) -> View | None:
    """Scores of every run, and the worst and the best image; none without ground truth."""
    every = [
        (float(record.ap50), name, repeat)
        for repeat in chapter.repeats
        for name, record in repeat.manifest.masks.items()
        if record.ap50 is not None
    ]
    if not every:
        return None
    drawn = scores_of_runs([Run(one.spec, one.repeats) for one in chapter.results[:_MOST_LINES]])
    rows = [{"run": r.name, "image": name, "ap50": score} for score, name, r in every]
    return View(
        n_images=len({name for _, name, _ in every}),
        n_results=len(every),
        scores=figure(drawn, table_file(f"scores-{chapter.data}", rows)),
        ends={
            end: _scored(chapter, *pick(every, key=lambda entry: entry[0]))
            for end, pick in (("worst", min), ("best", max))
        },
    )


def _scored(chapter: Chapter, score: float, name: str, repeat: Repeat) -> View:
    """An image of a run beside its truth; neither comparison nor figure where that is not kept."""
    masks = repeat.masks(name)  # says what to do if the file is gone
    truth, found, shown = chapter.store.truth(chapter.data_digest, name), None, None
    if truth is not None:
        found, shown = _beside(chapter, truth, masks, name, f"against-truth-{name}")
        shown = Shown(shown.panels[-3:], shown.data)
    label = chapter.names.label(repeat)
    return View(image=name, label=label, score=score, comparison=found, figure=shown)
