"""Kinds of difference between two runs, the most telling first."""

from __future__ import annotations

from enum import IntEnum


class Differs(IntEnum):
    """A kind of difference; the smaller, the more telling."""

    MACHINE = 0
    PROFILE = 1
    MODE = 2
    REPEAT = 3
    OTHER = 4
    SEED = 5

    @property
    def words(self) -> str:
        """What two runs that differ so are."""
        return _WORDS[self]


_WORDS = {
    Differs.MACHINE: "two machines",
    Differs.PROFILE: "two profiles",
    Differs.MODE: "two modes",
    Differs.REPEAT: "two repeats of one spec",
    Differs.OTHER: "different settings",
    Differs.SEED: "two seeds",
}

_DIFFERS_OF_FIELD = {
    "machine": Differs.MACHINE,
    "version": Differs.MACHINE,
    "place": Differs.MACHINE,
    "profile": Differs.PROFILE,
    "mode": Differs.MODE,
    "seed": Differs.SEED,
    "data_seed": Differs.SEED,
}
"""The kind of each fact in a repeat's name; every other fact is a setting."""


def difference_of(field: str) -> Differs:
    """Tell the kind of difference that a fact in a repeat's name makes."""
    return _DIFFERS_OF_FIELD.get(field, Differs.OTHER)
