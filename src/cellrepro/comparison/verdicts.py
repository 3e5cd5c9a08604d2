"""The five answers a comparison can give, and the one over many comparisons."""

from __future__ import annotations

from collections.abc import Iterable

from cellrepro.enums import StrEnum


class Verdict(StrEnum):
    """The answer of a comparison; each member equals its word, so it writes itself to JSON."""

    IDENTICAL = "identical"
    SAME_OBJECTS = "same-objects"
    WITHIN_SPREAD = "within-spread"
    DIFFERENT = "different"
    VACUOUS = "vacuous"


# A part that proved nothing must not count as proof, so VACUOUS comes before both kinds of
# equality; it must not hide a measured difference, so it comes after both kinds of that.
_STRONGEST_FIRST = (
    Verdict.DIFFERENT,
    Verdict.WITHIN_SPREAD,
    Verdict.VACUOUS,
    Verdict.SAME_OBJECTS,
    Verdict.IDENTICAL,
)


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Get the verdict of the least equal of many comparisons; ``vacuous`` of none."""
    distinct = {Verdict(word) for word in verdicts}
    return next((verdict for verdict in _STRONGEST_FIRST if verdict in distinct), Verdict.VACUOUS)
