"""How pages and figures show each verdict: its meaning, a sign and a colour."""

from __future__ import annotations

from dataclasses import dataclass

from cellrepro.comparison.verdicts import Verdict


@dataclass(frozen=True)
class ShownVerdict:
    """How pages and figures show a verdict."""

    meaning: str
    """Its entry in the glossary."""
    of_repeats: str
    """What a sentence says of their repeats; ``{of_these}`` of them differ in the masks, too."""
    sign: str
    """A mark for those who see no colours."""
    colour: str
    """A background on which black text is readable."""


SHOWN: dict[Verdict, ShownVerdict] = {
    Verdict.IDENTICAL: ShownVerdict(
        meaning="equal to the last binary digit, also called bit-identical",
        of_repeats="are bit-identical",
        sign="=",
        colour="#56B4E9",
    ),
    Verdict.SAME_OBJECTS: ShownVerdict(
        meaning="the same outlines with different object numbers",
        of_repeats="outline the same cells under different numbers",
        sign="≅",
        colour="#B3DDF5",
    ),
    Verdict.WITHIN_SPREAD: ShownVerdict(
        meaning="different, by less than seeds make repeats differ",
        of_repeats="differ, by less than seeds make repeats differ",
        sign="≈",
        colour="#F6D896",
    ),
    Verdict.DIFFERENT: ShownVerdict(
        meaning="at least one pixel or one parameter differs",
        of_repeats="differ ({of_these} in the masks)",
        sign="≠",
        colour="#E69F00",
    ),
    Verdict.VACUOUS: ShownVerdict(
        meaning="nothing was trained or found, so equality would prove nothing",
        of_repeats="found or trained nothing, which proves nothing",
        sign="∅",
        colour="#D9D9D9",
    ),
}

VERDICT_WORDS: dict[str, str] = {Verdict.SAME_OBJECTS: "only the numbers differ"}
"""What a page says in place of a word that says little by itself."""

VERDICT_SIGNS: dict[str, str] = {
    **{verdict: shown.sign for verdict, shown in SHOWN.items()},
    "failed": "×",
    "no verdict": "?",
}
"""Also of what has no verdict."""

VERDICT_COLOURS: dict[str, str] = {
    **{verdict: shown.colour for verdict, shown in SHOWN.items()},
    "failed": "#CC79A7",
    "no verdict": "#F2F2F2",
}
"""Also of what has no verdict."""
