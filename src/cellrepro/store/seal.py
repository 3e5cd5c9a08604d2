"""The seal of a stored folder: ``SHA256SUMS``, with which ``sha256sum -c`` finds what has changed.

A repeat's seal names every file of its folder, ``manifest.json`` among them, which no other file
vouches for; a run's seal names ``spec.json``. A seal has one form, so that what was changed in the
seal itself is found, too: lines sorted by name, each ended by a line feed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cellrepro.store.record_values import stays_inside
from cellrepro.store.whole_files import whole_file
from samebits.digests import file_digest
from samebits.errors import BadInput

SUMS = "SHA256SUMS"
MOST_SUMS_BYTES = 2**27
"""The largest seal that is read, of a folder or of an archive: of a million files."""
FIRST_SEALED_FORMAT = 3
"""Format of manifests since which repeats have a seal."""

_LINE = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-f]{64})  (?P<name>[^\0\r\n]+)")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}  # as GNU coreutils write such names
_LETTERS = {escape: letter for letter, escape in _ESCAPES.items()}


def seal_text(digests: Mapping[str, str]) -> str:
    r"""Write the digests of files as ``sha256sum`` does.

    >>> seal_text({"b.tif": "1" * 64, "a.tif": "0" * 64}).splitlines()[0][58:]
    '000000  a.tif'
    >>> seal_text({"a\\b": "0" * 64})[:3], seal_text({"a\\b": "0" * 64})[-5:]
    ('\\00', 'a\\\\b\n')
    """
    return "".join(_line(name, digests[name]) for name in sorted(digests))


def _line(name: str, digest: str) -> str:
    escaped = "".join(_ESCAPES.get(letter, letter) for letter in name)
    lead = "" if escaped == name else "\\"
    return f"{lead}{digest}  {escaped}\n"


def read_seal(text: str) -> dict[str, str]:
    """Read digests that `seal_text` has written, and nothing else."""
    digests: dict[str, str] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise BadInput(
                f"line {number} of {SUMS} is {line[:80]!r}; expected 64 digits of SHA-256 in "
                "lower-case hex, two blanks and the name of a file"
            )
        name = parts["name"]
        if parts["escaped"]:
            name = re.sub(r"\\[\\nr]", lambda escape: _LETTERS[escape[0]], name)
        try:
            stays_inside(name)
        except ValueError as error:
            raise BadInput(f"line {number} of {SUMS}: {error}") from None
        digests[name] = parts["digest"]
    if text != seal_text(digests):
        raise BadInput(
            f"{SUMS} is not as it was written; expected its lines sorted by name, none twice, each "
            "ended by a line feed"
        )
    return digests


def seal_repeat(folder: Path, files: Mapping[str, str], *, manifest: str) -> None:
    """Seal the folder of a repeat, ``manifest.json`` among its files."""
    digests = {**files, manifest: file_digest(folder / manifest)}
    _write(folder, digests)


def seal_files(folder: Path, *names: str) -> None:
    """Seal some files of a folder."""
    _write(folder, {name: file_digest(folder / name) for name in names})


def _write(folder: Path, digests: Mapping[str, str]) -> None:
    with whole_file(folder / SUMS, replace=True, read_only=True) as scratch:
        scratch.write_bytes(seal_text(digests).encode())
