"""Figures of networks: how their weights are spread, and in which layers they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.compare.weight_similarity import (
    DifferenceDistributions,
    LayerDistances,
    Similarity,
    distributions,
    layers_by_distance,
)
from cellrepro.compare.weights import WeightsComparison
from cellrepro.errors import BadInput
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, PALE, SERIES, Picture
from cellrepro.text import amount, grouped, share_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWEST = 16  # weights of a layer group below which a distribution says nothing
_FEW_PAIRS = 60  # up to which each is a tick of its own


def weight_distributions(paths: Mapping[str, Path | str], *, n: int = 9) -> Picture:
    """How the weights of each part of the network are spread, runs overlaid.

    Histograms over common intervals: the share of the part's weights in each, on a logarithmic
    axis. Later lines are thinner and dashed, so equal ones stay visible.

    Parameters
    ----------
    paths : mapping of str to Path
        Label to safetensors file.
    n : int
        How many parts at most: those with most weights, in the network's order.
    """
    if not paths:
        raise BadInput("no weights file was given to draw; give a mapping of label to path")
    counted = distributions(paths)
    sizes: dict[str, int] = {}
    for found in counted.values():
        for group, (counts, _) in found.items():
            sizes[group] = max(sizes.get(group, 0), int(counts.sum()))
    enough = [group for group in sizes if sizes[group] >= _FEWEST] or list(sizes)
    most = sorted(enough, key=lambda group: -sizes[group])[:n]
    groups = [group for group in sizes if group in most]
    floor = 0.5 / max(sizes.values())  # below one weight, so that empty intervals reach the axis

    def draw(panel: Axes, group: str) -> None:
        for i, found in enumerate(counted.values()):
            if group in found:
                counts, edges = found[group]
                share = np.maximum(counts / max(1, counts.sum()), floor)
                panel.stairs(share, edges, baseline=None, **style.line_style(i, len(counted)))
        panel.set_ylim(floor, 1.5)
        style.logarithmic(panel, "y")
        panel.locator_params(axis="x", nbins=4)
        style.title(panel, f"{group} ({grouped(sizes[group])})", size=9)

    figure = _panels(groups, draw, "weight (no unit)", list(paths))
    of = f": {len(groups)} of {len(sizes)} parts" if len(groups) < len(sizes) else ""
    networks = amount(len(paths), "network")
    return figure.described(f"Weights of {networks} by part (number of weights){of}")


def difference_distributions(
    found: DifferenceDistributions, *, labels: Sequence[str] | None = None, n: int = 9
) -> Picture:
    """How the differences of the parameters are spread in each part of the network.

    A panel per layer and a line per pair: the share of the layer's parameters in each interval,
    both axes logarithmic, on the left differences below zero. The grey interval in the middle
    holds those that are equal; in the panel stands how many.

    Parameters
    ----------
    found : DifferenceDistributions
        From `cellrepro.difference_distributions`.
    labels : sequence of str, optional
        What the networks are called; their numbers from 1 by default.
    n : int
        How many layers at most: those with most parameters that differ, in the network's order.
    """
    labels = _network_names(found.paths, labels)
    n_finite = found.counts.sum(2)
    sizes = (n_finite + found.n_undefined).max(0, initial=0)
    n_differing = (n_finite - found.n_zero + found.n_undefined).max(0, initial=0)
    most = np.argsort(-n_differing, kind="stable")[:n]
    chosen = sorted(layer for layer in most.tolist() if n_differing[layer])
    pairs = amount(len(found.counts), "pair")
    if not chosen:
        return style.note(f"all parameters are of equal value in {pairs}")
    floor = 0.5 / float(sizes[chosen].max())
    edges = np.nan_to_num(found.edges, posinf=2 * found.edges[-2], neginf=2 * found.edges[1])
    least = edges[len(edges) // 2]

    def draw(panel: Axes, layer: int) -> None:
        for i, counts in enumerate(found.counts[:, layer]):
            share = np.maximum(counts / max(1, counts.sum()), floor / 10)
            panel.stairs(share, edges, baseline=None, **style.line_style(i, len(found.counts)))
        panel.axvspan(-least, least, color="#EEEEEE", zorder=0)
        style.with_zero(panel, "x", edges, mirrored=True)
        panel.set_ylim(floor, 8)
        style.logarithmic(panel, "y")
        total = found.counts[:, layer].sum(1) + found.n_undefined[:, layer]
        zero = found.n_zero[:, layer] / np.maximum(1, total)
        ends = dict.fromkeys(share_text(share) for share in (zero.min(), zero.max()))
        n_undefined = int(found.n_undefined[:, layer].max())
        text = f"equal: {' to '.join(ends)}"
        text += f"; not finite: {grouped(n_undefined)}" if n_undefined else ""
        panel.text(0.02, 0.97, text, transform=panel.transAxes, va="top", fontsize=8, color=GREY)
        style.title(panel, f"{found.layers[layer]} ({grouped(int(sizes[layer]))})", size=9)

    names = [f"{style.clipped(label, 40)} − {style.clipped(labels[0], 40)}" for label in labels[1:]]
    figure = _panels(chosen, draw, "difference (no unit)", names, share=True)
    shown = len(chosen), len(found.layers), int((n_differing == 0).sum())
    of = f": {shown[0]} of {shown[1]} parts" if shown[0] + shown[2] < shown[1] else ""
    equal = f"; {shown[2]} more {'is' if shown[2] == 1 else 'are'} equal throughout"
    return figure.described(
        f"Differences of {pairs} of networks, by part{of}{equal if shown[2] else ''}"
    )


def layer_distances(
    table: Similarity, *, labels: Sequence[str] | None = None, n: int = 20
) -> Picture:
    """In which layers N networks differ most.

    A line per layer from the least to the greatest relative L2 distance over all pairs of
    different networks, ticks for the pairs if they are few, a dot at the median, and beside it how
    many times that of the layer in the middle that is. An empty diamond at 0: a pair is equal in
    this layer.

    Parameters
    ----------
    table : Similarity
        From `cellrepro.similarity`.
    labels : sequence of str, optional
        What the networks are called; their numbers from 1 by default.
    n : int
        How many layers at most: those that differ most.
    """
    labels = _network_names(table.paths, labels)
    every = layers_by_distance(table)
    shown = every[:n]
    if not shown:
        return style.note("no two of these networks differ and can be compared layer by layer")
    figure = Picture(height=1.7 + 0.27 * max(3, len(shown)))
    axes = figure.subplots()
    _draw_distances(axes, shown)
    style.rows(axes, [row.layer for row in shown])
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    style.label_axes(
        axes, x="relative L2 distance of the layer (logarithmic), all pairs of networks"
    )
    handles = [style.line("all pairs, least to most", color=SERIES[3], linewidth=5, alpha=0.75)]
    if any(len(row.pairs) <= _FEW_PAIRS for row in shown):
        handles.append(style.line("one pair", color=SERIES[0], marker="|"))
    handles.append(style.line("median", color=SERIES[4], marker="o"))
    if any(0 in row.relative_l2 for row in shown):
        handles.append(style.line("equal in a pair", color=SERIES[1], marker="D", mfc="white"))
    style.legend(figure, handles)
    n_pairs = len({frozenset(pair) for row in shown for pair in row.pairs})
    of = f"{len(shown)} of " if len(shown) < len(every) else ""
    layers = f"{of}{amount(len(every), 'layer')}"
    style.heading(
        figure, f"Layers that differ most: {layers}, {amount(n_pairs, 'pair')} of networks"
    )
    a, b = (style.clipped(labels[i], 40) for i in shown[0].furthest)
    most = f"{shown[0].most:.2g}" if np.isfinite(shown[0].most) else "infinite: one is all zero"
    style.title(
        axes,
        f"furthest apart in {style.clipped(shown[0].layer, 40)} ({most}):\n{a} and {b}",
        size=9,
    )
    return figure


def _draw_distances(axes: Axes, shown: Sequence[LayerDistances]) -> None:
    medians = np.array([row.median for row in shown])
    differing = medians[np.isfinite(medians) & (medians > 0)]
    typical = float(np.median(differing)) if differing.size else np.nan
    style.with_zero(axes, "x", [size for row in shown for size in row.relative_l2])
    look = {"color": GREY, "xycoords": ("axes fraction", "data")}
    style.beside(axes, 1, -0.85, "times the\nmiddle layer", away=6, **look)
    for i, row in enumerate(shown):
        sizes = np.array(row.relative_l2)
        drawn = sizes[np.isfinite(sizes) & (sizes > 0)]
        if drawn.size:
            ends = [drawn.min(), drawn.max()]
            axes.plot(ends, [i, i], color=SERIES[3], lw=5, alpha=0.75, solid_capstyle="butt")
        if len(sizes) <= _FEW_PAIRS:
            axes.plot(drawn, np.full(drawn.size, i), color=SERIES[0], marker="|", linestyle="none")
        if (sizes == 0).any():
            axes.plot(0, i, marker="D", color=SERIES[1], markerfacecolor="white", markersize=6)
        if 0 < row.median < np.inf:
            axes.plot(row.median, i, marker="o", color=SERIES[4], markersize=6)
        times = row.median / typical
        text = "equal" if row.most == 0 else f"{times:.2g}" if times < 1e3 else "above 1000"
        style.beside(axes, 1, i, text if np.isfinite(row.median) else "not finite", away=6, **look)


def parameter_differences(weights: WeightsComparison, *, n: int = 12) -> Picture:
    """The n tensors of two networks that differ most, by their relative L2 distance."""
    differing = [row for row in weights.per_tensor if row.n_differing]
    # A NaN (another shape) and an infinity (all zero in one) cannot be drawn, but come first.
    order = sorted(differing, key=lambda row: -np.nan_to_num(row.relative_l2, nan=np.inf))[:n]
    if not order:
        alone = len(weights.only_a) + len(weights.only_b)
        if not alone:
            return style.note(f"no parameter of the {weights.n_tensors} tensors differs")
        only = amount(alone, "tensor")
        return style.note(f"they share no tensor that differs; {only} on one side only")
    lengths = [row.relative_l2 if np.isfinite(row.relative_l2) else 0.0 for row in order]
    positive = [length for length in lengths if length > 0]
    wide = bool(positive) and max(positive) > 30 * min(positive)
    figure = Picture(height=1.2 + 0.3 * max(2, len(order)))
    axes = figure.subplots()
    axes.barh(range(len(order)), lengths, color=SERIES[0], height=0.65)
    for i, (row, length) in enumerate(zip(order, lengths, strict=True)):
        text = f"{share_text(row.n_differing / max(1, row.n))} of {grouped(row.n)}"
        if not np.isfinite(row.relative_l2):
            text = "other shape" if row.shape != row.shape_b else f"not finite; {text}"
        style.beside(axes, length, i, text, color=GREY)
    style.rows(axes, [row.name for row in order])
    if wide:
        style.with_zero(axes, "x", lengths)
    axes.margins(x=0.2)
    scale = "logarithmic; " if wide else ""
    style.label_axes(
        axes, x=f"relative L2 distance ({scale}beside: share of parameters that differ)"
    )
    return figure.described(
        f"{len(order)} of {len(differing)} differing tensors "
        f"({weights.n_tensors} in all): those that differ most",
    )


def _network_names(paths: Sequence[Path], labels: Sequence[str] | None) -> list[str]:
    numbers = (str(i + 1) for i in range(len(paths)))
    return style.labels_of(len(paths), "networks", labels, numbers)


def _panels(
    parts: Sequence[Any],
    draw: Callable[[Axes, Any], None],
    x: str,
    names: Sequence[str],
    *,
    share: bool = False,
) -> Picture:
    """A panel for each part of the network, with one legend for the lines in all of them."""
    n_columns = min(3, len(parts))
    n_rows = -(-len(parts) // n_columns)
    figure = Picture(height=1.3 + 1.85 * n_rows)
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True, sharex=share).ravel()
    for i, panel in enumerate(grid):
        if i >= len(parts):
            panel.set_axis_off()
            continue
        draw(panel, parts[i])
        panel.tick_params(labelsize=8, labelbottom=True)
        if i >= len(parts) - n_columns:
            panel.set_xlabel(x, fontsize=9)
    figure.supylabel("share of the weights", fontsize=9)
    style.legend(
        figure,
        [style.line(name, **style.line_style(i, len(names))) for i, name in enumerate(names)],
    )
    return figure
