"""Study 3: where two trainings part, and how far they come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.words import joined
from studies.depth import MODELS, ByDepth, by_depth
from studies.evidence import (
    FIRST_EPOCHS,
    PAIRS_EPOCHS,
    SHORT_EPOCHS,
    keep_figure,
    keep_rows,
    rows_of_study_3,
)
from studies.numbers import Span, span_of


@dataclass(frozen=True)
class FirstOperations:
    """The first operations that gave different bits.

    Attributes
    ----------
    text : str
        Which, in how many pairs, and how they were judged.
    n_pairs : int
    n_first : int
        Of these after the first steps.
    """

    text: str
    n_pairs: int
    n_first: int


@dataclass(frozen=True)
class FirstSteps:
    """When pairs differed within their first steps.

    Attributes
    ----------
    n_pairs : int
    step : Span
        With the first difference at all.
    n_step : int
    some_weights : Span
    n_some_weights : int
    all_weights : Span
    n_all_weights : int
    """

    n_pairs: int
    step: Span
    n_step: int
    some_weights: Span
    n_some_weights: int
    all_weights: Span
    n_all_weights: int


@dataclass(frozen=True)
class Onset:
    """At which epoch something differed first, pair by pair.

    Attributes
    ----------
    epochs : list of float
        Infinity where it never did.
    """

    epochs: list[float]

    @property
    def n(self) -> int:
        """Pairs in which it ever did."""
        return int(np.isfinite(self.epochs).sum())

    @property
    def span(self) -> Span:
        """Of these."""
        return span_of([epoch for epoch in self.epochs if math.isfinite(epoch)])

    @property
    def interval(self) -> str:
        """Of their share, 95 %."""
        low, high = binomtest(self.n, len(self.epochs)).proportion_ci()
        return f"{100 * low:.0f} to {100 * high:.0f} %"

    def by(self, moments: Sequence[int]) -> str:
        """In how many pairs it had differed by these epochs."""
        counts = [int(np.sum(np.array(self.epochs) <= moment)) for moment in moments]
        return joined([f"{n} by epoch {moment}" for n, moment in zip(counts, moments, strict=True)])


@dataclass(frozen=True)
class LargestChange:
    """The largest share of cells that differed."""

    changed: float
    epoch: int


@dataclass(frozen=True)
class Study3:
    """What the text says of where trainings part.

    Attributes
    ----------
    operations : FirstOperations
    steps : FirstSteps
    n_pairs, first_epoch, last_epoch : int
    pixel, cell : Onset
    by_moments : str
        In how many pairs a cell had changed.
    largest : LargestChange
    distance_first : Span
        Of the weights, relative, at the first epoch that was looked at.
    distance_last : Span
    changed_last : float
        Share of the cells, mean.
    scores_apart : Span
        AP at IoU 0.5.
    figure : str
    depth : ByDepth
    """

    operations: FirstOperations
    steps: FirstSteps
    n_pairs: int
    first_epoch: int
    last_epoch: int
    pixel: Onset
    cell: Onset
    by_moments: str
    largest: LargestChange
    distance_first: Span
    distance_last: Span
    changed_last: float
    scores_apart: Span
    figure: str
    depth: ByDepth


def study_3() -> Study3:
    """Follow pairs of repeats: where they part, and how far they go."""
    growth = rows_of_study_3("growth.csv", PAIRS_EPOCHS)
    keep_rows("3-growth.csv", growth)
    curves = [rows.sort_values("epoch") for _, rows in growth.groupby("a")]
    epochs = sorted(growth.epoch.unique())
    pixel = Onset([_first_epoch(rows, rows.ppm > 0) for rows in curves])
    cell = Onset([_first_epoch(rows, rows.changed > 0) for rows in curves])
    first = growth[growth.epoch == epochs[0]]
    last = growth[growth.epoch == epochs[-1]]
    largest = growth.loc[growth.changed.idxmax()]
    title = f"{len(curves)} pairs of repeats without determinism: weights, pixels, cells by epoch"
    return Study3(
        operations=first_operations(),
        steps=first_steps(),
        n_pairs=len(curves),
        first_epoch=epochs[0],
        last_epoch=epochs[-1],
        pixel=pixel,
        cell=cell,
        by_moments=cell.by(range(50, PAIRS_EPOCHS + 1, 50)),
        largest=LargestChange(largest.changed, largest.epoch),
        distance_first=span_of(first.relative_l2, digits=2),
        distance_last=span_of(last.relative_l2, digits=2),
        changed_last=float(last.changed.mean()),
        scores_apart=span_of((last.ap50_a - last.ap50_b).abs(), digits=2),
        figure=keep_figure("3-growth.png", growth_figure(curves, pixel, cell, title)),
        depth=by_depth(),
    )


def _first_epoch(rows: pd.DataFrame, holds: pd.Series) -> float:
    """The first epoch at which something holds; infinity if at none."""
    return float(rows.epoch[holds].min()) if holds.any() else math.inf


def first_steps() -> FirstSteps:
    """When pairs of `tiny` differed."""
    rows = rows_of_study_3("steps.csv", FIRST_EPOCHS)
    step = rows.first_step.dropna()
    some_weights = rows.some_weights.dropna()
    all_weights = rows.all_weights.dropna()
    return FirstSteps(
        n_pairs=len(rows),
        step=span_of(step),
        n_step=len(step),
        some_weights=span_of(some_weights),
        n_some_weights=len(some_weights),
        all_weights=span_of(all_weights),
        n_all_weights=len(all_weights),
    )


def first_operations() -> FirstOperations:
    """Of all networks, after the first steps and after whole trainings."""
    after_first = [rows_of_study_3("first.csv", FIRST_EPOCHS, model) for model in MODELS]
    after_all = [rows_of_study_3("first.csv", SHORT_EPOCHS, model) for model in MODELS]
    rows = pd.concat([*after_first, *after_all])
    counts = rows.groupby(["op", "source", "judgement"]).size().sort_values(ascending=False)
    sentences = [
        f"`{op}` in `{source}` ({n} of {len(rows)}, judged a {judgement})"
        for (op, source, judgement), n in counts.items()
    ]
    return FirstOperations(
        text=joined(sentences),
        n_pairs=len(rows),
        n_first=sum(len(each) for each in after_first),
    )


def growth_figure(curves: Sequence[pd.DataFrame], pixel: Onset, cell: Onset, title: str) -> Picture:
    """Draw distances by epoch, and how many pairs differed by then.

    Parameters
    ----------
    curves : sequence of DataFrame
        Of each pair, by epoch.
    pixel, cell : Onset
        When a pixel differed and when a cell.
    title : str
    """
    figure = Picture(height=3.6)
    panels = figure.subplots(1, 4)
    every = pd.concat(curves)
    measures = {
        "relative_l2": "weights: relative distance",
        "ppm": "pixels that differ, ppm",
        "changed": "cells that changed",
    }
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
    shares_panel = panels[3]
    for onset, name, dashes, colour in (
        (pixel, "a pixel", "-", SERIES[1]),
        (cell, "a cell", "--", SERIES[5]),
    ):
        shares = [np.mean([first <= epoch for first in onset.epochs]) for epoch in epochs]
        shares_panel.step(epochs, shares, dashes, where="post", color=colour, lw=2.5)
        shares_panel.text(epochs[-1], shares[-1] + 0.02, f"in {name}", ha="right")
    shares_panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    shares_panel.set_ylim(0, 1.1)
    style.label_axes(shares_panel, x="epoch")
    style.title(shares_panel, "pairs that ever differed", size=9)
    return figure.described(title, "", f"{title}; lines are pairs, the thick one their median.")
