"""Whether a conclusion stands: the effect under both sides, their difference, and the word."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cellrepro.conclusions.effects import (
    FEWEST_IMAGES,
    FEWEST_ON_A_LINE,
    GroupEffect,
    Values,
    effect_along_doses,
    effect_of_groups,
)
from cellrepro.conclusions.groups import Groups
from cellrepro.conclusions.measuring import MeasuredImage
from cellrepro.conclusions.readouts import ChosenReadout
from cellrepro.words import span
from samebits.errors import BadInput
from samebits.results import Result, Row, in_json, table_lines
from samebits.words import amount, grouped, joined, some

Word = Literal["stands", "changes", "undecidable"]
Side = Literal["higher", "lower", "no effect"]
"""Where the interval of an effect lies; one that holds zero shows no effect."""

IN_WORDS: Mapping[Word, str] = {
    "changes": "changes",
    "stands": "stands",
    "undecidable": "cannot be decided",
}
"""What screens say of the conclusion; what matters most stands first."""
NO_SPREAD = "no spread"
"""Stands for an interval without width."""
_NOT_SHOWN = "no effect is shown"
_NONE_UNDER_EITHER = f"{_NOT_SHOWN} under either"
_SIZE_ONLY = "only the size of the effect"
_TO_BE_SURE = 1.96 + 0.84
"""Standard errors between an effect and a limit, with which 95 % intervals exclude the limit in
80 % of experiments."""
_MOST_NAMES = 12  # of readouts in a sentence
_MOST_IMAGES = 10_000
"""More are never asked for: then the effect lies on the limit."""


@dataclass(frozen=True, repr=False)
class Conclusion(Result):
    """What one readout says of one comparison of groups, under A and under B."""

    readout: str
    """Its name, with the channel where one was asked for."""
    unit: str
    """In which effects and margin are; empty for a function of one's own."""
    control: str
    """The group with which the other is compared; the lowest dose."""
    treated: str
    """The other group; the highest dose."""
    is_dose: bool
    """Whether a line through all doses was fitted."""
    n_control: int
    """Images of the control that have a cell under both sides."""
    n_treated: int
    """The same of the other group."""
    n_images: int
    """Images in all; more than both together where there are doses between."""
    a: GroupEffect
    """The effect under the masks of A."""
    b: GroupEffect
    """The effect under the masks of B."""
    difference: GroupEffect
    """B minus A, paired by image; its means are what B has more in an image of each group."""
    margin: float
    """Effects that differ by less are the same."""
    margin_share: float
    """The margin over the mean of the control images under A, of a dose those of the lowest one."""
    word: Word
    """``stands``, ``changes``, or ``undecidable`` with so few images."""
    images_needed: int | None
    """Images in all with which it could probably be decided; null where it is decided, or where
    more images would not help."""

    @in_json
    def sentence(self) -> str:
        """Say the word, both effects, and how far they lie apart."""
        return f"for {self.readout} the conclusion {self.word_text}: {self.figures}"

    @property
    def word_text(self) -> str:
        """The word as screens say it, and whether only the size of the effect differs."""
        return IN_WORDS[self.word] + (f" ({_SIZE_ONLY})" if self.is_of_estimate else "")

    @property
    def rule(self) -> str:
        """Why it is this word."""
        return decide(self.a, self.b, self.difference, margin=self.margin).rule

    @property
    def figures(self) -> str:
        """What the word rests on: both effects, and how far they lie apart."""
        if math.isnan(self.difference.low):
            return self._too_few()
        parts = [
            f"under A {self._side_text(self.a)} ({_with_interval(self.a)})",
            f"under B {self._side_text(self.b)} ({_with_interval(self.b)})",
            f"B minus A is {estimate_text(self.difference)}: {self._beside_margin()}",
            *self._remarks(),
        ]
        return "; ".join(parts)

    @property
    def reading(self) -> str:
        """What the effects mean, without the numbers of a table or drawing beside it."""
        if math.isnan(self.difference.low):
            return self._too_few()
        under_a = self._side_text(self.a)
        under_b = self._side_text(self.b)
        sides = f"under both {under_a}" if under_a == under_b else f"under A {under_a}"
        if under_a == under_b == _NOT_SHOWN:
            sides = _NONE_UNDER_EITHER
        if under_a == under_b and self.is_beyond_margin:
            sides += f", but {self._beside_margin()}"
        others = [] if under_a == under_b else [f"under B {under_b}"]
        return "; ".join([sides, *others, *self._remarks()])

    @property
    def means_text(self) -> str:
        """What both groups have under each side: the numbers that the effects are made of."""
        control_a, treated_a, control_b, treated_b = (
            text.lstrip("+")
            for text in alike(self.a.control, self.a.treated, self.b.control, self.b.treated)
        )
        treated, control = self.group_names
        of_line = "on the line" if self.is_dose else "mean"
        return (
            f"{of_line}: {control} {control_a} under A, {control_b} under B; {treated} {treated_a} "
            f"under A, {treated_b} under B"
        )

    @property
    def is_beyond_margin(self) -> bool:
        """Whether both effects differ by more than the margin, with the whole interval."""
        return self.difference.low > self.margin or self.difference.high < -self.margin

    def _beside_margin(self) -> str:
        """Say of how far both effects lie apart what it is beside the margin."""
        if not self.is_beyond_margin:
            margin = f"the margin of {margin_text(self.margin)}"
            if abs(self.difference.effect) <= self.margin:
                return f"within {margin}"
            decides = f"; what decides: {self.rule}" if self.word == "changes" else ""
            return f"beyond {margin}, but its interval reaches into it{decides}"
        shown = {side_of(self.a), side_of(self.b)}
        names = ("higher", "lower")
        if shown == {"higher"}:
            names = ("larger", "smaller")
        elif shown == {"lower"}:
            names = ("smaller", "larger")
        direction = names[0] if self.difference.effect > 0 else names[1]
        return (
            f"the effect is {self._distance()} {direction} under B, more than the margin of "
            f"{_without_sign(self.margin)}"
        )

    def _distance(self) -> str:
        """How far both effects lie apart, in the unit of the readout."""
        text = _without_sign(self.difference.effect)
        if self.unit in ("", "share"):
            return text
        return f"{text} {self.unit.removesuffix('s') if text == '1' else self.unit}"

    @property
    def readout_text(self) -> str:
        """The readout with its unit.

        A name that ends in it has none: ``mean_intensity`` is in that of the image.
        """
        return f"{self.readout} ({self.unit})" if self.unit not in self.readout else self.readout

    def readout_of(self, conclusions: Sequence[Conclusion]) -> str:
        """The readout, with its group where others are compared with the control as well."""
        several = len({each.treated for each in conclusions}) > 1
        return f"{self.readout} of {self.treated}" if several else self.readout

    @property
    def is_of_estimate(self) -> bool:
        """Whether what changes is how large the effect is, and not whether or where one shows."""
        return self.word == "changes" and side_of(self.a) == side_of(self.b)

    @property
    def is_of_none(self) -> bool:
        """Whether what stands is that no effect is shown."""
        return self.word == "stands" and side_of(self.a) == "no effect"

    def _too_few(self) -> str:
        if self.is_dose:
            return f"{amount(self.n_images, 'image')}; at least {FEWEST_ON_A_LINE} are needed"
        return (
            f"{amount(self.n_control, 'image')} of {self.control} and {self.n_treated} of "
            f"{self.treated}; at least {FEWEST_IMAGES} of each are needed"
        )

    def _side_text(self, effect: GroupEffect) -> str:
        side = side_of(effect)
        treated, control = self.group_names
        if side == "no effect":
            return _NOT_SHOWN
        return f"it is {side} in {treated} than in {control}"

    @property
    def group_names(self) -> tuple[str, str]:
        """What the two are called in a sentence, the treated one first."""
        if self.is_dose:
            return f"dose {self.treated}", f"dose {self.control}"
        return self.treated, self.control

    def _remarks(self) -> Iterator[str]:
        """Say what neither word nor figures say."""
        sides_differ = side_of(self.a) != side_of(self.b)
        if self.word == "changes" and sides_differ and _is_within(self.difference, self.margin):
            yield (
                "they differ by less than the margin, and yet an effect is shown under one of them "
                "alone"
            )
        if self.is_of_none:
            yield "that no effect is shown does not mean that there is none"
        if self.word != "undecidable":
            return
        if sides_differ:
            yield "an effect is shown under one of them alone, which may be chance"
        else:
            yield "they may differ by more than the margin, or by less"
        if self.images_needed is None:
            yield "more images would hardly decide it"
        else:
            n_images = grouped(_two_digits_up(self.images_needed))
            needed = f"about {n_images} images would probably decide it"
            yield f"{needed} (here {self.n_images})"

    def rows(self) -> list[Row]:
        """Give one row."""
        return conclusion_rows([self])


