"""Runs compared along axes, a line for each comparison."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from cellrepro.same.seed_spread import Axis, Distribution, measure_spread
from cellrepro.same.verdicts import Verdict
from cellrepro.show.figures import style
from cellrepro.show.figures.spread import spread_rows
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.store import Run
from cellrepro.words import ppm_text
from studies.evidence import SEED, Values, five_step_runs, keep_rows, weights_of
from studies.numbers import markdown, with_interval


class Line(NamedTuple):
    """One line of a figure of pairs: what was compared, and how far it was apart."""

    label: str
    axis: Axis

    @property
    def found(self) -> Distribution:
        """Share of the cells that changed, pair by pair."""
        return self.axis.distribution()

    @property
    def ppm(self) -> str:
        """Differing pixels, on average."""
        return ppm_text(self.axis.distribution("ppm").mean)

    @property
    def n_identical(self) -> int:
        """Pairs with equal masks, and equal weights where some were trained."""
        return sum(
            pair.verdict == Verdict.IDENTICAL and pair.weights_equal is not False
            for pair in self.axis.evidence
        )

    def cells(self) -> list[str]:
        """Of a table's row."""
        n = len(self.axis.evidence)
        return [self.label, f"{n}", f"{self.n_identical}", with_interval(self.found), self.ppm]


@cache
def five_steps(images: str) -> dict[str, Line]:
    """The comparisons of study 1 over one set of images."""
    names = {"mode": "fast beside strict", "threads": "profiles", "machine": "machines"}
    names["seed"] = "seeds, mode strict"
    return compared(five_step_runs(images), f"1-{images}.csv", names)


def compared(runs: Sequence[Run], rows: str, names: dict[str, str], *by: str) -> dict[str, Line]:
    """Runs compared along axes, by the names of lines; repeats of each mode (and what else is named
    in ``by``) are lines of their own. Keeps all rows."""
    spread = measure_spread(runs)
    keep_rows(rows, spread_rows(spread))
    lines, repeats = {}, spread.axis("repeats")
    keys = {tuple(getattr(run.spec, name) for name in ("mode", *by)) for run in runs}
    for key in sorted(keys, key=lambda one: (("off", "fast", "strict").index(one[0]), one)):
        pairs = repeats.pairs if repeats else []
        some = [p for p in pairs if key == tuple(getattr(p.a.spec, n) for n in ("mode", *by))]
        lines[" ".join(key)] = Line(f"repeats, mode {', '.join(key)}", Axis("repeats", some))
    found = {n: Line(label, axis) for n, label in names.items() if (axis := spread.axis(n))}
    return lines | found


def of_lines(lines: dict[str, Line]) -> str:
    """A table of comparisons."""
    head = ["compared", "pairs of runs", "bit-identical", "cells changed", "pixels"]
    return markdown(head, [line.cells() for line in lines.values()])


def own_again(runs: Sequence[Run]) -> Values:
    """Of the specs in mode strict: how many gave the same bits in each repeat, on how many profiles
    with one seed, and how many networks these gave."""
    strict = [run for run in runs if run.spec.mode == "strict" and len(run.repeats) > 1]
    own = [len({weights_of(repeat) for repeat in run.repeats}) == 1 for run in strict]
    seed = [run for run in strict if run.spec.seed == SEED]
    devices = {weights_of(repeat) for run in seed for repeat in run.repeats}
    found = {"n": len(strict), "own": sum(own), "n_profiles": len(seed)}
    return found | {"of_profiles": len(devices), "repeats": sum(len(run.repeats) for run in strict)}


def dots(lines: Sequence[Line], heading: str) -> Picture:
    """A row for each comparison: a dot for each pair of runs, a diamond for their mean with its
    interval; cells on the left, pixels on the right."""
    figure = Picture(height=1.2 + 0.42 * len(lines))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, measure in zip(panels, ("changed", "ppm"), strict=True):
        found = [line.axis.distribution(measure) for line in lines]
        values = [float(value) for one in found for value in one.values]
        ends = [end for one in found if one.interval for end in one.interval[:2]]
        style.with_zero(axes, "x", [*values, *ends])
        axes.set_xlim(left=-0.3 * min([v for v in values if v > 0] or [0.01]))
        for y, one in enumerate(found):
            heights = y - 0.12 + np.random.default_rng(y).uniform(-0.1, 0.1, len(one.values))
            axes.plot(one.values, heights, "o", color=SERIES[0], ms=4, alpha=0.5)
            if one.interval:
                reach = [one.mean - one.interval.low], [one.interval.high - one.mean]
                across = np.maximum(reach, 0)
                axes.errorbar(one.mean, y + 0.2, xerr=across, color="black", capsize=3, lw=2)
            axes.plot(one.mean, y + 0.2, "D", ms=6, mfc="white", mec="black", mew=1.6)
        style.x_grid(axes)
    panels[0].xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
    style.label_axes(panels[0], x="cells that changed (logarithmic; 0 apart)")
    style.label_axes(panels[1], x="pixels that differ, per million (logarithmic; 0 apart)")
    style.rows(panels[0], [line.label for line in lines], size=9)
    told = "; ".join(f"{line.label}: {with_interval(line.found)}" for line in lines)
    return figure.described(heading, "", f"{heading}. Cells that changed: {told}.")
