"""A figure of trainings: loss, learning rate, and the score had they ended earlier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, MARKERS, WIDTH, Picture
from cellrepro.words import span
from samebits.errors import BadInput
from samebits.words import amount

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from cellrepro.store.stored_run import Repeat
    from cellrepro.store.training_record import TrainingRecord

MOST_CURVES = 12
"""How many the legend names."""


@dataclass
class _Course:
    """The course of a training, and the repeats that share it to the last digit."""

    record: TrainingRecord
    scores: Mapping[int, float]
    """The score had training ended there, by epoch; of epochs whose checkpoint was kept."""
    labels: list[str]

    @property
    def test_losses(self) -> Mapping[int, float]:
        """Losses on the test images by the epoch after which they were evaluated, from 1."""
        losses = enumerate(self.record.test_losses, start=1)
        return {epoch: loss for epoch, loss in losses if loss is not None}


def training_curves(
    repeats: Sequence[Repeat], *, labels: Sequence[str] | None = None, width: float = WIDTH
) -> Picture:
    """Draw the loss of every epoch, one line per different course of training.

    Below it how far each course is from the first one, where there are several, and the learning
    rate, where courses differ in it or there is one. Where checkpoints were kept, also the score
    had training ended there. Repeats that are equal in all of it to the last digit share one line.
    Lines drawn later are thinner and dashed. Markers are losses on the test images, where these
    were evaluated at two epochs or more; the caption says which are those of a starting network.

    Parameters
    ----------
    repeats : sequence of Repeat
        Those that trained nothing are left out.
    labels : sequence of str, optional
        What to call the repeats, of which several may have one; default ``KEY/REPEAT``.
    width : float
        Of the picture, in inches.

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
    panels = _panels(courses)
    figure = Picture(width)
    figure.set_figheight(1.6 + 0.18 * len(courses) + 2.3 + 1.3 * (len(panels) - 1))
    heights = [2.3 if panel is _draw_losses else 1.3 for panel in panels.values()]
    all_axes = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights, squeeze=False)
    for axes, (label, draw) in zip(all_axes.ravel(), panels.items(), strict=True):
        draw(axes, courses)
        style.label_axes(axes, y=label)
    lowest = all_axes.ravel()[-1]
    style.label_axes(lowest, x="epoch")
    lowest.locator_params(axis="x", integer=True)
    handles: list[Artist] = [
        style.line(_course_label(course.labels), **style.line_style(i, len(courses)))
        for i, course in enumerate(courses[:MOST_CURVES])
    ]
    if any(map(_is_tested_repeatedly, courses)):
        handles.append(style.line("line: training images", color=GREY, linewidth=2))
        handles.append(style.line("marker: test images", marker="o", mfc="none", mec=GREY))
    style.legend(figure, handles)
    n_repeats = amount(len(repeats), "repeat")
    n_curves = "the same curve" if len(courses) == 1 else f"{len(courses)} different curves"
    if len(repeats) == 1:
        n_curves = "one curve"
    return figure.described(f"Training loss by epoch: {n_repeats}, {n_curves}", _caption(courses))


_DrawPanel = Callable[["Axes", Sequence[_Course]], None]


def _panels(courses: Sequence[_Course]) -> dict[str, _DrawPanel]:
    """The panels that say something, by the labels of their vertical axes."""
    panels: dict[str, _DrawPanel] = {"loss (no unit)": _draw_losses}
    if len(courses) > 1:
        panels["difference of loss from the\nfirst curve (logarithmic)"] = _draw_distances
    if len({tuple(course.record.learning_rates) for course in courses}) == len(courses):
        panels["learning rate"] = _draw_rates
    if any(course.scores for course in courses):
        panels["mean AP@0.5"] = _draw_scores
    return panels


def _caption(courses: Sequence[_Course]) -> str:
    """Say when the courses part, and what is not drawn."""
    sentences = []
    if len(courses) > 1:
        sentences.append(_parting(courses))
    rates = {tuple(course.record.learning_rates) for course in courses}
    if len(rates) < len(courses):
        values = next(iter(rates))
        said = f"{values[0]:.2g} in the first epoch, {values[-1]:.2g} in the last"
        sentences.append(f"Learning rate: {said if len(rates) == 1 else 'not drawn'}.")
    return " ".join([*sentences, *_test_loss_sentences(courses)])


