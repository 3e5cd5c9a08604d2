"""Runs compared along axes, a line for each comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.measured_axis import Axis, Distribution
from cellrepro.comparison.seed_spread import measure_spread
from cellrepro.comparison.verdicts import Verdict
from cellrepro.show.figures import style
from cellrepro.show.figures.spread import spread_rows
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.stored_run import Run
from cellrepro.words import ppm_text
from studies.evidence import SEED, five_step_runs, keep_rows, weights_of
from studies.numbers import markdown, with_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODES = ("off", "fast", "strict")


@dataclass(frozen=True)
class Line:
    """One line of a figure of pairs: what was compared, and how far it was apart."""

    label: str
    axis: Axis

    @property
    def changed(self) -> Distribution:
        """Share of the cells that changed, pair by pair."""
        return self.axis.distribution()

    @property
    def ppm(self) -> str:
        """Differing pixels, on average."""
        return ppm_text(self.axis.distribution("ppm").mean)

    @property
    def n_pairs(self) -> int:
        """Pairs that prove something."""
        return len(self.axis.evidence)

    @property
    def n_identical(self) -> int:
        """Pairs with equal masks, and equal weights where some were trained."""
        return sum(
            pair.verdict == Verdict.IDENTICAL and pair.weights_equal is not False
            for pair in self.axis.evidence
        )

    def cells(self) -> list[str]:
        """Of a table's row."""
        return [
            self.label,
            str(self.n_pairs),
            str(self.n_identical),
            with_interval(self.changed),
            self.ppm,
        ]


def table_of(lines: Mapping[str, Line]) -> str:
    """A table of comparisons."""
    head = ["compared", "pairs of runs", "bit-identical", "cells changed", "pixels"]
    return markdown(head, [line.cells() for line in lines.values()])


@cache
def five_steps(images: str) -> dict[str, Line]:
    """The comparisons of study 1 over one set of images."""
    return compare(
        five_step_runs(images),
        rows_file=f"1-{images}.csv",
        axis_labels={
            "mode": "fast beside strict",
            "threads": "profiles",
            "machine": "machines",
            "seed": "seeds, mode strict",
        },
    )


def compare(
    runs: Sequence[Run],
    *,
    rows_file: str,
    axis_labels: Mapping[str, str],
    repeats_by: Sequence[str] = ("mode",),
) -> dict[str, Line]:
    """Compare runs along axes, and keep all rows.

    Parameters
    ----------
    runs : sequence of Run
    rows_file : str
        Where the rows go.
    axis_labels : mapping of str to str
        What to call the line of each axis; axes without pairs have none.
    repeats_by : sequence of str
        Fields of specs, the first ``mode``: repeats of each of their values are a line.

    Returns
    -------
    dict of str to Line
        By the values of ``repeats_by`` and the names of axes.
    """
    spread = measure_spread(runs)
    keep_rows(rows_file, spread_rows(spread))
    repeats_axis = spread.axis("repeats")
    pairs = repeats_axis.pairs if repeats_axis else []

    def values_of(run: Run) -> tuple[str, ...]:
        return tuple(getattr(run.spec, name) for name in repeats_by)

    lines = {}
    every = {values_of(run) for run in runs}
    for values in sorted(every, key=lambda values: (MODES.index(values[0]), values)):
        of_values = [
            pair
            for pair in pairs
            if tuple(getattr(pair.a.spec, name) for name in repeats_by) == values
        ]
        label = f"repeats, mode {', '.join(values)}"
        lines[" ".join(values)] = Line(label, Axis("repeats", of_values))
    for name, label in axis_labels.items():
        axis = spread.axis(name)
        if axis:
            lines[name] = Line(label, axis)
    return lines


@dataclass(frozen=True)
class StrictRuns:
    """Whether specs in mode strict gave the same bits again.

    Attributes
    ----------
    n_specs : int
        Of several repeats.
    n_reproduced : int
        Of these, with the same weights in each repeat.
    n_repeats : int
    n_profiles : int
        Specs of one seed, a profile each.
    n_networks_of_profiles : int
        That these gave.
    """

    n_specs: int
    n_reproduced: int
    n_repeats: int
    n_profiles: int
    n_networks_of_profiles: int


def strict_runs(runs: Sequence[Run]) -> StrictRuns:
    """Look at those of some runs that are in mode strict and were repeated."""
    strict = [run for run in runs if run.spec.mode == "strict" and len(run.repeats) > 1]
    of_one_seed = [run for run in strict if run.spec.seed == SEED]
    reproduced = [run for run in strict if len({weights_of(repeat) for repeat in run.repeats}) == 1]
    return StrictRuns(
        n_specs=len(strict),
        n_reproduced=len(reproduced),
        n_repeats=sum(len(run.repeats) for run in strict),
        n_profiles=len(of_one_seed),
        n_networks_of_profiles=len(
            {weights_of(repeat) for run in of_one_seed for repeat in run.repeats}
        ),
    )


def dots(lines: Sequence[Line], heading: str) -> Picture:
    """Draw a row for each comparison, cells on the left, pixels on the right.

    A dot is a pair of runs, a diamond their mean with its interval.
    """
    figure = Picture(height=1.2 + 0.42 * len(lines))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, measure in zip(panels, ("changed", "ppm"), strict=True):
        _draw_dots(axes, [line.axis.distribution(measure) for line in lines])
    panels[0].xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
    style.label_axes(panels[0], x="cells that changed (logarithmic; 0 apart)")
    style.label_axes(panels[1], x="pixels that differ, per million (logarithmic; 0 apart)")
    style.rows(panels[0], [line.label for line in lines], size=9)
    means = "; ".join(f"{line.label}: {with_interval(line.changed)}" for line in lines)
    return figure.described(heading, "", f"{heading}. Cells that changed: {means}.")


def _draw_dots(axes: Axes, distributions: Sequence[Distribution]) -> None:
    values = [float(value) for each in distributions for value in each.values]
    ends = [end for each in distributions if each.interval for end in each.interval[:2]]
    style.with_zero(axes, "x", [*values, *ends])
    axes.set_xlim(left=left_of_zero(values))
    for y, distribution in enumerate(distributions):
        jitter = np.random.default_rng(y).uniform(-0.1, 0.1, len(distribution.values))
        axes.plot(distribution.values, y - 0.12 + jitter, "o", color=SERIES[0], ms=4, alpha=0.5)
        mean = distribution.mean
        if distribution.interval:
            below = mean - distribution.interval.low
            above = distribution.interval.high - mean
            across = np.maximum([[below], [above]], 0)
            axes.errorbar(mean, y + 0.2, xerr=across, color="black", capsize=3, lw=2)
        axes.plot(mean, y + 0.2, "D", ms=6, mfc="white", mec="black", mew=1.6)
    style.x_grid(axes)


def left_of_zero(values: Sequence[float]) -> float:
    """Where an axis begins, so that 0 is not at its edge."""
    least = min([value for value in values if value > 0] or [0.01])
    return -0.3 * least
