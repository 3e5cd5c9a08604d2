"""A figure of trainings: loss, learning rate, and the score had they ended earlier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, MARKERS, Picture
from cellrepro.words import amount

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from cellrepro.show.figures.style import LineStyle
    from cellrepro.store.stored_run import Repeat
    from cellrepro.store.training_record import TrainingRecord

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
            f"none of the {amount(len(repeats), 'repeat')} trained, so there is no loss to "
            "draw; give repeats of `train`"
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


def _name(repeat: Repeat) -> str:
    return f"{repeat.manifest.key[:8]}/{repeat.manifest.repeat}"
