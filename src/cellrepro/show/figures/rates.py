"""A figure of how fast images are segmented, by their size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.show.figures import style
from cellrepro.show.figures.style import MARKERS, SERIES, Picture
from cellrepro.words import span
from samebits.errors import BadInput
from samebits.words import amount, grouped, joined

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.median_range import MedianRange
    from cellrepro.show.inference_rates import SegmentationSpeed

_IMAGE_SIZE = "image size (pixels along an edge)"
_MOST_TICKS = 6


def rates_by_size(speeds: Sequence[SegmentationSpeed], *, own: str = "") -> Picture:
    """Draw megapixels and images a second by image size, a line per number of tiles and setting.

    Parameters
    ----------
    speeds : sequence of SegmentationSpeed
        From `cellrepro.show.inference_rates`.
    own : str
        The folder of the user's images, which get points of their own; by its name.

    Returns
    -------
    Picture
        Markers are medians over repeats; bars reach from the slowest to the fastest.

    Raises
    ------
    BadInput
        If there are no speeds.
    """
    if not speeds:
        raise BadInput(
            "there are no speeds to draw; give those of runs that only segmented, from "
            "`inference_rates`"
        )
    lines = _lines(speeds, own)
    figure = Picture(height=3.6)
    megapixels, images = figure.subplots(1, 2)
    all_edges = [speed.edge for speed in speeds]
    step = 0.025 * (max(all_edges) - min(all_edges))  # side by side, so that none hides another
    for i, (label, of_line) in enumerate(lines.items()):
        aside = step * (i - (len(lines) - 1) / 2)
        edges = [speed.edge + aside for speed in of_line]
        _draw_rates(megapixels, i, label, edges, [each.megapixels_per_second for each in of_line])
        _draw_rates(images, i, label, edges, [each.images_per_second for each in of_line])
    # Whole markers and bars, up to the last.
    megapixels.set_ylim(0, 1.08 * max(speed.megapixels_per_second.highest for speed in speeds))
    images.set_ylim(0, 1.08 * max(speed.images_per_second.highest for speed in speeds))
    sizes = sorted({speed.edge for speed in speeds})
    for axes, unit in ((megapixels, "megapixels/s"), (images, "images/s")):
        style.label_axes(axes, x=_IMAGE_SIZE, y=unit)
        if len(sizes) <= _MOST_TICKS:
            axes.set_xticks(sizes, [grouped(round(size)) for size in sizes])
        axes.margins(x=0.15)
    handles, _ = megapixels.get_legend_handles_labels()
    style.legend(figure, handles)
    n_repeats = [speed.n_repeats for speed in speeds]
    n_timed = [speed.n_timed for speed in speeds]
    caption = (
        f"Each point is the median over {_reach(n_repeats)} repeats of {_reach(n_timed)} timed "
        "images, the bar reaches from the slowest repeat to the fastest. The time is that of "
        "Cellpose's eval, without the first image of a process unless there is no other."
    )
    alt = f"Points of speed over image size, for {joined(list(lines))}."
    return figure.described("Images and megapixels segmented per second", caption, alt)


def _lines(speeds: Sequence[SegmentationSpeed], own: str) -> dict[str, list[SegmentationSpeed]]:
    """A line for each number of tiles and setting; the user's images are none of the made-up."""
    lines: dict[str, list[SegmentationSpeed]] = defaultdict(list)
    for speed in speeds:
        parts = []
        if own:
            parts.append(f"images of {own}" if speed.images == own else "made-up images")
        parts.append(f"{amount(speed.n_tiles_at_once, 'tile')} at once")
        if speed.setting:
            parts.append(speed.setting)
        lines[", ".join(parts)].append(speed)
    return lines


def _reach(numbers: Sequence[int]) -> str:
    return span(str(min(numbers)), str(max(numbers)))


def _draw_rates(
    axes: Axes, i: int, label: str, edges: Sequence[float], rates: Sequence[MedianRange]
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
