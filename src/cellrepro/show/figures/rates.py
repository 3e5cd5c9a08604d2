"""A figure of how fast images are segmented, by their size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import MARKERS, SERIES, Picture
from cellrepro.words import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.show.inference_rates import Rate, SegmentationSpeed

_IMAGE_SIZE = "image size (pixels along an edge)"


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
