"""Runs exported and imported: beside a plain copy of as many bytes, and in how much memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measuring import Extent, Figure, in_turns, ratio_of
from benchmarks.stores import COMMAND

_MEGABYTE = 10**6


def exchange(extent: Extent) -> Iterator[Figure]:
    """One repeat with a large network, as one file and back."""
    import cellrepro

    n_megabytes, rounds = extent.of((8, 1), (300, 3), (1200, 3))
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        key = _store_of_one_run(scratch / "theirs", n_megabytes)
        file = scratch / "runs.zip"
        copy = scratch / "copy.zip"

        def export() -> None:
            file.unlink(missing_ok=True)
            cellrepro.export_runs(key, file, weights=True, store=scratch / "theirs", quiet=True)

        def receive() -> None:
            shutil.rmtree(scratch / "ours", ignore_errors=True)
            cellrepro.import_runs(file, store=scratch / "ours", quiet=True)

        def copy_plainly() -> None:
            copy.unlink(missing_ok=True)
            shutil.copyfile(file, copy)

        works = {"export": export, "import": receive, "copy": copy_plainly}
        seconds = in_turns(works, rounds)
        n_bytes = file.stat().st_size
        how = f"{rounds} rounds in turns, a network of {n_megabytes} MB"
        for name in ("export", "import"):
            speeds = [n_bytes / _MEGABYTE / each for each in seconds[name]]
            yield Figure(f"{name}, MB/s", float(np.median(speeds)), "", how)
            yield ratio_of(f"{name} / plain copy of the file", seconds, name, "copy", "", how)
        yield from _peaks(scratch, key)


def _peaks(scratch: Path, key: str) -> Iterator[Figure]:
    """The most memory that each command held, in a process of its own."""
    file = scratch / "again.zip"
    commands = {
        "export": ["export", key, file, "--weights", "--store", scratch / "theirs"],
        "import": ["import", file, "--store", scratch / "third"],
        "list": ["list", "--store", scratch / "third"],
    }
    for name, arguments in commands.items():
        command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peak = int(done.stdout.split()[-1])
        how = "of its own process" + ("; for comparison" if name == "list" else "")
        target = "" if name == "list" else "<= 300"
        yield Figure(f"{name}: peak memory, MB", peak / _MEGABYTE, target, how)


def _store_of_one_run(root: Path, n_megabytes: int) -> str:
    """A store with one made-up repeat, whose network has so many bytes; gives its key."""
    from made_up_records import made_up_manifest
    from safetensors.numpy import save_file

    from cellrepro.spec.spec import Spec
    from cellrepro.store.store import Store
    from cellrepro.store.training_record import WeightsRecord
    from samebits.digests import file_digest

    spec = Spec(
        data="cells",
        data_digest="d" * 64,
        model="tiny",
        profile="cpu",
        profile_settings={"device": "cpu"},
    )
    numbers = np.random.default_rng(0).integers(0, 2**32, n_megabytes * _MEGABYTE // 4, np.uint32)
    store = Store(root)
    with store.staging() as area:
        staged = area / "repeat"
        staged.mkdir()
        path = staged / "weights.safetensors"
        save_file({"encoder.weight": numbers.view(np.float32)}, path)
        weights = WeightsRecord(digest=file_digest(path), n_changed=numbers.size)
        manifest = made_up_manifest(spec, {}, weights=weights)
        (staged / "manifest.json").write_text(manifest.model_dump_json(), encoding="utf-8")
        store.commit(staged, spec)
    return spec.key