def _two_digits_up(number: int) -> int:
    """Round a number of images up, to the digits that such an estimate has.

    >>> _two_digits_up(5392), _two_digits_up(37), _two_digits_up(101)
    (5400, 37, 110)
    """
    unit = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit


def side_of(effect: GroupEffect) -> Side:
    """Say on which side of no effect an interval lies."""
    if effect.low > 0:
        return "higher"
    return "lower" if effect.high < 0 else "no effect"


def conclude(
    measured: Sequence[MeasuredImage],
    groups: Groups,
    readouts: Sequence[ChosenReadout],
    *,
    margin: float,
) -> tuple[Conclusion, ...]:
    """Draw the conclusion of each readout and each comparison of groups."""
    if not (isinstance(margin, int | float) and 0 <= margin < math.inf):
        raise BadInput(
            f"margin is {margin!r}; expected a share of the control's mean, as 0.1 for a tenth"
        )
    return tuple(
        _concluded(measured, groups, readout, treated, float(margin))
        for treated in groups.treated
        for readout in readouts
    )


def _concluded(
    measured: Sequence[MeasuredImage],
    groups: Groups,
    readout: ChosenReadout,
    treated: str,
    share: float,
) -> Conclusion:
    wanted = {groups.control, treated} if groups.doses is None else {*groups.doses}
    used = [
        each
        for each in measured
        if each.group in wanted
        and math.isfinite(each.a[readout.name])
        and math.isfinite(each.b[readout.name])
    ]
    names = np.array([each.group for each in used])
    values_a = np.array([each.a[readout.name] for each in used], float)
    values_b = np.array([each.b[readout.name] for each in used], float)
    n_control = int(np.count_nonzero(names == groups.control))
    n_treated = int(np.count_nonzero(names == treated))
    if not (n_control and n_treated):
        raise BadInput(
            f"{readout.name}: {n_control} images of {groups.control} and {n_treated} of {treated} "
            "have a cell under both sides; expected at least one of each group"
        )

    def effect(values: Values) -> GroupEffect:
        if groups.doses is None:
            return effect_of_groups(values[names == groups.control], values[names == treated])
        return effect_along_doses(np.array([groups.doses[name] for name in names]), values)

    effect_a, effect_b, difference = map(effect, (values_a, values_b, values_b - values_a))
    allowed = share * abs(float(values_a[names == groups.control].mean()))
    decision = decide(effect_a, effect_b, difference, margin=allowed)
    needed = None
    if decision.times is not None and decision.times * len(used) < _MOST_IMAGES:
        needed = max(len(used) + 1, math.ceil(decision.times * len(used)))
    return Conclusion(
        readout=readout.name,
        unit=readout.unit,
        control=groups.control,
        treated=treated,
        is_dose=groups.doses is not None,
        n_control=n_control,
        n_treated=n_treated,
        n_images=len(used),
        a=effect_a,
        b=effect_b,
        difference=difference,
        margin=allowed,
        margin_share=share,
        word=decision.word,
        images_needed=needed,
    )


