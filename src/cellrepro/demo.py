"""The whole lab once: a trained network, a grid of fine-tunings, every notebook, the report."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cellrepro.asked import defaults
from cellrepro.errors import CellreproError
from cellrepro.grid.file import read_grid
from cellrepro.grid.notebooks import brought, execute, find_notebook
from cellrepro.grid.point import BADLY, GridRun
from cellrepro.grid.pool import run_grid
from cellrepro.model.network import CELLPOSE_NAMES, SMALL, TINY
from cellrepro.process.calling import in_child
from cellrepro.process.endings import RunError
from cellrepro.progress import minutes
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


@dataclass(frozen=True)
class Demo:
    """What the demo made."""

    base: Outcome
    runs: list[GridRun]
    notebooks: list[Path]
    report: Report


def run_demo(
    data: str | Path,
    *,
    store: str | Path = defaults.STORE,
    model: str = TINY,
    goal: Goal | None = None,
) -> Demo:
    """Train a network on a folder, fine-tune it over the demo grid, execute every notebook.

    Parameters
    ----------
    data : str or Path
        Folder in Cellpose's convention, with masks to train on.
    store : str or Path
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
    """
    if Path(model).is_file():
        model = str(Path(model).resolve())  # notebooks have folders of their own
    if model in SMALL:
        _say("1/4  a network to start from, trained until it finds cells and stored like any run")
        base = train_until_found(data, model=model, store=store, goal=goal or FOUND)
        start = base.repeats[0].name
    else:
        _say(f"1/4  what the network {model} finds, before anything is trained")
        base = segment(data, model=model, repeats=1, store=store, mode="strict")
        start = model
    stop_without_cells(base, data, model)
    overrides = {"data": str(data), "model": start}
    grid = read_grid(brought("grids") / "demo.yaml", store=store, overrides=overrides)
    _say(f"2/4  the demo grid: {len(grid.points)} specs of seed, mode and profile")
    runs = run_grid(grid, workers=2)
    for run in runs:
        if run.status in BADLY:
            raise RunError(
                "failed", f"a spec failed: {run.reason}; its notebook is in {run.folder}"
            )
    _say("3/4  the other notebooks, on these runs")
    notebooks = _execute_notebooks(data, store, start)
    _say("4/4  the report")
    return Demo(base, runs, notebooks, write_report(store))


def stop_without_cells(base: Outcome, data: str | Path, model: str) -> None:
    """Raise with the ways on if the network finds too little to compare anything.

    Raises
    ------
    RunError
        With what was found, after how long a training, and what to do next.
    """
    manifest = base.repeats[0].manifest
    score = manifest.ap50
    if not manifest.vacuous and (score is None or score >= LEAST_SCORE):
        return
    found = f"{amount(manifest.n_objects, 'cell')} in {amount(len(manifest.masks), 'image')}"
    if score is not None:
        drawn = sum(record.n_true or 0 for record in manifest.masks.values())
        found += f" where {drawn} are drawn (mean AP@0.5 {score:.2f})"
    command = f"make demo DATA={data} STORE={base.store.root}"
    ways_on = [
        f"a network that knows such cells: {command} MODEL={CELLPOSE_NAMES[0]}, or a weights file "
        "instead of the name (hours on a processor)",
        *_longer_training(base, data, command),
        "other images: more of them, of separate cells that stand out from the background",
    ]
    raise RunError(
        "failed",
        f"{model} finds {found}{_how_long(base)}: masks of its fine-tunings would agree about "
        "nothing, so the demo ends here, before its grid. Ways on:\n"
        + "\n".join(f"  - {way}" for way in ways_on),
    )


def _how_long(base: Outcome) -> str:
    """After what training, where the network was trained here."""
    training = base.repeats[0].manifest.training
    if training is None or training.until is None:
        return ""
    epochs = amount(len(training.train_losses), "epoch")
    return f" after {epochs} in {minutes(training.until.taken)}"


def _longer_training(base: Outcome, data: str | Path, command: str) -> list[str]:
    """A training of several times as many epochs, with the time that it will take."""
    manifest = base.repeats[0].manifest
    if manifest.training is None or manifest.training.until is None:
        return []
    spec = base.repeats[0].spec
    per_epoch = manifest.training.until.taken / spec.epochs
    takes = minutes(per_epoch * LONGER_EPOCHS)
    return [
        f"more epochs, about {takes} here: cellrepro train {data} --model {spec.model} --epochs "
        f"{LONGER_EPOCHS} --images-per-epoch {spec.images_per_epoch} --repeats 1 "
        f"--store {base.store.root}, which names a KEY; then {command} MODEL=KEY/0"
    ]


def _execute_notebooks(data: str | Path, store: str | Path, model: str) -> list[Path]:
    """Execute the notebooks that look at runs; returns the executed copies."""
    root = Path(store).resolve()
    images: dict[str, Any] = {"data": str(Path(data).resolve())}
    place = images | {"store": str(root)}
    # What warns is shown in a few steps, kept apart from the demo's grid.
    apart = {"store": str(root / "warnings"), "model": elsewhere(model, Store(store))}
    few = {"epochs": 3, "images_per_epoch": 8, "cost_rounds": 1}
    # Segmentations with other settings are kept apart, too.
    varied = {**apart, "store": str(root / "settings")}
    # What differs outside the training step is the same every time.
    followed = {"follow_epochs": 3, "follow_images": 8, "outside": False}
    jobs = {  # the longest first
        "03_determinism_warnings": images | few | apart,
        "08_segmentation_settings": images | varied,
        "00_setup": images,
        "02_mask_comparison": place | {"model": model},
        "04_cross_device_report": place,
        "05_first_divergence": place | followed | {"model": model},
        "06_inference_benchmark": place | {"model": model, "repeats": 2, "sizes": []},
    }
    folder = root / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)

    def executed(name: str) -> Path:
        output = folder / f"{name}.ipynb"
        task = partial(execute, notebook=find_notebook(name), output=output, parameters=jobs[name])
        try:
            in_child(task, None, label=f"the notebook {name}")
        except CellreproError as error:
            raise CellreproError(f"the notebook {name} failed: {error}; see {output}") from error
        _say(f"     {output}")
        return output

    with ThreadPoolExecutor(2) as pool:  # each thread only waits for its process
        return list(pool.map(executed, jobs))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
