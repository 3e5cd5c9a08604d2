"""The report on cells: where they differ between runs, and from the ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cellrepro.same.axes import AXES
from cellrepro.same.object_changes import ObjectKind
from cellrepro.same.pairs import Pair
from cellrepro.same.seed_spread import Axis
from cellrepro.same.verdicts import Verdict
from cellrepro.show.figures.training import scores_of_runs
from cellrepro.show.report.page import CHANGES, Shown, View, beside, figure, table, table_file
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


def worst_image(axes: Sequence[tuple[Chapter, Axis]], file: str = "") -> View | None:
    """By cells that changed, then by pixels; none where no masks differ."""
    places = [
        (chapter, axis, pair, image)
        for chapter, axis in axes
        for pair in axis.differing
        for image in pair.images
    ]
    if not places:
        return None
    chapter, axis, pair, image = max(places, key=lambda place: _weight(*place[2:]))
    n = sum(len(other.pairs) for its, other in axes if its is chapter)
    pixels = chapter.store.image(chapter.images_digest, image)
    a, b = pair.a.masks(image), pair.b.masks(image)
    found, shown = beside(image, pixels, a, b, f"cells-{file}{image}")
    return View(axis=axis, pair=pair, image=image, n_comparisons=n, comparison=found, figure=shown)


def _weight(pair: Pair, image: str) -> tuple[bool, float, float]:
    """A run that found nothing differs most from every other, and says least: it comes last."""
    one, other = pair.a.manifest.masks[image], pair.b.manifest.masks[image]
    found = pair.images[image]
    return (
        bool(one.n_objects and other.n_objects),
        found.n_unmatched / max(1, found.n_objects),
        found.n_differing / max(1, found.n_pixels),
    )


# -- along every axis ----------------------------------------------------------------------


def axis_view(chapter: Chapter, axis: Axis, shown: View | None) -> View:
    """The comparisons along one axis, the largest differences first; its worst image, unless that
    is the one `shown` at the top of the page."""
    above = shown is not None and shown.axis is axis
    drawn = axis.name in AXES and not above
    worst = worst_image([(chapter, axis)], f"{axis.name}-") if drawn else None
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
    rows = [{"run": r.name, "image": name, "ap50": score} for score, name, r in every] + [
        {"run": repeat.name, "image": f"{name} (training image)", "ap50": score}
        for repeat in chapter.repeats
        for name, score in repeat.manifest.train_scores.items()
    ]
    return View(
        n_images=len({name for _, name, _ in every}),
        n_results=len(every),
        n_training=max(len(repeat.manifest.train_scores) for repeat in chapter.repeats),
        scores=figure(drawn, table_file(f"scores-{chapter.data}", rows)),
        ends={
            end: _scored(chapter, *pick(every, key=lambda entry: entry[0]))
            for end, pick in (("worst", min), ("best", max))
        },
    )


def _scored(chapter: Chapter, score: float, name: str, repeat: Repeat) -> View:
    """An image of a run beside its truth; neither comparison nor figure where that is not kept."""
    masks = repeat.masks(name)  # says what to do if the file is gone
    truth, found, shown = chapter.store.truth(chapter.images_digest, name), None, None
    if truth is not None:
        pixels = chapter.store.image(chapter.images_digest, name)
        found, shown = beside(name, pixels, truth, masks, f"against-truth-{name}")
        shown = Shown(shown.panels[-3:], shown.data)
    label = chapter.names.of_repeat(repeat)
    return View(image=name, label=label, score=score, comparison=found, figure=shown)