# -- the word --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """The word, why it is this one, and how many times as many images would decide."""

    word: Word
    rule: str
    times: float | None = None
    """None where these decide, or there is no interval."""


_UNDER_ONE = "an effect is shown under one side alone"


def decide(a: GroupEffect, b: GroupEffect, difference: GroupEffect, *, margin: float) -> Decision:
    """Choose the word.

    Where an effect is shown under one side alone, that may be chance: that one interval excludes
    zero and another does not is no difference between the two (Gelman and Stern, The American
    Statistician 60, 2006). The conclusion changes only where the paired difference excludes zero.
    """
    if math.isnan(difference.low):
        return Decision("undecidable", "there are too few images for an interval")
    sides = {side_of(a), side_of(b)}
    is_beyond = difference.low > margin or difference.high < -margin
    beyond = "B minus A lies beyond the margin, with its whole interval"
    if len(sides) == 1:
        shown = "no effect" if sides == {"no effect"} else "the same direction"
        if is_beyond:
            return Decision("changes", f"both show {shown}, but {beyond}")
        if _is_within(difference, margin):
            rule = f"both show {shown}, and B minus A lies within the margin, with its interval"
            return Decision("stands", rule)
        rule = f"both show {shown}, but the interval of B minus A reaches over an end of the margin"
        times = _times(difference, abs(abs(difference.effect) - margin))
        return Decision("undecidable", rule, times)
    if "no effect" not in sides:
        return Decision("changes", "the effects have opposite directions")
    if difference.low > 0 or difference.high < 0:
        rule = f"{_UNDER_ONE}, and the interval of B minus A excludes 0"
        return Decision("changes", rule)
    unshown = a if side_of(a) == "no effect" else b
    of_difference = _times(difference, abs(difference.effect))
    of_effect = _times(unshown, abs(unshown.effect))
    rule = f"{_UNDER_ONE}, but the interval of B minus A holds 0"
    return Decision("undecidable", rule, min(of_difference, of_effect))


