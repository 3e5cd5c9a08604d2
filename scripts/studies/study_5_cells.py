"""Study 5: which cells other trainings find again."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.store import Repeat
from cellrepro.words import grouped, share_text
from studies.evidence import (
    PAIRS,
    SEED,
    STEPS,
    Values,
    five_step_runs,
    keep_figure,
    keep_rows,
    runs_of,
    table,
)
from studies.numbers import markdown, rank_correlation

WHAT = {
    "area": "area, pixels",
    "contrast": "contrast, SD of the image",
    "crowding": "other cells around it",
}


def study_5() -> Values:
    """In how many of the runs each cell is found, and how much counts vary."""
    every = table("cells.csv")
    every["share"] = every.n_runs_with / every.n_runs
    keep_rows("5-cells.csv", every)
    found: Values = {"groups": {name: found_again(some) for name, some in every.groupby("runs")}}
    most = f"{STEPS} epochs"
    rows, told = every[every.runs == most], []
    for name, words in WHAT.items():
        low, high = rows[name].quantile([1 / 3, 2 / 3])
        some = [rows[name] <= low, (rows[name] > low) & (rows[name] <= high), rows[name] > high]
        means = [f"{rows.share[one].mean():.2f}" if one.any() else "–" for one in some]
        rho = rank_correlation(rows[[name, "share"]].to_numpy(float), 2000)
        told.append([words, f"{low:.3g}, {high:.3g}", *means, rho])
    head = ["cells by", "bounds of thirds", "lowest third", "middle", "highest", "rank correlation"]
    found["table"] = markdown(head, told)
    found["counts"], found["count_rows"] = counts()
    one = found["groups"][most]
    title = f"Of {one['n']} cells, {one['n_all']} are in all of {one['n_runs']} trainings"
    found["figure"] = keep_figure("5-cells.png", cells_figure(rows, title))
    return found


def found_again(rows: pd.DataFrame) -> Values:
    """How many cells of some runs are in all of them, in fewer than half, in one."""
    true = rows.true.astype(bool)
    found: Values = {"n_runs": int(rows.n_runs.iloc[0]), "n": len(rows)}
    found["n_all"] = int((rows.share == 1).sum())
    found["in_few"] = int((rows.share < 0.5).sum())
    found["one_run"] = int((rows.n_runs_with == 1).sum())
    found |= {"n_true": int(true.sum()), "n_false": int((~true).sum())}
    found["true_in_all"] = share_text((rows.share[true] == 1).mean())
    found["n_false_in_all"] = int((rows.share[~true] == 1).sum())
    return found


def counts() -> tuple[str, Values]:
    """How far the number of cells of two trainings differs, by what differs between them."""
    told, values, kept = [], {}, []
    long, steps = runs_of("nuclei", PAIRS), five_step_runs("nuclei")
    strict = [run for run in steps if run.spec.mode == "strict"]
    off = [one for run in steps if run.spec.mode == "off" for one in run.repeats]
    seeds = [run.repeats[0] for run in strict if run.spec.profile == "cpu"]
    groups: dict[str, list[list[Repeat]]] = {
        f"seed (mode strict), {STEPS} epochs": [seeds],
        f"seed (mode fast), {PAIRS} epochs": [[run.repeats[0] for run in long]],
        f"no seed (mode off), {STEPS} epochs": [off],
        f"profile, {STEPS} epochs": [[run.repeats[0] for run in strict if run.spec.seed == SEED]],
        f"nothing (mode fast), {STEPS} epochs": [
            list(run.repeats) for run in steps if run.spec.mode == "fast"
        ],
        f"nothing (mode fast), {PAIRS} epochs": [list(run.repeats) for run in long],
    }
    for name, sides in groups.items():
        pairs = [pair for side in sides for pair in itertools.combinations(side, 2)]
        numbers = np.array([[one.manifest.n_objects for one in pair] for pair in pairs])
        mean = float(np.mean([one.manifest.n_objects for side in sides for one in side]))
        apart = np.abs(numbers[:, 0] - numbers[:, 1]) / mean
        for (a, b), (n_a, n_b) in zip(pairs, numbers, strict=True):
            kept.append({"differs": name, "a": a.name, "b": b.name, "n_a": n_a, "n_b": n_b})
        middle, most = share_text(float(np.median(apart))), share_text(float(apart.max()))
        values[name] = {"n": len(pairs), "median": middle, "most": most}
        told.append([name, f"{len(pairs)}", grouped(mean), middle, most])
    keep_rows("5-counts.csv", kept)
    head = ["what differs between two trainings", "pairs", "cells, mean", "difference: median"]
    return markdown([*head, "largest"], told), values


def cells_figure(rows: pd.DataFrame, title: str) -> Picture:
    """In how many runs cells are found, all of them and beside what they are."""
    figure = Picture(height=3.4)
    panels = figure.subplots(1, 4, width_ratios=(1.3, 1, 1, 1))
    n_runs = int(rows.n_runs.iloc[0])
    edges = np.arange(0.5, n_runs + 1.5)
    true = rows.true.astype(bool)
    both = [rows.n_runs_with[true], rows.n_runs_with[~true]]
    panels[0].hist(
        both, edges, stacked=True, color=[SERIES[0], SERIES[1]], edgecolor="white", lw=0.4,
        label=["matches a true cell", "does not"],
    )  # fmt: skip
    panels[0].legend(frameon=False, fontsize=8)
    panels[0].set_xticks(range(1, n_runs + 1, 2))
    style.label_axes(panels[0], x=f"trainings, of {n_runs}, that find it", y="cells")
    for panel, (name, words) in zip(panels[1:], WHAT.items(), strict=True):
        panel.plot(rows[name], rows.share, ".", color=SERIES[0], alpha=0.4, ms=5)
        sixths = pd.qcut(rows[name], 6, labels=False, duplicates="drop")
        means = rows.groupby(rows[name] > 0 if name == "crowding" else sixths)
        panel.plot(means[name].median(), means.share.mean(), "k-o", ms=4, lw=2)
        if name == "area":
            panel.set_xscale("log")
        style.label_axes(panel, x=words, y="share of trainings" if name == "area" else "")
    return figure.described(title, "", f"{title}; black: means of sixths.")
