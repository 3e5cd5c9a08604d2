"""Fields with a letter for each result, in which equal letters mean equal bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.show.figures.style import EDGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BACKGROUNDS = ("#B3DDF5", "#F6D896", "#E7C3D9", "#D9D9D9", "#FFFFFF", "#F4EFA9")
"""Colours of results A, B, C …; black text is readable on each."""
_N_LETTERS = 26


def draw_letters(axes: Axes, results: Sequence[Sequence[str]]) -> None:
    """Draw a field with a letter for each result; equal results have equal letters."""
    from matplotlib.colors import ListedColormap

    different = dict.fromkeys(result for row in results for result in row)
    number = {result: i for i, result in enumerate(different)}
    fields = np.array([[number[result] for result in row] for row in results])
    n_rows, n_columns = fields.shape
    n_backgrounds = len(_BACKGROUNDS)
    axes.pcolormesh(
        np.arange(n_columns + 1) - 0.5,
        np.arange(n_rows + 1) - 0.5,
        fields % n_backgrounds,
        cmap=ListedColormap(_BACKGROUNDS),
        vmin=0,
        vmax=n_backgrounds - 1,
        edgecolors=EDGE,
    )
    axes.set_ylim(n_rows - 0.5, -0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9)
    for (y, x), i in np.ndenumerate(fields):
        axes.text(x, y, _letter(i), ha="center", va="center", fontsize=15)


def _letter(i: int) -> str:
    return chr(ord("A") + i) if i < _N_LETTERS else str(i + 1)
