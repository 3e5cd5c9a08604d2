"""A figure of what each mode costs: the time of a training step."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from cellrepro.show.figures import style
from cellrepro.show.figures.style import EDGE, GREY, SERIES, Picture

if TYPE_CHECKING:
    from cellrepro.audits.cost import Cost


def cost_bars(cost: Cost) -> Picture:
    """Draw the time of a step in each mode, beside plain Cellpose.

    Parameters
    ----------
    cost : Cost
        From `cellrepro.measure_cost`.

    Returns
    -------
    Picture
    """
    figure = Picture(height=1.1 + 0.62 * len(cost.table))
    axes = figure.subplots()
    positions = range(len(cost.table))
    bars = axes.barh(
        positions,
        [row.ratio for row in cost.table],
        xerr=[
            [row.ratio - row.lowest for row in cost.table],
            [row.highest - row.ratio for row in cost.table],
        ],
        color=SERIES[3],
        hatch="..",
        height=0.6,
        edgecolor=EDGE,
    )
    # No seconds but of plain: a ratio is a median over rounds, which seconds of all rounds are not.
    texts = {row.name: str(row.over_rounds) for row in cost.table}
    texts["plain"] += f", {cost.table[0].seconds:.2g} s"
    axes.axvline(1, color=GREY, linewidth=1, linestyle=(0, (4, 2)))
    names = [f"{row.name}\n{textwrap.fill(row.what, 44)}" for row in cost.table]
    axes.set_yticks(positions, names, parse_math=False)
    axes.invert_yaxis()
    style.texts_beside(axes, bars, list(texts.values()), [row.highest for row in cost.table])
    style.label_axes(axes, x="time of a training step; plain Cellpose is 1")
    caption = (
        f"{cost.encoder} on {cost.device}: {cost.how_measured}. Black lines go from the lowest to "
        "the highest round; a busy machine makes them long."
    )
    listed = "; ".join(f"{name} {text}" for name, text in texts.items())
    text = "Time of a training step, plain Cellpose is 1"
    if "strict" in texts:
        text = f"Price of mode strict: {cost.price_of('strict')}"
    return figure.described(text, caption, f"Bar chart of ratios: {listed}.")
