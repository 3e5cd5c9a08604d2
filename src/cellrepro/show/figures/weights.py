"""Figures of networks: how their weights are spread, and in which layers they differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.same.weight_distributions import DifferenceDistributions, distributions
from cellrepro.same.weight_similarity import Similarity, layers_by_distance
from cellrepro.same.weights import WeightsComparison
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, SERIES, Picture
from cellrepro.words import amount, grouped, share_text


def weight_distributions(paths: Mapping[str, Path | str], *, n: int = 9) -> Picture:
    """How the weights of each part of the network are spread, runs overlaid.

    Histograms over common intervals: the share of the part's weights in each, on a logarithmic
    axis. Later lines are thinner and dashed, so equal ones stay visible. At most ``n`` parts, those
    with most weights, in the network's order; ``paths`` go by what each network is called.
    """
    if not paths:
        raise BadInput("no weights file was given to draw; give a mapping of label to path")
    counted = distributions(paths).values()
    sizes: dict[str, int] = {}
    for found in counted:
        for part, (counts, _) in found.items():
            sizes[part] = max(sizes.get(part, 0), int(counts.sum()))
    most = sorted(sizes, key=lambda part: -sizes[part])[:n]
    lacking = np.zeros(1), np.zeros(2)
    panels = {
        f"{part} ({grouped(sizes[part])})": [found.get(part, lacking) for found in counted]
        for part in sizes
        if part in most
    }
    networks = amount(len(paths), "network")
    return _histograms(panels, "weight (no unit)", paths).described(
        f"Weights of {networks}: {len(panels)} of {len(sizes)} parts (number of weights)"
    )


def difference_distributions(
    found: DifferenceDistributions, *, labels: Sequence[str] | None = None, n: int = 9
) -> Picture:
    """How the differences of the parameters are spread in each part of the network.

    A panel per layer and a line per pair: the share of the layer's parameters in each interval,
    both axes logarithmic, on the left differences below zero. The grey interval in the middle
    holds those that are equal; in the panel stands how many. At most ``n`` layers, those with most
    parameters that differ, in the network's order; ``labels`` name the networks.
    """
    names = style.labels_of(labels, map(str, range(1, len(found.paths) + 1)))
    totals = found.counts.sum(2) + found.n_undefined
    n_differing = (totals - found.n_zero).max(0, initial=0)
    most = np.argsort(-n_differing, kind="stable")[:n]
    chosen = sorted(layer for layer in most.tolist() if n_differing[layer])
    pairs = amount(len(found.counts), "pair")
    if not chosen:
        return style.note(f"all parameters are of equal value in {pairs}")
    edges = np.nan_to_num(found.edges, posinf=2 * found.edges[-2], neginf=2 * found.edges[1])
    panels = {
        f"{found.layers[layer]} ({grouped(int(totals[:, layer].max()))})": [
            (counts, edges) for counts in found.counts[:, layer]
        ]
        for layer in chosen
    }
    lines = [f"{style.clipped(name, 40)} − {style.clipped(names[0], 40)}" for name in names[1:]]
    figure = _histograms(panels, "difference (no unit)", lines)
    least = edges[len(edges) // 2]
    for panel, layer in zip(figure.axes, chosen, strict=False):
        panel.axvspan(-least, least, color="#EEEEEE", zorder=0)
        style.with_zero(panel, "x", edges, mirrored=True)
        equal = found.n_zero[:, layer] / np.maximum(1, totals[:, layer])
        text = " to ".join(dict.fromkeys(map(share_text, (equal.min(), equal.max()))))
        n_undefined = int(found.n_undefined[:, layer].max())
        text += f"; not finite: {grouped(n_undefined)}" if n_undefined else ""
        place = panel.transAxes
        panel.text(0.02, 0.97, f"equal: {text}", transform=place, va="top", fontsize=8, color=GREY)
    return figure.described(
        f"Differences of {pairs} of networks: {len(chosen)} of {len(found.layers)} parts; "
        f"{np.count_nonzero(n_differing == 0)} equal throughout"
    )


def layer_distances(
    table: Similarity, *, labels: Sequence[str] | None = None, n: int = 20
) -> Picture:
    """In which layers N networks differ most.

    Of the ``n`` layers that differ most a line each, from the least to the greatest relative L2
    distance over all pairs of different networks, a tick for each pair, a dot at the median, and
    beside it how many times that of the layer in the middle that is. An empty diamond at 0: a pair
    is equal in this layer. ``labels`` name the networks.
    """
    names = style.labels_of(labels, map(str, range(1, len(table.paths) + 1)))
    every = layers_by_distance(table)
    shown = every[:n]
    if not shown:
        return style.note("no two of these networks differ and can be compared layer by layer")
    figure = Picture(height=1.7 + 0.27 * max(3, len(shown)))
    axes = figure.subplots()
    medians = [row.median for row in shown if 0 < row.median < np.inf]
    style.with_zero(axes, "x", [size for row in shown for size in row.relative_l2])
    look = {"color": GREY, "xycoords": ("axes fraction", "data")}
    style.beside(axes, 1, -0.85, "times the\nmiddle layer", away=6, **look)
    for i, row in enumerate(shown):
        drawn = [size for size in row.relative_l2 if 0 < size < np.inf]
        axes.plot(drawn, [i] * len(drawn), "|-", color=SERIES[3], lw=5, ms=9, mec=SERIES[0])
        if 0 in row.relative_l2:
            axes.plot(0, i, "D", color=SERIES[1], mfc="white", ms=6)
        text = "equal" if row.most == 0 else "not finite"
        if 0 < row.median < np.inf:
            axes.plot(row.median, i, "o", color=SERIES[4], ms=6)
            text = f"{row.median / np.median(medians):.2g}"
        style.beside(axes, 1, i, text, away=6, **look)
    style.rows(axes, [row.layer for row in shown])
    style.x_grid(axes)
    style.label_axes(
        axes, x="relative L2 distance of the layer (logarithmic), all pairs of networks"
    )
    handles = [
        style.line("all pairs, least to most", color=SERIES[3], linewidth=5),
        style.line("one pair", color=SERIES[0], marker="|"),
        style.line("median", color=SERIES[4], marker="o"),
        style.line("equal in a pair", color=SERIES[1], marker="D", mfc="white"),
    ]
    style.legend(figure, handles)
    a, b = (style.clipped(names[i], 40) for i in shown[0].furthest)
    layer = style.clipped(shown[0].layer, 40)
    style.title(axes, f"furthest apart in {layer} ({shown[0].most:.2g}):\n{a} and {b}", size=9)
    n_pairs = len({frozenset(pair) for row in shown for pair in row.pairs})
    return figure.described(
        f"Layers that differ most: {len(shown)} of {amount(len(every), 'layer')}, "
        f"{amount(n_pairs, 'pair')} of networks"
    )


def parameter_differences(weights: WeightsComparison, *, n: int = 12) -> Picture:
    """The n tensors of two networks that differ most, by their relative L2 distance."""
    differing = [row for row in weights.per_tensor if row.n_differing]
    if not differing:
        return style.note("no tensor that both networks have differs")
    # A NaN (another shape) and an infinity (all zero in one) cannot be drawn, but come first.
    order = sorted(differing, key=lambda row: -np.nan_to_num(row.relative_l2, nan=np.inf))[:n]
    lengths = [row.relative_l2 if np.isfinite(row.relative_l2) else 0.0 for row in order]
    figure = Picture(height=1.2 + 0.3 * max(2, len(order)))
    axes = figure.subplots()
    bars = axes.barh(range(len(order)), lengths, color=SERIES[0], height=0.65)
    texts = [f"{share_text(row.n_differing / max(1, row.n))} of {grouped(row.n)}" for row in order]
    axes.bar_label(bars, texts, padding=4, fontsize=8, color=GREY)
    style.rows(axes, [row.name for row in order])
    style.with_zero(axes, "x", lengths)
    axes.margins(x=0.2)
    style.label_axes(
        axes, x="relative L2 distance (logarithmic; beside: share of parameters that differ)"
    )
    return figure.described(
        f"{len(order)} of {len(differing)} differing tensors "
        f"({weights.n_tensors} in all): those that differ most",
    )


def _histograms(
    panels: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]], x: str, names: Collection[str]
) -> Picture:
    """A panel for each part of the network, with counts and edges of each line, and one legend."""
    n_columns = min(3, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = Picture(height=1.3 + 1.85 * n_rows)
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    floor = 0.5 / max(counts.sum() for lines in panels.values() for counts, _ in lines)
    for panel, (title, lines) in zip(grid, panels.items(), strict=False):
        for i, (counts, edges) in enumerate(lines):
            # Below one weight: empty intervals reach the axis.
            share = np.maximum(counts / max(1, counts.sum()), floor / 10)
            panel.stairs(share, edges, baseline=None, **style.line_style(i, len(lines)))
        style.with_zero(panel, "y", (floor, 1))
        panel.set_ylim(floor, 8)
        panel.locator_params(axis="x", nbins=4)
        style.title(panel, title, size=9)
        panel.tick_params(labelsize=8)
        panel.set_xlabel(x, fontsize=9)
    for panel in grid[len(panels) :]:
        panel.set_axis_off()
    figure.supylabel("share of the weights", fontsize=9)
    handles = [style.line(name, **style.line_style(i, len(names))) for i, name in enumerate(names)]
    style.legend(figure, handles)
    return figure
