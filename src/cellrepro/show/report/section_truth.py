"""The section on ground truth: the scores of every run, its worst and its best image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.show.figures.scores import scores_of_runs
from cellrepro.show.pages.mask_pictures import compared_masks
from cellrepro.show.pages.parts import Figure, drawn_twice, figure, table_file
from cellrepro.show.report.summary import Chapter
from cellrepro.store.stored_run import Repeat, Run
from samebits.words import amount, grouped

_MOST_SPECS = 30  # specs in a figure


@dataclass(frozen=True)
class ScoredImage:
    """An image of a run with its score; a comparison where the truth is still in the store."""

    said: str
    """Which image it is, of how many, and its score, in a sentence."""
    comparison: MaskComparison | None = None
    figure: Figure | None = None


@dataclass(frozen=True)
class TruthSection:
    """The scores of every run."""

    n_images: int
    n_training: int
    """How many training images were scored, too."""
    most_specs: int
    """Specs that the figure of the scores shows at most."""
    said: str
    """How far the scores of the runs lie apart."""
    scores: Figure | None
    """None where all runs score alike, which is said in words."""
    ends: Sequence[ScoredImage]
    """The worst and the best image."""


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
    runs = [Run(result.spec, result.repeats) for result in chapter.results[:_MOST_SPECS]]
    of_runs = {
        f"{one.manifest.ap50:.3f}" for one in chapter.repeats if one.manifest.ap50 is not None
    }
    drawn = drawn_twice(scores_of_runs, runs) if len(of_runs) > 1 else None
    rows = [
        {"run": score.repeat.name, "image": score.image, "ap50": score.value} for score in scores
    ]
    for repeat in chapter.repeats:
        for image, ap50 in repeat.manifest.train_scores.items():
            name = f"{image} (training image)"
            rows.append({"run": repeat.name, "image": name, "ap50": ap50})
    n_results = f"{grouped(len(scores))} {'result' if len(scores) == 1 else 'results'}"
    return TruthSection(
        n_images=len({score.image for score in scores}),
        n_training=max(len(repeat.manifest.train_scores) for repeat in chapter.repeats),
        most_specs=_MOST_SPECS,
        said=_said(chapter.repeats),
        scores=figure(drawn, table_file(f"scores-{chapter.data}", rows)) if drawn else None,
        ends=(
            _beside_truth(chapter, min(scores, key=_value), f"worst of {n_results}"),
            _beside_truth(chapter, max(scores, key=_value), f"best of {n_results}"),
        ),
    )


def _said(repeats: Sequence[Repeat]) -> str:
    """The scores of the runs in a sentence."""
    values = [one.manifest.ap50 for one in repeats if one.manifest.ap50 is not None]
    low = min(values)
    high = max(values)
    runs = amount(len(values), "repeat")
    if f"{low:.3f}" == f"{high:.3f}":
        of_all = {1: "the one repeat", 2: "both repeats"}.get(len(values), f"all {runs}")
        return f"AP@0.5 is {low:.3f} in {of_all}."
    mean = sum(values) / len(values)
    return f"AP@0.5 is {mean:.3f} on average over {runs}: {low:.3f} to {high:.3f}."


def _value(score: _Score) -> float:
    return score.value


def _beside_truth(chapter: Chapter, score: _Score, which: str) -> ScoredImage:
    masks = score.repeat.masks(score.image)  # says what to do if the file is gone
    label = chapter.names.of_repeat(score.repeat)
    scored = ScoredImage(
        f"The {which} (images times repeats): {score.image}, by {label}, AP@0.5 {score.value:.3f}."
    )
    truth = chapter.store.truth(chapter.images_digest, score.image)
    if truth is None:
        return scored
    image = chapter.store.image(chapter.images_digest, score.image)
    file = f"against-truth-{score.image}"
    compared = compared_masks(score.image, image, truth, masks, file)
    last_three = Figure(compared.figure.panels[-3:], compared.figure.data)
    return replace(scored, comparison=compared.comparison, figure=last_three)
