"""The whole lab once: a trained network, a grid of fine-tunings, the report, the notebooks."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cellrepro.errors import BadInput, CellreproError
from cellrepro.grid.grid import run_grid
from cellrepro.grid.grid_runs import GridRun, GridRuns
from cellrepro.grid.notebook_execution import execute
from cellrepro.grid.packaged_files import find_notebook, packaged_folder
from cellrepro.grid.points import read_grid
from cellrepro.model.cellpose_generation import generation_of
from cellrepro.model.encoders import SMALL
from cellrepro.process.calling import Children, in_child
from cellrepro.process.process_ends import RunError
from cellrepro.results import Result, Row
from cellrepro.run.outcome import Outcome
from cellrepro.run.segment import segment
from cellrepro.run.training_until_found import train_until_found
from cellrepro.run.until_found import FOUND, Goal
from cellrepro.show.report.build import write_report
from cellrepro.show.which_runs import elsewhere
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.terminal import IN_PYTHON, FileName
from cellrepro.words import amount, minutes

LEAST_SCORE = 0.1
"""Mean AP@0.5 below which a network finds too few cells for its masks to be compared."""

LONGER_EPOCHS = 500
"""What is advised where the first network finds hardly a cell."""

SOON = Goal(seconds=150.0)
"""Until when the first network is trained where a page is wanted soon; one that finds hardly a cell
by then has more time."""

_SYNTHETIC = "data/synthetic"
"""Where ``cellrepro data synthetic`` puts its images."""

_AT_ONCE = 2
"""Specs of the grid, and then notebooks, that are carried out at the same time."""


@dataclass(frozen=True, repr=False)
class Demo(Result):
    """What the demo made."""

    base: str
    """KEY of the run of the network that the fine-tunings start from: its training, or what it
    finds."""
    runs: tuple[GridRun, ...]
    """The fine-tunings."""
    notebooks: list[Path]
    """The executed copies."""
    report: Path
    """The page on all runs of the store, those of the notebooks among them."""
    _headline: str
    """What the page says first."""

    def sentence(self) -> str:
        """Say what the report says."""
        return self._headline

    def rows(self) -> Sequence[Row]:
        """One row for each fine-tuning."""
        return GridRuns(self.runs).rows()

    def lines(self) -> list[str]:
        """Give what the report says, and where it is."""
        return [self.sentence(), f"report: {self.report}"]


def run_demo(
    data: FileName = _SYNTHETIC,
    /,
    *,
    model: str = defaults.MODEL,
    store: FileName = defaults.STORE,
    goal: Annotated[Goal | None, IN_PYTHON] = None,
) -> Demo:
    """Do everything once: a network, the demo grid over it, the report, the notebooks.

    The page is there before the notebooks, and is written once more with what they add.

    Parameters
    ----------
    data : str or Path
        Folder of images, named as Cellpose expects.
    model : str
        The network that the fine-tunings start from: one of the lab's small networks, which is
        trained first, a name of Cellpose, a weights file, or ``KEY/REPEAT`` of a stored run.
    store : str or Path
        Folder of finished runs.
    goal : Goal, optional
        Until when a small network is trained; by default until it finds cells.

    Returns
    -------
    Demo
        The fine-tunings, the executed notebooks and the page.

    Raises
    ------
    BadInput
        If there are no such images, or no such network.
    RunError
        If the network finds so few cells that masks of its fine-tunings would agree about nothing,
        or a run fails.

    Examples
    --------
    Everything once, on images of your own

    ``cellrepro demo my_images --model cpsam_v2``
    """
    if str(data) == _SYNTHETIC and not Path(data).exists():
        raise BadInput(
            f"there is no folder {_SYNTHETIC}: make it with `cellrepro data synthetic`, or give a "
            "folder of your own images"
        )
    if Path(model).is_file():
        model = str(Path(model).resolve())  # notebooks have folders of their own
    base = _network_to_start_from(data, model, store, goal)
    stop_without_cells(base, data, model)
    start = base.repeats[0].name if model in SMALL else model
    runs = _fine_tune(data, start, store)
    _say("3/4  the page")
    report = write_report(store)
    _say(f"     the page is there; the notebooks follow: {report.html.resolve().as_uri()}")
    notebooks = _execute_notebooks(data, store, start)
    report = write_report(store)
    return Demo(
        base=base.key,
        runs=runs.runs,
        notebooks=notebooks,
        report=report.html,
        _headline=report.sentence(),
    )


def _network_to_start_from(
    data: str | Path, model: str, store: str | Path, goal: Goal | None
) -> Outcome:
    """Train one of the small networks; see what any other one finds."""
    if model not in SMALL:
        _say(f"1/4  what the network {model} finds, before anything is trained")
        return segment(data, model=model, repeats=1, store=store, mode="strict")
    _say("1/4  a network to start from, trained until it finds cells and stored like any run")
    base = train_until_found(data, model=model, store=store, goal=goal or SOON)
    if goal is not None or _finds_enough(base):
        return base
    _say("     it finds hardly a cell so far: once more, for longer")
    return train_until_found(data, model=model, store=store, goal=FOUND)


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
    """Raise with the ways on if the network finds too little to compare anything."""
    if _finds_enough(base):
        return
    manifest = base.repeats[0].manifest
    score = manifest.ap50
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


def _finds_enough(base: Outcome) -> bool:
    """Whether a network finds so many cells that masks of its fine-tunings can be compared."""
    manifest = base.repeats[0].manifest
    score = manifest.ap50
    return not manifest.vacuous and (score is None or score >= LEAST_SCORE)


def _ways_on(base: Outcome, data: str | Path) -> list[str]:
    """What to do where a network finds too little."""
    name = generation_of().default_network
    ways = [
        f"a network that knows such cells: {_command(base, data, name)}, or a weights file instead "
        "of the name (hours on a processor)"
    ]
    longer_training = _longer_training(base, data)
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


def _command(base: Outcome, data: str | Path, model: str) -> str:
    """The demo from another network: by ``make`` in a clone of the project, which sets up, too."""
    folder = shlex.quote(str(data))
    store = shlex.quote(str(base.store.root))
    is_clone = Path.cwd() == packaged_folder("grids").parent
    if is_clone and Path("Makefile").is_file():
        return f"make demo DATA={folder} STORE={store} MODEL={model}"
    return f"cellrepro demo {folder} --store {store} --model {model}"


def _longer_training(base: Outcome, data: str | Path) -> str | None:
    """A training of several times as many epochs, with the time that it will take.

    None where the network was not trained here.
    """
    training = base.repeats[0].manifest.training
    if training is None or training.until is None:
        return None
    spec = base.repeats[0].spec
    seconds_per_epoch = training.until.taken / spec.epochs
    duration = minutes(seconds_per_epoch * LONGER_EPOCHS)
    folder = shlex.quote(str(data))
    return (
        f"more epochs, about {duration} here: cellrepro train {folder} --model {spec.model} "
        f"--epochs {LONGER_EPOCHS} --images-per-epoch {spec.images_per_epoch} --repeats 1 "
        f"--store {shlex.quote(str(base.store.root))}, which names a KEY; then "
        f"{_command(base, data, 'KEY/0')}"
    )


# -- notebooks -----------------------------------------------------------------------------


def _execute_notebooks(data: str | Path, store: str | Path, model: str) -> list[Path]:
    """Execute the notebooks that look at runs; returns the executed copies."""
    _say("4/4  the other notebooks, on these runs")
    folder = Path(store).resolve() / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    parameters_by_name = _notebook_parameters(data, store, model)
    children = Children()

    def executed(name: str) -> Path:
        output = folder / f"{name}.ipynb"
        started = time.monotonic()
        _execute_notebook(name, output, parameters_by_name[name], children)
        _say(f"     {minutes(time.monotonic() - started):>8}  {output}")
        return output

    with ThreadPoolExecutor(_AT_ONCE) as pool:  # each thread only waits for its process
        futures = [pool.submit(executed, name) for name in parameters_by_name]
        try:
            wait(futures)
        except BaseException:  # Ctrl-C
            children.end()
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _notebook_parameters(
    data: str | Path, store: str | Path, model: str
) -> dict[str, dict[str, Any]]:
    """The parameters of each notebook by its name, the one that takes longest first."""
    root = Path(store).resolve()
    images = {"data": str(Path(data).resolve())}
    on_these_runs = {**images, "store": str(root)}
    # What warns is shown in a few steps, kept apart from the demo's grid; so are segmentations
    # with different settings, and two trainings that begin with noise: two fine-tunings so short
    # part in their weights and in no cell.
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
            **images,
            "follow_epochs": 2,  # of each two checkpoints of 21 MB are kept
            "follow_images": 32,
            "learning_rate": 0.02,
            "outside": False,  # what differs outside the training step is the same every time
            "store": str(root / "divergence"),
        },
        "06_inference_benchmark": {**on_these_runs, "model": model, "repeats": 2, "sizes": []},
    }


def _execute_notebook(
    name: str, output: Path, parameters: Mapping[str, Any], children: Children
) -> None:
    """Execute a notebook of the package in a process of its own."""
    task = partial(execute, notebook=find_notebook(name), output=output, parameters=parameters)
    try:
        in_child(task, None, label=f"the notebook {name}", children=children)
    except CellreproError as error:
        raise CellreproError(f"the notebook {name} failed: {error}; see {output}") from error


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
