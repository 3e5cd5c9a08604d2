"""The registry of a store's files by digest, so that equal content is stored once.

``.digests/ab.txt`` has a line for each content whose digest begins with ab: the digest, a blank and
the path of a file below ``runs/``. ``.digests/known.txt`` has a line for each repeat whose files
have been recorded so. The folder is a cache: any line of it may be missing, torn or wrong, and all
of it may be removed at any time. What it lacks is read from manifests, and a file is linked only if
its content is right.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.store.store_paths import inside, regular_bytes

_FOLDER = ".digests"
_KNOWN_REPEATS = "known"
_MOST_BYTES = 2**28


def files_of_content(
    root: Path, digests: set[str], key: str, files_of: Callable[[Path], Mapping[str, str]]
) -> dict[str, Path]:
    """Find a stored file of each content, as far as there is one.

    Manifests are read only of repeats that came by copying: where no repeat of their run is known
    yet, or in the run of ``key``. So the manifests to read are no more in a store of many runs.
    """
    _remember_copied_repeats(root, key, files_of)
    runs = root / "runs"
    files: dict[str, Path] = {}
    for shard in {digest[:2] for digest in digests}:
        for line in _lines(root, shard):
            digest, _, name = line.partition(" ")
            if digest in digests:  # the latest: a file takes only so many links
                with contextlib.suppress(BadInput):
                    files[digest] = inside(runs, name)
    return files


def remember_files(root: Path, repeat: str, files: Mapping[str, str]) -> None:
    """Record where the files of a repeat lie or will lie."""
    lines: dict[str, str] = defaultdict(str)
    for name, digest in files.items():
        lines[digest[:2]] += f"\n{digest} {repeat}/{name}"
    lines[_KNOWN_REPEATS] = (
        f"\n{repeat}"  # last: a repeat that was not recorded whole is read again
    )
    folder = root / _FOLDER
    folder.mkdir(exist_ok=True)
    for shard, text in lines.items():
        # One unbuffered append each: of two processes a line may be torn, and ends at the next one.
        with inside(folder, f"{shard}.txt").open("ab", buffering=0) as file:
            file.write(text.encode())


def _remember_copied_repeats(
    root: Path, key: str, files_of: Callable[[Path], Mapping[str, str]]
) -> None:
    """Record the files of repeats that were copied into the store, one file of each content."""
    known_repeats = set(_lines(root, _KNOWN_REPEATS))
    recorded: set[str] = set()  # digests
    for folder in _folders_to_look_at(root, known_repeats, key):
        repeat = folder.relative_to(root / "runs").as_posix()
        if repeat in known_repeats:
            continue
        with contextlib.suppress(BadInput):  # damaged: no reason to lose the new one
            files = files_of(folder)
            new_files = {name: digest for name, digest in files.items() if digest not in recorded}
            remember_files(root, repeat, new_files)
            recorded |= set(files.values())


def _folders_to_look_at(root: Path, known_repeats: set[str], key: str) -> Iterator[Path]:
    """The folders of all repeats of runs that nothing is known of, and of the run of ``key``."""
    known_runs = {repeat.partition("/")[0] for repeat in known_repeats} - {key}
    unknown_runs = [run for run in (root / "runs").glob("*") if run.name not in known_runs]
    manifests = [manifest for run in unknown_runs for manifest in run.glob("*/*/manifest.json")]
    return (manifest.parent for manifest in sorted(manifests))


def _lines(root: Path, shard: str) -> list[str]:
    with contextlib.suppress(OSError, BadInput):
        path = inside(root / _FOLDER, f"{shard}.txt")
        return regular_bytes(path, most_bytes=_MOST_BYTES).decode("utf-8", "replace").split("\n")
    return []