def _is_within(difference: GroupEffect, margin: float) -> bool:
    return -margin <= difference.low and difference.high <= margin


def _times(effect: GroupEffect, distance: float) -> float:
    """How many times as many images would tell an effect from a limit at a distance."""
    if not distance:
        return math.inf
    return (_TO_BE_SURE * effect.standard_error / distance) ** 2


# -- in words --------------------------------------------------------------------------------


def _with_interval(effect: GroupEffect) -> str:
    value, low, high = alike(effect.effect, effect.low, effect.high)
    interval = f"{NO_SPREAD} between images" if low == high else f"95 % interval {span(low, high)}"
    return f"{value}, {interval}"


def estimate_text(effect: GroupEffect) -> str:
    """Write an effect with its interval: "+12.3 (+8.1 to +16.5)"."""
    value, low, high = alike(effect.effect, effect.low, effect.high)
    if math.isnan(effect.low):
        return value
    return f"{value} ({NO_SPREAD if low == high else span(low, high)})"


def intervals_text(conclusions: Sequence[Conclusion]) -> str:
    """Say which intervals stand beside the effects of a table, and why some do not."""
    effects = [effect for each in conclusions for effect in (each.a, each.b, each.difference)]
    known = [effect for effect in effects if not math.isnan(effect.low)]
    if not known:
        return "effects without intervals, as there are too few images"
    without = [effect for effect in known if NO_SPREAD in estimate_text(effect)]
    if not without:
        return "effects with their 95 % intervals over images"
    agree = f"“{NO_SPREAD}” where the images of each group agree"
    if len(without) == len(known):
        return f"effects; no interval, {agree}"
    return f"effects with their 95 % intervals over images; {agree}, so that there is none"


