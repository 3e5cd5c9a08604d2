"""The whole lab once: a trained network, a grid of fine-tunings, every notebook, the report."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellrepro.errors import CellreproError
from cellrepro.grid import GridRun, find_notebook, read_grid, run_grid
from cellrepro.headless import Job, brought, execute_in_child
from cellrepro.record.store import WEIGHTS, Store
from cellrepro.run import Outcome, train
from cellrepro.show.report import Report, write_report

BASE_EPOCHS = 12
BASE_DRAWS = 64
"""The network the demo's runs start from: enough steps to find nuclei, half a minute."""

_WORKERS = 2


@dataclass(frozen=True)
class Demo:
    """What the demo made."""

    base: Outcome
    runs: list[GridRun]
    notebooks: list[Path]
    report: Report


def run_demo(data: str | Path, *, store: str | Path = "outputs") -> Demo:
    """Train a network on a folder, fine-tune it over the demo grid, execute every notebook.

    What the store holds already is not run again.

    Parameters
    ----------
    data : str or Path
        Folder of images with masks, in Cellpose's convention.
    store : str or Path

    Returns
    -------
    Demo

    Raises
    ------
    CellreproError
        If a run of the grid failed.
    """
    base = _train_base(data, store)
    overrides: dict[str, Any] = {"data": str(data), "model": base.repeats[0].name}
    _say("2/4  the demo grid: 3 seeds, 3 CPU profiles, 2 modes, 2 repeats each")
    runs = run_grid(
        read_grid(brought("grids") / "demo.yaml", store=store, overrides=overrides),
        store=store,
        workers=_WORKERS,
    )
    failed = [run for run in runs if run.status == "failed"]
    if failed:
        raise CellreproError(
            f"{len(failed)} of {len(runs)} specs failed, the first because: {failed[0].reason}; "
            f"its notebook is in {failed[0].folder}"
        )
    _say("3/4  the other notebooks, on these runs")
    notebooks = _execute_notebooks(data, store, base)
    _say("4/4  the report")
    return Demo(base, runs, notebooks, write_report(store))


def _train_base(data: str | Path, store: str | Path) -> Outcome:
    _say("1/4  a network to start from, trained once and stored like any run")
    base = train(
        data, epochs=BASE_EPOCHS, images_per_epoch=BASE_DRAWS, repeats=1, store=store, mode="strict"
    )
    manifest = base.repeats[0].manifest
    if manifest.vacuous:
        _say(
            f"note: the network has not learnt to find cells on {data} "
            f"({'; '.join(manifest.vacuous)}); verdicts about masks will be vacuous. Give it more "
            "images, or start from a pretrained network with `cellrepro train --model`"
        )
    return base


def _execute_notebooks(data: str | Path, store: str | Path, base: Outcome) -> list[Path]:
    """Execute the notebooks that look at runs; returns the executed copies."""
    root = Path(store).resolve()
    place = {"store": str(root)}
    # A few steps each, to see what warns: kept apart, so that the report is about the demo's grid.
    aside = {
        "store": str(root / "warnings"),
        "model": str(base.repeats[0].folder.resolve() / WEIGHTS),
    }
    # A taste of what it measures; opened by hand, the notebook trains and times more.
    short: dict[str, Any] = {"epochs": 3, "images_per_epoch": 8, "cost_rounds": 1}
    images = {"data": str(Path(data).resolve())}
    start = {"model": base.repeats[0].name}
    jobs = {
        "03_determinism_warnings": images | aside | short,  # the longest first
        "00_setup": images,
        "02_mask_comparison": images | place | start,
        "04_cross_device_report": images | place,
        # What differs outside the training step is the same every time; opened by hand it is shown.
        "05_first_divergence": images
        | place
        | start
        | {"follow_epochs": 3, "follow_images": 8, "outside": False},
        "06_inference_benchmark": images | place | start,
    }
    folder = Store(store).root / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_WORKERS) as pool:  # each thread only waits for its process
        return list(pool.map(lambda name: _execute_one(name, jobs[name], folder), jobs))


def _execute_one(name: str, parameters: dict[str, Any], folder: Path) -> Path:
    output = folder / f"{name}.ipynb"
    job = Job(str(find_notebook(name)), str(output.resolve()), parameters)
    reason = execute_in_child(job, os.environ)
    if reason is not None:
        raise CellreproError(f"the notebook {name} failed: {reason}; see {output}")
    _say(f"     {output}")
    return output


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
