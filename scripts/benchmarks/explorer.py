"""The explorer in a browser, from a step to its paint."""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

from benchmarks.label_images import grid_of_cells
from benchmarks.measuring import Extent, Figure

# A plane of the stack, milliseconds: at eight a second there are 125 for each, and one that was
# not fetched ahead is packed, sent, unpacked and counted.
OF_A_PLANE = "<= 80"


EXPLORER_NOTEBOOK = """
import numpy as np
from cellrepro.show.explorer.planes import View
from cellrepro.show.explorer.widget import Explorer

arrays = np.load("arrays.npz")
masks = [arrays[name] for name in ("a", "b", "c")]
truth = masks[0] if masks[0].ndim == 2 else None
Explorer([View("made up", masks, arrays["image"], truth)], ["A", "B", "C"], height=640)
"""


# From the event to the end of the frame that shows it: the explorer draws in the frame after the
# event, and the second frame begins when that one is handed over.
MEASURE = """
async ([selector, kind, values]) => {
  const element = document.querySelector(selector);
  const { dataset } = document.querySelector(".cellrepro-explorer");
  const frame = () => new Promise(requestAnimationFrame);
  const times = [];
  const pause = selector === "input.cre-z" ? 100 : 30;
  for (const value of values) {
    await frame();
    await new Promise((resolve) => setTimeout(resolve, pause));
    const started = performance.now();
    if (kind === "key") {
      element.dispatchEvent(new KeyboardEvent("keydown", { key: value, bubbles: true }));
    } else {
      element.value = String(value);
      element.dispatchEvent(new Event(kind, { bubbles: true }));
    }
    await frame();
    while (selector === "input.cre-z" && dataset.z !== String(value)) await frame();
    await frame();
    times.push(performance.now() - started);
  }
  return times;
}
"""


PICTURE = "canvas => canvas.toDataURL()"


def explorer(extent: Extent) -> Iterator[Figure]:
    """Milliseconds from a step to its paint, in Chromium, for every slider, view and key."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise RuntimeError("Chromium is not installed; install it (apt-get install chromium)")
    size, n_objects, n_steps = extent.of((256, 80, 5), (2048, 5000, 25))
    how = f"{n_steps} steps at {size}², {n_objects} objects, Chromium, Voila"
    yield from _steps_in(chromium, (size, n_objects, 1), _explorer_steps(n_steps), how)
    stacks = [(512, 40), (1024, 40)]
    for side, n_planes in extent.of([(64, 5)], stacks, [*stacks, (2048, 40)]):
        steps = [("plane slider", [], ["input.cre-z", "input", list(range(1, n_planes))])]
        how = f"stack of {n_planes} planes of {side}², {n_objects} objects, about 8 planes a second"
        yield from _steps_in(chromium, (side, n_objects, n_planes), steps, how)


def _steps_in(
    chromium: str, sizes: tuple[int, int, int], steps: Iterable[Any], how: str
) -> Iterator[Figure]:
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with tempfile.TemporaryDirectory() as scratch:
        _write_notebook(Path(scratch), *sizes)
        with _voila(Path(scratch)) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=flags)
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.goto(address, timeout=300_000)
            page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=300_000)
            for name, before, step in steps:
                for selector in before:
                    page.locator(selector).click()
                    page.wait_for_timeout(400)
                painted = page.locator("canvas.cre-canvas").evaluate(PICTURE)
                times = page.evaluate(MEASURE, step)
                same = page.locator("canvas.cre-canvas").evaluate(PICTURE) == painted
                if same and name != "speed slider":
                    raise RuntimeError(f"{name}: the picture stayed as it was")
                yield Figure(
                    f"explorer: {name}, median, ms", statistics.median(times), "<= 60", how
                )
                slowest = float(np.percentile(times, 95))
                target = OF_A_PLANE if name == "plane slider" else "<= 60"
                yield Figure(f"explorer: {name}, 95th percentile, ms", slowest, target, how)
            browser.close()


def _explorer_steps(n: int) -> Iterator[tuple[str, list[str], list]]:
    """What is called how, what is clicked before, and selector, kind and values of the steps."""

    def mode(name: str) -> str:
        return f'[data-choose="{name}"]'

    def values(low: float, high: float) -> list[int]:
        return np.linspace(low, high, n).round().astype(int).tolist()

    fit = ".cre-slider:has(.cre-zoom) .cre-small"
    key = "key"
    canvas = "canvas.cre-canvas"
    curtain = "input.cre-curtain"
    opacity = "input.cre-opacity"
    zoom = "input.cre-zoom"
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


def _write_notebook(folder: Path, size: int, n_objects: int, n_planes: int) -> None:
    import nbformat

    labels = {}
    for seed, name in enumerate("abc"):
        n = n_objects // -(-n_planes // 8)  # a cell of a stack goes through eight planes
        cells = grid_of_cells(size, n, seed, np.uint16)
        stack = [np.where(cells > 0, cells + z // 8 * 2 * n, 0) for z in range(n_planes)]
        labels[name] = np.array(stack, np.uint16) if n_planes > 1 else cells
    drawn = labels["a"] > 0
    light = np.random.default_rng(0).poisson(30, drawn.shape) + 60 * drawn
    np.savez(folder / "arrays.npz", image=light.astype(np.uint8), **labels)
    cells = [nbformat.v4.new_code_cell(EXPLORER_NOTEBOOK)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), folder / "bench.ipynb")


@contextmanager
def _voila(folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "voila",
        "bench.ipynb",
        "--no-browser",
        f"--port={port}",
        "--Voila.ip=127.0.0.1",
    ]
    with (folder / "voila.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
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
