"""Kill a training at random moments, resume it, and compare with the uninterrupted one.

    python scripts/kill_and_resume.py --kills 50 --epochs 8 --images-per-epoch 6

Every round starts ``cellrepro train`` and kills it with signal 9 after a random time, up to three
times, then resumes it and lets it finish. Exit code 1 where a round ended in other bits; its store
stays where the last line says.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cellrepro.images.synthetic_sets import write_folder
from samebits.digests import file_digest

MOST_KILLS_OF_A_ROUND = 3


@dataclass(frozen=True)
class Training:
    """A training of one repeat, as the command line starts it; its store is named at each start."""

    data: Path
    epochs: int
    images_per_epoch: int

    def command(self, store: Path) -> list[str]:
        """The command that begins it, or goes on with what was killed."""
        return [
            str(Path(sys.executable).with_name("cellrepro")),
            "train",
            str(self.data),
            f"--store={store}",
            f"--epochs={self.epochs}",
            f"--images-per-epoch={self.images_per_epoch}",
            "--learning-rate=0.01",
            "--repeats=1",
            "--resume",
        ]

    def finish(self, store: Path) -> None:
        """Let it end."""
        command = self.command(store)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")

    def kill(self, store: Path, *, after: float) -> bool:
        """Kill it after some seconds; False where it ended before."""
        discarded = subprocess.DEVNULL
        process = subprocess.Popen(self.command(store), stdout=discarded, stderr=discarded)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True
        return False


@dataclass(frozen=True)
class Round:
    """A training that was killed, resumed, and ended."""

    store: Path
    killed_after: list[float]
    """Seconds."""
    differing: list[str]
    """Its files with other bits than those of the uninterrupted training."""

    def __str__(self) -> str:
        ending = f"other bits in {', '.join(self.differing)}" if self.differing else "same bits"
        return f"killed after {self.killed_after} s: {ending}"


def main() -> int:
    """Kill and resume until there were as many kills as asked for."""
    arguments = read_arguments()
    scratch = Path(tempfile.mkdtemp(prefix="cellrepro-killed-"))
    data = arguments.data or scratch / "synthetic"
    if arguments.data is None:
        write_folder(data)
    training = Training(data, arguments.epochs, arguments.images_per_epoch)
    rounds = []
    for round_ in killed_and_resumed(training, scratch, arguments.kills, arguments.seed):
        print(round_, flush=True)
        rounds.append(round_)
        if not round_.differing:
            shutil.rmtree(round_.store)
    n_different = sum(bool(round_.differing) for round_ in rounds)
    print(f"{len(rounds)} rounds, of which {n_different} ended in other bits")
    if n_different:
        print(f"their stores, and that of the uninterrupted training: {scratch}")
        return 1
    shutil.rmtree(scratch)
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of images (default: synthetic ones)")
    parser.add_argument("--kills", type=int, default=50, help="how often to kill, in all")
    parser.add_argument("--seed", type=int, default=0, help="for the moments")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images-per-epoch", type=int, default=4)
    return parser.parse_args()


def killed_and_resumed(
    training: Training, scratch: Path, n_kills: int, seed: int
) -> Iterator[Round]:
    """Train once without interruption, then round by round with so many kills in all."""
    started = time.monotonic()
    training.finish(scratch / "whole")
    seconds = time.monotonic() - started
    expected = digests_of(scratch / "whole")
    random = Random(seed)
    n_left = n_kills
    while n_left > 0:
        store = scratch / f"{n_left}-kills-left"
        killed_after: list[float] = []
        for _ in range(random.randint(1, min(MOST_KILLS_OF_A_ROUND, n_left))):
            after = round(random.uniform(0.05, 1.0) * seconds, 2)
            if not training.kill(store, after=after):
                break
            killed_after.append(after)
        training.finish(store)
        n_left -= len(killed_after)
        yield Round(store, killed_after, differing_files(expected, digests_of(store)))


def digests_of(store: Path) -> dict[str, str]:
    """Digests of weights, masks and ledger of the one repeat in a store."""
    (folder,) = store.glob("runs/*/*/0")
    files = [folder / "weights.safetensors", folder / "ledger.parquet", *folder.glob("masks/*.tif")]
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in files}


def differing_files(expected: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """Names of the files that are not the same, or only on one side."""
    return sorted({name for name, _digest in expected.items() ^ actual.items()})


if __name__ == "__main__":
    sys.exit(main())
