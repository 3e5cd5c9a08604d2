"""The whole lab once: a trained network, a grid of fine-tunings, the notebooks, the report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cellrepro.asked import defaults
from cellrepro.errors import CellreproError
from cellrepro.grid.grid import run_grid
from cellrepro.grid.grid_runs import GridRuns
from cellrepro.grid.notebook_execution import execute, find_notebook, packaged_folder
from cellrepro.grid.points import read_grid
from cellrepro.model.cellpose_generation import generation_of
from cellrepro.model.encoders import SMALL, TINY
from cellrepro.process.calling import in_child
from cellrepro.process.endings import RunError
from cellrepro.progress import minutes
from cellrepro.results import Result, Row
from cellrepro.run.outcome import Outcome
from cellrepro.run.train import segment, train_until_found
from cellrepro.run.until_found import FOUND, Goal
from cellrepro.show.report.build import Report, write_report
from cellrepro.show.which_runs import elsewhere
from cellrepro.store.store import Store
from cellrepro.words import amount

LEAST_SCORE = 0.1
"""Mean AP@0.5 below which a network finds too few cells for its masks to be compared."""

LONGER_EPOCHS = 500
"""What is advised where the first network finds hardly a cell."""

_AT_ONCE = 2
"""Specs of the grid, and then notebooks, that are carried out at the same time."""


@dataclass(frozen=True, repr=False)
class Demo(Result):
    """What the demo made.

    Attributes
    ----------
    base : Outcome
        Of the network that the fine-tunings start from: its training, or what it finds.
    runs : GridRuns
        The fine-tunings.
    notebooks : list of Path
        The executed copies.
    report : Report
        On all runs of the store.
    """

    base: Outcome
    runs: GridRuns
    notebooks: list[Path]
    report: Report

    def sentence(self) -> str:
        """Say what the report says."""
        return self.report.sentence()

    def rows(self) -> Sequence[Row]:
        """One row for each fine-tuning."""
        return self.runs.rows()


def run_demo(
    data: str | Path,
    *,
    store: str | Path = defaults.STORE,
    model: str = TINY,
    goal: Goal | None = None,
) -> Demo:
    """Train a network on a folder, fine-tune it over the demo grid, execute the notebooks.

    Parameters
    ----------
    data : str or Path
        Folder in Cellpose's convention, with masks to train on.
    store : str or Path
        Folder of finished runs.
    model : str
        One of the small ones is trained first, until it finds cells; any other (a Cellpose name, a
        weights file, ``KEY/REPEAT``) is taken as it is.
    goal : Goal, optional
        Until when the small one is trained; by default half of the cells, or ten minutes.

    Returns
    -------
    Demo

    Raises
    ------
    RunError
        Where the network finds hardly a cell; it says the ways on, before anything is compared.
        Where a spec of the grid failed.
    CellreproError
        Where a notebook failed.
    """
    if Path(model).is_file():
        model = str(Path(model).resolve())  # notebooks have folders of their own
    base = _network_to_start_from(data, model, store, goal or FOUND)
    stop_without_cells(base, data, model)
    start = base.repeats[0].name if model in SMALL else model
    runs = _fine_tune(data, start, store)
    notebooks = _execute_notebooks(data, store, start)
    _say("4/4  the report")
    return Demo(base=base, runs=runs, notebooks=notebooks, report=write_report(store))


def _network_to_start_from(data: str | Path, model: str, store: str | Path, goal: Goal) -> Outcome:
    """Train one of the small networks; see what any other one finds."""
    if model in SMALL:
        _say("1/4  a network to start from, trained until it finds cells and stored like any run")
        return train_until_found(data, model=model, store=store, goal=goal)
    _say(f"1/4  what the network {model} finds, before anything is trained")
    return segment(data, model=model, repeats=1, store=store, mode="strict")


def _fine_tune(data: str | Path, model: str, store: str | Path) -> GridRuns:
    """Carry out the demo grid from a network."""
    grid = read_grid(
        packaged_folder("grids") / "demo.yaml",
        store=store,
        overrides={"data": str(data), "model": model},
    )
    _say(f"2/4  the demo grid: {len(grid.points)} specs of seed, mode and profile")
    runs = run_grid(grid, workers=_AT_ONCE)
    for run in runs.failures:
        raise RunError("failed", f"a spec failed: {run.reason}; its notebook is in {run.folder}")
    return runs


# -- too few cells -------------------------------------------------------------------------


def stop_without_cells(base: Outcome, data: str | Path, model: str) -> None:
    """Raise with the ways on if the network finds too little to compare anything.

    Parameters
    ----------
    base : Outcome
        Of the network that the fine-tunings start from.
    data : str or Path
        What it was tried on.
    model : str
        Its name.

    Raises
    ------
    RunError
        With what was found, after how long a training, and what to do next.
    """
    manifest = base.repeats[0].manifest
    score = manifest.ap50
    if not manifest.vacuous and (score is None or score >= LEAST_SCORE):
        return
    cells = f"{amount(manifest.n_objects, 'cell')} in {amount(len(manifest.masks), 'image')}"
    if score is not None:
        n_drawn = sum(record.n_true or 0 for record in manifest.masks.values())
        cells += f" where {n_drawn} are drawn (mean AP@0.5 {score:.2f})"
    ways_on = "\n".join(f"  - {way}" for way in _ways_on(base, data))
    raise RunError(
        "failed",
        f"{model} finds {cells}{_how_long(base)}: masks of its fine-tunings would agree about "
        f"nothing, so the demo ends here, before its grid. Ways on:\n{ways_on}",
    )


def _ways_on(base: Outcome, data: str | Path) -> list[str]:
    """What to do where a network finds too little."""
    command = f"make demo DATA={data} STORE={base.store.root}"
    ways = [
        f"a network that knows such cells: {command} MODEL={generation_of().default_network}, or "
        "a weights file instead of the name (hours on a processor)"
    ]
    longer_training = _longer_training(base, data, command)
    if longer_training is not None:
        ways.append(longer_training)
    ways.append("other images: more of them, of separate cells that stand out from the background")
    return ways


def _how_long(base: Outcome) -> str:
    """After what training, where the network was trained here."""
    training = base.repeats[0].manifest.training
    if training is None or training.until is None:
        return ""
    epochs = amount(len(training.train_losses), "epoch")
    return f" after {epochs} in {minutes(training.until.taken)}"


def _longer_training(base: Outcome, data: str | Path, command: str) -> str | None:
    """A training of several times as many epochs, with the time that it will take.

    None where the network was not trained here.
    """
    training = base.repeats[0].manifest.training
    if training is None or training.until is None:
        return None
    spec = base.repeats[0].spec
    seconds_per_epoch = training.until.taken / spec.epochs
    duration = minutes(seconds_per_epoch * LONGER_EPOCHS)
    return (
        f"more epochs, about {duration} here: cellrepro train {data} --model {spec.model} --epochs "
        f"{LONGER_EPOCHS} --images-per-epoch {spec.images_per_epoch} --repeats 1 "
        f"--store {base.store.root}, which names a KEY; then {command} MODEL=KEY/0"
    )


# -- notebooks -----------------------------------------------------------------------------


def _execute_notebooks(data: str | Path, store: str | Path, model: str) -> list[Path]:
    """Execute the notebooks that look at runs; returns the executed copies."""
    _say("3/4  the other notebooks, on these runs")
    folder = Path(store).resolve() / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    parameters_by_name = _notebook_parameters(data, store, model)

    def executed(name: str) -> Path:
        output = folder / f"{name}.ipynb"
        _execute_notebook(name, output, parameters_by_name[name])
        _say(f"     {output}")
        return output

    with ThreadPoolExecutor(_AT_ONCE) as pool:  # each thread only waits for its process
        return list(pool.map(executed, parameters_by_name))


def _notebook_parameters(
    data: str | Path, store: str | Path, model: str
) -> dict[str, dict[str, Any]]:
    """The parameters of each notebook by its name, the one that takes longest first."""
    root = Path(store).resolve()
    images = {"data": str(Path(data).resolve())}
    on_these_runs = {**images, "store": str(root)}
    # What warns is shown in a few steps, kept apart from the demo's grid; so are segmentations
    # with different settings.
    model_elsewhere = elsewhere(model, Store(store))
    return {
        "03_determinism_warnings": {
            **images,
            "epochs": 3,
            "images_per_epoch": 8,
            "cost_rounds": 1,
            "store": str(root / "warnings"),
            "model": model_elsewhere,
        },
        "08_segmentation_settings": {
            **images,
            "store": str(root / "settings"),
            "model": model_elsewhere,
        },
        "00_setup": images,
        "02_mask_comparison": {**on_these_runs, "model": model},
        "04_cross_device_report": on_these_runs,
        "05_first_divergence": {
            **on_these_runs,
            "follow_epochs": 3,
            "follow_images": 8,
            "outside": False,  # what differs outside the training step is the same every time
            "model": model,
        },
        "06_inference_benchmark": {**on_these_runs, "model": model, "repeats": 2, "sizes": []},
    }


def _execute_notebook(name: str, output: Path, parameters: Mapping[str, Any]) -> None:
    """Execute a notebook of the package in a process of its own."""
    task = partial(execute, notebook=find_notebook(name), output=output, parameters=parameters)
    try:
        in_child(task, None, label=f"the notebook {name}")
    except CellreproError as error:
        raise CellreproError(f"the notebook {name} failed: {error}; see {output}") from error


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
