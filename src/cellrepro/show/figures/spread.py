"""One figure of everything that makes results vary, on one axis, beside what seeds do."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.same.seed_spread import Axis, Distribution, Spread
from cellrepro.same.within_spread import FEWEST_SEEDS
from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, WIDTH, Picture
from cellrepro.words import amount, share_text, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW = 0.62  # inches
_HIGH = 4  # dots of one place above each other


def spread_axis(spread: Spread) -> Picture:
    """Every axis as a row: the share of the cells that each of its pairs changed.

    A dot per pair of runs, a diamond for their mean with a bar for its 95 % interval, on a
    logarithmic scale with a place of its own for zero. The band behind all rows reaches from the
    least to the most that any two seeds did; it is only outlined where there are fewer than three
    seeds. Beside each row stand mean, interval, counts, and whether it is less than what seeds do.
    """
    # Seeds last: they are what the others are held against.
    evident = [axis for axis in spread.axes if axis.evidence]
    evident.sort(key=lambda axis: axis.name == "seed")
    shown = [(axis, axis.distribution()) for axis in evident]
    if not shown:
        raise BadInput(
            "no two runs that found cells differ along one axis only, so there is no spread to "
            "show; expected two repeats, seeds, modes or profiles over the same images"
        )
    figure = Picture(WIDTH, 1.35 + _ROW * len(shown))
    axes = figure.subplots()
    ends = [found.interval for _, found in shown if found.interval is not None]
    values = [float(value) for _, found in shown for value in found.values]
    values += [end for interval in ends for end in (interval.low, interval.high)]
    style.with_zero(axes, "x", values)
    # Zero is left of all others by a third of a row's height, whatever the decades.
    low = min((value for value in values if value > 0), default=0.01)
    axes.set_xlim(-0.3 * 10 ** math.floor(math.log10(low)), max(1.5 * max(values), 3 * low))
    _seed_band(axes, spread)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "fontsize": 8.5}
    for y, (axis, found) in enumerate(shown):
        _row(axes, y, found)
        lines = _mean_text(found), _counts(axis, found), answer(spread, axis)
        style.beside(axes, 1.01, y, "\n".join(lines), **place)
        axes.axhline(y + 0.48, color="#CCCCCC", lw=0.7, zorder=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
    style.rows(axes, [axis.title for axis, _ in shown], size=10)
    style.label_axes(axes, x="share of the cells that changed (logarithmic; 0 apart)")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    told = "; ".join(
        f"{axis.title} {_mean_text(found)} ({amount(len(axis.evidence), 'pair')})"
        for axis, found in shown
    )
    runs = {one.name for axis in evident for pair in axis.evidence for one in (pair.a, pair.b)}
    n_left_out = sum(axis.n_left_out for axis in evident)
    left_out = f"; pairs not compared because there are too many: {n_left_out}" * (n_left_out > 0)
    caption = (
        "Each dot is a pair of runs that differ in one thing only: the share of their cells "
        "without a counterpart in the other run (IoU below 0.5). Diamond and bar: mean and its "
        "95 % interval. The scale is logarithmic, with zero in a place of its own. The band "
        "reaches from the least to the most that any two seeds changed; with fewer than "
        f"{FEWEST_SEEDS} seeds there is only its outline. Over {amount(len(runs), 'run')} and "
        f"{amount(max(axis.n_images for axis in evident), 'image')}{left_out}."
    )
    alt = f"Share of the cells that change, on one scale: {told}."
    return figure.described("How many of the cells change when one thing is changed", caption, alt)


def spread_rows(spread: Spread) -> list[dict[str, Any]]:
    """What the figure shows as a table, one row per pair; plain values for CSV."""
    return [
        {
            "axis": axis.name,
            "environment": pair.context,
            "a": pair.name_a,
            "b": pair.name_b,
            "run a": pair.a.name,
            "run b": pair.b.name,
            "images": pair.n_images,
            "evidence": pair in axis.evidence,
            "cells changed": pair.changed,
            "ppm": pair.ppm,
            "1 - AP": pair.mean("ap"),
            "1 - AP@0.5": pair.mean("ap50"),
        }
        for axis in spread.axes
        for pair in axis.pairs
    ]


def answer(spread: Spread, axis: Axis) -> str:
    """Whether what was changed along an axis with evidence matters less than the seed, in short."""
    if axis.name == "seed":
        return "" if spread.n_seeds >= FEWEST_SEEDS else "too few to be a baseline"
    if axis.equal:
        return "= the same outlines"
    found = spread.decide(axis.name)
    if found.within:
        return "≈ less than seeds do"
    if math.isnan(found.changed_ratio):
        return "? " + found.sentence.partition(":")[0]
    more = found.changed[0] > found.changed[1]
    return "≠ more than seeds do" if more else "≠ not shown to be less than seeds do"


def _seed_band(axes: Axes, spread: Spread) -> None:
    if spread.seeds is None or not spread.seeds.evidence:
        return
    values = spread.seeds.distribution().values
    low, high = float(values.min()), float(values.max())
    enough = spread.n_seeds >= FEWEST_SEEDS
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": "#777777", "linestyle": "--"}
    if enough:
        look = {"facecolor": style.VERDICT_COLOURS["within-spread"], "edgecolor": "#8A6D1B"}
    axes.axvspan(0.96 * low, 1.04 * high, zorder=0, gid="seeds", **look)
    axes.annotate(
        "baseline: what seeds do" if enough else f"{amount(spread.n_seeds, 'seed')}: no baseline",
        (math.sqrt(low * high), 1.0), (0, 3), xycoords=("data", "axes fraction"), fontsize=9,
        textcoords="offset points", ha="center", va="bottom",
    )  # fmt: skip


def _row(axes: Axes, y: int, found: Distribution) -> None:
    if found.interval is not None:
        middle = [[found.mean - found.interval.low], [found.interval.high - found.mean]]
        axes.errorbar(
            found.mean, y + 0.24, xerr=np.maximum(middle, 0), color="black", capsize=3, lw=2
        )
    axes.plot(found.mean, y + 0.24, "D", ms=7, mfc="white", mec="black", mew=1.6, zorder=4)
    heights, counts = [], Counter[float | None]()
    for value in found.values:
        # Dots of one place lie in a heap; beyond it they cover each other, and the counts say so.
        near = round(math.log10(value), 1) if value > 0 else None
        heights.append(y - 0.12 * (counts[near] % _HIGH))
        counts[near] += 1
    axes.plot(found.values, heights, "o", color=SERIES[0], ms=5, gid="pairs")


def _mean_text(found: Distribution) -> str:
    if found.interval is None:
        return share_text(found.mean)
    low, high = share_text(found.interval.low), share_text(found.interval.high)
    mean = share_text(found.mean)
    reach = span(low, high)
    return mean if reach == mean else f"{mean} ({reach})"


def _counts(axis: Axis, found: Distribution) -> str:
    of = f" of {axis.n_values} {axis.title}" if axis.name in ("seed", "data_seed") else ""
    n_zero, n_without = np.count_nonzero(found.values == 0), len(axis.pairs) - len(axis.evidence)
    text = f"{amount(len(axis.evidence), 'pair')}{of}, {amount(axis.n_images, 'image')}"
    return f"{text}, {n_zero} at 0" + (f", {n_without} without cells" if n_without else "")
