"""One figure of everything that makes results vary, on one axis, beside what seeds do."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cellrepro.comparison.measured_axis import Axis, Distribution
from cellrepro.comparison.seed_spread import Spread
from cellrepro.comparison.within_spread import FEWEST_SEEDS, NO_SEEDS
from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, WIDTH, Picture
from cellrepro.show.shown_verdicts import VERDICT_COLOURS
from cellrepro.words import as_sentence, share_span, share_text
from samebits.errors import BadInput
from samebits.words import amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

_ROW = 0.72
"""Height of a row, inches."""
_NARROW_ROW = 1.05
"""The same where its words stand above it."""
_MOST_STACKED = 6
"""Dots of one value that are drawn above each other; more are counted."""


class _Heights(NamedTuple):
    """Where things stand in a row, whose height is 1, from its middle down."""

    step: float
    """Between dots of one value."""
    lowest: float
    """Of these dots."""
    mean: float

    def of_dot(self, n_below: float) -> float:
        """The height of a dot on so many others."""
        return self.lowest - self.step * n_below


_HEIGHTS = _Heights(step=0.1, lowest=0.06, mean=0.3)
_NARROW_HEIGHTS = _Heights(step=0.055, lowest=0.22, mean=0.36)


def spread_axis(spread: Spread, *, width: float = WIDTH) -> Picture:
    """Draw every axis as a row: the share of the cells without a match in each pair.

    A dot per pair of runs, a diamond for their mean with a bar for its 95 % interval, on a
    logarithmic scale with a place of its own for zero. The band behind all rows reaches from the
    least to the most that any two seeds did; it is only outlined where there are fewer than three
    seeds. Beside each row stand mean, interval, counts, and whether it is less than what seeds do.

    Parameters
    ----------
    spread : Spread
        From `cellrepro.measure_spread`.
    width : float
        Of the picture, in inches; in a narrow one the words stand above the rows.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If no two runs differ in one thing only.
    """
    shown = [axis for axis in spread.axes if axis.evidence]
    # Seeds last: they are what the others are held against.
    shown.sort(key=lambda axis: axis.name == "seed")
    if not shown:
        raise BadInput(
            "no two runs that found cells differ along one axis only, so there is no spread to "
            "show; expected two repeats, seeds, modes or profiles over the same images"
        )
    distributions = [axis.distribution() for axis in shown]
    figure = Picture(width)
    figure.set_figheight(1.35 + (_NARROW_ROW if figure.is_narrow else _ROW) * len(shown))
    axes = figure.subplots()
    _scale(axes, distributions)
    _draw_seed_band(axes, spread)
    names = []
    for y, (axis, distribution) in enumerate(zip(shown, distributions, strict=True)):
        _draw_row(axes, y, distribution, is_narrow=figure.is_narrow)
        mean = _mean_text(distribution)
        words = [_counts(axis, distribution), answer(spread, axis)]
        if figure.is_narrow:
            names.append("\n".join([f"{axis.title}: {mean}", *words]))
        else:
            names.append(axis.title)
            style.beside_row(axes, y, "\n".join([mean, *words]), x=1.01, size=8.5)
        axes.axhline(y + 0.49, color="#CCCCCC", lw=0.7, zorder=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
    style.rows(axes, names, size=8.5 if figure.is_narrow else 10)
    style.label_axes(axes, x="share of the cells without a match (logarithmic, 0 apart)")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    rows = "; ".join(
        f"{axis.title} {_mean_text(distribution)} ({amount(len(axis.evidence), 'pair')})"
        for axis, distribution in zip(shown, distributions, strict=True)
    )
    alt = f"Share of the cells without a match, on one scale: {rows}."
    return figure.described(
        "How many cells have no match when one thing is changed", _caption(shown), alt
    )


def _scale(axes: Axes, distributions: Sequence[Distribution]) -> None:
    """Fit the axis to every value, with zero in a place of its own.

    Where an interval begins far below all values, decades for it would press them together: it
    begins close to zero.
    """
    values = [float(value) for each in distributions for value in each.values]
    values += [each.interval.high for each in distributions if each.interval is not None]
    style.with_zero(axes, "x", values)
    # Zero is left of all others by a third of a row's height, whatever the decades.
    low = min((value for value in values if value > 0), default=0.01)
    axes.set_xlim(-0.3 * 10 ** math.floor(math.log10(low)), max(1.5 * max(values), 3 * low))


def _caption(shown: Sequence[Axis]) -> str:
    runs = {repeat.name for axis in shown for pair in axis.evidence for repeat in (pair.a, pair.b)}
    n_images = max(axis.n_images for axis in shown)
    n_left_out = sum(axis.n_left_out for axis in shown)
    left_out = ""
    if n_left_out:
        left_out = f"; pairs not compared because there are too many: {n_left_out}"
    dots = (
        "Each dot is a pair of repeats that differ in one thing only: the share of their cells "
        "without a match in the other (IoU below 0.5)"
    )
    if any(len(axis.evidence) > _MOST_STACKED for axis in shown):
        dots += f"; of more than {_MOST_STACKED} equal ones the number stands beside them"
    has_bar = any(axis.distribution().interval for axis in shown)
    mean = "Diamond and bar: mean and its 95 % interval" if has_bar else "Diamond: the mean"
    band = ""
    if shown[-1].name == "seed":
        band = (
            " The band reaches from the least to the most between any two seeds; with fewer than "
            f"{FEWEST_SEEDS} seeds there is only its outline."
        )
    return (
        f"{dots}. {mean}.{band} Over {amount(len(runs), 'repeat')} and "
        f"{amount(n_images, 'image')}{left_out}."
        + "".join(f" {as_sentence(axis.note)}" for axis in shown if axis.note)
    )


def spread_rows(spread: Spread) -> list[dict[str, object]]:
    """List what the figure shows, one row per pair; plain values for CSV."""
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
            "cells without a match": pair.changed,
            "ppm": pair.ppm,
            "1 - AP": pair.mean("ap"),
            "1 - AP@0.5": pair.mean("ap50"),
        }
        for axis in spread.axes
        for pair in axis.pairs
    ]


def answer(spread: Spread, axis: Axis) -> str:
    """Say in short whether what was changed along an axis matters less than the seed.

    Nothing for the seed itself, where there are enough of them.
    """
    if axis.name == "seed":
        return "" if spread.n_seeds >= FEWEST_SEEDS else "too few to be a baseline"
    if axis.equal:
        return "= the same outlines"
    if not axis.distribution().mean:
        return "≠ pixels differ, all cells have a match"
    decision = spread.decide(axis.name)
    if decision.within:
        return "≈ less than seeds do"
    if decision.refusal == NO_SEEDS:
        return "≠ cells change; no seeds to compare with"
    if not decision.is_judged:
        return f"? not judged: {decision.refusal}"
    if decision.exceeds_seeds:
        return "≠ more than between any two seeds"
    return f"≠ {'less than' if decision.below_seeds else 'as much as'} another seed, in these runs"


def _draw_seed_band(axes: Axes, spread: Spread) -> None:
    """Draw the range of what any two seeds changed; only its outline where seeds are few."""
    if spread.seeds is None or not spread.seeds.evidence:
        return
    values = spread.seeds.distribution().values
    low = float(values.min())
    high = float(values.max())
    is_baseline = spread.n_seeds >= FEWEST_SEEDS
    band = axes.axvspan(0.96 * low, 1.04 * high, zorder=0, gid="seeds")
    if is_baseline:
        band.set(facecolor=VERDICT_COLOURS["within-spread"], edgecolor="#8A6D1B")
        text = "baseline: what seeds do"
    else:
        band.set(facecolor="none", edgecolor="#777777", linestyle="--")
        text = f"{amount(spread.n_seeds, 'seed')}: no baseline"
    axes.annotate(
        text,
        (math.sqrt(low * high), 1.0),
        (0, 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=9,
        ha="center",
        va="bottom",
    )


def _draw_row(axes: Axes, y: int, distribution: Distribution, *, is_narrow: bool) -> None:
    """Draw a dot for each pair, and below them the mean with its interval."""
    at = _NARROW_HEIGHTS if is_narrow else _HEIGHTS
    mean = distribution.mean
    if distribution.interval is not None:
        reach = [[mean - distribution.interval.low], [distribution.interval.high - mean]]
        axes.errorbar(mean, y + at.mean, xerr=np.maximum(reach, 0), color="black", capsize=3, lw=2)
    axes.plot(mean, y + at.mean, "D", ms=6.5, mfc="white", mec="black", mew=1.5, zorder=4)
    heights = []
    n_at: Counter[float | None] = Counter()
    value_at: dict[float | None, float] = {}
    for value in distribution.values:
        # Dots of about one value are stacked; those beyond the stack hide each other.
        position = round(math.log10(value), 1) if value > 0 else None
        heights.append(y + at.of_dot(min(n_at[position], _MOST_STACKED - 1)))
        n_at[position] += 1
        value_at[position] = max(value, value_at.get(position, 0.0))
    axes.plot(distribution.values, heights, "o", color=SERIES[0], ms=4.3, gid="pairs")
    for position, n in n_at.items():
        if n > _MOST_STACKED:
            beside = (value_at[position], y + at.of_dot((_MOST_STACKED - 1) / 2))
            text = f"{n} pairs"
            axes.annotate(text, beside, (6, 0), textcoords="offset points", va="center", fontsize=8)


def _mean_text(distribution: Distribution) -> str:
    """The mean, and its interval where the two read differently."""
    mean = share_text(distribution.mean)
    if distribution.interval is None:
        return mean
    interval = distribution.interval
    reach = share_span(interval.low, interval.high)
    return mean if reach == mean else f"{mean} ({reach})"


def _counts(axis: Axis, distribution: Distribution) -> str:
    values = ""
    if axis.name in ("seed", "data_seed"):
        values = f" of {axis.n_values} {axis.title}"
    n_zero = np.count_nonzero(distribution.values == 0)
    n_without_cells = len(axis.pairs) - len(axis.evidence)
    pairs = amount(len(axis.evidence), "pair")
    text = f"{pairs}{values}, {amount(axis.n_images, 'image')}"
    if 0 < n_zero < len(axis.evidence):
        text += f", {n_zero} at 0"
    return f"{text}; {n_without_cells} more without cells or training" if n_without_cells else text