def _test_loss_sentences(courses: Sequence[_Course]) -> Iterator[str]:
    """Say of which epoch a loss on the test images is, and where it is no trained network's."""
    untrained = {
        epoch
        for course in courses
        for epoch in course.test_losses
        if not any(course.record.learning_rates[:epoch])
    }
    by_epoch: dict[int, list[float]] = {}
    for course in courses:
        if not _is_tested_repeatedly(course):
            for epoch, loss in course.test_losses.items():
                by_epoch.setdefault(epoch, []).append(loss)
    for epoch, losses in sorted(by_epoch.items()):
        reach = span(f"{min(losses):.4g}", f"{max(losses):.4g}")
        # Weights stay as they are at a rate of 0; weight decay, too, is scaled by the rate.
        of_start = ", still that of the starting network, as the learning rate was 0 until then"
        yield (
            f"Loss on the test images after epoch {epoch}: {reach}"
            f"{of_start * (epoch in untrained)}."
        )
    for epoch in sorted(untrained - by_epoch.keys()):
        yield f"After epoch {epoch} the network is still the starting one: the learning rate was 0."


def _parting(courses: Sequence[_Course]) -> str:
    """Say at which epoch the first two courses part, and how far they come apart."""
    first, *others = [course.record.train_losses for course in courses]
    epochs = [
        next(
            (epoch for epoch, (a, b) in enumerate(zip(first, other, strict=False), 1) if a != b), 0
        )
        for other in others
    ]
    parted = [epoch for epoch in epochs if epoch]
    if not parted:
        return "The training losses agree in every epoch."
    most = max(abs(a - b) for other in others for a, b in zip(first, other, strict=False))
    return f"The losses part from epoch {min(parted)} on and come {most:.2g} apart at most."


def _is_tested_repeatedly(course: _Course) -> bool:
    return len(course.test_losses) > 1


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


def _draw_losses(axes: Axes, courses: Sequence[_Course]) -> None:
    """Draw a line for the training images, and markers for the test images."""
    for i, course in enumerate(courses):
        look = style.line_style(i, len(courses))
        epochs = range(1, len(course.record.train_losses) + 1)
        marker = "." if len(epochs) == 1 else ""  # a line of one point is none
        axes.plot(epochs, course.record.train_losses, **look, marker=marker)
        if _is_tested_repeatedly(course):
            axes.plot(
                epochs,
                np.array(course.record.test_losses, dtype=float),  # None becomes NaN: not drawn
                linestyle="none",
                mec=look["color"],
                mew=1.6,
                marker=MARKERS[i % len(MARKERS)],
                markersize=9 - min(i, 5),
                mfc="none",
            )


def _draw_distances(axes: Axes, courses: Sequence[_Course]) -> None:
    """Draw how far the loss of each course is from that of the first, with a place for 0."""
    first = courses[0].record.train_losses
    drawn = []
    for i, course in enumerate(courses[1:], start=1):
        losses = course.record.train_losses
        distances = [abs(a - b) for a, b in zip(first, losses, strict=False)]
        axes.plot(
            range(1, len(distances) + 1),
            distances,
            **style.line_style(i, len(courses)),
            marker=".",
        )
        drawn += distances
    style.with_zero(axes, "y", drawn)


def _draw_rates(axes: Axes, courses: Sequence[_Course]) -> None:
    for i, course in enumerate(courses):
        rates = course.record.learning_rates
        axes.plot(range(1, len(rates) + 1), rates, **style.line_style(i, len(courses)))


def _draw_scores(axes: Axes, courses: Sequence[_Course]) -> None:
    """Draw the scores had training ended at an epoch."""
    for i, course in enumerate(courses):
        if course.scores:
            look = style.line_style(i, len(courses))
            axes.plot(list(course.scores), list(course.scores.values()), **look, marker=".")
    axes.set_ylim(-0.04, 1.04)


def _course_label(labels: Sequence[str]) -> str:
    labels = list(dict.fromkeys(labels))
    more = f" = {len(labels) - 2} more" if len(labels) > 2 else ""
    return " = ".join(labels[:2]) + more


def _name(repeat: Repeat) -> str:
    return f"{repeat.manifest.key[:8]}/{repeat.manifest.repeat}"
