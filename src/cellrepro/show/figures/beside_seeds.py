"""A figure of two results beside what seeds and every other change do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.show.figures.spread import spread_axis
from cellrepro.words import share_text

if TYPE_CHECKING:
    from cellrepro.comparison.seed_spread import Spread
    from cellrepro.show.figures.style import Picture


def beside_seeds(spread: Spread, share: float) -> Picture:
    """Draw `spread_axis` with a line through all rows for two results A and B.

    Parameters
    ----------
    spread : Spread
        From `cellrepro.measure_spread`.
    share : float
        Of the cells of A and B, those without a match in the other, from 0 to 1.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If no two runs differ in one thing only.
    """
    figure = spread_axis(spread)
    axes = figure.axes[0]
    left, right = axes.get_xlim()
    axes.set_xlim(left, max(right, 1.5 * share))
    axes.axvline(share, color="black", lw=2, linestyle=(0, (4, 1.5)), zorder=3, gid="a and b")
    said = f"A and B: {share_text(share)}"
    axes.annotate(
        said,
        (share, 1.0),
        (0, 16),  # above the name of the band
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=9,
        fontweight="bold",
        ha="center",
        va="bottom",
    )
    return figure.described(
        "How many of the cells have no match between A and B, and when one thing is changed",
        f"{figure.caption} The dashed line is A and B.",
        f"{figure.alt} {said}.",
    )
