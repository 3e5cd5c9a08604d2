"""Where the files of a store lie, by their digest, so that equal content is stored once.

``.digests/ab.txt`` has a line for each content whose digest begins with ab, ``.digests/known.txt``
one for each repeat that was looked at. It is a cache, of which any line may be missing, torn or
wrong: what it lacks is read from manifests, a file is linked only if its content is right, and the
folder may be removed at any time.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.store.whole_files import inside

_FOLDER = ".digests"
_KNOWN = "known"


def twins(
    root: Path, digests: set[str], key: str, files_of: Callable[[Path], Mapping[str, str]]
) -> dict[str, Path]:
    """A file of each digest, as far as there is one; time does not grow with the runs there are.

    Repeats that came by copying are looked at if nothing of their run is known, or if it is the run
    of that key. ``files_of`` reads the digests of a repeat's files, by name.
    """
    known = {*_lines(root, _KNOWN)}
    folders = {name.partition("/")[0] for name in known} - {key}
    runs = root / "runs"
    new = [run for run in runs.glob("*") if run.name not in folders]
    seen: set[str] = set()
    for folder in sorted(
        manifest.parent for run in new for manifest in run.glob("*/*/manifest.json")
    ):
        name = folder.relative_to(runs).as_posix()
        if name not in known:
            with contextlib.suppress(BadInput):  # damaged: no reason to lose the new one
                files = files_of(folder).items()
                remember(root, name, {file: one for file, one in files if one not in seen})
                seen |= {one for _, one in files}
    found: dict[str, Path] = {}
    for shard in {digest[:2] for digest in digests}:
        for line in _lines(root, shard):
            digest, _, name = line.partition(" ")
            if digest in digests:  # the latest: a file takes only so many links
                with contextlib.suppress(BadInput):
                    found[digest] = inside(runs, name)
    return found


def remember(root: Path, repeat: str, files: Mapping[str, str]) -> None:
    """Note where files of a repeat lie or will lie, as ``KEY/MACHINE/REPEAT``."""
    lines: dict[str, str] = defaultdict(str)
    for name, digest in files.items():
        lines[digest[:2]] += f"\n{digest} {repeat}/{name}"
    lines[_KNOWN] = f"\n{repeat}"  # last: what was not noted to its end is read again
    folder = root / _FOLDER
    folder.mkdir(exist_ok=True)
    for shard, text in lines.items():
        # Written at once, and a torn line ends where the next one begins.
        with (folder / f"{shard}.txt").open("ab", buffering=0) as file:
            file.write(text.encode())


def _lines(root: Path, shard: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return (root / _FOLDER / f"{shard}.txt").read_text("utf-8", "replace").split("\n")
    return []
