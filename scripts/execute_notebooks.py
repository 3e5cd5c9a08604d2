"""Execute the committed notebooks again, on fresh synthetic data; `make notebooks` calls this.

They run in a temporary copy of their folder, one after the other, since later ones look at runs of
earlier ones, and so that the user's store is not touched.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from cellrepro.images.synthetic_sets import write_folder

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
SECONDS_OF_A_CELL = 900


def main() -> None:
    """Execute every notebook, and replace it by what it became."""
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(Path(scratch, "data", "synthetic"))
        copies = Path(scratch, NOTEBOOKS.name)
        shutil.copytree(NOTEBOOKS, copies)
        for path in sorted(copies.glob("*.ipynb")):
            print(path.name, flush=True)
            execute(path)
            shutil.copy(path, NOTEBOOKS)


def execute(path: Path) -> None:
    """Execute a notebook in its folder; it keeps what it showed, and nothing of this machine."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=SECONDS_OF_A_CELL,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": path.parent}},
    ).execute()
    notebook.metadata.pop("language_info", None)
    drop_live_widgets(notebook)
    nbformat.write(notebook, path)


def drop_live_widgets(notebook: nbformat.NotebookNode) -> None:
    """Keep the still picture alone: where such a notebook is trusted, a widget is an error."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)


if __name__ == "__main__":
    main()
