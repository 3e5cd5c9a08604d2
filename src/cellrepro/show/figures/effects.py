"""The figure of an experiment under many runs: the effect of each, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cellrepro.conclusions.conclusion import IN_WORDS, Conclusion, Word
from cellrepro.conclusions.effects import GroupEffect
from cellrepro.conclusions.over_runs import ConclusionsOverRuns
from cellrepro.show.figures import style
from cellrepro.show.figures.style import GREY, PALE, SERIES, WIDTH, Picture
from samebits.words import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_RUNS = 40
_LOOK: dict[Word | None, tuple[str, str]] = {
    None: ("black", "D"),
    "stands": (SERIES[0], "o"),
    "changes": (SERIES[5], "X"),
    "undecidable": (GREY, "s"),
}
"""Colour and marker of a word; of the reference None."""


def effects_of_runs(result: ConclusionsOverRuns, *, width: float = WIDTH) -> Picture:
    """Draw the effect under the masks of every run, with its interval; a panel for each readout.

    Runs whose conclusion changes or cannot be decided have other markers and colours, and say it.

    Parameters
    ----------
    result : ConclusionsOverRuns
        From `cellrepro.conclusion_over_runs`.
    width : float
        Of the picture, in inches; in a narrow one the words stand above the rows.

    Returns
    -------
    Picture
    """
    runs = result.runs[:_MOST_RUNS]
    shares = result.stands
    n_rows = len(runs) + 1
    figure = Picture(width)
    row_height = 0.46 if figure.is_narrow else 0.27
    figure.set_figheight(0.9 + len(shares) * (0.75 + row_height * n_rows))
    panels = figure.subplots(len(shares), 1, squeeze=False).ravel()
    firsts = runs[0].conclusions
    several = len({first.treated for first in firsts}) > 1
    names = [f"{result.reference} (reference)", *(run.run for run in runs)]
    for position, (axes, share) in enumerate(zip(panels, shares, strict=True)):
        conclusions = [run.conclusions[position] for run in runs]
        _draw_readout(axes, conclusions, names)
        n_runs = f"{share.n_runs} of {amount(len(result.runs), 'other')}"
        none = " (no effect shown)" if any(one.is_of_none for one in conclusions) else ""
        style.title(axes, f"{firsts[position].readout_of(firsts)}: stands in {n_runs}{none}")
    words = {None, *(one.word for run in runs for one in run.conclusions)}
    handles = [
        style.line(IN_WORDS[word] if word else "reference", color=colour, marker=marker)
        for word, (colour, marker) in _LOOK.items()
        if word in words
    ]
    style.legend(figure, handles)
    treated, control = firsts[0].group_names
    heading = f"{treated} against {control}" if not several else f"Groups against {control}"
    return figure.described(
        f"{heading}: the effect under the masks of each run, and whether the conclusion stands",
        _caption(result, len(runs)),
        result.sentence(),
    )


def effect_rows(result: ConclusionsOverRuns) -> list[dict[str, object]]:
    """List what the figure shows, one row for each effect; plain values for CSV."""
    rows: list[dict[str, object]] = []
    for position, first in enumerate(result.runs[0].conclusions):
        effects = [(result.reference, first.a, "reference")]
        for run in result.runs:
            one = run.conclusions[position]
            effects.append((run.run, one.b, one.word))
        rows += [
            {
                "readout": first.readout,
                "group": first.treated,
                "run": run,
                "effect": effect.effect,
                "low": effect.low,
                "high": effect.high,
                "ratio": effect.ratio,
                "conclusion": word,
            }
            for run, effect, word in effects
        ]
    return rows


def _draw_readout(axes: Axes, conclusions: Sequence[Conclusion], names: Sequence[str]) -> None:
    first = conclusions[0]
    axes.axvline(0, color="black", linewidth=1, linestyle=(0, (5, 2)))
    low = first.a.effect - first.margin
    high = first.a.effect + first.margin
    axes.axvspan(low, high, color=PALE, alpha=0.6, linewidth=0)
    _draw_effect(axes, 0, first.a, None)
    for row, conclusion in enumerate(conclusions, start=1):
        _draw_effect(axes, row, conclusion.b, conclusion.word)
        word = "" if conclusion.word == "stands" else conclusion.word_text
        style.beside_row(axes, row, word)
    style.rows(axes, names)
    treated, control = first.group_names
    unit = f" ({first.unit})" if first.unit else ""
    minus = "\N{MINUS SIGN}"
    style.label_axes(axes, x=f"{first.readout}: {treated} {minus} {control}{unit}")


def _draw_effect(axes: Axes, row: int, effect: GroupEffect, word: Word | None) -> None:
    colour, marker = _LOOK[word]
    axes.plot([effect.low, effect.high], [row, row], color=colour, linewidth=2)
    axes.plot(effect.effect, row, color=colour, marker=marker, markersize=7)


def _caption(result: ConclusionsOverRuns, n_shown: int) -> str:
    firsts = result.runs[0].conclusions
    has_lines = any(math.isfinite(one.a.low) for one in firsts)
    lines = "; lines are its 95 % interval over images" if has_lines else ""
    caption = (
        "Points are the effect under the masks of a run, a difference of the means of two groups"
        f"{lines}. Dashed line: no effect. Grey field: effects that "
        "differ from that of the reference by less than the margin. Whether the conclusion stands "
        "rests on the difference from the reference, image by image, not on whether lines overlap."
    )
    if n_shown < len(result.runs):
        caption += f" The first {n_shown} of {len(result.runs)} runs are drawn."
    return caption
