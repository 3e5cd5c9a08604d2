"""Figures of trainings and segmentations: loss and learning rate, scores, times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.same.names import Names, place_of
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, MARKERS, SERIES, Picture
from cellrepro.words import amount, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.show.inference_rates import Rate, SegmentationSpeed
    from cellrepro.store.manifest import TrainingRecord
    from cellrepro.store.store import Repeat, Run

_IMAGE_SIZE = "image size (pixels along an edge)"
_MOST_CURVES = 12  # that the legend names


def training_curves(repeats: Sequence[Repeat], *, labels: Sequence[str] | None = None) -> Picture:
    """Loss and learning rate of every epoch, one line per different course of training.

    Where checkpoints were kept, also the score had training ended there. Repeats that are equal in
    all of it to the last digit share one line. Lines drawn later are thinner and dashed. Markers
    are losses on the test images, at the epochs at which these were evaluated. ``labels``: what to
    call the repeats, ``KEY/REPEAT`` by default.
    """
    courses: dict[str, tuple[TrainingRecord, dict[int, float], list[str]]] = {}
    names = style.labels_of(labels, map(_name, repeats))
    for repeat, label in zip(repeats, names, strict=True):
        training, scores = repeat.manifest.training, repeat.manifest.ap50_by_epoch
        if training is not None:
            course = f"{training.model_dump_json()} {scores}"
            courses.setdefault(course, (training, scores, []))[2].append(label)
    if not courses:
        raise BadInput(
            f"none of the {len(repeats)} repeats trained, so there is no loss to draw; give "
            "repeats of `train`"
        )
    scored = any(scores for _, scores, _ in courses.values())
    figure = Picture(height=6.9 if scored else 5.4)
    panels = figure.subplots(2 + scored, 1, sharex=True, height_ratios=(2, 1, 1)[: 2 + scored])
    loss, rate, handles = panels[0], panels[1], []
    for i, (training, scores, names) in enumerate(courses.values()):
        epochs = np.arange(1, len(training.train_losses) + 1)
        look = style.line_style(i, len(courses))
        loss.plot(epochs, training.train_losses, **look)
        tested = np.array(training.test_losses, dtype=float)  # None becomes NaN, which is not drawn
        marker = {"marker": MARKERS[i % 7], "markersize": 9 - min(i, 5), "mfc": "none"}
        loss.plot(epochs, tested, linestyle="none", mec=look["color"], mew=1.6, **marker)
        rate.plot(epochs, training.learning_rates, **look)
        if scores:
            panels[2].plot(list(scores), list(scores.values()), **look, marker=".")
        if i < _MOST_CURVES:
            more = f" = {len(names) - 2} more" if len(names) > 2 else ""
            handles.append(style.line(" = ".join(names[:2]) + more, **look))
    style.label_axes(loss, y="loss (Cellpose's, no unit)")
    style.label_axes(rate, y="learning rate")
    style.label_axes(panels[-1], x="epoch")
    panels[-1].locator_params(axis="x", integer=True)
    if scored:
        style.label_axes(panels[2], y="mean AP@0.5")
        panels[2].set_ylim(-0.04, 1.04)
    handles.append(style.line("line: training images", color=GREY, linewidth=2))
    handles.append(style.line("marker: test images", marker="o", mfc="none", mec=GREY))
    style.legend(figure, handles)
    n = amount(sum(len(names) for _, _, names in courses.values()), "repeat")
    curves = amount(len(courses), "different curve")
    return figure.described(f"Training loss: {n}, {curves} (equal to the last digit share one)")


def scores_of_runs(runs: Sequence[Run]) -> Picture:
    """AP@0.5 of every repeat against the ground truth, a row a spec, a marker a profile.

    On the images that were segmented, and below on training images where these were scored, too.
    Beside each row stand its scores, and how many repeats have them; above all how far they lie
    apart. The axis shows a span of 0.1 or more, so that small differences look small.
    """
    every = [repeat for run in runs for repeat in run.repeats]
    repeats = [repeat for repeat in every if repeat.manifest.ap50 is not None]
    if not repeats:
        return style.note("no run has a score against a ground truth")
    names, parts = Names(repeats), {"images segmented": [one.manifest.ap50 for one in repeats]}
    seen = [one.manifest.ap50_train if one.manifest.train_scores else None for one in repeats]
    if any(score is not None for score in seen):
        first = next(one.manifest for one in repeats if one.manifest.train_scores)
        which = f"{len(first.train_scores)} of {first.data.n_train} training images"
        parts = {"test images": parts.popitem()[1], which: seen}
    of_rows = [names.context(place_of(one), {"profile"}) for one in repeats]
    rows, groups = (list(dict.fromkeys(x)) for x in (of_rows, [r.spec.profile for r in repeats]))
    of_part = 0.4 + max(0.34, 0.13 * len(groups)) * len(rows)
    figure = Picture(height=1 + of_part * len(parts))
    panels = figure.subplots(len(parts), 1, sharex=True, squeeze=False).ravel()
    known: list[float] = []
    for axes, (part, scores) in zip(panels, parts.items(), strict=True):
        points = [
            (row, repeat.spec.profile, score)
            for row, repeat, score in zip(of_rows, repeats, scores, strict=True)
            if score is not None
        ]
        _draw_scores(axes, points, rows, groups)
        values = [score for *_, score in points]
        apart = span(f"{min(values):.3f}", f"{max(values):.3f}")
        if " to " in apart:
            apart += f", {max(values) - min(values):.3f} apart"
        style.title(axes, f"{part}: {apart}", size=9)
        known += values
    middle = (min(known) + max(known)) / 2
    width = max(0.1, 1.5 * (max(known) - min(known)))
    panels[-1].set_xlim(middle - width / 2, middle + width / 2)
    style.label_axes(panels[-1], x="AP@0.5 (0: no object found right, 1: all)")
    style.legend(figure, panels[0].lines)
    return figure


def _draw_scores(
    axes: Any, points: Sequence[tuple[str, str, float]], rows: Sequence[str], groups: Sequence[str]
) -> None:
    """Scores of one part of the images, each at its row with the marker of its group."""
    for i, group in enumerate(groups):
        aside = (i - (len(groups) - 1) / 2) * 0.7 / len(groups)
        drawn = [(score, rows.index(row) + aside) for row, of, score in points if of == group]
        look: dict[str, Any] = {"color": SERIES[i % 6], "marker": MARKERS[i % 7], "ms": 7}
        axes.plot(*np.reshape(drawn, (-1, 2)).T, linestyle="none", label=group, **look)
    for y, row in enumerate(rows):
        found = Counter(f"{score:.3f}" for name, _, score in points if name == row)
        text = ", ".join(f"{score} ({n}×)" for score, n in sorted(found.items()))
        style.beside(axes, 1, y, style.clipped(text, 48), xycoords=("axes fraction", "data"))
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
    """Draw line ``i``: a rate at each image size."""
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
