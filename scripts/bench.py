"""Benchmarks: ratios measured side by side in one run, in turns, medians.

`bench.py [GROUP ...]` prints a table, and after each figure writes all of them as a list of
{name, value, target, met, how}. A group that fails says so, costs no other, and makes the exit
code 1. On a busy machine the ratios hold better than the seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import (
    exchange,
    explorer,
    grids,
    masks,
    portable,
    segmentation,
    starting,
    stores,
    training,
    watching,
    weights,
)
from benchmarks.measuring import Extent, Figure

GROUPS: dict[str, Callable[[Extent], Iterator[Figure]]] = {
    "import": training.import_time,
    "starting": starting.starting,
    "loop": training.loop,
    "cost": training.cost,
    "substitutes": training.substitutes,
    "audit": watching.audit_ratio,
    "digests": watching.digest_speed,
    "ledger": watching.ledger_ratio,
    "operations": watching.operation_ratio,
    "numeric-class": training.numeric_class_time,
    "learning": training.learning,
    "masks": masks.masks,
    "many": masks.many,
    "weights": weights.weights,
    "explorer": explorer.explorer,
    "report": stores.report,
    "listing": stores.listing,
    "grid": grids.grid,
    "jobs": grids.jobs,
    "many-specs": grids.many_specs,
    "scale": stores.scale,
    "choosing": stores.choosing,
    "segmentation": segmentation.segmentation,
    "portable": portable.portable,
    "exchange": exchange.exchange,
}


def main() -> int:
    """Measure the groups that are asked for; 1 where one failed."""
    arguments = read_arguments()
    use_environment_of_a_worker()
    extent = Extent(arguments.extent, arguments.data)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    lines = Lines(arguments.json)
    n_failed = 0
    for name in arguments.groups or GROUPS:
        started = time.perf_counter()
        try:
            for figure in GROUPS[name](extent):
                lines.add(figure)
        except Exception as error:
            n_failed += 1
            lines.add_failure(name, error)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return int(n_failed > 0)


def read_arguments() -> argparse.Namespace:
    """Read the command line, and refuse a group that does not exist."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.set_defaults(extent="usual")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument(
        "--all", action="store_const", dest="extent", const="all", help="what takes long, too"
    )
    extent.add_argument(
        "--smallest",
        action="store_const",
        dest="extent",
        const="smallest",
        help="a moment of each; the figures mean nothing",
    )
    parser.add_argument("--json", type=Path, default=Path("outputs/bench.json"))
    parser.add_argument("--data", type=Path, help="a folder of real images, for the learning goal")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.groups if name not in GROUPS]
    if unknown:
        parser.error(f"there is no group {', '.join(unknown)}; expected {', '.join(GROUPS)}")
    return arguments


def use_environment_of_a_worker() -> None:
    """Start again with the variables of profile ``cpu``, as a worker has them."""
    from cellrepro.determinism import profiles

    variables = profiles.load("cpu").variables()
    if any(os.environ.get(name) != value for name, value in variables.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **variables})


class Lines:
    """What was measured so far, printed line by line and written as a whole after each."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.written: list[dict[str, object]] = []

    def add(self, figure: Figure) -> None:
        """Print one figure, and write all there are so far."""
        marks = {True: "met", False: "MISSED", None: "-"}
        self._add(figure.name, figure.value, figure.target, figure.met, figure.how)
        shown = f"{figure.value:.4g}"
        self._show(figure.name, shown, figure.target, marks[figure.met], figure.how)

    def add_failure(self, group: str, error: Exception) -> None:
        """Print that a group failed and why, and write it, too."""
        how = f"failed: {type(error).__name__}: {error}"
        self._add(group, None, "", False, how)
        self._show(group, "", "", "MISSED", how)

    @staticmethod
    def _show(name: str, value: str, target: str, mark: str, how: str) -> None:
        print(f"{name:58} {value:>8}  {target:>10}  {mark:6} {how}", flush=True)

    def _add(self, name: str, value: float | None, target: str, met: bool | None, how: str) -> None:
        self.written.append(
            {"name": name, "value": value, "target": target, "met": met, "how": how}
        )
        self.file.write_text(json.dumps(self.written, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
