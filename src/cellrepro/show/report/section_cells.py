"""The report on cells: where they differ between runs, against the ground truth, over all runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cellrepro.compare.axes import Pair
from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.compare.object_changes import ObjectKind
from cellrepro.compare.seed_spread import Axis
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.show.figures import training
from cellrepro.show.report.page import Column, Shown, Table, figure, table, table_file
from cellrepro.show.report.panels import (
    CHANGES,
    changed,
    counts_text,
    difference_panels,
)
from cellrepro.show.report.section_agreement import AgreementView, agreement_view
from cellrepro.show.report.summary import AXES, PLACES, Chapter, where
from cellrepro.store.store import Repeat
from cellrepro.text import amount, ppm_text, share_text

_EQUALITY = {True: Verdict.IDENTICAL, False: Verdict.DIFFERENT, None: None}
_SAID = tuple(str(kind) for kind in CHANGES if kind != ObjectKind.KEPT)
_MOST_LINES = 30  # of a figure with a line per spec


# -- the worst image -----------------------------------------------------------------------


@dataclass(frozen=True)
class Worst:
    """The image on which two runs differ most, and these two."""

    chapter: Chapter
    axis: Axis
    pair: Pair
    image: str
    comparison: MaskComparison

    @property
    def place(self) -> tuple[Pair, str]:
        """Which pair of runs, and which image."""
        return self.pair, self.image

    @property
    def counts(self) -> list[tuple[str, str, str, int]]:
        """What became of the cells: sign, kind, what that means, how many."""
        return [
            (sign, str(kind), means, self.comparison.kinds[kind])
            for kind, (sign, means) in CHANGES.items()
        ]

    @property
    def sentence(self) -> str:
        """How the two differ there."""
        found = self.comparison
        in_cells = f"{share_text(found.changed)} of the cells"
        in_pixels = f"{ppm_text(found.ppm)} of the pixels, and in no cell"
        return (
            f"On {self.image}, {self.pair.name_a} and {self.pair.name_b} differ in "
            f"{in_cells if found.n_unmatched else in_pixels}: {counts_text(found)}."
        )


def worst_of_all(chapters: Sequence[Chapter]) -> Worst | None:
    """By cells that changed, then by pixels, over all chapters; none where no masks differ."""
    found = [
        (_weight(*place), chapter, axis, place)
        for chapter in chapters
        for axis in chapter.axes
        if axis.differing
        for place in [_most_different(axis)]
    ]
    if not found:
        return None
    _, chapter, axis, place = max(found, key=lambda entry: entry[0])
    return _worst(chapter, axis, *place)


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


def _worst(chapter: Chapter, axis: Axis, pair: Pair, image: str) -> Worst:
    comparison = compare_masks(pair.a.masks(image), pair.b.masks(image))
    return Worst(chapter, axis, pair, image, comparison)


def worst_figure(worst: Worst, *, of_axis: bool = False) -> Shown:
    """Its panels; of one axis without the image alone, where there is a closer look."""
    chapter, axis, pair, found = worst.chapter, worst.axis, worst.pair, worst.comparison
    a, b = (repeat.masks(worst.image) for repeat in (pair.a, pair.b))
    panels = difference_panels(chapter.store.image(chapter.data_digest, worst.image), a, b, found)
    context = f" ({pair.context})" if pair.context else ""
    n = len(axis.pairs) if of_axis else sum(len(one.pairs) for one in chapter.axes)
    over = f"{amount(n, 'comparison')} over {amount(pair.n_images, 'image')} each"
    what = f"on which {axis.title} differ most" if of_axis else "on which two runs differ most"
    caption = (
        f"{worst.image}, {pair.name_a} (blue) against {pair.name_b} (orange, dashed; white where "
        f"both coincide){context}: {ppm_text(found.ppm)} of its pixels differ, "
        f"{share_text(found.changed)} of the cells have no counterpart. The image {what}, of "
        f"{over}. Where few pixels differ, they are drawn larger than they are."
    )
    name = f"cells-{axis.name}-{worst.image}" if of_axis else f"cells-{worst.image}"
    data = table_file(name, _cell_rows(found, worst.image))
    return Shown(panels[-3:] if of_axis else panels, caption, data)


def _cell_rows(comparison: MaskComparison, image: str) -> list[dict[str, Any]]:
    """Every cell of both sides and what became of it, those that are not kept first."""
    kept = [change for change in comparison.objects if change.kind == ObjectKind.KEPT]
    rows = [
        {
            "image": image,
            "what": str(change.kind),
            "y": round(change.position[-2], 1),
            "x": round(change.position[-1], 1),
            "iou": round(change.iou, 4),
            "area_a": change.area_a,
            "area_b": change.area_b,
            "labels_a": " ".join(map(str, change.labels_a)),
            "labels_b": " ".join(map(str, change.labels_b)),
        }
        for change in [*changed(comparison), *kept]
    ]
    return rows or [{"image": image, "what": "no cell on either side"}]


# -- along every axis ----------------------------------------------------------------------


@dataclass(frozen=True)
class AxisView:
    """The comparisons along one axis: in a sentence, in tables and, where masks differ, a picture,
    unless that stands `above`, at the top of the page. Some are to be unfolded first.
    """

    title: str
    summary: str
    n_left_out: int
    largest: Table | None
    every: Table
    picture: Shown | None
    folded: bool
    above: bool


def _of_kind(kind: str) -> Column:
    return Column(kind, lambda pair: pair.kinds[kind], "number")


def _most_of_kind(kind: str) -> Column:
    return Column(kind, lambda pairs: _most(pairs, lambda pair: pair.kinds[kind]), "number")


_PAIRS = (
    Column("with", lambda pair: pair.context or None),
    Column("between", lambda pair: pair.name_a),
    Column("and", lambda pair: pair.name_b),
    Column("run a", lambda pair: pair.a.name, "file"),
    Column("run b", lambda pair: pair.b.name, "file"),
    Column("weights", lambda pair: _EQUALITY[pair.weights_equal], "verdict"),
    Column("masks", lambda pair: _verdict(pair), "verdict"),
    Column("pixels", lambda pair: pair.ppm, "ppm"),
    Column("cells changed", lambda pair: pair.changed, "share"),
    *map(_of_kind, _SAID),
    Column("images", lambda pair: pair.n_images, "number"),
    Column("worst image", lambda pair: pair.worst[0], "file"),
)
"""Of the table of single comparisons."""

_LARGEST = (
    Column("between", lambda pairs: f"{pairs[0].name_a} and {pairs[0].name_b}"),
    Column("masks", lambda pairs: combine(map(_verdict, _told(pairs) or pairs)), "verdict"),
    Column("equal weights", lambda pairs: _equal_weights(pairs), "number"),
    Column("same objects", lambda pairs: _same_objects(pairs), "number"),
    Column("pixels", lambda pairs: _most(pairs, lambda pair: pair.ppm), "ppm"),
    Column("cells changed", lambda pairs: _most(pairs, lambda pair: pair.changed), "share"),
    *map(_most_of_kind, _SAID),
    Column("AP@0.5", lambda pairs: _largest_score(pairs), "number", "{:.2g}".format),
)
"""Of the table of the largest differences: a row is all pairs of two values on the axis."""


def axis_view(chapter: Chapter, axis: Axis, *, shown: Worst | None) -> AxisView:
    """The view of one axis, without the picture that is `shown` at the top of the page."""
    picture, above = None, False
    if axis.name in AXES and axis.differing:
        place = _most_different(axis)
        above = shown is not None and shown.place == place
        picture = None if above else worst_figure(_worst(chapter, axis, *place), of_axis=True)
    by_names: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in axis.pairs:
        by_names[pair.name_a, pair.name_b].append(pair)
    caption = (
        "Everything else equal; the first repeat of each spec. Pixels, cells and AP@0.5 are the "
        "largest differences in any comparison."
    )
    return AxisView(
        title=axis.title,
        summary=_axis_summary(axis),
        n_left_out=axis.n_left_out,
        largest=None
        if axis.name == "repeats"
        else table(by_names.values(), _LARGEST, caption=caption),
        every=table(axis.pairs, _PAIRS, file=f"{axis.name}-{chapter.data}"),
        picture=picture,
        folded=axis.name not in PLACES,
        above=above,
    )


def _told(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if not pair.vacuous]


def _verdict(pair: Pair) -> Verdict:
    return Verdict.VACUOUS if pair.vacuous else pair.verdict


def _equal_weights(pairs: Sequence[Pair]) -> str | None:
    answers = [bool(p.weights_equal) for p in pairs if p.weights_equal is not None]
    return f"{sum(answers)} of {len(answers)}" if answers else None


def _same_objects(pairs: Sequence[Pair]) -> str | None:
    told = _told(pairs)
    n = sum(pair.verdict in (Verdict.IDENTICAL, Verdict.SAME_OBJECTS) for pair in told)
    return f"{n} of {len(told)}" if told else None


def _most(pairs: Sequence[Pair], of: Callable[[Pair], float]) -> float | None:
    return max(map(of, _told(pairs)), default=None)


def _largest_score(pairs: Sequence[Pair]) -> float | None:
    scores = [(pair.a.manifest.ap50, pair.b.manifest.ap50) for pair in pairs]
    return max((abs(a - b) for a, b in scores if a is not None and b is not None), default=None)


def _axis_summary(axis: Axis) -> str:
    n, n_told = len(axis.pairs), len(axis.told)
    each = "each " if n > 1 else ""
    parts = [f"{amount(n, 'comparison')}, {each}over {amount(axis.pairs[0].n_images, 'image')}"]
    weights, objects = _equal_weights(axis.pairs), _same_objects(axis.pairs)
    if weights:
        parts.append(f"the weights are bit-identical in {weights}")
    if objects:
        text = f"the masks show the same objects in {objects}"
        if axis.differing:
            largest = max(pair.changed for pair in axis.differing)
            cells = f"{share_text(largest)} of the cells" if largest else "no cell is missing"
            text += f"; up to {ppm_text(axis.largest_ppm)} of the pixels differ, and {cells}"
        parts.append(text)
    if n_told < n:
        parts.append(f"{n - n_told} found no objects or trained nothing, and prove nothing")
    return "; ".join(parts) + "."


# -- ground truth --------------------------------------------------------------------------


def truth_figures(chapter: Chapter) -> list[Shown]:
    """Scores of every run, and the best and the worst image; none without ground truth."""
    scored = [
        (run, r) for run, _ in chapter.runs for r in run.repeats if r.manifest.ap50 is not None
    ]
    if not scored:
        return []
    names = chapter.names
    with_mode = "mode" in names.varying
    points = []
    for run, repeat in scored:
        profile, mode = names.column(where(run))
        line = names.row(where(run)) + (f", {mode}" if with_mode else "")
        points.append((line, profile, float(repeat.manifest.ap50 or 0.0)))
    lines = list(dict.fromkeys(line for line, _, _ in points))[:_MOST_LINES]
    shown = [point for point in points if point[0] in lines]
    per_image = [
        (float(record.ap50), name, repeat)
        for _, repeat in scored
        for name, record in repeat.manifest.masks.items()
        if record.ap50 is not None
    ]
    n_images = len({name for _, name, _ in per_image})
    of = "" if len(shown) == len(points) else f"the first {len(shown)} of "
    scores = figure(
        training.scores(shown),
        f"AP@0.5 of {of}{amount(len(points), 'run')} of {amount(chapter.n_specs, 'spec')}, "
        f"each the mean over {amount(n_images, 'image')} with ground truth.",
        table_file(f"scores-{chapter.data}", [_score_row(*one) for one in per_image]),
    )
    best, worst = (pick(per_image, key=lambda entry: entry[0]) for pick in (max, min))
    over = f"of {amount(len(per_image), 'result')} (images times runs)"
    chosen = [(f"The worst by AP@0.5 {over}", worst), (f"The best by AP@0.5 {over}", best)]
    if best[0] == worst[0]:
        chosen = [(f"All scores are equal; the first {over}", best)]
    return [scores, *(_truth_figure(chapter, what, *entry) for what, entry in chosen)]


def _score_row(score: float, name: str, repeat: Repeat) -> dict[str, Any]:
    record = repeat.manifest.masks[name]
    counts = {"cells": record.n_objects, "true_cells": record.n_true}
    return {"run": repeat.name, "image": name, "ap50": score, **counts}


def _truth_figure(chapter: Chapter, what: str, score: float, name: str, repeat: Repeat) -> Shown:
    masks = repeat.masks(name)  # says what to do if the file is gone
    truth = chapter.store.truth(chapter.data_digest, name)
    caption = f"{what}: {name}, by {chapter.names.label(repeat)}, AP@0.5 {score:.3f}."
    if truth is None:  # the score was kept and the image was not
        return Shown((), f"{caption} The image and its truth are not in the store.")
    found = compare_masks(truth, masks)
    image = chapter.store.image(chapter.data_digest, name)
    return Shown(
        difference_panels(image, truth, masks, found)[-3:],
        f"{caption} From the truth (blue, {amount(found.n_objects_a, 'cell')}) to what was found "
        f"(orange, {found.n_objects_b}; white where both coincide): {counts_text(found)}; Dice "
        f"{found.dice:.3f}, PQ {found.pq:.3f}.",
        table_file(f"against-truth-{name}", _cell_rows(found, name)),
    )


# -- all of it --------------------------------------------------------------------------


@dataclass(frozen=True)
class CellsView:
    """Everything about the cells of one chapter."""

    title: str
    n_specs: int
    axes: list[AxisView]
    agreement: AgreementView | None
    truth: list[Shown]


def cells_view(chapter: Chapter, *, shown: Worst | None) -> CellsView:
    """Of one chapter, without the picture that is `shown` at the top of the page."""
    return CellsView(
        chapter.title,
        chapter.n_specs,
        [axis_view(chapter, axis, shown=shown) for axis in chapter.axes],
        agreement_view(chapter),
        truth_figures(chapter),
    )
