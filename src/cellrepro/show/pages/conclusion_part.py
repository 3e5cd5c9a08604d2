"""The part of a page on conclusions: a picture of both effects, the sentence, and a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cellrepro.conclusions.conclusion import (
    Conclusion,
    Word,
    compared_text,
    conclusion_rows,
    intervals_text,
    summary,
)
from cellrepro.conclusions.effects import GroupEffect
from cellrepro.show.pages.parts import Table, table
from cellrepro.words import as_sentence

SIGNS: Mapping[Word, str] = {"stands": "=", "changes": "≠", "undecidable": "?"}
_WIDTH = 320  # of a picture, in units of its own
_EDGE = 22
_MOST_TICKS = 6


@dataclass(frozen=True)
class Bar:
    """One effect in the picture: where its point and its interval lie."""

    point: float
    low: float | None
    high: float | None

    @property
    def has_width(self) -> bool:
        """Whether its interval is drawn as a line."""
        return self.low is not None and self.low != self.high


@dataclass(frozen=True)
class Tick:
    """A number on the axis of the picture."""

    at: float
    text: str


@dataclass(frozen=True)
class ShownConclusion:
    """One conclusion on a page."""

    conclusion: Conclusion
    sign: str
    word: str
    """What is said of it beside the sign."""
    zero: float
    """Where no effect lies in the picture."""
    a: Bar
    b: Bar
    difference: Bar
    """B minus A, which decides."""
    margin: tuple[float, float]
    """Where the margin begins and ends."""
    ticks: tuple[Tick, ...]
    axis: str
    """What the numbers of the axis are."""


@dataclass(frozen=True)
class ConclusionPart:
    """All conclusions of a page."""

    shown: tuple[ShownConclusion, ...]
    headline: str
    compared: str
    intervals: str
    """Which intervals stand beside the effects."""
    has_intervals: bool
    """Whether the picture draws any."""
    margin: str
    """What the margin is; empty where no control has a mean."""
    table: Table
    names_groups: bool
    """Whether there are several, so that each says its own."""
    width: int = _WIDTH


def conclusion_part(conclusions: Sequence[Conclusion]) -> ConclusionPart | None:
    """Make the part; None where no groups were named."""
    if not conclusions:
        return None
    kinds = {
        **dict.fromkeys(_numbers(conclusions[0]), "file"),
        **dict.fromkeys(("effect under A", "under B", "B minus A", "margin"), "number"),
    }
    shown_rows = conclusion_rows(conclusions)
    rows = [
        {**{title: text for title, text in row.items() if text != ""}, **_numbers(each)}
        for row, each in zip(shown_rows, conclusions, strict=True)
    ]
    shown = tuple(map(_shown, conclusions))
    return ConclusionPart(
        shown=shown,
        headline=as_sentence(summary(conclusions)),
        compared=compared_text(conclusions),
        intervals=intervals_text(conclusions),
        has_intervals=any(bar.has_width for one in shown for bar in (one.a, one.b, one.difference)),
        margin=_margin_text(conclusions),
        table=table(rows, kinds, file="conclusions"),
        names_groups=len({each.treated for each in conclusions}) > 1,
    )


def _margin_text(conclusions: Sequence[Conclusion]) -> str:
    """Say what the margin is of: the same share for all."""
    first = conclusions[0]
    return (
        f"The margin is {100 * first.margin_share:.3g} % of the mean of {first.group_names[1]} "
        "under A: effects of A and B that differ by less count as the same"
    )


def _numbers(conclusion: Conclusion) -> dict[str, object]:
    """What the CSV file has beside the words of the table."""
    numbers: dict[str, object] = {"control": conclusion.control, "treated": conclusion.treated}
    sides = {"A": conclusion.a, "B": conclusion.b, "B minus A": conclusion.difference}
    for name, effect in sides.items():
        numbers |= {
            f"{name}: effect": effect.effect,
            f"{name}: low": effect.low,
            f"{name}: high": effect.high,
            f"{name}: ratio": effect.ratio,
            f"{name}: Hodges-Lehmann": effect.hodges_lehmann,
        }
    return numbers


def _shown(conclusion: Conclusion) -> ShownConclusion:
    values = [0.0]
    for effect in (conclusion.a, conclusion.b, conclusion.difference):
        values += [effect.effect, *_ends(effect)]
    margin = conclusion.margin
    values += [-margin, margin]
    least = min(values)
    span = max(values) - least or 1.0

    def x(value: float) -> float:
        return round(_EDGE + (value - least) / span * (_WIDTH - 2 * _EDGE), 1)

    def bar(effect: GroupEffect) -> Bar:
        low, high = (x(end) for end in _ends(effect)) if _ends(effect) else (None, None)
        return Bar(x(effect.effect), low, high)

    return ShownConclusion(
        conclusion=conclusion,
        sign=SIGNS[conclusion.word],
        word=conclusion.word_text,
        zero=x(0.0),
        a=bar(conclusion.a),
        b=bar(conclusion.b),
        difference=bar(conclusion.difference),
        margin=(x(-margin), x(margin)),
        ticks=tuple(Tick(x(value), _tick_text(value)) for value in _ticks(least, least + span)),
        axis=_axis_text(conclusion),
    )


def _axis_text(conclusion: Conclusion) -> str:
    treated, control = conclusion.group_names
    unit = f", {conclusion.unit}" if conclusion.unit else ""
    return f"{treated} minus {control}{unit}"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two, 0 among them where it lies between."""
    power = 10.0 ** math.floor(math.log10(high - low))
    steps = (factor * power for factor in (0.2, 0.5, 1, 2, 5))
    step = next(each for each in steps if (high - low) / each <= _MOST_TICKS - 1)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _tick_text(value: float) -> str:
    sign = "\N{MINUS SIGN}" if value < 0 else ""
    return f"{sign}{abs(value):,.6g}".replace(",", " ")


def _ends(effect: GroupEffect) -> tuple[float, ...]:
    """Both ends of an interval; none from too few images."""
    return () if effect.low != effect.low else (effect.low, effect.high)
