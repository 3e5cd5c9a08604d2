"""The report on cells: where they differ between runs, and from the ground truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cellrepro.compare.axes import Pair
from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.compare.object_changes import ObjectKind
from cellrepro.compare.seed_spread import Axis
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.show.figures import training
from cellrepro.show.report.page import Shown, Table, figure, table, table_file
from cellrepro.show.report.panels import CHANGES, changed, difference_panels
from cellrepro.show.report.summary import AXES, Chapter
from cellrepro.store.store import Repeat

_EQUALITY = {True: Verdict.IDENTICAL, False: Verdict.DIFFERENT, None: None}
_COUNTS = [str(kind) for kind in CHANGES if kind != ObjectKind.KEPT]
_LARGEST = ("pixels", "cells changed", *_COUNTS, "AP@0.5")
_MOST_LINES = 30  # of a figure with a line per spec
_KINDS = {
    **{"weights": "verdict", "masks": "verdict", "pixels": "ppm", "cells changed": "share"},
    **dict.fromkeys([*_COUNTS, "images", "comparisons"], "number"),
    **dict.fromkeys(["run a", "run b", "worst image"], "file"),
    "AP@0.5": "{:.2g}",
}


# -- the worst image -----------------------------------------------------------------------


@dataclass(frozen=True)
class Worst:
    """The image on which two runs differ most, of all or along an axis."""

    axis: Axis
    pair: Pair
    image: str
    n_comparisons: int
    comparison: MaskComparison
    figure: Shown


def worst_of_all(chapters: Sequence[Chapter]) -> Worst | None:
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
    """The pair of runs, and the image, in which most of the cells changed; then most pixels."""
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


def _worst(chapter: Chapter, axis: Axis, pair: Pair, image: str, n: int, *, file: str) -> Worst:
    a, b = pair.a.masks(image), pair.b.masks(image)
    found = compare_masks(a, b)
    panels = difference_panels(chapter.store.image(chapter.data_digest, image), a, b, found)
    shown = Shown(panels, table_file(file, _cell_rows(found, image)))
    return Worst(axis, pair, image, n, found, shown)


def _cell_rows(comparison: MaskComparison, image: str) -> list[dict[str, Any]]:
    """Every cell of both sides and what became of it, those that are not kept first."""
    kept = [change for change in comparison.objects if change.kind == ObjectKind.KEPT]
    rows = []
    for change in [*changed(comparison), *kept]:
        y, x = (round(place, 1) for place in change.position[-2:])
        row = {
            "image": image,
            "what": str(change.kind),
            "y": y,
            "x": x,
            "iou": round(change.iou, 4),
        }
        for side in "ab":
            row[f"area_{side}"] = getattr(change, f"area_{side}")
            row[f"labels_{side}"] = " ".join(map(str, getattr(change, f"labels_{side}")))
        rows.append(row)
    return rows or [{"image": image, "what": "no cell on either side"}]


# -- along every axis ----------------------------------------------------------------------


@dataclass(frozen=True)
class AxisView:
    """The comparisons along one axis; its worst image stands `above` if it is the worst of all."""

    axis: Axis
    weights: list[bool]  # whether they are equal, where both sides were trained
    n_same: int  # comparisons that show the same objects
    largest: Table | None
    every: Table
    worst: Worst | None
    above: bool


def axis_view(chapter: Chapter, axis: Axis, *, shown: Worst | None) -> AxisView:
    """The view of one axis, without the picture that is `shown` at the top of the page."""
    worst, above = None, False
    if axis.name in AXES and axis.differing:
        pair, image = _most_different(axis)
        above = shown is not None and (shown.pair, shown.image) == (pair, image)
        if not above:
            file = f"cells-{axis.name}-{image}"
            worst = _worst(chapter, axis, pair, image, len(axis.pairs), file=file)
    rows = [_row(pair) for pair in axis.pairs]
    by_names: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_names[row["between"], row["and"]].append(row)
    largest = [_largest(*names, group) for names, group in by_names.items()]
    return AxisView(
        axis=axis,
        weights=[bool(p.weights_equal) for p in axis.pairs if p.weights_equal is not None],
        n_same=len(axis.told) - len(axis.differing),
        largest=None if axis.name == "repeats" else table(largest, _KINDS),
        every=table(rows, _KINDS, file=f"{axis.name}-{chapter.data}"),
        worst=worst,
        above=above,
    )


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
        "worst image": pair.worst,
    }


def _largest(a: str, b: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The largest differences in all comparisons of two values on an axis."""
    told = [row for row in rows if row["masks"] != Verdict.VACUOUS] or rows
    weights = [row["weights"] for row in rows if row["weights"] is not None]
    known = {name: [row[name] for row in told if row[name] is not None] for name in _LARGEST}
    return {
        "between": f"{a} and {b}",
        "comparisons": len(rows),
        "weights": combine(weights) if weights else None,
        "masks": combine(row["masks"] for row in told),
        **{name: max(values, default=None) for name, values in known.items()},
    }


# -- ground truth --------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """An image of a run beside its truth; neither comparison nor figure where that is not kept."""

    image: str
    label: str
    score: float
    comparison: MaskComparison | None
    figure: Shown | None


@dataclass(frozen=True)
class TruthView:
    """Scores of every run, and the worst and the best image."""

    n_shown: int
    n_runs: int
    n_images: int
    n_results: int
    scores: Shown
    ends: dict[str, Scored]


def truth_view(chapter: Chapter) -> TruthView | None:
    """None without ground truth."""
    per_image = [
        (float(record.ap50), name, repeat)
        for repeat in chapter.repeats
        for name, record in repeat.manifest.masks.items()
        if record.ap50 is not None
    ]
    if not per_image:
        return None
    names, points = chapter.names, []
    for one in chapter.results:
        profile, mode = names.column(one.place)
        line = names.row(one.place) + (f", {mode}" if "mode" in names.varying else "")
        scores = [repeat.manifest.ap50 for repeat in one.repeats]
        points += [(line, profile, float(score)) for score in scores if score is not None]
    lines = list(dict.fromkeys(line for line, _, _ in points))[:_MOST_LINES]
    shown = [point for point in points if point[0] in lines]
    rows = [{"run": r.name, "image": name, "ap50": score} for score, name, r in per_image]
    return TruthView(
        n_shown=len(shown),
        n_runs=len(points),
        n_images=len({name for _, name, _ in per_image}),
        n_results=len(per_image),
        scores=figure(training.scores(shown), table_file(f"scores-{chapter.data}", rows)),
        ends={
            end: _scored(chapter, *pick(per_image, key=lambda entry: entry[0]))
            for end, pick in (("worst", min), ("best", max))
        },
    )


def _scored(chapter: Chapter, score: float, name: str, repeat: Repeat) -> Scored:
    masks = repeat.masks(name)  # says what to do if the file is gone
    truth = chapter.store.truth(chapter.data_digest, name)
    found, shown = None, None
    if truth is not None:
        found = compare_masks(truth, masks)
        image = chapter.store.image(chapter.data_digest, name)
        panels = difference_panels(image, truth, masks, found)[-3:]
        shown = Shown(panels, table_file(f"against-truth-{name}", _cell_rows(found, name)))
    return Scored(name, chapter.names.label(repeat), score, found, shown)
