"""The pictures of README and docs, made anew from the current product.

    make pictures                   # or: python scripts/pictures.py --store STORE

The runs are those of the demo: report and explorer are photographed in Chromium at the width of a
desktop and of a phone; how two repeats part is drawn from two trainings in mode ``fast``.
``docs/images/sources.json`` keeps a digest of everything that decides how the pictures look, by
which `tests/test_pictures.py` notices that they are old.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
SOURCES = IMAGES / "sources.json"
SHOW = PROJECT / "src" / "cellrepro" / "show"
DRAWN_BY = (
    "explorer/static/*.js",
    "explorer/static/*.css",
    "report/templates/*",
    "figures/*.py",
)
"""What decides how the pictures look, below ``show``."""
BROWSER_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
)
WAIT_MS = 120_000


@dataclass(frozen=True)
class Screen:
    """The size of a page on screen, in CSS pixels."""

    name: str  # what the file's name ends with
    width: int
    report_height: int
    explorer_height: int


DESKTOP = Screen("", 1200, 1290, 1000)
PHONE = Screen("-phone", 390, 1560, 1520)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, default=PROJECT / "outputs")
    parser.add_argument("--data", type=Path, default=PROJECT / "data" / "synthetic")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        parser.error("Chromium is not installed; install it: apt-get install chromium")
    store = arguments.store.resolve()
    if not (store / "report" / "index.html").exists():
        command = [sys.executable, "-m", "cellrepro", "demo", str(arguments.data)]
        subprocess.run([*command, "--store", str(store)], check=True)
    sources = source_digests()  # before, as somebody may be writing
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw_parting(arguments.data.resolve(), store / "pictures")
    photograph(chromium, store)
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
    if path.suffix == ".css":
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text)


def _without_docstrings(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# -- drawn -----------------------------------------------------------------------------------


def draw_parting(data: Path, aside: Path) -> None:
    """Where two repeats in mode ``fast`` part, and how their difference grows; they are trained
    into ``aside`` once."""
    import cellrepro
    from cellrepro import show

    asked: dict[str, Any] = {"epochs": 6, "images_per_epoch": 16, "learning_rate": 0.01}
    outcome = cellrepro.train(
        data,
        model="tiny",
        mode="fast",
        repeats=2,
        ledger="steps",
        keep_checkpoints=True,
        store=aside,
        **asked,
    )
    a, b = (repeat.name for repeat in outcome.repeats)
    parting = cellrepro.diverge(a, b, store=aside)
    (IMAGES / "parting.png").write_bytes(show.chain(parting).png(caption=True))
    moments = cellrepro.growth(a, b, n_masks=4, store=aside)
    at_operation = parting.first.size.max_abs if parting.first else None
    curve = show.growth_curve(moments, at_operation=at_operation)
    (IMAGES / "growth.png").write_bytes(curve.png())


# -- photographed ----------------------------------------------------------------------------


def photograph(chromium: str, store: Path) -> None:
    """Report and explorer over a store, as a desktop and as a phone show them."""
    from playwright.sync_api import sync_playwright

    from cellrepro.show.report.build import write_report

    page_file = write_report(store).html
    with sync_playwright() as playwright, explorer_served(store) as address:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(BROWSER_FLAGS))
        for screen in (DESKTOP, PHONE):
            size = {"width": screen.width, "height": screen.report_height}
            page = browser.new_page(viewport=size)
            page.goto(page_file.as_uri())
            page.screenshot(path=IMAGES / f"report{screen.name}.png")
            page.set_viewport_size({"width": screen.width, "height": screen.explorer_height})
            page.goto(address, timeout=WAIT_MS)
            page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=WAIT_MS)
            page.locator('[data-choose="categories"]').click()
            page.locator("canvas.cre-canvas").press("n")  # the first changed cell and its story
            page.mouse.move(0, 0)
            page.wait_for_timeout(1_000)
            page.screenshot(path=IMAGES / f"explorer{screen.name}.png")
            page.close()
        browser.close()


@contextmanager
def explorer_served(store: Path) -> Iterator[str]:
    """The explorer over a store, served as `make explore` does; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "voila", "notebooks/07_explorer.ipynb", "--no-browser"]
    command += ["--Voila.config_file_paths=notebooks", "--Voila.ip=127.0.0.1", f"--port={port}"]
    variables = {**os.environ, "CELLREPRO_STORE": str(store)}
    with (store / "pictures" / "voila.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=PROJECT, env=variables, stdout=log, stderr=log)
        try:
            _wait_for(f"http://127.0.0.1:{port}/static/voila.js", server)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(timeout=30)


def _wait_for(address: str, server: subprocess.Popen) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(address, timeout=5):
                return
        except (URLError, OSError) as error:
            if getattr(error, "code", None):  # it answers
                return
            time.sleep(0.2)
    raise RuntimeError(f"Voila does not answer (exit code {server.poll()}); see its log")


if __name__ == "__main__":
    sys.exit(main())
