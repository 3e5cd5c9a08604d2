"""Kill a training at random moments, resume it, and compare with the uninterrupted one.

Every round starts ``cellrepro train``, kills it with signal 9 after a random time, resumes it,
kills it again a random number of times, and lets the last one finish. Prints one line a round and
writes the digests as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cellrepro.digests.digests import file_digest
from cellrepro.images.synthetic_sets import write_folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of images (default: synthetic ones)")
    parser.add_argument("--kills", type=int, default=50, help="how often to kill, in all")
    parser.add_argument("--seed", type=int, default=0, help="for the moments")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images-per-epoch", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="where to copy stores that differ")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.data
        if folder is None:
            folder = Path(scratch, "synthetic")
            write_folder(folder)
        command = [
            str(Path(sys.executable).with_name("cellrepro")),
            "train",
            str(folder),
            "--repeats=1",
            f"--epochs={arguments.epochs}",
            "--learning-rate=0.01",
            f"--images-per-epoch={arguments.images_per_epoch}",
            "--json",
        ]
        whole = Path(scratch, "whole")
        started = time.monotonic()
        _finish([*command, "--store", str(whole)])
        seconds = time.monotonic() - started
        expected = _results(whole)
        print(f"uninterrupted: {seconds:.1f} s, weights {expected['weights.safetensors'][:12]}")
        rounds = []
        n_kills = 0
        while n_kills < arguments.kills:
            store = Path(scratch, "killed")
            killed_at = []
            resume: list[str] = []
            for _ in range(min(moments.randint(1, 3), arguments.kills - n_kills)):
                after = moments.uniform(0.05, 1.0) * seconds
                done = _killed([*command, "--store", str(store), *resume], after)
                resume = ["--resume"]
                if done:
                    break
                killed_at.append(round(after, 2))
            epochs = sorted(item.name for item in store.glob("unfinished/*/*/0/epoch-*"))
            _finish([*command, "--store", str(store), *resume])
            actual = _results(store)
            n_kills += len(killed_at)
            other = sorted(
                name for name in {**expected, **actual} if expected.get(name) != actual.get(name)
            )
            same = not other
            rounds.append({"killed after": killed_at, "checkpoint": epochs, "same": same})
            print(
                f"{n_kills:3} kills: after {killed_at} s, {epochs or 'no checkpoint'}: "
                f"{'same bits' if same else 'OTHER BITS in ' + ', '.join(other)}",
                flush=True,
            )
            if not same and arguments.keep:
                shutil.copytree(scratch, arguments.keep, dirs_exist_ok=True)
            shutil.rmtree(store)
    if arguments.json:
        record = {"kills": n_kills, "seconds": seconds, "expected": expected, "rounds": rounds}
        arguments.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    n_same = sum(round_["same"] for round_ in rounds)
    print(
        f"{n_kills} kills in {len(rounds)} rounds; {n_same} of {len(rounds)} ended in the bits "
        "of the uninterrupted training"
    )
    return 0 if n_same == len(rounds) else 1


def _finish(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")


def _killed(command: list[str], after: float) -> bool:
    """Start a training and kill it; whether it was done before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return False
    return True


def _results(store: Path) -> dict[str, str]:
    """Digests of weights, masks and ledger of the one repeat in a store."""
    (folder,) = store.glob("runs/*/*/0")
    names = ["weights.safetensors", "ledger.parquet"]
    names += sorted(path.relative_to(folder).as_posix() for path in folder.glob("masks/*.tif"))
    return {name: file_digest(folder / name) for name in names if (folder / name).exists()}


if __name__ == "__main__":
    sys.exit(main())
