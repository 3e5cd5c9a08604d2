"""The sign and the colour of each verdict, and of what has none, on pages and in figures."""

from __future__ import annotations

from cellrepro.comparison.verdicts import Verdict

VERDICT_SIGNS: dict[str, str] = {
    **{verdict: verdict.shown.sign for verdict in Verdict},
    "failed": "×",
    "no verdict": "?",
}
"""One sign per verdict, for those who see no colours."""

VERDICT_COLOURS: dict[str, str] = {
    **{verdict: verdict.shown.colour for verdict in Verdict},
    "failed": "#CC79A7",
    "no verdict": "#F2F2F2",
}
"""Backgrounds on which black text is readable."""
