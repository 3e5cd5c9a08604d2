"""Execute the committed notebooks on fresh synthetic data and compare their telling cells.

In a temporary copy, so that neither the committed notebooks nor the user's store are touched.
With ``--update`` the executed copies replace the committed ones (``make notebooks``).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from papermill.iorw import load_notebook_node, write_ipynb
from papermill.parameterize import parameterize_notebook

from cellrepro.images.synthetic_sets import write_folder

PROJECT = Path(__file__).resolve().parents[1]
TIMEOUT = 900  # seconds a cell
ONE_THREAD = "cpu-1thread"  # less waiting, since other tests run beside it
FEW = {"data": "../data/few"}  # three images to train on, three to test
SHORT = {
    "01_seeded_training": {
        **FEW,
        "images_per_epoch": 6,
        "learning_rate": 0.006,
        "profile": ONE_THREAD,
    },
    "02_mask_comparison": FEW,
    "03_determinism_warnings": {
        **FEW,
        "steps": 1,
        "replays": 4,
        "epochs": 2,
        "images_per_epoch": 4,
        "cost_rounds": 1,
        "store": "../outputs/aside",
    },
    "04_cross_device_report": FEW,
    "05_first_divergence": {
        **FEW,
        "follow_epochs": 2,
        "follow_images": 4,
        "outside": False,
        "store": "../outputs/aside",
    },
    "06_inference_benchmark": {
        **FEW,
        "sizes": [256],
        "batch_sizes": [8],
        "size_repeats": 1,
        "profile": ONE_THREAD,
    },
    "07_explorer": FEW,
    "08_segmentation_settings": {
        **FEW,
        "vary": {"diameter": [20], "flow_threshold": [0.1], "batch_size": [1]},
        "profile": ONE_THREAD,
    },
}
"""Parameters with which a notebook is checked: enough for what its telling cells say. Trainings too
short to find a cell stand aside, where no other notebook picks them."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="replace the committed notebooks")
    parser.add_argument("--as-committed", action="store_true", help="with their own parameters")
    parser.add_argument("names", nargs="*", help="only these (default: all)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        lab = Path(scratch)
        write_folder(lab / "data" / "synthetic")
        write_folder(lab / "data" / "few", n_train=3, n_test=3)
        copies = _copy(lab / "notebooks", arguments.names)
        if arguments.update:
            return _update(copies)
        for path in [] if arguments.as_committed else copies:
            _shorten(path)
        return _validate(lab, copies)


def _copy(folder: Path, names: list[str]) -> list[Path]:
    folder.mkdir()
    chosen = sorted(
        path for path in (PROJECT / "notebooks").glob("*.ipynb") if not names or path.stem in names
    )
    return [Path(shutil.copy(path, folder)) for path in chosen]


def _shorten(path: Path) -> None:
    if path.stem in SHORT:
        notebook = parameterize_notebook(load_notebook_node(str(path)), SHORT[path.stem])
        write_ipynb(notebook, str(path))


def _validate(lab: Path, notebooks: list[Path]) -> int:
    (lab / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(lab / "pytest.ini"),
        f"--rootdir={lab}",
        "-p",
        "no:cacheprovider",
        "--nbval-lax",
        f"--nbval-cell-timeout={TIMEOUT}",
        *map(str, notebooks),
    ]
    return subprocess.run(command, cwd=lab, check=False).returncode


def _update(notebooks: list[Path]) -> int:
    for path in notebooks:
        print(path.name, flush=True)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "nbconvert",
                "--to",
                "notebook",
                "--execute",
                "--inplace",
                f"--ExecutePreprocessor.timeout={TIMEOUT}",
                "--ExecutePreprocessor.store_widget_state=False",
                "--ExecutePreprocessor.record_timing=False",
                str(path),
            ],
            check=True,
        )
        _drop_live_widgets(path)
        shutil.copy(path, PROJECT / "notebooks" / path.name)
    return 0


def _drop_live_widgets(path: Path) -> None:
    """Keep the still picture alone: where such a notebook is trusted, a widget is an error."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    sys.exit(main())
