"""Which names a file may have in an archive, so that it can be unpacked anywhere without harm."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cellrepro.errors import BadInput

SUMS = "SHA256SUMS"
"""Digests: in the archive of all its other files, in a folder of the files beside it."""
PASSPORTS = "passports.intoto.jsonl"
CRATE = "ro-crate-metadata.json"
"""What other programs than this one read about the archive."""

Kind = Literal["whole", "run", "repeat", "kept", "input", "network"]
"""What a file belongs to: the archive, a run, a repeat, kept images, an image folder, a network."""

LONGEST_NAME = 1000
"""Bytes of a name in UTF-8; Windows and macOS take about as much for a whole path."""
_LONGEST_PART = 240  # bytes; file systems take 255, and scratch files beside one need a few more

_KEY = "(?P<group>[0-9a-f]{16})"
_PART = "[^/]+"
_MACHINE = "[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
_OF_REPEAT = (
    "manifest[.]json|SHA256SUMS|weights[.]safetensors|notebook[.]ipynb"
    f"|ledger(-ops|-draws)?[.]parquet|masks/{_PART}[.]tif|logs/{_PART}[.]txt"
)
_PATTERNS: dict[Kind, re.Pattern[str]] = {
    "whole": re.compile(f"(?P<file>{SUMS}|{re.escape(PASSPORTS)}|{re.escape(CRATE)})"),
    "run": re.compile(f"runs/{_KEY}/(?P<file>spec[.]json|SHA256SUMS)"),
    "repeat": re.compile(
        f"runs/(?P<group>[0-9a-f]{{16}}/{_MACHINE}/(0|[1-9][0-9]{{0,8}}))/(?P<file>{_OF_REPEAT})"
    ),
    "kept": re.compile(f"data/{_KEY}/(?P<file>SHA256SUMS|{_PART}[.]tif)"),
    "input": re.compile(
        f"inputs/{_KEY}/(?P<file>((train|test)/)?{_PART}[.](?i:tif|tiff|png|jpg|jpeg))"
    ),
    "network": re.compile("networks/(?P<group>[0-9a-f]{64})(?P<file>[.]safetensors)"),
}
_RESERVED_LETTERS = re.compile(r'[\\:*?"<>|]')
_RESERVED_ON_WINDOWS = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])\s*([.].*)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Place:
    """What a name says about its file."""

    kind: Kind
    group: str
    """Which run (its key), repeat (``KEY/MACHINE/REPEAT``), images (digits of their digest) or
    network (its digest) it belongs to; empty for what belongs to the archive itself."""
    file: str
    """Its name there."""


def place_of(name: str) -> Place:
    """Read what a name says, and refuse one that no exported file has.

    >>> place_of("runs/0123456789abcdef/laptop-00c0ffee/0/masks/img.tif").file
    'masks/img.tif'
    """
    problem = _problem_of(name)
    if problem is not None:
        raise BadInput(f"{_shown(name)} {problem}")
    for kind, pattern in _PATTERNS.items():
        parts = pattern.fullmatch(name)
        if parts is not None:
            return Place(kind, parts.groupdict().get("group") or "", parts["file"])
    raise BadInput(f"{_shown(name)} is no file of an exported run")


def _problem_of(name: str) -> str | None:
    """Why a name cannot be unpacked everywhere as it is written; none where it can."""
    try:
        n_bytes = len(name.encode())
    except UnicodeEncodeError:
        return "is no Unicode text"
    if n_bytes > LONGEST_NAME:
        return f"has {n_bytes} bytes, more than {LONGEST_NAME}"
    if not name.isprintable():
        return "holds characters that cannot be printed"
    if unicodedata.normalize("NFC", name) != name:
        return "is not in Unicode's form NFC, as macOS may write it"
    reserved = _RESERVED_LETTERS.search(name)
    if reserved is not None:
        return f"holds {reserved[0]}, which Windows takes in no name"
    for part in name.split("/"):
        problem = _problem_of_part(part)
        if problem is not None:
            return problem
    return None


def _problem_of_part(part: str) -> str | None:
    if part in ("", ".", ".."):
        return "is no plain path inside a folder"
    if len(part.encode()) > _LONGEST_PART:
        return f"has a part of more than {_LONGEST_PART} bytes"
    if part.startswith((".", " ")) or part.endswith((".", " ")):
        return "has a part that begins or ends with a dot or a blank"
    if _RESERVED_ON_WINDOWS.fullmatch(part):
        return f"has the part {part}, a device on Windows"
    return None


def refuse_twins(names: Iterable[str]) -> None:
    """Refuse names that some systems take for the same.

    >>> refuse_twins(["masks/A.tif", "masks/b.tif"])
    """
    seen: dict[str, str] = {}
    for name in names:
        folded = unicodedata.normalize("NFC", name.casefold())
        other = seen.setdefault(folded, name)
        if other is not name:
            raise BadInput(
                f"{_shown(name)} and {_shown(other)} are the same name on some computers"
            )


def _shown(name: str) -> str:
    """A name as a message has it: no character that moves a terminal's cursor, not too long."""
    text = ascii(name)
    return text if len(text) <= 120 else f"{text[:119]}…"
