"""How long a step of the explorer takes to be painted, in Chromium, on 2048² with 5,000 objects.

Voila serves a notebook that shows the explorer; every slider is moved and every view is chosen in
the page, as a hand would.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import nbformat
import numpy as np

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]

CODE = """
import numpy as np
from cellrepro.show.explorer.widget import View, explore_views

arrays = np.load("arrays.npz")
masks = [arrays[name] for name in ("a", "b", "c")]
explore_views([View("made up", masks, arrays["image"], masks[0])], ["A", "B", "C"], height=640)
"""

# From the event to the end of the frame that shows it: the explorer draws in the frame after the
# event, and the second frame begins when that one is handed over.
MEASURE = """
async ([selector, kind, values]) => {
  const element = document.querySelector(selector);
  const frame = () => new Promise(requestAnimationFrame);
  const times = [];
  for (const value of values) {
    await frame();
    await new Promise((resolve) => setTimeout(resolve, 30));
    const started = performance.now();
    if (kind === "click") element.click();
    else if (kind === "key") {
      element.dispatchEvent(new KeyboardEvent("keydown", { key: value, bubbles: true }));
    } else {
      element.value = String(value);
      element.dispatchEvent(new Event(kind, { bubbles: true }));
    }
    await frame();
    await frame();
    times.push(performance.now() - started);
  }
  return times;
}
"""


PICTURE = "canvas => canvas.toDataURL()"


def explorer(extent: str) -> Iterator[tuple[str, float, str, str]]:
    """Median and 95th percentile of every kind of step, in milliseconds.

    Raises
    ------
    RuntimeError
        If there is no Chromium, or the page does not show the explorer.
    """
    from playwright.sync_api import sync_playwright

    chromium = _chromium()
    size, n_objects, n_steps = (256, 80, 5) if extent == "smallest" else (2048, 5000, 25)
    how = f"{n_steps} steps at {size}², {n_objects} objects, Chromium, Voila"
    with tempfile.TemporaryDirectory() as scratch:
        _write_notebook(Path(scratch), size, n_objects)
        with _voila(Path(scratch)) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.goto(address)
            page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=120_000)
            for name, before, step in _steps(n_steps):
                for selector in before:
                    page.locator(selector).click()
                    page.wait_for_timeout(400)
                painted = page.locator("canvas.cre-canvas").evaluate(PICTURE)
                times = page.evaluate(MEASURE, step)
                same = page.locator("canvas.cre-canvas").evaluate(PICTURE) == painted
                if same and name != "speed slider":
                    raise RuntimeError(f"{name}: the picture stayed as it was")
                yield f"explorer: {name}, median, ms", statistics.median(times), "<= 50", how
                slowest = float(np.percentile(times, 95))
                yield f"explorer: {name}, 95th percentile, ms", slowest, "<= 50", how
            browser.close()


def _steps(n: int) -> Iterator[tuple[str, list[str], list]]:
    """What is called how, what is clicked before, and selector, kind and values of the steps."""

    def mode(name: str) -> str:
        return f'[data-choose="{name}"]'

    def values(low: float, high: float) -> list[int]:
        return np.linspace(low, high, n).round().astype(int).tolist()

    fit = ".cre-slider:has(.cre-zoom) .cre-small"
    key, canvas = "key", "canvas.cre-canvas"
    curtain, opacity, zoom = "input.cre-curtain", "input.cre-opacity", "input.cre-zoom"
    yield "curtain slider", [mode("curtain")], [curtain, "input", values(0, 1000)]
    yield "opacity, outlines", [mode("outlines")], [opacity, "input", values(0, 95)]
    yield "opacity, difference", [mode("categories")], [opacity, "input", values(0, 95)]
    yield "opacity, agreement", [mode("agreement")], [opacity, "input", values(0, 80)]
    yield "zoom slider, outlines", [mode("outlines")], [zoom, "input", values(0, 900)]
    yield "zoom slider, difference", [fit, mode("categories")], [zoom, "input", values(0, 900)]
    yield "zoom slider, agreement", [fit, mode("agreement")], [zoom, "input", values(0, 900)]
    yield "speed slider", [fit, mode("blink")], ["input.cre-speed", "input", values(2, 30)]
    yield "blink, other run", [], [canvas, key, [" "] * n]
    yield "views in turn", [], [canvas, key, [str(1 + i % 5) for i in range(n)]]
    yield "next changed cell", [mode("outlines")], [canvas, key, ["n"] * n]
    yield "pan", [], [canvas, key, ["ArrowLeft", "ArrowUp"] * (n // 2)]
    yield "patterns", [fit, mode("categories")], [canvas, key, ["h"] * n]


def _write_notebook(folder: Path, size: int, n_objects: int) -> None:
    np.savez(folder / "arrays.npz", **arrays(size, n_objects))
    cells = [nbformat.v4.new_code_cell(CODE)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), folder / "bench.ipynb")


def arrays(size: int, n_objects: int) -> dict[str, np.ndarray]:
    """An image and three label images of ellipses on a grid; some are lost, others moved."""
    generator = np.random.default_rng(0)
    n_side = int(np.ceil(np.sqrt(n_objects)))
    pitch = size / n_side
    found = {name: np.zeros((size, size), np.uint16) for name in ("a", "b", "c")}
    for i in range(n_objects):
        y, x = (np.array(divmod(i, n_side)) + 0.5) * pitch
        radii = generator.uniform(0.28, 0.46, 2) * pitch
        for name, labels in found.items():
            chance = generator.random()
            if name != "a" and chance < 0.04:
                continue
            shift = generator.uniform(-3, 3, 2) if name != "a" and chance < 0.3 else (0, 0)
            _ellipse(labels, i + 1, y + shift[0], x + shift[1], radii)
    light = generator.poisson(30, (size, size)) + 60 * (found["a"] > 0)
    return {"image": light.astype(np.uint16), **found}


def _ellipse(labels: np.ndarray, label: int, y: float, x: float, radii: np.ndarray) -> None:
    top, left = max(0, int(y - radii[0])), max(0, int(x - radii[1]))
    rows, columns = np.ogrid[top : int(y + radii[0]) + 2, left : int(x + radii[1]) + 2]
    rows, columns = rows[rows[:, 0] < len(labels)], columns[:, columns[0] < len(labels)]
    inside = ((rows - y) / radii[0]) ** 2 + ((columns - x) / radii[1]) ** 2 <= 1
    labels[top : top + len(rows), left : left + columns.shape[1]][inside] = label


@contextmanager
def _voila(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*(sys.executable, "-m", "voila", "bench.ipynb", "--no-browser")]
    command += [f"--port={port}", "--Voila.ip=127.0.0.1"]
    with (folder / "voila.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=dict(os.environ))
        try:
            _wait_for(f"http://127.0.0.1:{port}/static/voila.js", server)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(timeout=30)


def _wait_for(address: str, server: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(address, timeout=5):
                return
        except OSError as error:
            if getattr(error, "code", None):  # it answers
                return
            time.sleep(0.1)
    raise RuntimeError(f"Voila does not answer (exit code {server.poll()})")


def _chromium() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise RuntimeError("Chromium is not installed; install it (apt-get install chromium)")
    return path
