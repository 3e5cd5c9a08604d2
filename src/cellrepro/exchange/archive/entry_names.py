"""The file names that an archive may have: known ones that every system can unpack without harm."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cellrepro.store.seal import SUMS
from cellrepro.words import cut
from samebits.errors import BadInput

EXPORT_ENDING = ".zip"
"""Ending of an exported file; ``NAME.cellrepro.zip`` tells it from other zip files."""
PASSPORTS_FILE = "passports.intoto.jsonl"
CRATE_FILE = "ro-crate-metadata.json"
"""Describes the archive to other programs."""

Kind = Literal["whole", "run", "repeat", "kept", "input", "network"]
"""What a file belongs to: the archive itself, a run, a repeat, kept images, an image folder, or a
network from which a run started."""

REPEAT_NAME = (
    "(?P<key>[0-9a-f]{16})/(?P<machine>[A-Za-z0-9][A-Za-z0-9_.-]{0,63}-[0-9a-f]{8})"
    "/(?P<repeat>0|[1-9][0-9]{0,8})"
)
"""Pattern of KEY/MACHINE/REPEAT, as the folders of a store are named."""
LONGEST_NAME = 1000
"""In bytes of UTF-8, about what Windows and macOS allow for a whole path."""
_LONGEST_PART = 240  # bytes; file systems allow 255, and scratch files have longer names

_KEY = "(?P<group>[0-9a-f]{16})"
_PART = "[^/]+"
_OF_REPEAT = (
    "manifest[.]json|SHA256SUMS|weights[.]safetensors|notebook[.]ipynb"
    f"|ledger(-ops|-draws)?[.]parquet|masks/{_PART}[.]tif|logs/{_PART}[.]txt"
)
_PATTERNS: dict[Kind, re.Pattern[str]] = {
    "whole": re.compile(f"(?P<file>{SUMS}|{re.escape(PASSPORTS_FILE)}|{re.escape(CRATE_FILE)})"),
    "run": re.compile(f"runs/{_KEY}/(?P<file>spec[.]json|SHA256SUMS)"),
    "repeat": re.compile(f"runs/(?P<group>{REPEAT_NAME})/(?P<file>{_OF_REPEAT})"),
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
class EntryName:
    """The name of a file in an archive, taken apart."""

    kind: Kind
    group: str
    """Which of its kind: the key of a run, ``KEY/MACHINE/REPEAT``, first digits of the digest of
    images, the digest of a network; empty for the archive itself."""
    file: str
    """Its path in the group."""

    @classmethod
    def parse(cls, name: str) -> EntryName:
        """Take a name apart, and refuse one that no exported file has.

        >>> EntryName.parse("runs/0123456789abcdef/laptop-00c0ffee/0/masks/img.tif").file
        'masks/img.tif'
        """
        problem = _problem_of(name)
        if problem is not None:
            raise BadInput(f"{_shown(name)} {problem}")
        for kind, pattern in _PATTERNS.items():
            parts = pattern.fullmatch(name)
            if parts is not None:
                return cls(kind, parts.groupdict().get("group") or "", parts["file"])
        raise BadInput(f"{_shown(name)} is no file of an exported run")


def _problem_of(name: str) -> str | None:
    """Why some system cannot unpack a file of this name; None if all can."""
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
    """Refuse names that some systems take for the same file.

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
    """A name in a message, where it must not move a terminal's cursor."""
    return cut(ascii(name), 120)
