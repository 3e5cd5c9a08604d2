"""The section on cells: where they differ between runs, and from the ground truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.comparison.seed_spread import Axis
from cellrepro.comparison.spread_axes import AXES
from cellrepro.comparison.verdicts import Verdict
from cellrepro.show.figures.training import scores_of_runs
from cellrepro.show.pages.mask_pictures import compared_masks
from cellrepro.show.pages.parts import Figure, Table, figure, table, table_file
from cellrepro.show.report.summary import Chapter
from cellrepro.store.store import Repeat, Run

_EQUALITY = {True: Verdict.IDENTICAL, False: Verdict.DIFFERENT, None: None}
_MOST_LINES = 30  # specs in a figure
_COUNTED = [kind for kind in ObjectKind if kind != ObjectKind.KEPT]
_KINDS = {
    "weights": "verdict",
    "masks": "verdict",
    "pixels": "ppm",
    "cells changed": "share",
    "AP@0.5": "{:.2g}",
    "images": "number",
    "run a": "file",
    "run b": "file",
} | dict.fromkeys((kind.in_words for kind in _COUNTED), "number")
"""How the table of comparisons shows its columns."""


# -- the worst image -----------------------------------------------------------------------


@dataclass(frozen=True)
class WorstImage:
    """The image on which two runs differ most."""

    axis: Axis
    pair: Pair
    image: str
    n_comparisons: int
    """How many pairs of runs were looked at to find it."""
    comparison: MaskComparison
    figure: Figure


@dataclass(frozen=True)
class _Candidate:
    """An image on which two runs differ."""

    chapter: Chapter
    axis: Axis
    pair: Pair
    image: str

    def weight(self) -> tuple[bool, float, float]:
        """Get a sort key: changed cells, then pixels.

        A run without cells differs most from every other one, and says least: it comes last.
        """
        in_a = self.pair.a.manifest.masks[self.image]
        in_b = self.pair.b.manifest.masks[self.image]
        comparison = self.pair.images[self.image]
        return (
            bool(in_a.n_objects and in_b.n_objects),
            comparison.n_unmatched / max(1, comparison.n_objects),
            comparison.n_differing / max(1, comparison.n_pixels),
        )


def worst_image(axes: Sequence[tuple[Chapter, Axis]], file: str = "") -> WorstImage | None:
    """Find the image on which two runs differ most, in cells, then in pixels.

    None where no masks differ.
    """
    candidates = [
        _Candidate(chapter, axis, pair, image)
        for chapter, axis in axes
        for pair in axis.differing
        for image in pair.images
    ]
    if not candidates:
        return None
    worst = max(candidates, key=_Candidate.weight)
    chapter = worst.chapter
    compared = compared_masks(
        worst.image,
        chapter.store.image(chapter.images_digest, worst.image),
        worst.pair.a.masks(worst.image),
        worst.pair.b.masks(worst.image),
        f"cells-{file}{worst.image}",
    )
    return WorstImage(
        axis=worst.axis,
        pair=worst.pair,
        image=worst.image,
        n_comparisons=sum(len(axis.pairs) for of, axis in axes if of is chapter),
        comparison=compared.comparison,
        figure=compared.figure,
    )


# -- along every axis ----------------------------------------------------------------------


@dataclass(frozen=True)
class AxisSection:
    """The comparisons along one axis."""

    axis: Axis
    weights: Sequence[bool]
    """Whether the weights are equal, for each pair of runs that trained."""
    worst: WorstImage | None
    above: bool
    """Whether its worst image stands at the top of the page."""
    every: Table


def axis_section(chapter: Chapter, axis: Axis, shown: WorstImage | None) -> AxisSection:
    """Make the section of one axis: every comparison, largest difference first, the worst image."""
    above = shown is not None and shown.axis is axis
    is_drawn = axis.name in AXES and not above
    pairs = sorted(axis.pairs, key=lambda pair: (-np.nan_to_num(pair.changed), -pair.ppm))
    return AxisSection(
        axis=axis,
        weights=[pair.weights_equal for pair in axis.pairs if pair.weights_equal is not None],
        worst=worst_image([(chapter, axis)], f"{axis.name}-") if is_drawn else None,
        above=above,
        every=table(list(map(_row, pairs)), _KINDS, file=f"{axis.name}-{chapter.data}"),
    )


def _row(pair: Pair) -> dict[str, object]:
    ap50_a = pair.a.manifest.ap50
    ap50_b = pair.b.manifest.ap50
    apart = None if ap50_a is None or ap50_b is None else abs(ap50_a - ap50_b)
    row: dict[str, object] = {
        "with": pair.context or None,
        "between": pair.name_a,
        "and": pair.name_b,
        "run a": pair.a.name,
        "run b": pair.b.name,
        "weights": _EQUALITY[pair.weights_equal],
        "masks": Verdict.VACUOUS if pair.vacuous else pair.verdict,
        "pixels": pair.ppm,
        "cells changed": pair.changed,
    }
    row.update({kind.in_words: pair.kinds[kind] for kind in _COUNTED})
    row["AP@0.5"] = apart
    row["images"] = pair.n_images
    return row


# -- ground truth --------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoredImage:
    """An image of a run with its score; a comparison where the truth is still in the store."""

    image: str
    label: str
    """The run's name."""
    score: float
    """Average precision at IoU 0.5."""
    comparison: MaskComparison | None = None
    figure: Figure | None = None


