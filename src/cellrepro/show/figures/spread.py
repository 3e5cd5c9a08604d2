"""One picture of everything that makes results vary, on one axis, beside what seeds do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.compare.seed_spread import FEWEST_SEEDS, Axis, Distribution, Spread
from cellrepro.errors import BadInput
from cellrepro.show.figures import style as plots
from cellrepro.show.figures.style import Picture
from cellrepro.text import amount, share_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW = 0.62  # inches
_BAND = "#F6D896"  # as in the field of within-spread
_DOT = plots.SERIES[0]
_BAR = "#000000"
_HIGH, _WIDE = 4, 5  # dots of one place, above and beside each other


def spread_axis(spread: Spread) -> Picture:
    """Every axis as a row: the share of the cells that each of its pairs moved.

    Parameters
    ----------
    spread : Spread
        From `cellrepro.compare.seed_spread.measure`, or of a chapter of the findings.

    Returns
    -------
    Picture
        A dot per pair of runs, a diamond for their mean with a bar for its 95 % interval, on a
        logarithmic scale with a place of its own for zero. The band behind all rows reaches from
        the least to the most that any two seeds did; it is only outlined where there are fewer
        than three seeds. Beside each row stand mean, interval, counts, and whether it is less
        than what seeds do.

    Raises
    ------
    BadInput
        If nothing was compared, or no compared pair shows a cell.
    """
    shown = [(axis, axis.distribution()) for axis in _ordered(spread) if axis.evidence]
    if not shown:
        raise BadInput(
            "no two runs that found cells differ along one axis only, so there is no spread to "
            "show; expected two repeats, seeds, modes or profiles over the same images"
        )
    scale = _Scale(_numbers(shown))
    figure = Picture(plots.WIDTH, 1.35 + _ROW * len(shown))
    axes = figure.subplots()
    _seed_band(axes, spread, scale)
    for row, (axis, found) in enumerate(shown):
        _row(axes, row, axis, found, scale)
        _numbers_beside(axes, row, axis, found, _answer(spread, axis))
    _dress(axes, shown, scale)
    plots.heading(figure, "How many of the cells change when one thing is changed")
    return figure


def caption(spread: Spread) -> str:
    """What the picture shows, and over how many images and runs."""
    shown = [axis for axis in _ordered(spread) if axis.evidence]
    runs = {repeat.name for axis in shown for pair in axis.evidence for repeat in (pair.a, pair.b)}
    n_images = max((axis.n_images for axis in shown), default=0)
    text = (
        "Each dot is a pair of runs that differ in one thing only: the share of their cells "
        "without a counterpart in the other run (IoU below 0.5). Diamond and bar: mean and its "
        "95 % interval. The scale is logarithmic, with zero in a place of its own. "
        f"{_band_text(spread)} Over {amount(len(runs), 'run')} and {amount(n_images, 'image')}."
    )
    n_left_out = sum(axis.n_left_out for axis in shown)
    return f"{text} {amount(n_left_out, 'more pair')} not compared." if n_left_out else text


def alternative(spread: Spread) -> str:
    """The picture in words, for those who do not see it."""
    rows = [
        f"{axis.title} {_mean_text(axis.distribution())} ({amount(len(axis.evidence), 'pair')})"
        for axis in _ordered(spread)
        if axis.evidence
    ]
    return f"Share of the cells that change, on one scale: {'; '.join(rows)}."


def rows(spread: Spread) -> list[dict[str, Any]]:
    """What the picture shows as a table, one row per pair; plain values for CSV."""
    return [
        {
            "axis": axis.name,
            "surroundings": pair.context,
            "a": pair.name_a,
            "b": pair.name_b,
            "run a": pair.a.name,
            "run b": pair.b.name,
            "images": pair.n_images,
            "evidence": pair in axis.evidence,
            "cells changed": None if math.isnan(pair.changed) else pair.changed,
            "ppm": pair.ppm,
            "1 - AP": _plain(pair.found.mean("ap")),
            "1 - AP@0.5": _plain(pair.found.mean("ap50")),
        }
        for axis in _ordered(spread)
        for pair in axis.pairs
    ]


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _ordered(spread: Spread) -> list[Axis]:
    """Seeds last: they are what the others are held against."""
    return sorted(spread.axes, key=lambda axis: axis.name == "seed")


def _numbers(shown: Iterable[tuple[Axis, Distribution]]) -> list[float]:
    found: list[float] = []
    for _, one in shown:
        found += [*one.values.tolist(), one.mean]
        if one.interval is not None:
            found += [one.interval.low, one.interval.high]
    return found


class _Scale:
    """Where a share stands: its decimal logarithm, and zero left of all others."""

    def __init__(self, shares: Iterable[float]) -> None:
        logs = [math.log10(share) for share in shares if share > 0]
        self.low = math.floor(min(logs, default=-3.0) * 2) / 2
        self.high = min(max(math.ceil(max(logs, default=-1.0) * 2) / 2, self.low + 1), 0.0)
        self.low = min(self.low, self.high - 1)
        self.zero = self.low - 0.13 * (self.high - self.low) - 0.12
        self.edge = (self.zero + self.low) / 2
        """Between zero and the logarithmic part."""

    def place(self, share: float) -> float:
        return math.log10(share) if share > 0 else self.zero

    def ticks(self) -> tuple[list[float], list[str]]:
        powers = np.arange(math.ceil(self.low), math.floor(self.high) + 1)
        shares = [m * 10.0**p for p in [*powers - 1, *powers] for m in (1, 3)]
        inside = sorted({s for s in shares if self.low <= math.log10(s) <= self.high + 1e-9})
        chosen = inside if len(inside) <= 7 else [s for s in inside if f"{s:e}"[0] == "1"]
        return [self.zero, *map(math.log10, chosen)], ["0", *map(_tick_text, chosen)]


def _tick_text(share: float) -> str:
    return f"{100 * share:.6f}".rstrip("0").rstrip(".") + " %"


def _seed_band(axes: Axes, spread: Spread, scale: _Scale) -> None:
    if spread.seeds is None or not spread.seeds.evidence:
        return
    values = spread.seeds.distribution().values
    left, right = scale.place(float(values.min())), scale.place(float(values.max()))
    pad = 0.012 * (scale.high - scale.zero)
    enough = spread.n_seeds >= FEWEST_SEEDS
    axes.axvspan(
        left - pad,
        right + pad,
        facecolor=_BAND if enough else "none",
        edgecolor="#8A6D1B" if enough else "#777777",
        linestyle="-" if enough else (0, (4, 3)),
        linewidth=1,
        alpha=None,
        zorder=0,
        gid="seeds",
    )
    axes.annotate(
        "what seeds do" if enough else f"{amount(spread.n_seeds, 'seed')}: no yardstick",
        ((left + right) / 2, 1.0),
        (0, 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=9,
    )


def _row(axes: Axes, row: int, axis: Axis, found: Distribution, scale: _Scale) -> None:
    if found.interval is not None:
        ends = [scale.place(found.interval.low), scale.place(found.interval.high)]
        axes.plot(ends, [row + 0.24] * 2, color=_BAR, lw=2.2, solid_capstyle="butt", zorder=3)
        for end in ends:
            axes.plot([end, end], [row + 0.17, row + 0.31], color=_BAR, lw=1.2, zorder=3)
    axes.plot(
        scale.place(found.mean), row + 0.24, "D", ms=7, mfc="white", mec=_BAR, mew=1.6, zorder=4
    )
    near = 0.017 * (scale.high - scale.zero)
    places = [scale.place(float(value)) for value in found.values]
    for value, place, (aside, up) in zip(found.values, places, _heaps(places, near), strict=True):
        axes.plot(
            place + aside, row - up, "o" if value > 0 else "s", ms=5, mfc=_DOT, mec="white",
            mew=0.6, zorder=5, gid="pair",
        )  # fmt: skip


def _heaps(places: Sequence[float], near: float) -> list[tuple[float, float]]:
    """How far dots are moved aside and up, so that those of one place lie in a heap."""
    counts: Counter[int] = Counter()
    moves = []
    for place in places:
        column, level = divmod(counts[round(place / near)], _HIGH)
        counts[round(place / near)] += 1
        column %= _WIDE  # beyond that they cover each other; the counts beside tell how many
        aside = (column + 1) // 2 * (1 if column % 2 else -1)
        moves.append((aside * near, 0.12 * level))
    return moves


def _numbers_beside(axes: Axes, row: int, axis: Axis, found: Distribution, answer: str) -> None:
    lines: list[tuple[str, dict[str, Any], float]] = [
        (_mean_text(found), {"fontsize": 10, "fontweight": "bold"}, -0.24),
        (_counts(axis, found), {"fontsize": 8, "color": "#444444"}, 0.04),
        (answer, {"fontsize": 8.5}, 0.3),
    ]
    for text, style, lift in lines:
        axes.annotate(
            text, (1.015, row + lift), xycoords=("axes fraction", "data"), va="center",
            annotation_clip=False, **style,
        )  # fmt: skip


def _mean_text(found: Distribution) -> str:
    if found.interval is None:
        return share_text(found.mean)
    low, high = share_text(found.interval.low), share_text(found.interval.high)
    return f"{share_text(found.mean)} ({low} to {high})"


def _counts(axis: Axis, found: Distribution) -> str:
    parts = [amount(len(axis.evidence), "pair")]
    if axis.name in ("seed", "data_seed"):
        parts[0] += f" of {axis.n_values} {axis.title}"
    parts.append(amount(axis.n_images, "image"))
    n_zero = int(np.count_nonzero(found.values == 0))
    if n_zero:
        parts.append(f"{n_zero} at 0")
    if len(axis.evidence) < len(axis.pairs):
        parts.append(f"{len(axis.pairs) - len(axis.evidence)} without cells")
    return ", ".join(parts)


def _answer(spread: Spread, axis: Axis) -> str:
    if axis.name == "seed":
        return "" if spread.n_seeds >= FEWEST_SEEDS else "too few to be a yardstick"
    found = spread.decide(axis.name)
    if found.within:
        return "≈ less than seeds do"
    if axis.equal:
        return "= the same outlines"
    if math.isnan(found.changed_ratio):
        return "? " + found.sentence.partition(":")[0]
    if found.changed[0] > found.changed[1]:
        return "≠ more than seeds do" + (" in one case" if found.contrast else " on average")
    return "≠ not shown to be less than seeds do"


def _band_text(spread: Spread) -> str:
    if spread.seeds is None or not spread.seeds.evidence:
        return "No two seeds were compared, so there is no band."
    if spread.n_seeds < FEWEST_SEEDS:
        return f"With only {amount(spread.n_seeds, 'seed')} there is no band, only its outline."
    return "The band reaches from the least to the most that any two seeds changed."


def _dress(axes: Axes, shown: Sequence[tuple[Axis, Distribution]], scale: _Scale) -> None:
    margin = 0.05 * (scale.high - scale.zero)
    axes.set_xlim(scale.zero - margin, scale.high + margin)
    axes.set_ylim(len(shown) - 0.45, -0.55)
    axes.set_xticks(*scale.ticks())
    axes.set_yticks(range(len(shown)), [axis.title for axis, _ in shown], parse_math=False)
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.axvline(scale.edge, color="#444444", lw=1, ls=(0, (2, 2)), zorder=1)
    for row in range(len(shown) - 1):
        axes.axhline(row + 0.48, color="#CCCCCC", lw=0.7, zorder=1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("share of the cells that changed (logarithmic; 0 apart)", fontsize=9)
