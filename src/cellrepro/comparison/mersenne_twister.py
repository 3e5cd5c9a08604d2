"""Where a Mersenne twister stands, with which seed it began, and how many draws lie between two.

Python's generator, NumPy's global one and PyTorch's on the processor are Mersenne twisters
(MT19937): 624 words and how many of them were given; after the last one all are computed anew. M.
Matsumoto and T. Nishimura, ACM TOMACS 8 (1998), and their code of 2002 for seeding.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

N_WORDS = 624  # of a Mersenne twister
_MOST_BLOCKS = 2**14  # of 624 numbers, ten million in all
_AT_A_TIME = 2**9
_FIRST_OF_ARRAY = 0x80000000  # the first word after seeding by an array, as Python does
_MULTIPLIER = 1812433253
_USUAL_SEEDS = 2**10  # of Python, whose seeds can only be tried


@dataclass(frozen=True)
class TwisterState:
    """The place at which a Mersenne twister stands."""

    numbers: tuple[int, ...]
    """The 624 words."""
    position: int
    """How many of them were given; 624 where new ones come next."""

    @property
    def is_fresh(self) -> bool:
        """Whether it stands where seeding puts it, and nothing was drawn."""
        return self.position == N_WORDS and (self.seed is not None or self._is_by_array)

    @cached_property
    def seed(self) -> int | None:
        """The number with which a fresh one was seeded; None where it does not show."""
        if self.position != N_WORDS:
            return None
        if not self._is_by_array:
            return self.numbers[0] if self.numbers == _seeded(self.numbers[0]) else None
        for seed in range(_USUAL_SEEDS):
            if random.Random(seed).getstate()[1][:N_WORDS] == self.numbers:
                return seed
        return None

    @property
    def _is_by_array(self) -> bool:
        return self.position == N_WORDS and self.numbers[0] == _FIRST_OF_ARRAY


def draws_between(a: TwisterState, b: TwisterState) -> int | None:
    """How many numbers of 32 bits lie between two states of one stream.

    None for two streams, and where more than ten million numbers lie between them.
    """
    if a.numbers == b.numbers:
        return abs(a.position - b.position)
    n_blocks = _blocks_to(a, b)
    if n_blocks is not None:
        return n_blocks * N_WORDS + b.position - a.position
    n_blocks = _blocks_to(b, a)
    return None if n_blocks is None else n_blocks * N_WORDS + a.position - b.position


def _blocks_to(a: TwisterState, b: TwisterState) -> int | None:
    """How often the words of a are computed anew until they are those of b."""
    expected = _generator(b, position=0).random_raw(N_WORDS)
    generator = _generator(a, position=N_WORDS)
    for n_before in range(0, _MOST_BLOCKS, _AT_A_TIME):
        blocks = generator.random_raw(_AT_A_TIME * N_WORDS).reshape(_AT_A_TIME, N_WORDS)
        (candidates,) = np.nonzero(blocks[:, 0] == expected[0])
        for index in candidates.tolist():
            if np.array_equal(blocks[index], expected):
                return int(n_before + index + 1)
    return None


def _generator(state: TwisterState, *, position: int) -> np.random.MT19937:
    """NumPy's generator with the words of a state."""
    generator = np.random.MT19937()
    words = np.array(state.numbers, np.uint32)
    generator.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": position}}
    return generator


def _seeded(seed: int) -> tuple[int, ...]:
    """The words after seeding with a number, as PyTorch and NumPy's ``seed`` do."""
    words = [seed]
    for index in range(1, N_WORDS):
        last = words[-1]
        words.append((_MULTIPLIER * (last ^ (last >> 30)) + index) & 0xFFFFFFFF)
    return tuple(words)


def twister(words: Sequence[object], position: int) -> TwisterState | None:
    """The state with these words; None if these are not the words of one."""
    if len(words) != N_WORDS or not 0 <= position <= N_WORDS:
        return None
    numbers = [word for word in words if type(word) is int and 0 <= word < 2**32]
    return TwisterState(tuple(numbers), position) if len(numbers) == N_WORDS else None
