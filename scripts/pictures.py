"""The pictures of README and docs, made anew from the current product.

    make pictures                   # or: python scripts/pictures.py --store STORE

The runs are those of the demo: report and explorer are photographed in Chromium; how two repeats
part is drawn from two trainings in mode ``fast``. ``docs/images/sources.json`` keeps a digest of
everything that decides how the pictures look, by which `tests/test_pictures.py` notices that they
are old.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import browser

if TYPE_CHECKING:
    from playwright.sync_api import Page

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
SOURCES = IMAGES / "sources.json"
SHOW = PROJECT / "src" / "cellrepro" / "show"
DRAWN_BY = (
    "explorer/static/*.js",
    "explorer/static/*.css",
    "pages/templates/macros.j2",
    "pages/templates/page.html.j2",
    "pages/templates/page.css.j2",
    "pages/templates/live.html.j2",
    "report/templates/*",
    "report/*.js",
    "figures/*.py",
)
"""What decides how the pictures look, below ``show``."""
WAIT_MS = 120_000
WITH_SLIDERS = 860
"""The width of a page in CSS pixels on which sliders stand beside the picture."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, default=PROJECT / "outputs")
    parser.add_argument("--data", type=Path, default=PROJECT / "data" / "synthetic")
    arguments = parser.parse_args()
    try:
        chromium = browser.find_chromium()
    except browser.NoChromium as error:
        parser.error(str(error))
    store = arguments.store.resolve()
    if not (store / "report" / "index.html").exists():
        command = [sys.executable, "-m", "cellrepro", "demo", str(arguments.data)]
        subprocess.run([*command, "--store", str(store)], check=True)
    sources = source_digests()  # before, as somebody may be writing
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw_parting(arguments.data.resolve(), store / "pictures")
    photograph(chromium, store)
    photograph_settings(chromium, store, arguments.data.resolve())
    SOURCES.write_text(json.dumps(sources, indent=1) + "\n", encoding="utf-8")
    for path in sorted(IMAGES.glob("*.png")):
        print(f"{path.relative_to(PROJECT)}  {path.stat().st_size / 1000:.0f} kB")
    return 0


# -- whether the pictures are old ------------------------------------------------------------


def source_digests() -> dict[str, str]:
    """What decides how the pictures look: a digest of each file, comments and docstrings of it
    left out."""
    paths = sorted(path for pattern in DRAWN_BY for path in SHOW.glob(pattern) if path.is_file())
    return {
        path.relative_to(SHOW).as_posix(): sha256(_telling(path).encode()).hexdigest()[:16]
        for path in paths
    }


