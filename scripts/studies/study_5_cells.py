"""Study 5: which cells other trainings find again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.stored_run import Repeat
from cellrepro.words import grouped, share_text
from studies.evidence import (
    PAIRS_EPOCHS,
    SEED,
    SHORT_EPOCHS,
    five_step_runs,
    keep_figure,
    keep_rows,
    runs_of,
    table,
)
from studies.numbers import markdown, rank_correlation

PROPERTIES = {
    "area": "area, pixels",
    "contrast": "contrast, SD of the image",
    "crowding": "cells around it",
}
"""Of a cell."""


@dataclass(frozen=True)
class FoundAgain:
    """How many cells of some runs are in all of them, in few, in one.

    Attributes
    ----------
    n_runs, n_cells, n_in_all : int
    n_in_few : int
        In fewer than half.
    n_in_one : int
    n_true : int
        Match a true cell.
    n_false : int
    true_in_all : str
        Share.
    n_false_in_all : int
    """

    n_runs: int
    n_cells: int
    n_in_all: int
    n_in_few: int
    n_in_one: int
    n_true: int
    n_false: int
    true_in_all: str
    n_false_in_all: int


@dataclass(frozen=True)
class CountsApart:
    """How far the numbers of cells of two trainings are apart, beside their mean.

    Attributes
    ----------
    n_pairs : int
    mean : str
        Cells.
    median, most : str
    """

    n_pairs: int
    mean: str
    median: str
    most: str


@dataclass(frozen=True)
class Study5:
    """What the text says of cells.

    Attributes
    ----------
    groups : dict of str to FoundAgain
        By epochs of the trainings.
    table : str
        By what cells are.
    counts : dict of str to CountsApart
        By what differs between two trainings.
    counts_table, figure : str
    """

    groups: dict[str, FoundAgain]
    table: str
    counts: dict[str, CountsApart]
    counts_table: str
    figure: str


def study_5() -> Study5:
    """In how many of the runs each cell is found, and how much counts vary."""
    every = table("cells.csv")
    every["share"] = every.n_runs_with / every.n_runs
    keep_rows("5-cells.csv", every)
    groups = {name: found_again(rows) for name, rows in every.groupby("runs")}
    short = f"{SHORT_EPOCHS} epochs"
    rows = every[every.runs == short]
    shown = groups[short]
    counts = counts_apart()
    title = f"Of {shown.n_cells} cells, {shown.n_in_all} are in all of {shown.n_runs} trainings"
    return Study5(
        groups=groups,
        table=table_of_properties(rows),
        counts=counts,
        counts_table=table_of_counts(counts),
        figure=keep_figure("5-cells.png", cells_figure(rows, title)),
    )


def found_again(rows: pd.DataFrame) -> FoundAgain:
    """Count the cells of some runs."""
    is_true = rows.true.astype(bool)
    in_all = rows.share == 1
    return FoundAgain(
        n_runs=int(rows.n_runs.iloc[0]),
        n_cells=len(rows),
        n_in_all=int(in_all.sum()),
        n_in_few=int((rows.share < 0.5).sum()),
        n_in_one=int((rows.n_runs_with == 1).sum()),
        n_true=int(is_true.sum()),
        n_false=int((~is_true).sum()),
        true_in_all=share_text(in_all[is_true].mean()),
        n_false_in_all=int(in_all[~is_true].sum()),
    )


def table_of_properties(rows: pd.DataFrame) -> str:
    """In what share of the trainings cells are found, by thirds of what they are."""
    lines = []
    for name, words in PROPERTIES.items():
        values = rows[name]
        low, high = values.quantile([1 / 3, 2 / 3])
        thirds = [values <= low, (values > low) & (values <= high), values > high]
        means = [f"{rows.share[third].mean():.2f}" if third.any() else "–" for third in thirds]
        correlation = rank_correlation(rows[[name, "share"]].to_numpy(float), 2000)
        lines.append([words, f"{low:.3g}, {high:.3g}", *means, correlation])
    head = ["cells by", "bounds of thirds", "lowest third", "middle", "highest", "rank correlation"]
    return markdown(head, lines)


# -- counts --------------------------------------------------------------------------------


def counts_apart() -> dict[str, CountsApart]:
    """By what differs between two trainings; keeps a row for each pair."""
    apart = {}
    kept: list[dict[str, object]] = []
    for name, groups in groups_of_trainings().items():
        pairs = [pair for group in groups for pair in itertools.combinations(group, 2)]
        counts = [repeat.manifest.n_objects for group in groups for repeat in group]
        mean = float(np.mean(counts))
        differences = []
        for a, b in pairs:
            n_a = a.manifest.n_objects
            n_b = b.manifest.n_objects
            differences.append(abs(n_a - n_b) / mean)
            kept.append({"differs": name, "a": a.name, "b": b.name, "n_a": n_a, "n_b": n_b})
        apart[name] = CountsApart(
            n_pairs=len(pairs),
            mean=grouped(mean),
            median=share_text(float(np.median(differences))),
            most=share_text(float(max(differences))),
        )
    keep_rows("5-counts.csv", kept)
    return apart


def groups_of_trainings() -> dict[str, list[Sequence[Repeat]]]:
    """By what differs between trainings; pairs are of one group."""
    long = runs_of("nuclei", PAIRS_EPOCHS)
    short = five_step_runs("nuclei")
    strict = [run for run in short if run.spec.mode == "strict"]
    fast = [run for run in short if run.spec.mode == "fast"]
    off = [run for run in short if run.spec.mode == "off"]
    on_cpu = [run for run in strict if run.spec.profile == "cpu"]
    of_one_seed = [run for run in strict if run.spec.seed == SEED]
    return {
        f"seed (mode strict), {SHORT_EPOCHS} epochs": [[run.repeats[0] for run in on_cpu]],
        f"seed (mode fast), {PAIRS_EPOCHS} epochs": [[run.repeats[0] for run in long]],
        f"no seed (mode off), {SHORT_EPOCHS} epochs": [
            [repeat for run in off for repeat in run.repeats]
        ],
        f"profile, {SHORT_EPOCHS} epochs": [[run.repeats[0] for run in of_one_seed]],
        f"nothing (mode fast), {SHORT_EPOCHS} epochs": [run.repeats for run in fast],
        f"nothing (mode fast), {PAIRS_EPOCHS} epochs": [run.repeats for run in long],
    }


def table_of_counts(counts: dict[str, CountsApart]) -> str:
    """A row for each of what differs between two trainings."""
    head = [
        "what differs between two trainings",
        "pairs",
        "cells, mean",
        "difference: median",
        "largest",
    ]
    lines = [
        [name, str(apart.n_pairs), apart.mean, apart.median, apart.most]
        for name, apart in counts.items()
    ]
    return markdown(head, lines)


# -- the figure ----------------------------------------------------------------------------


def cells_figure(rows: pd.DataFrame, title: str) -> Picture:
    """Draw in how many runs cells are found, all of them and beside what they are."""
    figure = Picture(height=3.4)
    panels = figure.subplots(1, 4, width_ratios=(1.3, 1, 1, 1))
    n_runs = int(rows.n_runs.iloc[0])
    is_true = rows.true.astype(bool)
    panels[0].hist(
        [rows.n_runs_with[is_true], rows.n_runs_with[~is_true]],
        np.arange(0.5, n_runs + 1.5),
        stacked=True,
        color=[SERIES[0], SERIES[1]],
        edgecolor="white",
        lw=0.4,
        label=["matches a true cell", "does not"],
    )
    panels[0].legend(frameon=False, fontsize=8)
    panels[0].set_xticks(range(1, n_runs + 1, 2))
    style.label_axes(panels[0], x=f"trainings, of {n_runs}, that find it", y="cells")
    for panel, (name, words) in zip(panels[1:], PROPERTIES.items(), strict=True):
        panel.plot(rows[name], rows.share, ".", color=SERIES[0], alpha=0.4, ms=5)
        sixths = pd.qcut(rows[name], 6, labels=False, duplicates="drop")
        means = rows.groupby(rows[name] > 0 if name == "crowding" else sixths)
        panel.plot(means[name].median(), means.share.mean(), "k-o", ms=4, lw=2)
        if name == "area":
            panel.set_xscale("log")
        style.label_axes(panel, x=words, y="share of trainings" if name == "area" else "")
    return figure.described(title, "", f"{title}; black: means of sixths.")
