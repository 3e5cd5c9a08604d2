"""Figures of trainings and segmentations: loss and learning rate, scores, times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.compare.names import Names, place_of
from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, MARKERS, PALE, SERIES, Picture
from cellrepro.text import amount

if TYPE_CHECKING:
    from cellrepro.store.manifest import TrainingRecord
    from cellrepro.store.store import Repeat, Run

_MOST_CURVES = 12  # that the legend names


def training_curves(repeats: Sequence[Repeat], *, labels: Sequence[str] | None = None) -> Picture:
    """Loss and learning rate of every epoch, one line per different course of training.

    Repeats whose losses and rates are equal to the last digit share one line. Lines drawn later
    are thinner and dashed. Markers are losses on the test images, at the epochs at which these
    were evaluated.

    Parameters
    ----------
    repeats : sequence of Repeat
        Those that trained are drawn.
    labels : sequence of str, optional
        What to call them; ``KEY/REPEAT`` by default.
    """
    courses: dict[str, tuple[TrainingRecord, list[str]]] = {}
    for repeat, label in zip(repeats, _labels(repeats, labels), strict=True):
        training = repeat.manifest.training
        if training is not None:
            courses.setdefault(training.model_dump_json(), (training, []))[1].append(label)
    if not courses:
        raise BadInput(
            f"none of the {len(repeats)} repeats trained, so there is no loss to draw; give "
            "repeats of `train`"
        )
    figure = Picture(height=5.4)
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    handles = []
    for i, (training, names) in enumerate(courses.values()):
        epochs = np.arange(1, len(training.train_losses) + 1)
        look = style.line_style(i, len(courses))
        loss.plot(epochs, training.train_losses, **look)
        tested = np.array(training.test_losses, dtype=float)  # None becomes NaN, which is not drawn
        marker = {"linestyle": "none", "marker": MARKERS[i % 7], "markersize": 9 - min(i, 5)}
        loss.plot(epochs, tested, **marker, mfc="none", mec=look["color"], mew=1.6)
        rate.plot(epochs, training.learning_rates, **look)
        more = f" = {len(names) - 2} more" if len(names) > 2 else ""
        handles.append(style.line(" = ".join(names[:2]) + more, **look))
    style.label_axes(loss, y="loss (Cellpose's, no unit)")
    style.label_axes(rate, x="epoch", y="learning rate")
    rate.locator_params(axis="x", integer=True)
    if len(handles) > _MOST_CURVES:
        more = f"and {len(handles) - _MOST_CURVES} more curves"
        handles = [*handles[:_MOST_CURVES], style.line(more, linestyle="none")]
    handles.append(style.line("line: training images", color=GREY, linewidth=2))
    handles.append(
        style.line("marker: test images", marker="o", mfc="none", mec=GREY, markersize=8)
    )
    style.legend(figure, handles, most_columns=3)
    n = sum(len(names) for _, names in courses.values())
    text = f"{n} repeats, {len(courses)} different curves"
    if len(courses) == 1:
        text = "one repeat" if n == 1 else f"all {n} repeats follow one curve, to the last digit"
    return figure.described(f"Training loss: {text}")


def scores(points: Sequence[tuple[str, str, float]], *, label: str = "AP@0.5") -> Picture:
    """One point per repeat, given as (label, group, score): a row per label, a marker per group.

    Equal scores of one group are one point; those of one row are counted beside the first. The
    axis shows a span of 0.1 or more, so that small differences look small.
    """
    if not points:
        raise BadInput("no score was given to draw; give (label, group, score)")
    names = list(dict.fromkeys(name for name, _, _ in points))
    groups = list(dict.fromkeys(group for _, group, _ in points))
    n_of = Counter((name, value) for name, _, value in points)
    styles: list[dict[str, Any]] = [
        {
            "marker": MARKERS[i % 7],
            "color": SERIES[i % 6],
            "markersize": 7,
            "linestyle": "none",
        }
        for i in range(len(groups))
    ]
    figure = Picture(height=1.3 + max(0.34, 0.13 * len(groups)) * len(names))
    axes = figure.subplots()
    noted = set()
    for name, group, value in dict.fromkeys(points):
        i = groups.index(group)
        y = names.index(name) + (i - (len(groups) - 1) / 2) * 0.7 / len(groups)
        axes.plot(value, y, **styles[i])
        if (name, value) not in noted:  # points of several groups below each other share one note
            noted.add((name, value))
            n = n_of[name, value]
            of_row = [other for row, other in n_of if row == name]
            # The least of a row is noted on its left, so that the note does not cover the others.
            away = -8 if value == min(of_row) < max(of_row) else 8
            style.beside(axes, value, y, f"{value:.3f}" + (f" ({n}×)" if n > 1 else ""), away=away)
    values = [value for _, _, value in points]
    middle, span = (min(values) + max(values)) / 2, max(0.1, 1.5 * (max(values) - min(values)))
    axes.set_xlim(max(-span / 50, middle - span / 2), min(1.04, middle + span / 2) + span * 0.06)
    style.rows(axes, names, size=9)
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    for edge in range(1, len(names)):
        axes.axhline(edge - 0.5, color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    style.label_axes(axes, x=f"{label} (0: no object found right, 1: all)")
    if len(groups) > 1:
        style.legend(
            figure, [style.line(of, **look) for of, look in zip(groups, styles, strict=True)]
        )
    return figure


def scores_of_runs(runs: Sequence[Run]) -> Picture:
    """AP@0.5 of every repeat against the ground truth, a row for each spec, profiles as groups."""
    repeats = [repeat for run in runs for repeat in run.repeats]
    scored = [(one, one.manifest.ap50) for one in repeats if one.manifest.ap50 is not None]
    if not scored:
        return style.note("no run has a score against a ground truth")
    names = Names(repeat for repeat, _ in scored)
    points = [
        (names.context(place_of(repeat), {"profile"}), repeat.spec.profile, score)
        for repeat, score in scored
    ]
    return scores(points)


def inference_times(repeats: Sequence[Repeat], *, labels: Sequence[str] | None = None) -> Picture:
    """Seconds that each image took to segment, a row of points per repeat, a bar at the median.

    The first image of a process often takes longer, because libraries prepare themselves; it is
    drawn as a hollow diamond.

    Parameters
    ----------
    repeats : sequence of Repeat
    labels : sequence of str, optional
        What to call them; ``KEY/REPEAT`` by default.
    """
    timed = [
        (label, [record.seconds for record in repeat.manifest.masks.values()])
        for repeat, label in zip(repeats, _labels(repeats, labels), strict=True)
        if repeat.manifest.masks
    ]
    if not timed:
        raise BadInput(f"none of the {len(repeats)} repeats segmented an image")
    first: dict[str, Any] = {
        "marker": "D",
        "color": SERIES[1],
        "mfc": "none",
        "markersize": 6,
    }
    other: dict[str, Any] = {"marker": "o", "color": SERIES[0], "markersize": 5, "alpha": 0.7}
    middle: dict[str, Any] = {"marker": "|", "color": SERIES[4], "markersize": 14, "mew": 2.2}
    figure = Picture(height=1.4 + 0.32 * len(timed))
    axes = figure.subplots()
    for i, (_, seconds) in enumerate(timed):
        axes.plot(seconds[1:], [i] * (len(seconds) - 1), linestyle="none", **other)
        axes.plot(seconds[0], i, linestyle="none", **first)
        axes.plot(np.median(seconds), i, linestyle="none", **middle)
    style.rows(axes, [label for label, _ in timed])
    axes.set_xlim(left=0)
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    style.label_axes(axes, x="seconds per image")
    named = (("first image", first), ("further images", other), ("median", middle))
    style.legend(figure, [style.line(text, **look) for text, look in named])
    n_images = sum(len(seconds) for _, seconds in timed)
    return figure.described(
        f"Time to segment: {amount(len(timed), 'repeat')}, {amount(n_images, 'image')} in all",
    )


def _labels(repeats: Sequence[Repeat], labels: Sequence[str] | None) -> list[str]:
    names = (f"{repeat.manifest.key[:8]}/{repeat.manifest.repeat}" for repeat in repeats)
    return style.labels_of(len(repeats), "repeats", labels, names)
