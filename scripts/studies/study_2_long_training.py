"""Study 2: a long training, with and without determinism."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cellrepro.asked.spec import Spec
from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.store import Run
from cellrepro.words import joined, share_text
from studies.evidence import LONG, Values, keep_figure, keep_rows, runs_of, table
from studies.lines import compared, of_lines
from studies.numbers import Span, markdown, spans, with_t

APART = {
    "seed": "another seed",
    "repeats": "the same again (mode fast, two threads)",
    "mode": "strict and fast",
    "profile": "one thread and two",
}
"""Pairs that are followed over the long training, by what differs between their specs."""


def study_2() -> Values:
    """A long training with and without determinism, scored on the way."""
    runs = runs_of("nuclei", LONG)
    names = {"mode": APART["mode"], "threads": APART["profile"], "seed": APART["seed"]}
    lines = compared(runs, "2-nuclei.csv", names, "profile")
    growth = followed({run.key: run.spec for run in runs})
    scored = scores_by_epoch(growth, {run.key: run.spec for run in runs})
    found: Values = {"n": sum(len(run.repeats) for run in runs), "lines": lines}
    found["table"] = of_lines(lines)
    found |= scores_on_the_way(scored, runs) | apart_on_the_way(growth)
    title = f"{LONG} epochs: scores, weights and cells on the way"
    found["figure"] = keep_figure("2-long.png", long_figure(scored, growth, title))
    return found


def followed(specs: dict[str, Spec]) -> pd.DataFrame:
    """Pairs by epoch, with what differs between the two: a key of `APART`; else of which mode and
    profile they are repeats."""
    rows = table("growth.csv")
    keys = [rows[side].str.split("/").str[0] for side in ("a", "b")]
    rows = rows[keys[0].isin(specs) & keys[1].isin(specs)].copy()
    rows["differs"] = [
        differs(specs[a.split("/")[0]], specs[b.split("/")[0]])
        for a, b in zip(rows.a, rows.b, strict=True)
    ]
    keep_rows("2-growth.csv", rows)
    return rows


def differs(a: Spec, b: Spec) -> str:
    """The field that differs between two specs, or what the mode and the profile of both are."""
    other = [name for name in ("seed", "mode", "profile") if getattr(a, name) != getattr(b, name)]
    same = f"{a.mode} {a.profile}"
    return other[0] if other else "repeats" if same == "fast cpu" else same


def scores_by_epoch(growth: pd.DataFrame, specs: dict[str, Spec]) -> pd.DataFrame:
    """AP at IoU 0.5 of the first repeat of each spec, by epoch."""
    names = {"a": "run", "ap50_a": "ap50", "b": "run", "ap50_b": "ap50"}
    sides = [growth[["epoch", side, f"ap50_{side}"]].rename(columns=names) for side in ("a", "b")]
    rows = pd.concat(sides).dropna().drop_duplicates(["run", "epoch"])
    rows = rows[rows.run.str.endswith("/0")].copy()
    for name in ("mode", "profile", "seed"):
        rows[name] = [getattr(specs[run.split("/")[0]], name) for run in rows.run]
    rows = rows.sort_values(["mode", "profile", "seed", "epoch"])
    keep_rows("2-scores.csv", rows)
    return rows


def scores_on_the_way(scored: pd.DataFrame, runs: Sequence[Run]) -> Values:
    """The score of both modes at the end, how far seeds and repeats are apart, and the course."""
    ends = pd.DataFrame(
        {"ap": one.manifest.ap50} | {n: getattr(run.spec, n) for n in ("mode", "profile", "seed")}
        for run in runs
        for one in run.repeats
    )
    own = ends.groupby(["profile", "seed", "mode"]).ap.agg(["mean", np.ptp]).unstack("mode")
    gain = own["mean"].strict - own["mean"].fast
    found: Values = {"ap": {}}
    for mode, some in ends.groupby("mode"):
        told = (some.ap.median(), *some.ap.agg(["min", "max"]))
        found["ap"][mode] = Span(*(f"{value:.3f}" for value in told))
    found["gain"] = {
        one: with_t(some.groupby("seed").mean()) for one, some in gain.groupby("profile")
    }
    found["gain"]["both"] = with_t(gain.groupby("seed").mean())
    found["lost"] = f"{-found['gain']['both'].low:.2f}"
    seeds = own["mean"].groupby("profile").agg(np.ptp)
    found["of_seeds"] = f"{seeds.min().min():.2f}", f"{seeds.max().max():.2f}"
    found["of_repeats"] = f"{own['ptp'].max().max():.3f}"
    moves = scored.groupby("run").ap50.diff().abs()[scored.epoch <= LONG - 100]
    found["moves"] = f"{moves.mean():.3f}", f"{moves.max():.3f}"
    found["modes"] = f"{gain.abs().mean():.3f}"
    return found


MOMENTS = (25, 50, 100, 200, 300, 400, 500)
"""Epochs that a table shows."""


def apart_on_the_way(growth: pd.DataFrame) -> Values:
    """Share of the cells that differ, by what differs between two trainings and by epoch."""
    told = []
    for name, words in APART.items():
        rows = growth[growth.differs == name]
        by_epoch = rows.groupby("epoch").changed
        shares = [share_text(value) for value in by_epoch.mean()[[*MOMENTS]]]
        told.append([words, f"{rows.groupby(['a', 'b']).ngroups}", *shares])
    head = ["cells that differ (mean)", "pairs", *(f"epoch {epoch}" for epoch in MOMENTS)]
    differing = growth.groupby(["differs", "a"]).n_differing.max()

    def equal(*names: str) -> str:
        some = differing[differing.index.isin(names, level=0)]
        return f"{(some == 0).sum()} of {len(some)}"

    own = {"strict": ("strict cpu", "strict cpu-1thread"), "fast": ("fast cpu-1thread",)}
    found: Values = {"apart": markdown(head, told)}
    found["equal"] = {mode: equal(*names) for mode, names in own.items()}
    alike = growth[growth.differs.isin({*APART} - {"seed"})].groupby("epoch").changed.max()
    found["alike"] = joined([f"{epoch}" for epoch in alike.index[: (alike > 0).argmax()]])
    ends = growth[growth.epoch == LONG].assign(cells=lambda rows: rows.lost + rows.gained)
    found["cells"] = {name: spans(some.cells) for name, some in ends.groupby("differs")}
    found["of"] = f"{(ends.objects_a + ends.objects_b).mean():.0f}"
    late = growth[growth.epoch >= LONG // 2].groupby("differs").changed.mean()
    found["late"] = {name: share_text(value) for name, value in late.items()}
    l2 = growth.groupby(["differs", "epoch"]).relative_l2.median()
    found["l2"] = {one: {e: f"{d:.2g}" for e, d in l2[one].items()} for one in APART}
    return found | {"n_moments": growth.epoch.nunique()}


def long_figure(scored: pd.DataFrame, growth: pd.DataFrame, title: str) -> Picture:
    """Scores by epoch, and how far pairs are apart in weights and in cells."""
    figure = Picture(height=3.8)
    panels = figure.subplots(1, 3)
    marks = []
    for mode, colour in (("strict", SERIES[0]), ("fast", SERIES[1])):
        for _, rows in scored[scored["mode"] == mode].groupby("run"):
            panels[0].plot(rows.epoch, rows.ap50, color=colour, lw=1, alpha=0.7)
        marks.append(style.line(f"mode {mode}", color=colour))
    panels[0].legend(handles=marks, frameon=False, fontsize=8, loc="lower right")
    marks = []
    for (name, words), colour in zip(APART.items(), (SERIES[5], *SERIES[2:5]), strict=True):
        rows = growth[growth.differs == name]
        for panel, measure in zip(panels[1:], ("relative_l2", "changed"), strict=True):
            for _, one in rows.groupby(["a", "b"]):
                panel.plot(one.epoch, one[measure], color=colour, lw=0.7, alpha=0.4)
            panel.plot(rows.groupby("epoch")[measure].median(), color=colour, lw=2.5)
        marks.append(style.line(words, color=colour, lw=2.5))
    panels[1].set_yscale("log")
    panels[2].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.2g} %")
    names = "AP at IoU 0.5", "weights: relative distance", "cells that changed"
    for panel, words in zip(panels, names, strict=True):
        style.label_axes(panel, x="epoch")
        style.title(panel, words, size=9)
    style.legend(figure, marks)
    heading = f"{title} (thin: runs and pairs; thick: medians)"
    return figure.described(heading, "", f"{heading}.")
