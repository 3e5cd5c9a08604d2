"""The five answers a comparison can give, and the one answer over many of them."""

from collections.abc import Iterable
from enum import StrEnum

from cellrepro.errors import BadInput


class Verdict(StrEnum):
    """What a comparison found; each member equals its word, so it writes itself to JSON."""

    IDENTICAL = "identical"
    """Same bits, and there was something to compare."""
    SAME_OBJECTS = "same-objects"
    """Same outlines under other numbers."""
    WITHIN_SPREAD = "within-spread"
    """Differs, by less than seeds make it differ."""
    DIFFERENT = "different"
    """Differs, and no spread accounts for it."""
    VACUOUS = "vacuous"
    """Nothing was trained or found, so equality would prove nothing."""


# Strongest objection first. A difference is a finding whatever else was compared, so it comes
# before everything. Then VACUOUS: it stands before the two kinds of equality, because equal masks
# and weights that were never trained do not add up to "all equal". Images on which neither side
# found anything are left out by those who compare several, as long as there are others. It stands
# behind WITHIN_SPREAD, because a measured difference says more than the absence of evidence.
_MOST_TELLING_FIRST = (
    Verdict.DIFFERENT,
    Verdict.WITHIN_SPREAD,
    Verdict.VACUOUS,
    Verdict.SAME_OBJECTS,
    Verdict.IDENTICAL,
)


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Get the one verdict that holds over many comparisons.

    The whole is only as equal as its least equal part: the first of different, within-spread,
    vacuous, same-objects, identical that occurs. Vacuous comes before the two kinds of equality
    so that a part that proved nothing is never counted as proof; it comes after the two kinds
    of difference so that it never hides one.

    Parameters
    ----------
    verdicts : iterable of Verdict
        In any order, any number; words such as ``"identical"`` do as well.

    Returns
    -------
    Verdict
        ``vacuous`` when there is nothing to combine.

    Raises
    ------
    BadInput
        If a word is no verdict.

    Examples
    --------
    >>> print(combine([Verdict.IDENTICAL, Verdict.SAME_OBJECTS]))
    same-objects
    >>> print(combine([Verdict.IDENTICAL, Verdict.VACUOUS]))
    vacuous
    >>> print(combine([]))
    vacuous
    """
    found = {_as_verdict(verdict) for verdict in verdicts}
    return next((verdict for verdict in _MOST_TELLING_FIRST if verdict in found), Verdict.VACUOUS)


def _as_verdict(word: Verdict | str) -> Verdict:
    try:
        return Verdict(word)
    except ValueError:
        raise BadInput(
            f"{word!r} is no verdict; give an iterable of {[str(known) for known in Verdict]}"
        ) from None
