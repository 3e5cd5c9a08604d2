"""The sign and the colour of each verdict, on pages and in figures."""

from __future__ import annotations

from cellrepro.comparison.verdicts import Verdict

VERDICT_SIGNS: dict[str, str] = {
    Verdict.IDENTICAL: "=",
    Verdict.SAME_OBJECTS: "≅",
    Verdict.WITHIN_SPREAD: "≈",
    Verdict.DIFFERENT: "≠",
    Verdict.VACUOUS: "∅",
    "failed": "×",
    "no verdict": "?",
}
"""One sign per verdict, for those who see no colours."""

VERDICT_COLOURS: dict[str, str] = {
    Verdict.IDENTICAL: "#56B4E9",
    Verdict.SAME_OBJECTS: "#B3DDF5",
    Verdict.WITHIN_SPREAD: "#F6D896",
    Verdict.DIFFERENT: "#E69F00",
    Verdict.VACUOUS: "#D9D9D9",
    "failed": "#CC79A7",
    "no verdict": "#F2F2F2",
}
"""Backgrounds on which black text is readable."""