def alike(*values: float) -> tuple[str, ...]:
    """Write numbers with their signs and the same decimals: three digits of the largest.

    >>> alike(6.5, -0.04, 11.21), alike(0, 0), alike(-1234.5)
    (('+6.5', '0.0', '+11.2'), ('0', '0'), ('−1 234',))
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0)
    decimals = max(0, 2 - math.floor(math.log10(largest))) if largest else 0
    return tuple(_signed(value, decimals) for value in values)


def margin_text(margin: float) -> str:
    """Write a margin, as "±2.27"."""
    return f"±{alike(margin)[0].lstrip('+')}"


def _without_sign(value: float) -> str:
    """Write how much something is in a sentence: without zeros after its last digit.

    >>> _without_sign(-7.0), _without_sign(1.375), _without_sign(0.5), _without_sign(1200)
    ('7', '1.38', '0.5', '1 200')
    """
    text = alike(abs(value))[0].lstrip("+")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _signed(value: float, decimals: int) -> str:
    text = f"{abs(value):,.{decimals}f}".replace(",", " ")
    if not math.isfinite(value) or not float(text.replace(" ", "")):
        return text
    return ("\N{MINUS SIGN}" if value < 0 else "+") + text


def conclusion_rows(conclusions: Sequence[Conclusion]) -> list[Row]:
    """Give a row for each readout and comparison."""
    several = len({each.treated for each in conclusions}) > 1
    return [
        {
            "readout": each.readout_text,
            "group": each.treated if several else "",
            "conclusion": each.word_text,
            "effect under A": estimate_text(each.a),
            "under B": estimate_text(each.b),
            "B minus A": estimate_text(each.difference),
            "margin": margin_text(each.margin),
        }
        for each in conclusions
    ]


def conclusion_lines(conclusions: Sequence[Conclusion]) -> Iterator[str]:
    """Give the lines of a terminal: a table, and what it means where it does not simply stand."""
    if conclusions:
        yield summary(conclusions)
        yield f"  {compared_text(conclusions)}; {intervals_text(conclusions)}"
        yield from table_lines(conclusion_rows(conclusions))
        for each in conclusions:
            if each.word != "stands":
                yield f"  {each.readout_of(conclusions)}: {each.reading}"


def summary(conclusions: Sequence[Conclusion]) -> str:
    """Say for which readouts it stands, changes, or cannot be decided.

    Each readout stands there once for each group that is compared with the control.
    """
    of_words = "; ".join(_word_clauses(conclusions))
    clauses = [f"the conclusion {of_words}"] if of_words else []
    of_estimates = [*_estimate_clauses(conclusions)]
    changes = any(each.word == "changes" and not each.is_of_estimate for each in conclusions)
    return "; ".join(clauses + of_estimates if changes else of_estimates + clauses)


def _word_clauses(conclusions: Sequence[Conclusion]) -> Iterator[str]:
    for word, says in IN_WORDS.items():
        names = [
            each.readout_of(conclusions) + (f" ({_NONE_UNDER_EITHER})" if each.is_of_none else "")
            for each in conclusions
            if each.word == word and not each.is_of_estimate
        ]
        if names:
            yield f"{says} for {_listed(names)}"


def _estimate_clauses(conclusions: Sequence[Conclusion]) -> Iterator[str]:
    """Say for which readouts both sides say the same, and only how large the effect is differs."""
    for is_shown in (False, True):
        names = [
            each.readout_of(conclusions)
            for each in conclusions
            if each.is_of_estimate and (side_of(each.a) != "no effect") == is_shown
        ]
        if names:
            same = "both show the same direction" if is_shown else _NONE_UNDER_EITHER
            yield f"for {_listed(names)} {same}, but the effects differ by more than the margin"


def _listed(names: Sequence[str]) -> str:
    return some(names, _MOST_NAMES) if len(names) > _MOST_NAMES else joined(names)


def compared_text(conclusions: Sequence[Conclusion]) -> str:
    """Say what is compared with what, over how many images."""
    first = conclusions[0]
    if first.is_dose:
        return f"from dose {first.control} to {first.treated}, {amount(first.n_images, 'image')}"
    # A readout may lack images in which there is no cell; the count has all.
    by_treated = {each.treated: each.n_treated for each in reversed(conclusions)}
    treated = joined([f"{name} ({amount(n, 'image')})" for name, n in reversed(by_treated.items())])
    return f"{treated} against {first.control} ({amount(first.n_control, 'image')})"
