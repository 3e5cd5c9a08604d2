"""Make the corpus of the fuzz targets small again, at most 100 kB.

    python scripts/shrink_corpus.py [TARGET ...]    # of all targets, if none is named

What `make fuzz` has found interesting is merged into tests/exchange/corpus/TARGET, and of both as
much is kept as there is room for.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

from fuzz import FUZZ, committed, limits, python_with_atheris, run_target, scratch_folder
from fuzz_targets import CORPUS, TARGETS, look

BYTES_OF_CORPUS = {
    "bundle": 8_000,
    "compared_weights": 4_000,
    "contents": 10_000,
    "exported_zip": 20_000,
    "manifest": 4_000,
    "npy": 3_000,
    "strict_json": 3_500,
    "ledger": 2_500,
    "tiff": 6_000,
    "weights": 6_000,
}
"""Of the others `USUAL_BYTES_OF_CORPUS`; 100 kB together."""
USUAL_BYTES_OF_CORPUS = 2_000
FOUND = "found-"
"""How inputs begin that once were a fault; they stay in the corpus."""


def main() -> None:
    """Shrink the corpora of the targets that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="default all", choices=[[], *TARGETS])
    targets: Sequence[str] = parser.parse_args().targets or list(TARGETS)
    python = python_with_atheris()
    for name in targets:
        shrink(python, name)


def shrink(python: Path, name: str) -> None:
    """Keep of committed and grown corpus what reaches as many lines, in few bytes."""
    most_bytes = BYTES_OF_CORPUS.get(name, USUAL_BYTES_OF_CORPUS)
    grown = FUZZ / "corpus" / name
    sources = [*committed(name), *([grown] if grown.exists() else [])]
    with scratch_folder() as scratch:
        merged = scratch / "merged"
        merged.mkdir()
        with (FUZZ / f"{name}.log").open("wb") as log:
            run_target(python, name, ["-merge=1", *limits(name), merged, *sources], log=log)
        inputs = [path.read_bytes() for path in merged.iterdir()]
        kept = chosen(name, inputs, most_bytes=most_bytes, scratch=scratch)
    target = CORPUS / name
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        if not path.name.startswith(FOUND):
            path.unlink()
    for data in kept:
        (target / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    print(f"{name}: {len(kept)} of {len(inputs)} inputs, {sum(map(len, kept))} bytes")


def chosen(name: str, inputs: Sequence[bytes], *, most_bytes: int, scratch: Path) -> list[bytes]:
    """The smallest of those that are taken, then the smallest of all, as far as there is room."""
    by_size = sorted(inputs, key=len)
    taken = [data for data in by_size if look(name, data, scratch) is None]
    kept: dict[bytes, None] = {}
    left = most_bytes
    for data in [*taken[:2], *by_size]:
        if data not in kept and len(data) <= left:
            kept[data] = None
            left -= len(data)
    return list(kept)


if __name__ == "__main__":
    main()
