"""Study 3: where two trainings part, and how far they come."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from cellrepro.same.seed_spread import measure_spread
from cellrepro.show.figures import style
from cellrepro.show.figures.spread import spread_rows
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.words import joined
from studies.evidence import (
    FIRST,
    PAIRS,
    STEPS,
    Values,
    keep_figure,
    keep_rows,
    of_study,
    repeated_runs,
    runs_of,
)
from studies.lines import own_again
from studies.numbers import markdown, range_of_scores, spans, with_interval


def study_3() -> Values:
    """Where pairs of repeats part, and how far they go."""
    growth, steps = of_study("growth.csv", PAIRS), of_study("steps.csv", FIRST)
    keep_rows("3-growth.csv", growth)
    curves = [rows.sort_values("epoch") for _, rows in growth.groupby("a")]
    epochs = sorted(growth.epoch.unique())
    pixel = [first_epoch(rows, rows.ppm > 0) for rows in curves]
    cell = [first_epoch(rows, rows.changed > 0) for rows in curves]
    last = growth[growth.epoch == epochs[-1]]
    found: Values = {"n": len(curves), "every": epochs[0], "last": epochs[-1]}
    found["operations"] = operations()
    for name in ("first_step", "some_weights", "all_weights"):
        happened = steps[name].dropna()
        found[name], found[f"n_{name}"] = spans(happened), len(happened)
    found["n_steps"] = len(steps)
    found["pixel"], found["cell"] = (
        spans([epoch for epoch in one if math.isfinite(epoch)]) for one in (pixel, cell)
    )
    found["n_pixel"] = int(np.isfinite(pixel).sum())
    found["n_cell"] = int(np.isfinite(cell).sum())
    low, high = binomtest(found["n_cell"], len(cell)).proportion_ci()
    found["of_cell"] = f"{100 * low:.0f} to {100 * high:.0f} %"
    moments = range(50, PAIRS + 1, 50)
    found["by"] = joined([f"{np.sum(np.array(cell) <= e)} by epoch {e}" for e in moments])
    found["largest"] = growth.loc[growth.changed.idxmax()]
    for name in ("relative_l2", "ppm", "changed"):
        found[name] = spans(last[name], digits=True)
    found["changed_mean"] = float(last.changed.mean())
    found["l2_first"] = spans(growth[growth.epoch == epochs[0]].relative_l2, digits=True)
    found["ap"] = spans((last.ap50_a - last.ap50_b).abs(), digits=True)
    title = f"{len(curves)} pairs of repeats without determinism: weights, pixels, cells by epoch"
    found["figure"] = keep_figure("3-growth.png", growth_figure(curves, pixel, cell, title))
    found |= by_depth()
    return found


def first_epoch(rows: pd.DataFrame, holds: pd.Series) -> float:
    """The first epoch at which something holds; infinity if at none."""
    return float(rows.epoch[holds].min()) if holds.any() else math.inf


def operations() -> Values:
    """The first operations that gave other bits, in how many pairs, of all networks."""
    both = itertools.product((FIRST, STEPS), MODELS)
    rows = pd.concat([of_study("first.csv", epochs, model) for epochs, model in both])
    counted = rows.groupby(["op", "source", "judgement"]).size().sort_values(ascending=False)
    said = [
        f"`{op}` in `{source}` ({n} of {len(rows)}, judged a {judgement})"
        for (op, source, judgement), n in counted.items()
    ]
    steps = [len(of_study("first.csv", FIRST, model)) for model in MODELS]
    return {"n": len(rows), "text": joined(said), "n_first": sum(steps)}


def growth_figure(
    curves: Sequence[pd.DataFrame], pixel: Sequence[float], cell: Sequence[float], title: str
) -> Picture:
    """Distances by epoch, and by which epoch how many pairs differ in a pixel, in a cell."""
    figure = Picture(height=3.6)
    panels = figure.subplots(1, 4)
    every = pd.concat(curves)
    measures = {"relative_l2": "weights: relative distance", "ppm": "pixels that differ, ppm"}
    measures["changed"] = "cells that changed"
    for panel, (name, words) in zip(panels, measures.items(), strict=False):
        for rows in curves:
            panel.plot(rows.epoch, rows[name], color=SERIES[0], lw=1, alpha=0.6)
        if len(curves) > 4:
            panel.plot(every.groupby("epoch")[name].median(), color="black", lw=2.5)
        style.label_axes(panel, x="epoch")
        style.title(panel, words, size=9)
    panels[0].set_yscale("log")
    style.with_zero(panels[1], "y", every.ppm)
    panels[2].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.2g} %")
    epochs = sorted(every.epoch.unique())
    for values, name, look in ((pixel, "a pixel", "-"), (cell, "a cell", "--")):
        shares = [np.mean([value <= epoch for value in values]) for epoch in epochs]
        colour = SERIES[1] if name == "a pixel" else SERIES[5]
        panels[3].step(epochs, shares, look, where="post", color=colour, lw=2.5)
        panels[3].text(epochs[-1], shares[-1] + 0.02, f"in {name}", ha="right")
    panels[3].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    panels[3].set_ylim(0, 1.1)
    style.label_axes(panels[3], x="epoch")
    style.title(panels[3], "pairs that ever differed", size=9)
    return figure.described(title, "", f"{title}; lines are pairs, the thick one their median.")


MODELS = {"tiny": 2, "tiny-4": 4, "tiny-8": 8, "tiny-12": 12, "vit-l": 24}
"""Networks and their depth in blocks."""


def by_depth() -> Values:
    """How far repeats are apart after the first steps and after whole trainings, and what became of
    the cells, by depth of the network."""
    told, kept, cells = [], [], []
    found: Values = {}
    for model, depth in MODELS.items():
        row, here = [f"{depth}", f"`{model}`"], found.setdefault(depth, {})
        for epochs in (FIRST, STEPS):
            weights, steps = (of_study(f"{n}.csv", epochs, model) for n in ("weights", "steps"))
            if weights.empty:
                break
            kept.append(steps.merge(weights, on=["images", "a", "b"]).assign(depth=depth))
            apart, n = spans(weights.relative_l2, digits=True), int((weights.n_differing > 0).sum())
            row += [f"{n} of {len(weights)}", f"{apart.median} ({apart.range})"]
            here[epochs] = apart.median
        else:
            runs = repeated_runs(STEPS, model)
            spread = measure_spread(runs)
            cells += [{"depth": depth, **one} for one in spread_rows(spread)]
            for name in ("repeats", "seed"):
                if axis := spread.axis(name):
                    here[name] = axis.distribution()
                    row.append(with_interval(here[name]))
            changed = [value > 0 for value in here["repeats"].values]
            here["pairs"] = f"{sum(changed)} of {len(changed)}"
            here["ap"] = range_of_scores(runs)
            row.append(here["ap"])
        told.append(row)
    keep_rows("3-steps.csv", pd.concat(kept))
    keep_rows("3-depth.csv", cells)
    head = ["blocks", "network"]
    for moment in ("four steps", f"{STEPS} epochs"):
        head += [f"pairs that differ after {moment}", "distance of the weights: median (range)"]
    head += ["cells changed between repeats", "between seeds", "AP@0.5"]
    rows = [row + ["–"] * (len(head) - len(row)) for row in told]
    found["strict"] = own_again(runs_of("nuclei", STEPS, "tiny-12"))
    return {"depth": found, "depths": markdown(head, rows)}
