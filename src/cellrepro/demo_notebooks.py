"""The notebooks of the demo, executed on its runs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from cellrepro.errors import CellreproError
from cellrepro.grid.notebook_execution import execute
from cellrepro.grid.packaged_files import find_notebook
from cellrepro.process.calling import Children
from cellrepro.progress import print_line
from cellrepro.show.which_runs import elsewhere
from cellrepro.store.store import Store
from cellrepro.words import minutes


def execute_notebooks(
    data: str | Path, store: str | Path, model: str, *, n_at_once: int
) -> list[Path]:
    """Execute the notebooks that look at runs; returns the executed copies."""
    print_line("4/4  the other notebooks, on these runs")
    folder = Path(store).resolve() / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    parameters_by_name = _notebook_parameters(data, store, model)
    children = Children()

    def executed(name: str) -> Path:
        output = folder / f"{name}.ipynb"
        started = time.monotonic()
        _execute_notebook(name, output, parameters_by_name[name], children)
        print_line(f"     {minutes(time.monotonic() - started):>8}  {output}")
        return output

    with ThreadPoolExecutor(n_at_once) as pool:  # each thread only listens to its kernel
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
) -> dict[str, Mapping[str, object]]:
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
    name: str, output: Path, parameters: Mapping[str, object], children: Children
) -> None:
    """Execute a notebook of the package, in a kernel of its own."""
    try:
        execute(find_notebook(name), output, parameters, environment=os.environ, children=children)
    except CellreproError as error:
        raise CellreproError(f"the notebook {name} failed: {error}; see {output}") from error
