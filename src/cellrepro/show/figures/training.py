"""Figures of trainings and segmentations: loss and learning rate, scores, times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cellrepro.comparison.run_names import Names, place_of
from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, MARKERS, SERIES, Picture
from cellrepro.words import amount, span

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from cellrepro.show.figures.style import LineStyle
    from cellrepro.show.inference_rates import Rate, SegmentationSpeed
    from cellrepro.store.stored_run import Repeat, Run
    from cellrepro.store.training_record import TrainingRecord

_IMAGE_SIZE = "image size (pixels along an edge)"
_MOST_CURVES = 12
"""How many the legend names."""


@dataclass
class _Course:
    """The course of a training, and the repeats that share it to the last digit."""

    record: TrainingRecord
    scores: Mapping[int, float]
    """The score had training ended there, by epoch; of epochs whose checkpoint was kept."""
    labels: list[str]


def training_curves(repeats: Sequence[Repeat], *, labels: Sequence[str] | None = None) -> Picture:
    """Draw loss and learning rate of every epoch, one line per different course of training.

    Where checkpoints were kept, also the score had training ended there. Repeats that are equal in
    all of it to the last digit share one line. Lines drawn later are thinner and dashed. Markers
    are losses on the test images, at the epochs at which these were evaluated.

    Parameters
    ----------
    repeats : sequence of Repeat
        Those that trained nothing are left out.
    labels : sequence of str, optional
        What to call the repeats; default ``KEY/REPEAT``.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If none of them trained, or there are not as many labels as repeats.
    """
    names = style.labels_of(labels, map(_name, repeats))
    courses = _courses(repeats, names)
    if not courses:
        raise BadInput(
            f"none of the {len(repeats)} repeats trained, so there is no loss to draw; give "
            "repeats of `train`"
        )
    is_scored = any(course.scores for course in courses)
    if is_scored:
        figure = Picture(height=6.9)
        loss, rate, score = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1, 1))
        lowest = score
    else:
        figure = Picture(height=5.4)
        loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        lowest = rate
    handles: list[Artist] = []
    for i, course in enumerate(courses):
        line_style = style.line_style(i, len(courses))
        _draw_losses(loss, i, course.record, line_style)
        epochs = range(1, len(course.record.train_losses) + 1)
        rate.plot(epochs, course.record.learning_rates, **line_style)
        if course.scores:
            score.plot(list(course.scores), list(course.scores.values()), **line_style, marker=".")
        if i < _MOST_CURVES:
            handles.append(style.line(_course_label(course.labels), **line_style))
    style.label_axes(loss, y="loss (Cellpose's, no unit)")
    style.label_axes(rate, y="learning rate")
    style.label_axes(lowest, x="epoch")
    lowest.locator_params(axis="x", integer=True)
    if is_scored:
        style.label_axes(score, y="mean AP@0.5")
        score.set_ylim(-0.04, 1.04)
    handles.append(style.line("line: training images", color=GREY, linewidth=2))
    handles.append(style.line("marker: test images", marker="o", mfc="none", mec=GREY))
    style.legend(figure, handles)
    n_repeats = amount(sum(len(course.labels) for course in courses), "repeat")
    n_curves = amount(len(courses), "different curve")
    return figure.described(
        f"Training loss: {n_repeats}, {n_curves} (equal to the last digit share one)"
    )


def _courses(repeats: Sequence[Repeat], labels: Sequence[str]) -> list[_Course]:
    """Group repeats by their course of training, in the order of the repeats."""
    courses: dict[str, _Course] = {}
    for repeat, label in zip(repeats, labels, strict=True):
        record = repeat.manifest.training
        if record is not None:
            scores = repeat.manifest.ap50_by_epoch
            content = f"{record.model_dump_json()} {scores}"
            courses.setdefault(content, _Course(record, scores, [])).labels.append(label)
    return list(courses.values())


def _draw_losses(axes: Axes, i: int, record: TrainingRecord, line_style: LineStyle) -> None:
    """Draw a line for the training images, and markers for the test images."""
    epochs = range(1, len(record.train_losses) + 1)
    axes.plot(epochs, record.train_losses, **line_style)
    axes.plot(
        epochs,
        np.array(record.test_losses, dtype=float),  # None becomes NaN, which is not drawn
        linestyle="none",
        mec=line_style["color"],
        mew=1.6,
        marker=MARKERS[i % len(MARKERS)],
        markersize=9 - min(i, 5),
        mfc="none",
    )


def _course_label(labels: Sequence[str]) -> str:
    more = f" = {len(labels) - 2} more" if len(labels) > 2 else ""
    return " = ".join(labels[:2]) + more


class _Score(NamedTuple):
    """The AP@0.5 of one repeat, and where it is drawn."""

    row: str
    profile: str
    ap50: float


@dataclass(frozen=True)
class _Scores:
    """Scores on one part of the images."""

    part: str
    scores: list[_Score]

    @property
    def values(self) -> list[float]:
        return [score.ap50 for score in self.scores]

    @property
    def title(self) -> str:
        """The part, and how far its scores lie apart."""
        low = f"{min(self.values):.3f}"
        high = f"{max(self.values):.3f}"
        title = f"{self.part}: {span(low, high)}"
        if low != high:
            title += f", {max(self.values) - min(self.values):.3f} apart"
        return title


def scores_of_runs(runs: Sequence[Run]) -> Picture:
    """Draw AP@0.5 of every repeat against the ground truth, a row a spec, a marker a profile.

    On the images that were segmented, and below on training images where these were scored, too.
    Beside each row stand its scores, and how many repeats have them; above all how far they lie
    apart. The axis shows a span of 0.1 or more, so that small differences look small.
    """
    every = [repeat for run in runs for repeat in run.repeats]
    repeats = [repeat for repeat in every if repeat.manifest.ap50 is not None]
    if not repeats:
        return style.note("no run has a score against a ground truth")
    names = Names(repeats)
    row_of = {id(each): names.without(place_of(each), {"profile"}) for each in repeats}
    rows = list(dict.fromkeys(row_of[id(repeat)] for repeat in repeats))
    profiles = list(dict.fromkeys(repeat.spec.profile for repeat in repeats))
    parts = _parts(repeats, row_of)
    part_height = 0.4 + max(0.34, 0.13 * len(profiles)) * len(rows)
    figure = Picture(height=1 + part_height * len(parts))
    panels = figure.subplots(len(parts), 1, sharex=True, squeeze=False).ravel()
    for axes, part in zip(panels, parts, strict=True):
        _draw_scores(axes, part.scores, rows, profiles)
        style.title(axes, part.title, size=9)
    values = [value for part in parts for value in part.values]
    middle = (min(values) + max(values)) / 2
    width = max(0.1, 1.5 * (max(values) - min(values)))
    panels[-1].set_xlim(middle - width / 2, middle + width / 2)
    style.label_axes(panels[-1], x="AP@0.5 (0: no object found right, 1: all)")
    style.legend(figure, panels[0].lines)
    return figure


def _parts(repeats: Sequence[Repeat], row_of: Mapping[int, str]) -> list[_Scores]:
    """Scores on the images segmented, and on training images where these were scored, too."""
    on_segmented = []
    on_training = []
    of_training = ""
    for repeat in repeats:
        manifest = repeat.manifest
        row = row_of[id(repeat)]
        profile = repeat.spec.profile
        if manifest.ap50 is not None:
            on_segmented.append(_Score(row, profile, manifest.ap50))
        if manifest.train_scores and manifest.ap50_train is not None:
            on_training.append(_Score(row, profile, manifest.ap50_train))
        if manifest.train_scores and not of_training:
            n_scored = len(manifest.train_scores)
            of_training = f"{n_scored} of {manifest.data.n_train} training images"
    if not on_training:
        return [_Scores("images segmented", on_segmented)]
    return [_Scores("test images", on_segmented), _Scores(of_training, on_training)]


def _draw_scores(
    axes: Axes, scores: Sequence[_Score], rows: Sequence[str], profiles: Sequence[str]
) -> None:
    """Draw each score with the marker of its profile, and write all of a row beside it."""
    for i, profile in enumerate(profiles):
        aside = (i - (len(profiles) - 1) / 2) * 0.7 / len(profiles)
        of_profile = [score for score in scores if score.profile == profile]
        axes.plot(
            [score.ap50 for score in of_profile],
            [rows.index(score.row) + aside for score in of_profile],
            linestyle="none",
            label=profile,
            color=SERIES[i % len(SERIES)],
            marker=MARKERS[i % len(MARKERS)],
            ms=7,
        )
    for y, row in enumerate(rows):
        counts = Counter(f"{score.ap50:.3f}" for score in scores if score.row == row)
        text = ", ".join(f"{value} ({n}×)" for value, n in sorted(counts.items()))
        style.beside_row(axes, y, style.clipped(text, 48))
    style.rows(axes, rows, size=9)
    style.x_grid(axes)
    style.label_axes(axes)


def rates_by_size(speeds: Sequence[SegmentationSpeed]) -> Picture:
    """Draw megapixels and images a second by image size, a line per batch size and setting.

    Parameters
    ----------
    speeds : sequence of SegmentationSpeed
        From `cellrepro.show.inference_rates`.

    Returns
    -------
    Picture
        Markers are medians over repeats; bars reach from the lowest to the highest.
    """
    lines: dict[str, list[SegmentationSpeed]] = defaultdict(list)
    for speed in speeds:
        batch_size = f"batch size {speed.batch_size}"
        lines[f"{batch_size}, {speed.setting}" if speed.setting else batch_size].append(speed)
    figure = Picture(height=3.6)
    megapixels, images = figure.subplots(1, 2)
    for i, (label, of_line) in enumerate(lines.items()):
        edges = [speed.edge for speed in of_line]
        _draw_rates(megapixels, i, label, edges, [each.megapixels_per_second for each in of_line])
        _draw_rates(images, i, label, edges, [each.images_per_second for each in of_line])
    # Whole markers and bars, up to the last.
    megapixels.set_ylim(0, 1.08 * max(speed.megapixels_per_second.highest for speed in speeds))
    images.set_ylim(0, 1.08 * max(speed.images_per_second.highest for speed in speeds))
    style.label_axes(megapixels, x=_IMAGE_SIZE, y="megapixels/s")
    style.label_axes(images, x=_IMAGE_SIZE, y="images/s")
    handles, _ = megapixels.get_legend_handles_labels()
    style.legend(figure, handles)
    n_repeats = amount(sum(speed.n_repeats for speed in speeds), "repeat")
    return figure.described(
        f"How fast images are segmented: {n_repeats}, median and lowest to highest"
    )


def _draw_rates(
    axes: Axes, i: int, label: str, edges: Sequence[float], rates: Sequence[Rate]
) -> None:
    """Draw a line of rates by image size."""
    median = np.array([rate.median for rate in rates])
    below = median - [rate.lowest for rate in rates]
    above = [rate.highest for rate in rates] - median
    axes.errorbar(
        edges,
        median,
        [below, above],
        label=label,
        lw=1.4,
        color=SERIES[i % len(SERIES)],
        marker=MARKERS[i % len(MARKERS)],
        capsize=3,
    )


def _name(repeat: Repeat) -> str:
    return f"{repeat.manifest.key[:8]}/{repeat.manifest.repeat}"
