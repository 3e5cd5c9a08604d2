"""A bar that says how long something in a picture is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHARE = 0.25  # of the picture's width that the bar takes at most


class ScaleBar(NamedTuple):
    """A bar of a round length."""

    length: float
    """Pixels of the image."""
    text: str


def scale_bar(pixel_size: float, n_columns: int) -> ScaleBar:
    """Find the longest bar of 1, 2 or 5 times a power of ten micrometres that is not too long.

    The browser's `scaleBar` is the same rule.

    >>> bar = scale_bar(0.325, 512)
    >>> round(bar.length), bar.text
    (62, '20 µm')
    >>> scale_bar(0.01, 64).text, scale_bar(20, 2048).text
    ('100 nm', '10 mm')
    """
    most = pixel_size * n_columns * _SHARE
    power = 10.0 ** math.floor(math.log10(most))
    micrometres = power * next(
        factor for factor in (5, 2, 1) if factor * power <= most * (1 + 1e-9)
    )
    return ScaleBar(micrometres / pixel_size, _length_text(micrometres))


def _length_text(micrometres: float) -> str:
    if micrometres >= 1000:
        return f"{micrometres / 1000:.3g} mm"
    return f"{micrometres * 1000:.3g} nm" if micrometres < 1 else f"{micrometres:.3g} µm"


def draw_scale_bar(axes: Axes, bar: ScaleBar, *, n_columns: int, shape: tuple[int, int]) -> None:
    """Draw a bar in the lower right corner of a panel of that shape, white on black."""
    from matplotlib.patches import Rectangle

    rows, columns = shape
    length = bar.length * columns / n_columns
    margin = 0.03 * columns
    thick = 0.012 * columns
    left = columns - margin - length
    bottom = rows - margin
    axes.add_patch(Rectangle((left, bottom - thick), length, thick, fc="white", ec="black", lw=0.6))
    axes.text(
        left + length / 2,
        bottom - 1.6 * thick,
        bar.text,
        color="white",
        ha="center",
        va="bottom",
        fontsize=7,
        bbox={"fc": "black", "ec": "none", "pad": 0.8, "alpha": 0.7},
    )