def _telling(path: Path) -> str:
    """What of a file's text can change a picture."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return _without_docstrings(text)
    if path.suffix == ".js":
        text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    if ".css" in path.suffixes:
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text)


def _without_docstrings(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# -- drawn -----------------------------------------------------------------------------------


def draw_parting(data: Path, aside: Path) -> None:
    """Draw where two repeats in mode ``fast`` part, and how their difference grows.

    They are trained on a folder of images, and stay in a store of their own.
    """
    import cellrepro
    from cellrepro import show

    outcome = cellrepro.train(
        data,
        model="tiny",
        mode="fast",
        repeats=2,
        ledger="steps",
        keep_checkpoints=True,
        epochs=6,
        images_per_epoch=16,
        learning_rate=0.01,
        store=aside,
    )
    a = outcome.repeats[0].name
    b = outcome.repeats[1].name
    parting = cellrepro.diverge(a, b, store=aside)
    (IMAGES / "parting.png").write_bytes(show.chain(parting).png(caption=True))
    moments = cellrepro.growth(a, b, n_masks=4, store=aside)
    at_operation = parting.first.size.max_abs if parting.first else None
    curve = show.growth_curve(moments, at_operation=at_operation)
    (IMAGES / "growth.png").write_bytes(curve.png())


# -- photographed ----------------------------------------------------------------------------


def photograph(chromium: str, store: Path) -> None:
    """Photograph report and explorer of a store."""
    from playwright.sync_api import sync_playwright

    from cellrepro.show.report.build import write_report

    page_file = write_report(store).html
    with sync_playwright() as playwright, explorer_served(store) as address:
        window = playwright.chromium.launch(executable_path=chromium, args=[*browser.FLAGS])
        page = browser.opened(window)
        page.goto(page_file.as_uri())
        browser.photograph(page, IMAGES / "report.png", "header")
        photograph_two_runs(page)
        page.goto(address, timeout=WAIT_MS)
        page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=WAIT_MS)
        choose_two_seeds(page)
        page.locator('[data-choose="categories"]').click()
        page.locator("canvas.cre-canvas").press("n")  # the first changed cell and its story
        page.mouse.move(0, 0)
        page.wait_for_timeout(1_000)
        # The list of cells, longer than what stands below the picture, would be cut off.
        page.add_style_tag(content=".cre-list { visibility: hidden; }")
        parts = (".cre-counts", ".cre-choices", ".cre-readout", ".cre-story")
        browser.photograph(page, IMAGES / "explorer.png", *parts)
        window.close()


def choose_two_seeds(page: Page) -> None:
    """Choose two trainings of the demo that differ in their cells."""
    for side, seed in (("a", "seed 0"), ("b", "seed 1")):
        choice = page.locator(f"select.cre-select-{side}")
        names = choice.locator("option").all_inner_texts()
        trained = [name for name in names if not name.startswith("only segmented")]
        choice.select_option(label=next(n for n in trained if "strict" in n and seed in n))
        page.wait_for_timeout(2_000)


def photograph_two_runs(page: Page) -> None:
    """Photograph the report's table, folded to the two runs that differ most."""
    page.locator("[data-compare]").click()
    page.locator(".explorer-of-two canvas").first.wait_for(timeout=WAIT_MS)
    page.wait_for_timeout(2_000)
    browser.photograph(page, IMAGES / "two_runs.png", "#runs .two")


def photograph_settings(chromium: str, store: Path, data: Path) -> None:
    """Photograph the page on which masks follow sliders, with a network of the store."""
    from playwright.sync_api import sync_playwright

    from cellrepro.images.folder import read_folder
    from cellrepro.show.which_runs import best_network
    from cellrepro.store.store import Store

    image = read_folder(data).test[0].image_path.relative_to(PROJECT)
    model = best_network(Store(store), data).name
    command = [sys.executable, "-m", "cellrepro", "explore", str(image), "--model", model]
    command += ["--store", str(store), "--no-browser"]
    with (
        subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as process,
        sync_playwright() as playwright,
    ):
        assert process.stderr is not None
        address = process.stderr.readline().split(": ", 1)[1].strip()
        window = playwright.chromium.launch(executable_path=chromium, args=[*browser.FLAGS])
        page = browser.opened(window, width=WITH_SLIDERS)
        page.goto(address, timeout=WAIT_MS)
        page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=WAIT_MS)
        page.get_by_label("cellprob_threshold", exact=True).fill("2")
        page.get_by_label("flow_threshold", exact=True).fill("0.2")
        page.wait_for_timeout(1_000)
        page.locator('.crl[data-state="exact"]').wait_for(timeout=WAIT_MS)
        page.locator("canvas.cre-canvas").press("n")
        page.mouse.move(0, 0)
        # The settings end beside the image's colours, which would be cut off.
        page.add_style_tag(content=".cre-picture { visibility: hidden; }")
        page.wait_for_timeout(1_000)
        browser.photograph(page, IMAGES / "settings.png", "header", ".cre-frame", ".crl")
        window.close()
        process.terminate()


def explorer_served(store: Path) -> AbstractContextManager[str]:
    """The explorer over a store, served as `make explore` does; gives its address."""
    return browser.served_by_voila(
        "notebooks/07_explorer.ipynb",
        folder=PROJECT,
        log=store / "pictures" / "voila.log",
        options=["--Voila.config_file_paths=notebooks"],
        variables={"CELLREPRO_STORE": str(store)},
    )


if __name__ == "__main__":
    sys.exit(main())
