"""Put into evidence/ what docs/findings.md is drawn from, out of stores with the studies' runs.

    python scripts/collect_findings.py runs STORE       # specs, manifests and masks; no weights
    python scripts/collect_findings.py weights STORE    # distances of the networks, pair by pair
    python scripts/collect_findings.py follow STORE     # pairs of repeats, by step and by epoch
    python scripts/collect_findings.py first STORE   # the first operation that gave different bits
    python scripts/collect_findings.py cells STORE      # cells: in how many runs, and what they are
    python scripts/collect_findings.py portable STORE   # segmentations on different devices
    python scripts/collect_findings.py portable-training STORE   # trainings on different devices
    python scripts/collect_findings.py settings STORE DATA...  # settings varied one at a time
    python scripts/collect_findings.py cost DATA        # time and memory, on an idle machine

Each writes tables that hold what was measured before, too: a row is known by its first columns.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from collecting.cells import collect_cells
from collecting.pairs import collect_first, collect_growth, collect_weights
from collecting.portable import collect_portable, collect_portable_training
from collecting.settings import collect_settings
from collecting.tables import EVIDENCE, Table

from cellrepro.errors import BadInput
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, SPEC, Repeat

COST = Table("cost.csv", ("encoder", "profile", "name"))


def copy_runs(store: Store) -> None:
    """Copy of every repeat what is small: what was asked for, what happened, the masks."""
    for run in store.runs():
        target = EVIDENCE / "runs" / run.key
        for repeat in run.repeats:
            _copy_repeat(repeat, target, store)
        spec = run.repeats[0].folder.parents[1] / SPEC
        shutil.copy(spec, target / SPEC)
    for path in (EVIDENCE / "runs").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _copy_repeat(repeat: Repeat, run_folder: Path, store: Store) -> None:
    machine = repeat.folder.parent.name
    target = run_folder / machine / repeat.folder.name
    shutil.copytree(repeat.folder / "masks", target / "masks", dirs_exist_ok=True)
    manifest = (repeat.folder / MANIFEST).read_text(encoding="utf-8")
    # Where this machine has its store is nobody's business.
    manifest = manifest.replace(f"{store.root.resolve()}/", "")
    (target / MANIFEST).write_text(manifest, encoding="utf-8")


@dataclass(frozen=True)
class CostExtent:
    """How much is timed.

    Attributes
    ----------
    steps : int
        In a round.
    rounds : int
    """

    steps: int
    rounds: int


COST_EXTENTS = {"tiny": CostExtent(steps=10, rounds=12), "vit-l": CostExtent(steps=1, rounds=2)}
"""By network."""


def collect_cost(folder: Path, networks: Sequence[str]) -> None:
    """Measure time and memory of a step in every mode.

    Parameters
    ----------
    folder : Path
        Of images to train on.
    networks : sequence of str
        Which, and on which profile: ``ENCODER:PROFILE``.
    """
    from cellrepro import measure_cost

    rows = []
    for network in networks:
        encoder, profile = network.split(":")
        extent = COST_EXTENTS[encoder]
        cost = measure_cost(
            folder, encoder=encoder, profile=profile, steps=extent.steps, rounds=extent.rounds
        )
        rows += [
            {
                "encoder": encoder,
                "profile": profile,
                **asdict(row),
                "steps": extent.steps,
                "rounds": extent.rounds,
                "images": folder.name,
            }
            for row in cost.table
        ]
    COST.add(rows)


OF_STORES: dict[str, Callable[[Store], None]] = {
    "runs": copy_runs,
    "weights": collect_weights,
    "follow": collect_growth,
    "first": collect_first,
    "cells": collect_cells,
    "portable": collect_portable,
    "portable-training": collect_portable_training,
}
"""What is collected from a store alone."""


def main() -> None:
    """Collect what is named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=[*OF_STORES, "settings", "cost"])
    parser.add_argument("paths", nargs="+", type=Path, help="store, or folders of images")
    parser.add_argument("--of", nargs="+", default=["tiny:cpu"], help="ENCODER:PROFILE, for cost")
    arguments = parser.parse_args()
    first, *others = arguments.paths
    for network in arguments.of:
        if not re.fullmatch("(tiny|vit-l):.+", network):
            parser.error(f"--of {network}: expected ENCODER:PROFILE, tiny:cpu or vit-l:cpu")
    if arguments.what != "cost" and not (first / "runs").is_dir():
        parser.error(f"{first} holds no run; expected a store in which grids were run")
    if arguments.what == "settings" and not others:
        parser.error("settings: expected STORE and folders of images")
    try:
        if arguments.what == "cost":
            collect_cost(first, arguments.of)
        elif arguments.what == "settings":
            collect_settings(Store(first), others)
        else:
            OF_STORES[arguments.what](Store(first))
    except BadInput as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
