"""The explorer in a browser, from a step to its paint."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import browser
import numpy as np

from benchmarks.label_images import grid_of_cells
from benchmarks.measuring import Extent, Figure

# A plane of the stack, milliseconds: at eight a second there are 125 for each, and one that was
# not fetched ahead is packed, sent, unpacked and counted.
OF_A_PLANE = "<= 80"


EXPLORER_NOTEBOOK = """
import numpy as np
from cellrepro.show.explorer.view import View
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
    size, n_objects, n_steps = extent.of((256, 80, 5), (2048, 5000, 25))
    how = f"{n_steps} steps at {size}², {n_objects} objects, Chromium, Voila"
    yield from _measure(MadeUpView(size, n_objects), _steps_of_a_plane(n_steps), how)
    stacks = [(512, 40), (1024, 40)]
    for side, n_planes in extent.of([(64, 5)], stacks, [*stacks, (2048, 40)]):
        planes = list(range(1, n_planes))
        steps = [Steps("plane slider", "input.cre-z", "input", planes, target=OF_A_PLANE)]
        how = f"stack of {n_planes} planes of {side}², {n_objects} objects, about 8 planes a second"
        yield from _measure(MadeUpView(side, n_objects, n_planes), steps, how)


@dataclass(frozen=True)
class MadeUpView:
    """What the explorer shows."""

    size: int
    """Pixels along an edge."""
    n_objects: int
    n_planes: int = 1
    """1 is no stack."""


@dataclass(frozen=True)
class Steps:
    """What somebody does with one control, again and again."""

    name: str
    selector: str
    """Of the control."""
    kind: str
    """Of the event: ``key`` or ``input``."""
    values: Sequence[int | str]
    """Keys, or positions of a slider, one a step."""
    clicked_before: Sequence[str] = field(default=())
    """Selectors."""
    target: str = "<= 60"
    """Of the 95th percentile, milliseconds."""
    repaints: bool = True
    """Whether the picture is another one afterwards."""


def _measure(view: MadeUpView, every: Iterable[Steps], how: str) -> Iterator[Figure]:
    """Median and 95th percentile of the milliseconds of each kind of step."""
    from playwright.sync_api import sync_playwright

    chromium = browser.find_chromium()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write_notebook(folder, view)
        serving = browser.served_by_voila("bench.ipynb", folder=folder, log=folder / "voila.log")
        with serving as address, sync_playwright() as playwright:
            window = playwright.chromium.launch(executable_path=chromium, args=[*browser.FLAGS])
            page = window.new_page(viewport={"width": 1280, "height": 1000})
            page.goto(address, timeout=300_000)
            page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=300_000)
            for steps in every:
                for selector in steps.clicked_before:
                    page.locator(selector).click()
                    page.wait_for_timeout(400)
                before = page.locator("canvas.cre-canvas").evaluate(PICTURE)
                times = page.evaluate(MEASURE, [steps.selector, steps.kind, list(steps.values)])
                after = page.locator("canvas.cre-canvas").evaluate(PICTURE)
                if steps.repaints and after == before:
                    raise RuntimeError(f"{steps.name}: the picture stayed as it was")
                title = f"explorer: {steps.name}"
                yield Figure(f"{title}, median, ms", statistics.median(times), "<= 60", how)
                slowest = float(np.percentile(times, 95))
                yield Figure(f"{title}, 95th percentile, ms", slowest, steps.target, how)
            window.close()


def _steps_of_a_plane(n: int) -> list[Steps]:
    """Every slider, view and key, ``n`` steps each."""

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
    return [
        Steps(
            "curtain slider", curtain, "input", values(0, 1000), clicked_before=[mode("curtain")]
        ),
        Steps(
            "opacity, outlines", opacity, "input", values(0, 95), clicked_before=[mode("outlines")]
        ),
        Steps(
            "opacity, difference",
            opacity,
            "input",
            values(0, 95),
            clicked_before=[mode("categories")],
        ),
        Steps(
            "opacity, agreement",
            opacity,
            "input",
            values(0, 80),
            clicked_before=[mode("agreement")],
        ),
        Steps(
            "zoom slider, outlines",
            zoom,
            "input",
            values(0, 900),
            clicked_before=[mode("outlines")],
        ),
        Steps(
            "zoom slider, difference",
            zoom,
            "input",
            values(0, 900),
            clicked_before=[fit, mode("categories")],
        ),
        Steps(
            "zoom slider, agreement",
            zoom,
            "input",
            values(0, 900),
            clicked_before=[fit, mode("agreement")],
        ),
        Steps(
            "speed slider",
            "input.cre-speed",
            "input",
            values(2, 30),
            clicked_before=[fit, mode("blink")],
            repaints=False,
        ),
        Steps("blink, other run", canvas, key, [" "] * n),
        Steps("views in turn", canvas, key, [str(1 + i % 5) for i in range(n)]),
        Steps("next changed cell", canvas, key, ["n"] * n, clicked_before=[mode("outlines")]),
        Steps("pan", canvas, key, ["ArrowLeft", "ArrowUp"] * (n // 2)),
        Steps("patterns", canvas, key, ["h"] * n, clicked_before=[fit, mode("categories")]),
    ]


def _write_notebook(folder: Path, view: MadeUpView) -> None:
    import nbformat

    labels = {}
    for seed, name in enumerate("abc"):
        n_layers = -(-view.n_planes // 8)  # a cell of a stack goes through eight planes
        n = view.n_objects // n_layers
        cells = grid_of_cells(view.size, n, seed, np.uint16)
        stack = [np.where(cells > 0, cells + z // 8 * 2 * n, 0) for z in range(view.n_planes)]
        labels[name] = np.array(stack, np.uint16) if view.n_planes > 1 else cells
    drawn = labels["a"] > 0
    light = np.random.default_rng(0).poisson(30, drawn.shape) + 60 * drawn
    np.savez(folder / "arrays.npz", image=light.astype(np.uint8), **labels)
    code = nbformat.v4.new_code_cell(EXPLORER_NOTEBOOK)
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(
        nbformat.v4.new_notebook(cells=[code], metadata=metadata), folder / "bench.ipynb"
    )
