"""The explorer as one PNG, for places without a kernel: saved notebooks, HTML, papers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from cellrepro.show.explorer.planes import Views, grey, unpacked
from cellrepro.show.figures.style import (
    COLOURS,
    DASHES,
    DIMMED,
    enlarged,
    enlarged_categories,
    in_category_colours,
    outlined,
    painted,
)

AGREEMENT = ("#F0E442", "#E69F00", "#D55E00", "#8C4A86", "#2F4A7A")
"""From few runs (bright) to all runs (dark): what runs dispute stands out, also without colour."""

AGREED = 0.5
"""The share of the opacity that pixels get on which all runs agree."""

STYLES: dict[str, Any] = {"a": "-", "b": "--", "truth": ":"}


def agreement_colours(n_runs: int) -> list[str]:
    """A colour for each number of runs from 1 to all.

    Parameters
    ----------
    n_runs : int

    Returns
    -------
    list of str
        ``#RRGGBB``, n_runs of them, falling in brightness.

    Examples
    --------
    >>> agreement_colours(2)
    ['#F0E442', '#2F4A7A']
    """
    stops = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in AGREEMENT])
    places = np.linspace(0, len(stops) - 1, n_runs)
    rgb = np.stack([np.interp(places, np.arange(len(stops)), stops[:, i]) for i in range(3)], 1)
    return ["#{:02X}{:02X}{:02X}".format(*np.rint(row).astype(int)) for row in rgb]


def still(
    views: Views, scene: dict[str, Any], *, title: str = "", line: str = "", panel: int = 560
) -> bytes:
    """Outlines of A, outlines of B, where they differ and, of many runs, how many agree.

    Parameters
    ----------
    views : Views
    scene : dict
        From `Views.scene`.
    title, line : str
        Above and below the panels.
    panel : int
        Longer side of each panel, pixels.

    Returns
    -------
    bytes
        A PNG file.
    """
    names = dict(scene["planes"])
    names.pop("story")
    names.pop("objects", None)
    planes = {key: views.plane(name) for key, name in names.items()}
    arrays = {key: unpacked(plane) for key, plane in planes.items()}
    n_rows, n_columns = arrays["a"].shape
    scale = panel / max(n_rows, n_columns)
    shape = max(1, round(n_rows * scale)), max(1, round(n_columns * scale))
    background = np.repeat(enlarged(grey(planes["image"]), shape)[..., None], 3, axis=2)

    panels = []
    for side in ("a", "b"):
        picture = background.copy()
        for key in ("truth", side):  # the truth peeps out where the run leaves it
            if key in arrays:
                labels = enlarged(arrays[key], shape)
                lines = outlined(labels, thickness=1 if scale < 1 else 2, dash=DASHES[key])
                painted(picture, lines, COLOURS[key])
        panels.append((_headed(scene, side), picture))
    panels.append(("where they differ", _differences(background, arrays["categories"])))
    if "cells" in arrays:
        n_runs = planes["cells"]["n_runs"]
        picture = _votes(background, enlarged(arrays["cells"], shape), n_runs)
        panels.append((f"called cell by 1 (bright) to {n_runs} runs (dark)", picture))
    return _figure(panels, scene, title, line, with_truth="truth" in arrays)


def _headed(scene: dict[str, Any], side: str) -> str:
    name, short = scene["names"][side], scene["short"][side]
    return name if name == short else f"{short}: {name}"


def _differences(background: np.ndarray, categories: np.ndarray) -> np.ndarray:
    picture = np.rint(background * DIMMED).astype(np.uint8)
    seen = enlarged_categories(categories, background.shape[:2])
    return in_category_colours(picture, seen)


def _votes(background: np.ndarray, votes: np.ndarray, n_runs: int) -> np.ndarray:
    picture = np.rint(background * DIMMED).astype(np.uint8)
    for n, colour in enumerate(agreement_colours(n_runs), start=1):
        painted(picture, votes == n, colour, 0.85 * (AGREED if n == n_runs else 1))
    return picture


def _figure(
    panels: list[tuple[str, np.ndarray]],
    scene: dict[str, Any],
    title: str,
    line: str,
    *,
    with_truth: bool,
) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Panels are placed to the pixel, so that matplotlib resamples nothing.
    height, width = panels[0][1].shape[:2]
    n_columns = 2 if len(panels) == 4 else len(panels)
    n_rows = -(-len(panels) // n_columns)
    gap = 16
    across = max(n_columns * width + (n_columns + 1) * gap, 700)
    large = max(1.0, across / 1150)  # letters stay readable where a page shows all of it smaller
    heading, bottom = round(32 * large), round(88 * large)
    top = round((44 if title else 16) * large)
    total = (across, n_rows * (height + heading) + top + bottom)
    left = (total[0] - n_columns * width - (n_columns - 1) * gap) // 2
    figure = Figure(figsize=(total[0] / 100, total[1] / 100), dpi=100, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    for i, (name, picture) in enumerate(panels):
        row, column = divmod(i, n_columns)
        x = left + column * (width + gap)
        y = bottom + (n_rows - 1 - row) * (height + heading)
        axes = figure.add_axes((x / total[0], y / total[1], width / total[0], height / total[1]))
        axes.imshow(picture, interpolation="nearest", aspect="auto")
        axes.set_axis_off()
        axes.set_title(name, fontsize=11 * large, parse_math=False)
    if title:
        figure.text(
            0.5, 1 - 28 * large / total[1], title, ha="center", fontsize=13 * large,
            parse_math=False,
        )  # fmt: skip
    _legend(figure, scene["short"], at=56 * large / total[1], size=10 * large, truth=with_truth)
    kinds = ", ".join(f"{n} {kind}" for kind, n in scene["kinds"].items() if n)
    for y, text in ((32, f"cells: {kinds or 'none'}"), (10, line)):
        figure.text(
            0.5, y * large / total[1], text, ha="center", va="bottom", fontsize=10 * large,
            parse_math=False,
        )  # fmt: skip
    buffer = io.BytesIO()
    canvas.print_png(buffer)
    return buffer.getvalue()


def _legend(figure: Any, names: dict[str, str], *, at: float, size: float, truth: bool) -> None:
    """Name colours, line styles and patterns under the panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    outlines = {"a": names["a"], "b": names["b"], **({"truth": "truth"} if truth else {})}
    areas = {
        "only_a": (f"only {names['a']}", "////"),
        "only_b": (f"only {names['b']}", "\\\\\\\\"),
        "other_object": ("other object", "..."),
    }
    handles: list[Any] = [
        Line2D([], [], color=COLOURS[key], linestyle=STYLES[key], linewidth=2.5, label=name)
        for key, name in outlines.items()
    ]
    handles += [
        Patch(facecolor=COLOURS[key], edgecolor="#404040", linewidth=0, hatch=hatch, label=name)
        for key, (name, hatch) in areas.items()
    ]
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, at),
        ncols=len(handles),
        frameon=False,
        fontsize=size,
        handlelength=2.6,
        borderaxespad=0,
    )
