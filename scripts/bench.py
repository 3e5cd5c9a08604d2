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
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import (
    conclusions,
    exchange,
    explorer,
    grids,
    live,
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
    "any-pytorch": watching.any_pytorch,
    "digests": watching.digest_speed,
    "ledger": watching.ledger_ratio,
    "operations": watching.operation_ratio,
    "numeric-class": training.numeric_class_time,
    "learning": training.learning,
    "masks": masks.masks,
    "many": masks.many,
    "conclusion": conclusions.conclusion,
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
    "live": live.live,
    "portable": portable.portable,
    "exchange": exchange.exchange,
}


def main() -> int:
    """Measure the groups that are asked for; 1 where one failed."""
    arguments = read_arguments()
    use_environment_of_a_worker()
    extent = Extent(arguments.extent, arguments.data)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    n_failed = 0

    def add(line: Line) -> None:
        """Print it, and write all there are so far."""
        print(line, flush=True)
        lines.append(line)
        arguments.json.write_text(json.dumps([asdict(each) for each in lines], indent=1))

    for name in arguments.groups or GROUPS:
        started = time.perf_counter()
        try:
            for figure in GROUPS[name](extent):
                add(Line.of(figure))
        except Exception as error:
            n_failed += 1
            add(Line.of_failure(name, error))
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
    from cellrepro.profiles import profiles

    variables = profiles.load("cpu").variables()
    if any(os.environ.get(name) != value for name, value in variables.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **variables})


@dataclass(frozen=True)
class Line:
    """A figure as it is printed and written, or why a group has none."""

    name: str
    value: float | None
    target: str
    met: bool | None
    how: str

    @classmethod
    def of(cls, figure: Figure) -> Line:
        """That of a figure."""
        return cls(figure.name, figure.value, figure.target, figure.met, figure.how)

    @classmethod
    def of_failure(cls, group: str, error: Exception) -> Line:
        """That of a group which could not be measured."""
        return cls(group, None, "", False, f"failed: {type(error).__name__}: {error}")

    def __str__(self) -> str:
        value = "" if self.value is None else f"{self.value:.4g}"
        mark = {True: "met", False: "MISSED", None: "-"}[self.met]
        return f"{self.name:58} {value:>8}  {self.target:>10}  {mark:6} {self.how}"


if __name__ == "__main__":
    sys.exit(main())
