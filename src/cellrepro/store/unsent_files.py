"""The files of a repeat that did not come with it, as a note in the store names them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from cellrepro.store.store_paths import inside, regular_bytes
from cellrepro.store.whole_files import write_whole

RECEIVED = "received"
"""Folder of a store: ``received/KEY/MACHINE/REPEAT.txt`` names the files that were not sent.

Runs are sent without weights unless these are asked for, and always without checkpoints; that such
a file is absent is no damage.
"""
NOTE_ENDING = ".txt"
_MASKS = "masks/"
_MOST_BYTES = 2**24


def note_not_sent(root: Path, repeat: str, names: Collection[str]) -> None:
    """Write down which files of a repeat did not come with it, in place of an earlier note."""
    path = _file_of(root, repeat)
    if not names:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "\n".join(sorted(names)), replace=True)


def names_not_sent(root: Path, repeat: str) -> frozenset[str]:
    """The files of a repeat that did not come with it."""
    try:
        text = regular_bytes(_file_of(root, repeat), most_bytes=_MOST_BYTES)
        names = text.decode().splitlines()
    except (OSError, ValueError):
        return frozenset()
    return frozenset(name for name in names if not name.startswith(_MASKS))


def _file_of(root: Path, repeat: str) -> Path:
    return inside(root / RECEIVED, f"{repeat}{NOTE_ENDING}")
