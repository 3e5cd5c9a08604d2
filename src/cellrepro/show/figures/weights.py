"""Figures of networks: how their weights are spread, and in which layers they differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.weight_comparison import WeightsComparison
from cellrepro.comparison.weight_distributions import (
    DifferenceDistributions,
    Histogram,
    distributions,
)
from cellrepro.comparison.weight_similarity import Similarity, layers_by_distance
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, SERIES, WIDTH, Picture
from cellrepro.words import share_span, share_text
from samebits.errors import BadInput
from samebits.words import amount, grouped, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.comparison.weight_similarity import LayerDistances

_NAME_LETTERS = 40
"""How many a network's name has at most in a legend or a title."""


def weight_histograms(paths: Mapping[str, Path | str], *, n: int = 9) -> Picture:
    """Draw how the weights of each part of the network are spread, runs overlaid.

    Histograms over common intervals: the share of the part's weights in each, on a logarithmic
    axis. Later lines are thinner and dashed, so equal ones stay visible.

    Parameters
    ----------
    paths : mapping of str to Path or str
        Weights files, by what each network is called.
    n : int
        Parts at most: those with most weights, in the network's order.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If there is no file.
    """
    if not paths:
        raise BadInput("no weights file was given to draw; give a mapping of label to path")
    of_networks = distributions(paths).values()
    sizes: dict[str, int] = {}
    for of_parts in of_networks:
        for part, (counts, _) in of_parts.items():
            sizes[part] = max(sizes.get(part, 0), int(counts.sum()))
    several = [part for part in sizes if sizes[part] > 1]  # one weight has no distribution
    largest = sorted(several or sizes, key=lambda part: -sizes[part])[:n]
    empty = Histogram(np.zeros(1, np.int64), np.zeros(2))
    panels = {
        f"{part} ({grouped(sizes[part])})": [
            Histogram(*of_parts[part]) if part in of_parts else empty for of_parts in of_networks
        ]
        for part in sizes
        if part in largest
    }
    networks = amount(len(paths), "network")
    return _histograms(panels, "weight (no unit)", paths).described(
        f"How the weights of {networks} are spread: {len(panels)} of {amount(len(sizes), 'part')} "
        "(number of weights)"
    )


def difference_histograms(
    differences: DifferenceDistributions, *, labels: Sequence[str] | None = None, n: int = 9
) -> Picture:
    """Draw how the differences of the parameters are spread in each part of the network.

    A panel per layer and a line per pair: the share of the layer's parameters in each interval,
    both axes logarithmic, on the left differences below zero. The grey interval in the middle
    holds those that are equal; in the panel stands how many.

    Parameters
    ----------
    differences : DifferenceDistributions
        From `cellrepro.difference_distributions`.
    labels : sequence of str, optional
        What to call the networks; default their numbers.
    n : int
        Layers at most: those with most parameters that differ, in the network's order.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If there are not as many labels as networks.
    """
    names = style.labels_of(labels, map(str, range(1, len(differences.paths) + 1)))
    n_parameters = differences.counts.sum(2) + differences.n_undefined
    n_differing = (n_parameters - differences.n_zero).max(0, initial=0)
    most = np.argsort(-n_differing, kind="stable")[:n]
    chosen = sorted(layer for layer in most.tolist() if n_differing[layer])
    pairs = amount(len(differences.counts), "pair")
    if not chosen:
        return style.note(f"all parameters are of equal value in {pairs}")
    edges = np.nan_to_num(
        differences.edges, posinf=2 * differences.edges[-2], neginf=2 * differences.edges[1]
    )
    panels = {
        f"{differences.layers[layer]} ({grouped(int(n_parameters[:, layer].max()))})": [
            Histogram(counts, edges) for counts in differences.counts[:, layer]
        ]
        for layer in chosen
    }
    short = [style.clipped(name, _NAME_LETTERS) for name in names]
    lines = [f"{name} − {short[0]}" for name in short[1:]]
    figure = _histograms(panels, "difference (no unit, logarithmic)", lines)
    for axes, layer in zip(figure.axes, chosen, strict=False):
        equal = differences.n_zero[:, layer] / np.maximum(1, n_parameters[:, layer])
        n_undefined = int(differences.n_undefined[:, layer].max())
        _mark_equal(axes, edges, equal, n_undefined)
    return figure.described(
        f"How the parameters of {pairs} of networks differ: {len(chosen)} of "
        f"{len(differences.layers)} parts; {np.count_nonzero(n_differing == 0)} equal throughout",
        "In each panel: the share of its parameters that are equal in both networks, from the pair "
        "with fewest to the pair with most; they lie in the grey interval.",
    )