@dataclass(frozen=True)
class TruthSection:
    """The scores of every run."""

    n_images: int
    n_results: int
    """Images times runs."""
    n_training: int
    """How many training images were scored, too."""
    scores: Figure
    ends: Mapping[str, ScoredImage]
    """The ``worst`` and the ``best`` image."""


@dataclass(frozen=True)
class _Score:
    value: float
    image: str
    repeat: Repeat


def truth_section(chapter: Chapter) -> TruthSection | None:
    """Make the section on ground truth; None where there is no truth."""
    scores = [
        _Score(float(record.ap50), image, repeat)
        for repeat in chapter.repeats
        for image, record in repeat.manifest.masks.items()
        if record.ap50 is not None
    ]
    if not scores:
        return None
    runs = [Run(result.spec, result.repeats) for result in chapter.results[:_MOST_LINES]]
    drawn = scores_of_runs(runs)
    rows = [
        {"run": score.repeat.name, "image": score.image, "ap50": score.value} for score in scores
    ]
    for repeat in chapter.repeats:
        for image, ap50 in repeat.manifest.train_scores.items():
            name = f"{image} (training image)"
            rows.append({"run": repeat.name, "image": name, "ap50": ap50})
    return TruthSection(
        n_images=len({score.image for score in scores}),
        n_results=len(scores),
        n_training=max(len(repeat.manifest.train_scores) for repeat in chapter.repeats),
        scores=figure(drawn, table_file(f"scores-{chapter.data}", rows)),
        ends={
            "worst": _beside_truth(chapter, min(scores, key=lambda score: score.value)),
            "best": _beside_truth(chapter, max(scores, key=lambda score: score.value)),
        },
    )


def _beside_truth(chapter: Chapter, score: _Score) -> ScoredImage:
    masks = score.repeat.masks(score.image)  # says what to do if the file is gone
    label = chapter.names.of_repeat(score.repeat)
    truth = chapter.store.truth(chapter.images_digest, score.image)
    if truth is None:
        return ScoredImage(score.image, label, score.value)
    image = chapter.store.image(chapter.images_digest, score.image)
    file = f"against-truth-{score.image}"
    compared = compared_masks(score.image, image, truth, masks, file)
    last_three = Figure(compared.figure.panels[-3:], compared.figure.data)
    return ScoredImage(score.image, label, score.value, compared.comparison, last_three)
