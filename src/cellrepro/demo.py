"""The whole lab once: a trained network, a grid of fine-tunings, the report, the notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cellrepro.demo_network import network_to_start_from, stop_without_cells
from cellrepro.demo_notebooks import execute_notebooks
from cellrepro.grid.grid import run_grid
from cellrepro.grid.grid_runs import GridRun, GridRuns
from cellrepro.grid.packaged_files import packaged_folder
from cellrepro.grid.points import read_grid
from cellrepro.model.encoders import SMALL
from cellrepro.process.process_ends import RunError
from cellrepro.progress import print_line
from cellrepro.run.until_found import Goal
from cellrepro.show.report.build import write_report
from cellrepro.spec import defaults
from cellrepro.terminal import IN_PYTHON, FileName
from samebits.errors import BadInput
from samebits.results import Result, Row

_SYNTHETIC = "data/synthetic"
"""The folder in which ``cellrepro data synthetic`` puts its images."""

_AT_ONCE = 2
"""Specs of the grid, and then notebooks, that are carried out at the same time."""


@dataclass(frozen=True, repr=False)
class Demo(Result):
    """The runs, pages and notebooks that the demo made."""

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
    """The first sentence of the page."""

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
    base = network_to_start_from(data, model, store, goal)
    stop_without_cells(base, data, model)
    start = base.repeats[0].name if model in SMALL else model
    runs = _fine_tune(data, start, store)
    print_line("3/4  the page")
    report = write_report(store)
    print_line(f"     the page is there; the notebooks follow: {report.html.resolve().as_uri()}")
    notebooks = execute_notebooks(data, store, start, n_at_once=_AT_ONCE)
    report = write_report(store)
    return Demo(
        base=base.key,
        runs=runs.runs,
        notebooks=notebooks,
        report=report.html,
        _headline=report.sentence(),
    )


def _fine_tune(data: str | Path, model: str, store: str | Path) -> GridRuns:
    """Carry out the demo grid from a network."""
    grid = read_grid(
        packaged_folder("grids") / "demo.yaml",
        store=store,
        overrides={"data": str(data), "model": model},
    )
    print_line(f"2/4  the demo grid: {len(grid.points)} specs of seed, mode and profile")
    runs = run_grid(grid, workers=_AT_ONCE)
    for run in runs.failures:
        raise RunError("failed", f"a spec failed: {run.reason}; its notebook is in {run.folder}")
    return runs
