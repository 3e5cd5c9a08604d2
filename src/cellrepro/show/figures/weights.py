"""Pictures of where networks part: layer by layer, and how their parameters' differences spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.compare.weight_similarity import Similarity, layers_by_distance
from cellrepro.errors import BadInput
from cellrepro.show.figures.style import (
    SERIES,
    Picture,
    _clipped,
    _clipped_all,
    _heading,
    _label_axes,
    _legend,
    _line_legend,
    _line_style,
    _note,
    _title,
    logarithmic,
    power_text,
)
from cellrepro.text import amount, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.compare.weight_histograms import DifferenceDistributions
    from cellrepro.compare.weight_similarity import LayerDistances

_FEW_PAIRS = 60  # up to which each is a tick of its own
_FLOOR = 0.5  # of one parameter, where the axis begins; intervals without one are below it


def layers_parting(
    table: Similarity, *, labels: Sequence[str] | None = None, n: int = 20
) -> Picture:
    """Which layers of N networks part most.

    Parameters
    ----------
    table : Similarity
        From `cellrepro.compare.similarity`.
    labels : sequence of str, optional
        What the networks are called; their numbers from 1 by default.
    n : int
        How many layers at most: those that part most.

    Returns
    -------
    Picture
        A line per layer from the least to the greatest relative L2 distance over all pairs of
        different networks, ticks for the pairs if they are few, a dot at the median, and beside
        it how many times that of the layer in the middle that is, of those that differ. Where a
        pair is equal in a layer, an empty diamond stands at the left edge. Above stands which
        pair is furthest apart in the first layer.

    Raises
    ------
    BadInput
        If there are not as many labels as networks.
    """
    labels = [str(i + 1) for i in range(len(table.paths))] if labels is None else list(labels)
    if len(labels) != len(table.paths):
        raise BadInput(
            f"{len(labels)} labels were given for {len(table.paths)} networks; give one for each"
        )
    every = layers_by_distance(table)
    rows = every[:n]
    figure = Picture(height=1.7 + 0.27 * max(3, len(rows)))
    axes = figure.subplots()
    if not rows:
        axes.set_axis_off()
        _note(axes, "no two of these networks differ and can be compared layer by layer")
        return figure
    low, high = _limits(rows)
    _draw_ranges(axes, rows, low=low, high=high)
    axes.set_yticks(
        range(len(rows)), _clipped_all(row.layer for row in rows), parse_math=False, fontsize=8
    )
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(low, high)
    logarithmic(axes, "x")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    _label_axes(axes, x="relative L2 distance of the layer (logarithmic), all pairs of networks")
    a, b = rows[0].furthest
    n_pairs = len({frozenset(pair) for row in rows for pair in row.pairs})
    shown = f"{len(rows)} of {amount(len(every), 'layer')}" if len(rows) < len(every) else ""
    _heading(
        figure,
        f"Layers that part most: {shown or amount(len(every), 'layer')}, "
        f"{amount(n_pairs, 'pair')} of networks",
    )
    _range_legend(figure, rows)
    axes.set_title(
        f"furthest apart in {_clipped(rows[0].layer, 40)} ({_size(rows[0].most)}):\n"
        f"{_clipped(labels[a], 40)} and {_clipped(labels[b], 40)}",
        fontsize=9,
        parse_math=False,
    )
    return figure


def _limits(rows: Sequence[LayerDistances]) -> tuple[float, float]:
    """Of the axis, with room at the left for zeros."""
    sizes = np.array([size for row in rows for size in row.relative_l2])
    shown = sizes[np.isfinite(sizes) & (sizes > 0)]
    low, high = (float(shown.min()), float(shown.max())) if shown.size else (0.1, 1.0)
    room = max(np.log10(high / low), 0.5)
    return low / 10 ** (0.12 * room), high * 10 ** (0.06 * room)


def _draw_ranges(axes: Axes, rows: Sequence[LayerDistances], *, low: float, high: float) -> None:
    medians = np.array([row.median for row in rows])
    differing = medians[np.isfinite(medians) & (medians > 0)]
    typical = float(np.median(differing)) if differing.size else np.nan
    _beside(axes, -0.85, "times the\nmiddle layer")
    edge = low * (high / low) ** 0.02
    for i, row in enumerate(rows):
        sizes = np.array(row.relative_l2)
        drawn = sizes[np.isfinite(sizes) & (sizes > 0)]
        if drawn.size:
            axes.plot(
                [drawn.min(), drawn.max()], [i, i], color=SERIES[3], linewidth=5, alpha=0.75,
                solid_capstyle="butt",
            )  # fmt: skip
        if len(sizes) <= _FEW_PAIRS:
            axes.plot(drawn, np.full(drawn.size, i), color=SERIES[0], marker="|", linestyle="none")
        if (sizes == 0).any():
            axes.plot(edge, i, marker="D", color=SERIES[1], markerfacecolor="white", markersize=6)
        if low < row.median < high:
            axes.plot(row.median, i, marker="o", color=SERIES[4], markersize=6)
        if row.most == 0:
            text = "equal"
        elif np.isfinite(row.median / typical):
            text = f"{row.median / typical:.2g}" if row.median < 1e3 * typical else "above 1000"
        else:
            text = "not finite"
        _beside(axes, i, text)


def _beside(axes: Axes, y: float, text: str) -> None:
    axes.annotate(
        text,
        (1, y),
        (6, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="left",
        va="center",
        fontsize=8,
        color="#444444",
        annotation_clip=False,
    )


def _range_legend(figure: Picture, rows: Sequence[LayerDistances]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=SERIES[3], linewidth=5, alpha=0.75, label="all pairs, least to most"),
        Line2D([], [], color=SERIES[4], marker="o", linestyle="none", label="median"),
    ]
    if any(len(row.pairs) <= _FEW_PAIRS for row in rows):
        handles.insert(
            1, Line2D([], [], color=SERIES[0], marker="|", linestyle="none", label="one pair")
        )
    if any(0 in row.relative_l2 for row in rows):
        handles.append(
            Line2D(
                [], [], color=SERIES[1], marker="D", markerfacecolor="white", linestyle="none",
                label="equal in a pair",
            )
        )  # fmt: skip
    _legend(figure, handles)


def difference_distributions(
    found: DifferenceDistributions, *, labels: Sequence[str] | None = None, n: int = 9
) -> Picture:
    """How the differences of the parameters are spread in each part of the network.

    Parameters
    ----------
    found : DifferenceDistributions
        From `cellrepro.compare.difference_distributions`.
    labels : sequence of str, optional
        What the networks are called; their numbers from 1 by default.
    n : int
        How many layers at most: those with most parameters that differ, in the network's order.

    Returns
    -------
    Picture
        A panel per layer and a line per pair: the share of the layer's parameters in each
        interval, both axes logarithmic, on the left differences below zero. The interval in the
        middle holds those too small for the others, and in the panel stands how many are exactly
        0. Later lines are thinner and dashed, so equal ones stay visible.

    Raises
    ------
    BadInput
        If there are not as many labels as networks.
    """
    labels = [str(i + 1) for i in range(len(found.paths))] if labels is None else list(labels)
    if len(labels) != len(found.paths):
        raise BadInput(
            f"{len(labels)} labels were given for {len(found.paths)} networks; give one for each"
        )
    sizes = (found.counts.sum(2) + found.n_undefined).max(0, initial=0)
    n_differing = (found.counts.sum(2) - found.n_zero + found.n_undefined).max(0, initial=0)
    most = np.argsort(-n_differing, kind="stable")[:n]
    chosen = sorted(layer for layer in most.tolist() if n_differing[layer])
    if not chosen:
        figure = Picture(height=2)
        axes = figure.subplots()
        axes.set_axis_off()
        _note(axes, f"all parameters are of equal value in {amount(len(found.pairs), 'pair')}")
        return figure
    n_columns = min(3, len(chosen))
    n_rows = -(-len(chosen) // n_columns)
    figure = Picture(height=1.4 + 1.9 * n_rows)
    panels = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True).ravel()
    floor = _FLOOR / float(sizes[chosen].max())
    for panel, layer in zip(panels, chosen, strict=False):
        _draw_differences(panel, found, layer, floor)
        _title(panel, f"{found.layers[layer]} ({grouped(int(sizes[layer]))})", size=9)
    for panel in panels[len(chosen) :]:
        panel.set_axis_off()
    for panel in panels[max(0, len(chosen) - n_columns) : len(chosen)]:
        panel.tick_params(labelbottom=True)
        panel.set_xlabel("difference (no unit)", fontsize=9)
    figure.supylabel("share of the parameters", fontsize=9)
    _line_legend(
        figure,
        [f"{_clipped(labels[j], 40)} − {_clipped(labels[i], 40)}" for i, j in found.pairs],
    )
    heading = f"Differences of {amount(len(found.pairs), 'pair')} of networks, by part"
    n_equal = int((n_differing == 0).sum())
    if len(chosen) + n_equal < len(found.layers):
        heading += f": {len(chosen)} of {len(found.layers)} parts"
    if n_equal:
        heading += f"; {n_equal} more {'is' if n_equal == 1 else 'are'} equal throughout"
    _heading(figure, heading)
    return figure


def _draw_differences(
    panel: Axes, found: DifferenceDistributions, layer: int, floor: float
) -> None:
    n_side = (len(found.edges) - 2) // 2
    for i, counts in enumerate(found.counts[:, layer]):
        share = np.maximum(counts / max(1, counts.sum()), floor / 10)
        # Intervals of equal width on the page: the logarithm of the difference, mirrored.
        edges = np.arange(len(found.edges)) - (len(found.edges) - 1) / 2
        panel.stairs(share, edges, baseline=None, **_line_style(i, len(found.pairs)))
    _logarithmic_both_ways(panel, found.edges[n_side + 1 :])
    panel.set_ylim(floor, 2)
    logarithmic(panel, "y")
    panel.tick_params(labelsize=8)
    total = found.counts[:, layer].sum(1) + found.n_undefined[:, layer]
    zero = found.n_zero[:, layer] / np.maximum(1, total)
    ends = dict.fromkeys(_percent(share) for share in (zero.min(), zero.max()))
    texts = [f"equal: {' to '.join(ends)}"]
    if found.n_undefined[:, layer].any():
        texts.append(f"not finite: {grouped(int(found.n_undefined[:, layer].max()))}")
    panel.text(
        0.02, 0.97, "\n".join(texts), transform=panel.transAxes, va="top", fontsize=8,
        color="#444444",
    )  # fmt: skip


def _logarithmic_both_ways(panel: Axes, steps: np.ndarray) -> None:
    """Ticks at powers of ten on both sides of an interval around zero; steps are powers of two."""
    low = np.log2(steps[0])
    high = low + len(steps) - 1  # the last may be infinite
    tens = np.arange(np.ceil(low * np.log10(2)), np.floor(high * np.log10(2)) + 1)
    places = tens / np.log10(2) - low + 0.5
    readable = places > 0.15 * (high - low)  # beside the 0
    tens, places = tens[readable], places[readable]
    every = max(1, -(-len(tens) // 2))
    tens, places = tens[::-every], places[::-every]
    texts = [power_text(int(ten)) for ten in tens]
    panel.set_xticks(
        [*-places, 0.0, *places],
        [*(f"−{text}" for text in texts), "0", *texts],
        fontsize=8,
    )
    panel.axvspan(-0.5, 0.5, color="#EEEEEE", zorder=0)


def _percent(share: float) -> str:
    """Never "0 %" for some, and never "100 %" for not all."""
    if 0 < share < 0.001:
        return "below 0.1 %"
    if 0.999 < share < 1:
        return "above 99.9 %"
    return f"{100 * share:.3g} %"


def _size(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "infinitely much (one is all zero)"