def _mark_equal(axes: Axes, edges: np.ndarray, equal: np.ndarray, n_undefined: int) -> None:
    """Shade the interval around zero and say what share of the parameters of each pair is equal."""
    least = edges[len(edges) // 2]
    axes.axvspan(-least, least, color="#EEEEEE", zorder=0)
    style.with_zero(axes, "x", edges, mirrored=True)
    text = f"{share_span(equal.min(), equal.max())} equal"
    if n_undefined:
        text += f"; not finite: {grouped(n_undefined)}"
    axes.text(0.02, 0.97, text, transform=axes.transAxes, va="top", fontsize=8, color=GREY)


def layer_distances(
    similarity: Similarity,
    *,
    labels: Sequence[str] | None = None,
    n: int = 20,
    width: float = WIDTH,
) -> Picture:
    """Draw in which layers N networks differ most.

    Of each layer a line, from the least to the greatest relative L2 distance over all pairs of
    different networks, a tick for each pair, and a dot at the median, by which the layers are
    sorted; beside it the greatest. An empty diamond at 0: a pair is equal in this layer. Layers
    that are equal in every pair are named below.

    Parameters
    ----------
    similarity : Similarity
        From `cellrepro.similarity`.
    labels : sequence of str, optional
        What to call the networks; default their numbers.
    n : int
        Layers at most, those that differ most.
    width : float
        Of the picture, in inches; in a narrow one the words stand above the rows.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If there are not as many labels as networks.
    """
    names = style.labels_of(labels, map(str, range(1, len(similarity.paths) + 1)))
    every = layers_by_distance(similarity)
    differing = [row for row in every if row.most != 0]
    equal = [row.layer for row in every if row.most == 0]
    shown = differing[:n]
    if not shown:
        return style.note("no two of these networks differ and can be compared layer by layer")
    figure = Picture(width)
    figure.set_figheight(1.7 + (0.48 if figure.is_narrow else 0.27) * max(3, len(shown)))
    axes = figure.subplots()
    style.with_zero(axes, "x", [distance for row in shown for distance in row.relative_l2])
    for y, row in enumerate(shown):
        _draw_layer(axes, y, row)
        style.beside_row(axes, y, f"up to {row.most:.2g}", away=6, colour=GREY)
    style.rows(axes, [row.layer for row in shown])
    style.x_grid(axes)
    style.label_axes(axes, x="relative L2 distance of a layer, no unit (logarithmic)")
    handles = [
        style.line("all pairs, least to most", color=SERIES[3], linewidth=5),
        style.line("one pair", color=SERIES[0], marker="|"),
        style.line("median of the pairs", color=SERIES[4], marker="o"),
    ]
    if any(0 in row.relative_l2 for row in shown):
        handles.append(style.line("equal in a pair", color=SERIES[1], marker="D", mfc="white"))
    style.legend(figure, handles)
    n_pairs = len({frozenset(pair) for row in shown for pair in row.pairs})
    return figure.described(
        f"How far layers lie apart: {len(shown)} of {amount(len(every), 'layer')}, "
        f"{amount(n_pairs, 'pair')} of networks",
        " ".join([_farthest(shown, names), *_equal_layers(equal, len(every))]),
    )


def _farthest(rows: Sequence[LayerDistances], names: Sequence[str]) -> str:
    """Name the layer and the two networks that are farthest apart in it."""
    most = max(rows, key=lambda row: row.most)
    a, b = (style.clipped(names[i]) for i in most.furthest)
    return (
        f"The greatest distance is {most.most:.2g}, in {most.layer}, between {a} and {b}. Layers "
        "are sorted by the median over all pairs."
    )


def _equal_layers(equal: Sequence[str], n_layers: int) -> list[str]:
    if not equal:
        return []
    return [f"Equal in every pair: {len(equal)} of {amount(n_layers, 'layer')} ({some(equal)})."]


def _draw_layer(axes: Axes, y: int, row: LayerDistances) -> None:
    """Draw the distances of all pairs in one layer, and their median."""
    distances = [distance for distance in row.relative_l2 if 0 < distance < np.inf]
    axes.plot(distances, [y] * len(distances), "|-", color=SERIES[3], lw=5, ms=9, mec=SERIES[0])
    if 0 in row.relative_l2:
        axes.plot(0, y, "D", color=SERIES[1], mfc="white", ms=6)
    if 0 < row.median < np.inf:
        axes.plot(row.median, y, "o", color=SERIES[4], ms=6)


def parameter_differences(weights: WeightsComparison, *, n: int = 12) -> Picture:
    """Draw the tensors of two networks that differ most, by their relative L2 distance."""
    differing = list(weights.per_tensor)
    if not differing:
        return style.note("no tensor that both networks have differs")
    # A NaN (a different shape) and an infinity (all zero in one) cannot be drawn, but come first.
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
    panels: Mapping[str, Sequence[Histogram]], x: str, names: Collection[str]
) -> Picture:
    """Draw a panel for each part of the network, with a line for each name."""
    n_columns = min(3, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = Picture(height=1.3 + 1.85 * n_rows)
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    n_most = max(line.counts.sum() for lines in panels.values() for line in lines)
    floor = 0.5 / n_most
    for axes, (title, lines) in zip(grid, panels.items(), strict=False):
        for i, line in enumerate(lines):
            # Below one weight: empty intervals reach the axis.
            share = np.maximum(line.counts / max(1, line.counts.sum()), floor / 10)
            axes.stairs(share, line.edges, baseline=None, **style.line_style(i, len(lines)))
        style.with_zero(axes, "y", (floor, 1))
        axes.set_ylim(floor, 8)
        axes.locator_params(axis="x", nbins=4)
        style.title(axes, title, size=9)
        axes.tick_params(labelsize=8)
        axes.set_xlabel(x, fontsize=9)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.supylabel("share of the weights (logarithmic)", fontsize=9)
    handles = [style.line(name, **style.line_style(i, len(names))) for i, name in enumerate(names)]
    style.legend(figure, handles)
    return figure
