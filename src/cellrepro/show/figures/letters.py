"""Fields with a letter for each result, in which equal letters mean equal bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, cycle, islice, product
from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.show.figures.colours import RESULTS
from cellrepro.show.figures.style import EDGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ALONE = "#FFFFFF"
"""Behind the letter of a result that nothing else came to."""


def draw_letters(axes: Axes, results: Sequence[Sequence[str]]) -> None:
    """Draw a field with a letter for each result; equal results have equal letters."""
    from matplotlib.colors import ListedColormap

    counts = Counter(result for row in results for result in row)
    number = {result: i for i, result in enumerate(counts)}
    letters = list(islice(result_letters(), len(counts)))
    colours = cycle(RESULTS)
    backgrounds = [next(colours) if n > 1 else _ALONE for n in counts.values()]
    fields = np.array([[number[result] for result in row] for row in results])
    n_rows, n_columns = fields.shape
    axes.pcolormesh(
        np.arange(n_columns + 1) - 0.5,
        np.arange(n_rows + 1) - 0.5,
        fields,
        cmap=ListedColormap(backgrounds),
        vmin=-0.5,
        vmax=len(backgrounds) - 0.5,
        edgecolors=EDGE,
    )
    axes.set_ylim(n_rows - 0.5, -0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9)
    for (y, x), i in np.ndenumerate(fields):
        axes.text(x, y, letters[i], ha="center", va="center", fontsize=15)


def result_letters() -> Iterator[str]:
    """Yield letters for results that stand beside A and B, the sides of a comparison: from C on."""
    return islice(_letters(), 2, None)


def _letters() -> Iterator[str]:
    """Yield A to Z, then AA, AB and so on, without end."""
    for length in count(1):
        for letters in product(ascii_uppercase, repeat=length):
            yield "".join(letters)
