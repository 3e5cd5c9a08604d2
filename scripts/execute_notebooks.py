"""Execute the committed notebooks again, on fresh synthetic data; `make notebooks` calls this.

    python scripts/execute_notebooks.py [NAME ...]    # of all, if none is named

They run in a temporary copy of their folder, one after the other, since later ones look at runs of
earlier ones, and so that the user's store is not touched. Large pictures keep 256 colours: the
files lie in the repository's history for good.
"""

from __future__ import annotations

import argparse
import base64
import io
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image, ImageChops

from cellrepro.images.synthetic_sets import write_folder

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
SECONDS_OF_A_CELL = 900
LARGE_PICTURE = 100_000  # bytes
FURTHEST_COLOUR = 24  # of 255, by which a channel of any pixel may change


def main() -> None:
    """Execute some notebooks or all, and replace each by what it became."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    parser.add_argument("names", nargs="*", help="default all", choices=[[], *known])
    names: Sequence[str] = parser.parse_args().names or known
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(Path(scratch, "data", "synthetic"))
        copies = Path(scratch, NOTEBOOKS.name)
        shutil.copytree(NOTEBOOKS, copies)
        for path in (copies / f"{name}.ipynb" for name in names):
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
    shrink_pictures(notebook)
    nbformat.write(notebook, path)


def drop_live_widgets(notebook: nbformat.NotebookNode) -> None:
    """Keep the still picture alone: where such a notebook is trusted, a widget is an error."""
    widget = "application/vnd.jupyter.widget-view+json"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                output for output in cell.outputs if widget not in output.get("data", {})
            ]


def shrink_pictures(notebook: nbformat.NotebookNode) -> None:
    """Give large pictures a palette, where that makes them smaller."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if len(data.get("image/png", "")) > LARGE_PICTURE:
                data["image/png"] = min(data["image/png"], with_palette(data["image/png"]), key=len)


def with_palette(png: str) -> str:
    """The same picture in 256 colours that keep the rare ones; text as a notebook holds it."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    of_palette = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    furthest = ImageChops.difference(picture, of_palette.convert("RGB")).getextrema()
    if max(largest for _, largest in furthest) > FURTHEST_COLOUR:
        return png
    written = io.BytesIO()
    of_palette.save(written, "png", optimize=True)
    return base64.b64encode(written.getvalue()).decode("ascii")


if __name__ == "__main__":
    main()
