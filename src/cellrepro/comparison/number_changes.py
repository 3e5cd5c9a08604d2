"""What was done to the numbers of a label image when it was saved: wrapped, cut, scaled, inverted.

Programs for pictures treat numbers as brightness: they save 8 bits of them, stretch or invert them,
or add 32768. The outlines are then all there, and the numbers name no object any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cellrepro.comparison.number_remarks import FEW_NUMBERS, LARGEST_OF_BITS, likely_adder
from cellrepro.comparison.object_matching import Integers, LabelPairs
from samebits.words import some

_UNSIGNED = (255, 65535)  # at which numbers begin anew at 0; with a sign they become negative
_LEAST_SHARE = 0.9  # of the numbers of one side that follow a rule; others are real changes
_LEAST_NUMBERS = 3  # that follow it
_LEAST_SCALED = 8  # numbers from which on a factor is no chance


@dataclass(frozen=True)
class NumberChange:
    """How the numbers of one label image follow from those of another of the same objects."""

    kind: Literal["modulo", "stopped", "cut off", "shifted", "inverted", "exchanged", "scaled"]
    by: float
    """The modulus, the largest number, the number that was added, the one from which the others
    were subtracted, or the factor."""
    lost: tuple[int, ...] = ()
    """Numbers of the first image that became background by it."""

    def text(self, a: str, b: str) -> str:
        """Say how the numbers of ``b`` follow from those of ``a``, and what to do."""
        largest = self.by - 1 if self.kind == "modulo" else self.by
        bits = LARGEST_OF_BITS.get(int(largest), "fewer bits")
        enough = "32 bits" if self.by >= 32767 else "16 or 32 bits"
        again = f"; save {b} again, with {enough} and unchanged numbers"
        if self.lost:
            cells = "cell" if len(self.lost) == 1 else "cells"
            again = f", and {cells} {some([*map(str, self.lost)])} of {a} became background{again}"
        match self.kind:
            case "modulo":
                return f"{b} = {a} modulo {self.by:g}: the numbers were saved with {bits}{again}"
            case "stopped":
                return f"the numbers of {b} stop at {self.by:g}, where {a} has larger ones{again}"
            case "cut off":
                return f"{b} has no number above {self.by:g}, where {a} has larger ones{again}"
            case "shifted":
                return (
                    f"{b} = {a} + {self.by:g}: no pixel of {b} is background, since {self.by:g} "
                    f"was added to all{likely_adder(self.by)}; subtract it from {b}"
                )
            case "inverted":
                return (
                    f"{b} = {self.by:g} - {a}: {b} is inverted, as by an inverting LUT; invert it"
                )
            case "exchanged":
                return (
                    f"{b} is {self.by:g} where {a} has background, and 0 where {a} has cells: "
                    f"it is inverted, as by an inverting LUT; invert {b}"
                )
            case "scaled" if self.by > 1 and self.by == round(self.by):
                return f"{b} = {a} times {self.by:.0f}: each cell still has a number of its own"
            case "scaled":
                return f"{b} = {a} times {self.by:.4g}, rounded, as if they were brightness{again}"


@dataclass(frozen=True)
class _Partners:
    """The number that most pixels of the background and of every number have in the other image."""

    background: int
    """The number in the place of most of the background; 0 where there is none."""
    numbers: Integers
    """The numbers of the first image, ascending, without 0."""
    values: Integers
    """The number that most pixels of each of them have in the second image."""

    def follow(self, expected: Integers) -> bool:
        """Whether nearly all numbers have these in their place."""
        n = int(np.count_nonzero(self.values == expected))
        return n >= _LEAST_NUMBERS and n >= _LEAST_SHARE * len(self.numbers)


def number_change(
    pairs: LabelPairs, *, n_bits: int, n_shared_a: int, n_shared_b: int
) -> NumberChange | None:
    """Find the rule by which numbers of one label image became those of another, of some bits.

    None where no rule explains nine of ten numbers, also where they are equal.
    """
    partners = _partners(pairs)
    if not len(partners.numbers):
        return None
    if not partners.background and np.array_equal(partners.numbers, partners.values):
        return None
    rules = (
        _wrapped(partners, n_bits=n_bits),
        _cut(partners, largest=int(pairs.label_b.max()), n_shared=n_shared_b),
        _moved(partners),
        _scaled(partners, n_shared_a=n_shared_a, n_shared_b=n_shared_b),
    )
    return next(itertools.chain(*rules), None)


def _partners(pairs: LabelPairs) -> _Partners:
    most_last = np.lexsort((pairs.label_b, pairs.pixels, pairs.label_a))
    of_a = pairs.label_a[most_last]
    is_last = np.diff(of_a, append=of_a[-1:] + 1) > 0
    numbers = of_a[is_last]
    values = pairs.label_b[most_last][is_last]
    has_background = bool(len(numbers)) and numbers[0] == 0
    background = int(values[0]) if has_background else 0
    return _Partners(background, numbers[int(has_background) :], values[int(has_background) :])


def _wrapped(partners: _Partners, *, n_bits: int) -> Iterator[NumberChange]:
    numbers = partners.numbers
    for limit in _UNSIGNED:
        expected = numbers % (limit + 1)
        follows = (numbers > limit) & (partners.values == expected)
        lost = numbers[follows & (expected == 0)]
        n_follow = int(np.count_nonzero(follows))
        if partners.background or 2 * n_follow <= np.count_nonzero(numbers > limit):
            continue
        # Cells that are gone, and nothing else, were perhaps not found: b could have held them.
        only_lost = len(lost) == n_follow and n_bits > limit.bit_length()
        if n_follow and not only_lost and partners.follow(expected):
            yield NumberChange("modulo", limit + 1, tuple(lost.tolist()))


def _cut(partners: _Partners, *, largest: int, n_shared: int) -> Iterator[NumberChange]:
    numbers = partners.numbers
    stopped = (numbers > largest) & (partners.values == largest)
    # Without either, cells with the last numbers may have been joined, or all of a foreground.
    is_usual = largest in _UNSIGNED or (n_shared > 0 and largest > FEW_NUMBERS)
    if is_usual and stopped.any() and partners.follow(np.minimum(numbers, largest)):
        yield NumberChange("stopped", largest)
    for limit in _UNSIGNED:
        is_above = numbers > limit
        is_gone = is_above & (partners.values == 0)
        n_gone = int(np.count_nonzero(is_gone))
        if n_gone < _LEAST_NUMBERS or n_gone < np.count_nonzero(is_above):
            continue
        if partners.follow(np.where(is_above, 0, numbers)) and not is_above.all():
            yield NumberChange("cut off", limit, tuple(numbers[is_gone].tolist()))


def _moved(partners: _Partners) -> Iterator[NumberChange]:
    added = partners.background
    if not added:
        return
    if partners.follow(partners.numbers + added):
        yield NumberChange("shifted", added)
    elif partners.follow(added - partners.numbers):
        yield NumberChange("inverted", added)
    elif np.mean(partners.values == 0) >= _LEAST_SHARE:
        yield NumberChange("exchanged", added)


def _scaled(partners: _Partners, *, n_shared_a: int, n_shared_b: int) -> Iterator[NumberChange]:
    numbers = partners.numbers
    if partners.background or len(np.unique(partners.values)) < _LEAST_SCALED:
        return
    # The median is not moved by cells that changed; values that are 0 may be lost.
    is_there = partners.values > 0
    if not is_there.any():
        return
    upper = numbers >= np.median(numbers[is_there])
    factor = float(np.median(partners.values[is_there & upper] / numbers[is_there & upper]))
    is_near = np.abs(partners.values - factor * numbers) <= 1
    grows = factor >= 1.5 and not n_shared_a
    shrinks = factor < 1 and n_shared_b > 0
    if (grows or shrinks) and np.mean(is_near) >= _LEAST_SHARE:
        lost = numbers[~is_there & (factor * numbers < 1)]
        yield NumberChange("scaled", factor, tuple(lost.tolist()))
