"""Study 2: a long training, with and without determinism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.spec.spec import Spec
from cellrepro.store.stored_run import Run
from cellrepro.words import joined, share_text
from studies.evidence import LONG_EPOCHS, keep_figure, keep_rows, keys_of, runs_of, table
from studies.lines import Line, compare, table_of
from studies.numbers import Mean, Span, markdown, span_of, with_t

APART = {
    "seed": "a different seed",
    "repeats": "the same again (mode fast, two threads)",
    "mode": "strict and fast",
    "profile": "one thread and two",
}
"""Pairs that are followed over the long training, by what differs between their specs."""

MOMENTS = (25, 50, 100, 200, 300, 400, 500)
"""Epochs that a table shows."""


@dataclass(frozen=True)
class Scores:
    """AP at IoU 0.5 at the end, how far seeds and repeats are apart, and the course.

    Attributes
    ----------
    by_mode : dict of str to Span
    gain : dict of str to Mean
        Strict minus fast, by profile and of ``both``.
    least_of_seeds : str
        How far seeds of one profile and mode are apart.
    most_of_seeds, most_of_repeats : str
    mean_move : str
        From a checkpoint to the next.
    most_move : str
    between_modes : str
        Mean.
    """

    by_mode: dict[str, Span]
    gain: dict[str, Mean]
    least_of_seeds: str
    most_of_seeds: str
    most_of_repeats: str
    mean_move: str
    most_move: str
    between_modes: str

    @property
    def lost(self) -> str:
        """The largest loss that three seeds cannot exclude."""
        return f"{-self.gain['both'].low:.2f}"


@dataclass(frozen=True)
class OnTheWay:
    """How far two trainings are apart, by what differs between them and by epoch.

    Attributes
    ----------
    table : str
    n_moments : int
    equal : dict of str to str
        Pairs whose weights stayed equal, by mode.
    alike : str
        Epochs at which no cell differed, pairs of seeds aside.
    cells : dict of str to Span
        That differ at the end.
    n_cells : str
        Of both results, mean.
    late : dict of str to str
        Share of cells in the second half.
    distances : dict of str to dict of int to str
        Of the weights: median by what differs and epoch.
    """

    table: str
    n_moments: int
    equal: dict[str, str]
    alike: str
    cells: dict[str, Span]
    n_cells: str
    late: dict[str, str]
    distances: dict[str, dict[int, str]]


@dataclass(frozen=True)
class Study2:
    """What the text says of the long training."""

    n_trainings: int
    lines: dict[str, Line]
    table: str
    scores: Scores
    apart: OnTheWay
    figure: str


def study_2() -> Study2:
    """Compare long trainings with and without determinism, scored on the way."""
    runs = runs_of("nuclei", LONG_EPOCHS)
    lines = compare(
        runs,
        rows_file="2-nuclei.csv",
        axis_labels={"mode": APART["mode"], "threads": APART["profile"], "seed": APART["seed"]},
        repeats_by=("mode", "profile"),
    )
    specs = {run.key: run.spec for run in runs}
    growth = followed_pairs(specs)
    scores = scores_by_epoch(growth, specs)
    title = f"{LONG_EPOCHS} epochs: scores, weights and cells on the way"
    return Study2(
        n_trainings=sum(len(run.repeats) for run in runs),
        lines=lines,
        table=table_of(lines),
        scores=summarize_scores(scores, runs),
        apart=summarize_growth(growth),
        figure=keep_figure("2-long.png", long_figure(scores, growth, title)),
    )


# -- rows ----------------------------------------------------------------------------------


def followed_pairs(specs: dict[str, Spec]) -> pd.DataFrame:
    """Pairs by epoch, with what differs between the two in column ``differs``.

    That is a key of `APART`; else the mode and the profile of both.
    """
    rows = table("growth.csv")
    keys_a = keys_of(rows.a)
    keys_b = keys_of(rows.b)
    known = keys_a.isin(specs) & keys_b.isin(specs)
    rows = rows[known].copy()
    rows["differs"] = [
        what_differs(specs[a], specs[b]) for a, b in zip(keys_a[known], keys_b[known], strict=True)
    ]
    keep_rows("2-growth.csv", rows)
    return rows


def what_differs(a: Spec, b: Spec) -> str:
    """The field that differs between two specs, or what the mode and the profile of both are."""
    for name in ("seed", "mode", "profile"):
        if getattr(a, name) != getattr(b, name):
            return name
    both = f"{a.mode} {a.profile}"
    return "repeats" if both == "fast cpu" else both


def scores_by_epoch(growth: pd.DataFrame, specs: dict[str, Spec]) -> pd.DataFrame:
    """AP at IoU 0.5 of the first repeat of each spec, by epoch."""
    sides = []
    for side in ("a", "b"):
        of_side = growth[["epoch", side, f"ap50_{side}"]]
        sides.append(of_side.rename(columns={side: "run", f"ap50_{side}": "ap50"}))
    rows = pd.concat(sides).dropna().drop_duplicates(["run", "epoch"])
    rows = rows[rows.run.str.endswith("/0")].copy()
    for name in ("mode", "profile", "seed"):
        rows[name] = [getattr(specs[key], name) for key in keys_of(rows.run)]
    rows = rows.sort_values(["mode", "profile", "seed", "epoch"])
    keep_rows("2-scores.csv", rows)
    return rows


# -- what the text says --------------------------------------------------------------------


def summarize_scores(scores: pd.DataFrame, runs: Sequence[Run]) -> Scores:
    """Compare the scores of both modes.

    Parameters
    ----------
    scores : DataFrame
        By epoch.
    runs : sequence of Run
        With the scores at the end.
    """
    ends = pd.DataFrame(
        {
            "ap": repeat.manifest.ap50,
            "mode": run.spec.mode,
            "profile": run.spec.profile,
            "seed": run.spec.seed,
        }
        for run in runs
        for repeat in run.repeats
    )
    by_mode = {}
    for mode, of_mode in ends.groupby("mode"):
        by_mode[mode] = Span(
            median=f"{of_mode.ap.median():.3f}",
            least=f"{of_mode.ap.min():.3f}",
            most=f"{of_mode.ap.max():.3f}",
        )
    specs = ends.groupby(["profile", "seed", "mode"]).ap.agg(["mean", np.ptp]).unstack("mode")
    difference = specs["mean"].strict - specs["mean"].fast
    gain = {
        profile: with_t(of_profile.groupby("seed").mean())
        for profile, of_profile in difference.groupby("profile")
    }
    gain["both"] = with_t(difference.groupby("seed").mean())
    between_seeds = specs["mean"].groupby("profile").agg(np.ptp)
    moves = scores.groupby("run").ap50.diff().abs()[scores.epoch <= LONG_EPOCHS - 100]
    return Scores(
        by_mode=by_mode,
        gain=gain,
        least_of_seeds=f"{between_seeds.min().min():.2f}",
        most_of_seeds=f"{between_seeds.max().max():.2f}",
        most_of_repeats=f"{specs['ptp'].max().max():.3f}",
        mean_move=f"{moves.mean():.3f}",
        most_move=f"{moves.max():.3f}",
        between_modes=f"{difference.abs().mean():.3f}",
    )


def summarize_growth(growth: pd.DataFrame) -> OnTheWay:
    """Say how far pairs were apart on the way."""
    of_specs = growth[growth.differs.isin({*APART} - {"seed"})]
    most_changed = of_specs.groupby("epoch").changed.max()
    n_alike = int((most_changed > 0).argmax())
    ends = growth[growth.epoch == LONG_EPOCHS].assign(cells=lambda rows: rows.lost + rows.gained)
    late = growth[growth.epoch >= LONG_EPOCHS // 2].groupby("differs").changed.mean()
    distances = growth.groupby(["differs", "epoch"]).relative_l2.median()
    return OnTheWay(
        table=_table_by_epoch(growth),
        n_moments=growth.epoch.nunique(),
        equal={
            "strict": _always_equal(growth, ["strict cpu", "strict cpu-1thread"]),
            "fast": _always_equal(growth, ["fast cpu-1thread"]),
        },
        alike=joined([str(epoch) for epoch in most_changed.index[:n_alike]]),
        cells={name: span_of(rows.cells) for name, rows in ends.groupby("differs")},
        n_cells=f"{(ends.objects_a + ends.objects_b).mean():.0f}",
        late={name: share_text(share) for name, share in late.items()},
        distances={
            name: {epoch: f"{distance:.2g}" for epoch, distance in distances[name].items()}
            for name in APART
        },
    )


def _table_by_epoch(growth: pd.DataFrame) -> str:
    """Share of the cells that differ, by what differs between two trainings."""
    lines = []
    for name, words in APART.items():
        rows = growth[growth.differs == name]
        means = rows.groupby("epoch").changed.mean()
        n_pairs = rows.groupby(["a", "b"]).ngroups
        lines.append([words, str(n_pairs), *(share_text(means[epoch]) for epoch in MOMENTS)])
    head = ["cells that differ (mean)", "pairs", *(f"epoch {epoch}" for epoch in MOMENTS)]
    return markdown(head, lines)


def _always_equal(growth: pd.DataFrame, differs: Sequence[str]) -> str:
    """How many of some pairs had equal weights at every checkpoint."""
    rows = growth[growth.differs.isin(differs)]
    most = rows.groupby(["differs", "a"]).n_differing.max()
    return f"{(most == 0).sum()} of {len(most)}"


# -- the figure ----------------------------------------------------------------------------


def long_figure(scores: pd.DataFrame, growth: pd.DataFrame, title: str) -> Picture:
    """Draw scores by epoch, and how far pairs are apart in weights and in cells."""
    figure = Picture(height=3.8)
    panels = figure.subplots(1, 3)
    mode_marks = []
    for mode, colour in (("strict", SERIES[0]), ("fast", SERIES[1])):
        for _, rows in scores[scores["mode"] == mode].groupby("run"):
            panels[0].plot(rows.epoch, rows.ap50, color=colour, lw=1, alpha=0.7)
        mode_marks.append(style.line(f"mode {mode}", color=colour))
    panels[0].legend(handles=mode_marks, frameon=False, fontsize=8, loc="lower right")
    pair_marks = []
    for (name, words), colour in zip(APART.items(), (SERIES[5], *SERIES[2:5]), strict=True):
        rows = growth[growth.differs == name]
        for panel, measure in zip(panels[1:], ("relative_l2", "changed"), strict=True):
            for _, of_pair in rows.groupby(["a", "b"]):
                panel.plot(of_pair.epoch, of_pair[measure], color=colour, lw=0.7, alpha=0.4)
            panel.plot(rows.groupby("epoch")[measure].median(), color=colour, lw=2.5)
        pair_marks.append(style.line(words, color=colour, lw=2.5))
    panels[1].set_yscale("log")
    panels[2].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.2g} %")
    headings = ("AP at IoU 0.5", "weights: relative distance", "cells that changed")
    for panel, heading in zip(panels, headings, strict=True):
        style.label_axes(panel, x="epoch")
        style.title(panel, heading, size=9)
    style.legend(figure, pair_marks)
    whole = f"{title} (thin: runs and pairs; thick: medians)"
    return figure.described(whole, "", f"{whole}.")
