"""Alerts: what PyTorch says of an operation that may not repeat, recognised in a pasted text."""

from __future__ import annotations

import re

from samebits.known_operations import AlertElsewhere, KnownOperation, alerts_elsewhere, entries

_LEAST_LETTERS = 8  # of an alert that is known by its name alone in a longer text
_CUBLAS = "uses CuBLAS"
_CUT_OFF = re.compile(
    r"does\s+not\s+have\s*(?P<begun>[a-z]\w*(\s+\w+)*)?\s*(\.\.\.|…)?\s*$"
)  # as one types it, or a log cuts it
_REST = "a deterministic implementation"
_CUBLAS_BEGINS = "Deterministic behavior was enabled with either"  # the error's first words
PHRASES = (
    "does not have a deterministic implementation",
    "defaults to a non-deterministic algorithm",
    _CUBLAS,
)


def _wrapped(text: str) -> str:
    """A pattern for a text that a terminal may have wrapped anywhere, within a word too."""
    return r"\s*".join(re.escape(letter) for letter in text if letter != " ")


def _cut_off(message: str) -> re.Match[str] | None:
    """The beginning of PyTorch's phrase at the end of a message that is cut off there."""
    match = _CUT_OFF.search(message)
    if match is None or not _REST.startswith(" ".join((match["begun"] or "").split())):
        return None
    return match


def alert_in(message: str) -> str | None:
    """PyTorch's name for the operation in a warning or error about determinism, else none.

    The message may be pasted: with time, file and category before it, wrapped anywhere.
    """
    if re.search(_wrapped(_CUBLAS_BEGINS), message):
        return "CuBLAS"
    phrase = re.search("|".join(map(_wrapped, PHRASES)), message) or _cut_off(message)
    before = "" if phrase is None else message[: phrase.start()].strip()
    if phrase is None or not before:
        return None
    if re.fullmatch(_wrapped(_CUBLAS), phrase[0]):
        return "CuBLAS"
    ending = [alert for alert in _all_alerts() if re.search(rf"(?<!\w){_wrapped(alert)}$", before)]
    if ending:
        return max(ending, key=len)
    name = before.rpartition(": ")[2]
    return name if re.fullmatch(r"\w+( \w+)*", name) else name.split()[-1]


def lookup(text: str) -> KnownOperation | None:
    """The operation of an alert, given by name or by a text that `alert_in` understands."""
    named = {entry.alert: entry for entry in entries() if entry.alert}
    return named.get(text.strip()) or named.get(alert_in(text) or "")


def lookup_elsewhere(text: str) -> AlertElsewhere | None:
    """The same of an alert of an older PyTorch or of torchvision."""
    return alerts_elsewhere().get(text.strip()) or alerts_elsewhere().get(alert_in(text) or "")


def alert_named_in(text: str) -> str | None:
    """The longest alert whose name stands in a text, whatever the words around it; else none."""
    named = [
        alert
        for alert in _all_alerts()
        if len(alert) > _LEAST_LETTERS and re.search(rf"(?<!\w){re.escape(alert)}(?!\w)", text)
    ]
    return max(named, key=len, default=None)


def _all_alerts() -> list[str]:
    return [*(entry.alert for entry in entries() if entry.alert), *alerts_elsewhere()]
