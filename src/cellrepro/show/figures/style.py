"""What all figures share: colours, sizes, the class `Picture`, and small parts of axes.

Colours are Okabe and Ito's, and nothing is said by colour alone: lines differ in width and dashes,
fields hold words and signs.
"""

from __future__ import annotations

import base64
import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cellrepro.errors import BadInput
from cellrepro.same.verdicts import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERIES = ("#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#D55E00")
"""Colours for lines and bars on white; no green, so that nothing is red against green."""

MARKERS = "osD^v<>"

GREY, PALE = "#444444", "#DDDDDD"
"""For what explains, and for grids."""

VERDICT_SIGNS: dict[str, str] = {
    Verdict.IDENTICAL: "=",
    Verdict.SAME_OBJECTS: "≅",
    Verdict.WITHIN_SPREAD: "≈",
    Verdict.DIFFERENT: "≠",
    Verdict.VACUOUS: "∅",
    "failed": "×",
    "no verdict": "?",
}
"""One sign per verdict, for those who see no colours."""

VERDICT_COLOURS: dict[str, str] = {
    Verdict.IDENTICAL: "#56B4E9",
    Verdict.SAME_OBJECTS: "#B3DDF5",
    Verdict.WITHIN_SPREAD: "#F6D896",
    Verdict.DIFFERENT: "#E69F00",
    Verdict.VACUOUS: "#D9D9D9",
    "failed": "#CC79A7",
    "no verdict": "#F2F2F2",
}
"""Backgrounds on which black text is readable."""

WIDTH = 9.0
"""Inches, which suits a notebook's column."""

_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
_LETTERS = 110  # that fit beside each other in a figure of `WIDTH`
_TICK_LETTERS = 60  # of a label beside an axis; longer ones are shortened


class Picture(Figure):
    """A figure that shows itself in a notebook, made without pyplot: no global state changes.

    ``caption`` says what to see in it, and is written below it in a notebook; ``alt`` says what it
    shows to those who do not see it.
    """

    def __init__(self, width: float = WIDTH, height: float = 4.0) -> None:
        super().__init__(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")
        self.caption = self.alt = ""

    def described(self, text: str, caption: str = "", alt: str = "") -> Picture:
        """The same picture, with its answer above all, its caption, and its content in words."""
        heading(self, text)
        self.caption, self.alt = caption, alt
        return self

    def png(self, *, dpi: int = 100, caption: bool = False) -> bytes:
        """The figure as a PNG file, ``dpi`` pixels per inch, if asked with its caption below it."""
        buffer = io.BytesIO()
        # No software version inside: equal pictures are equal files.
        self.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        if not (caption and self.caption):
            return buffer.getvalue()
        from PIL import Image

        # Two pictures: legends and titles keep to the edges of a figure that is made larger.
        width = self.get_figwidth()
        told = [textwrap.fill(line, round(13 * width)) for line in self.caption.splitlines()]
        text = "\n".join(told)
        below = Picture(width, 0.27 + 0.17 * text.count("\n"))
        below.text(0.01, 0.98, text, va="top", fontsize=9, color=GREY, parse_math=False)
        files = (buffer, io.BytesIO(below.png(dpi=dpi)))
        stacked = np.vstack([np.asarray(Image.open(file).convert("RGB")) for file in files])
        buffer = io.BytesIO()
        Image.fromarray(stacked).save(buffer, format="PNG", optimize=True)
        return buffer.getvalue()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, str], dict[str, Any]]:
        content = base64.b64encode(self.png(caption=True)).decode("ascii")
        shown = {"image/png": content, "text/plain": self.alt or "a picture"}
        return shown, {"image/png": {"alt": self.alt}} if self.alt else {}


def labels_of(labels: Sequence[str] | None, default: Iterable[str]) -> list[str]:
    """One label for each thing: those given, else the default ones."""
    names = list(default)
    if labels is not None and len(labels) != len(names):
        raise BadInput(f"{len(labels)} labels were given for {len(names)}; give one for each")
    return names if labels is None else list(labels)


def clipped(text: str, most: int = _TICK_LETTERS) -> str:
    """A text without its middle where it would crowd out the drawing; one line, no tabs."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most // 2 - 1]} … {text[2 - most // 2 :]}"


def heading(figure: Picture, text: str) -> None:
    """Write the answer above all."""
    figure.suptitle(clipped(text, _LETTERS), fontsize=11, parse_math=False)


def title(axes: Axes, text: str, *, size: float = 10) -> None:
    """Write above one panel; lines that are too long lose their middle."""
    lines = "\n".join(clipped(line) for line in text.splitlines())
    axes.set_title(lines, fontsize=size, parse_math=False)


def note(text: str, *, height: float = 1.6) -> Picture:
    """A picture that says in words that there is nothing to draw."""
    figure = Picture(height=height)
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=10, parse_math=False)
    return figure


def label_axes(axes: Axes, *, x: str = "", y: str = "") -> None:
    """Name both axes, and take the frame away where there is none."""
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def x_grid(axes: Axes) -> None:
    """Pale lines up from the ticks, behind all else."""
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)


def rows(axes: Axes, names: Iterable[str], *, size: float = 8) -> None:
    """Name the rows of a chart, the first at the top."""
    listed = [clipped(name) for name in names]
    axes.set_yticks(range(len(listed)), listed, parse_math=False, fontsize=size)
    axes.set_ylim(len(listed) - 0.4, -0.6)


def beside(axes: Axes, x: float, y: float, text: str, *, away: float = 4, **style: Any) -> None:
    """Write a number some points to the right of the point that it belongs to, or to the left."""
    axes.annotate(
        text, (x, y), (away, 0), textcoords="offset points", va="center", annotation_clip=False,
        ha="left" if away > 0 else "right", parse_math=False, **{"fontsize": 8, **style},
    )  # fmt: skip


def image_panel(panel: Axes, picture: np.ndarray) -> None:
    """Show an array of colours without ticks."""
    panel.imshow(picture)
    panel.set_xticks([])
    panel.set_yticks([])


def line_style(i: int, n: int) -> dict[str, Any]:
    """Line i of n: each one thinner than the one before and dashed otherwise."""
    wide = i == 0 and n > 1
    return {
        "color": SERIES[i % len(SERIES)],
        "linestyle": _DASHES[min(i, 1 + (i - 1) % 3)] if i else "-",
        "linewidth": 5.0 if wide else max(1.2, 2.6 - 0.3 * i),
        "alpha": 0.55 if wide else 1.0,
    }


def line(label: str, **style: Any) -> Any:
    """A line for a legend; with a marker, the marker alone."""
    if "marker" in style:
        style["linestyle"] = "none"
    return Line2D([], [], label=label, **style)


def patch(label: str, **style: Any) -> Patch:
    """A field for a legend."""
    return Patch(label=label, **{"ec": "#404040", "lw": 0, **style})


def legend(figure: Picture, handles: Sequence[Any]) -> None:
    """Below the axes, in as many columns as its labels leave room for."""
    labels = [clipped(str(handle.get_label()), _LETTERS) for handle in handles]
    n_columns = int(_LETTERS * 1.1) // (max(map(len, labels)) + 8)
    n_columns = max(1, min(6, len(labels), n_columns))
    n_columns = -(-len(labels) // -(-len(labels) // n_columns))  # as many in every row
    drawn = figure.legend(
        handles, labels, loc="outside lower center", ncols=n_columns, fontsize=9, frameon=False,
        handlelength=3,
    )  # fmt: skip
    for text in drawn.get_texts():
        text.set_parse_math(False)


def with_zero(axes: Axes, which: str, values: Iterable[float], *, mirrored: bool = False) -> None:
    """Scale an axis for these values by powers of ten, zero apart; mirrored: also below zero."""
    sizes = [abs(value) for value in values if 0 < abs(value) < math.inf]
    low, high = math.log10(min(sizes, default=0.1)), math.log10(max(sizes, default=1.0))
    low = low if mirrored else math.floor(low + 1e-9)
    scale = axes.set_xscale if which == "x" else axes.set_yscale
    scale("symlog", linthresh=10.0**low, linscale=0.3 if mirrored else 0.6)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter("{x:g}")
    axis.set_ticks([], minor=True)  # they take longer to draw than all else
    every = max(1, math.ceil((high - low) / (2 if mirrored else 5)))
    least = math.ceil(low) + (every if mirrored else 0)  # a mirrored one has no room beside zero
    powers = [10.0**power for power in range(least, math.ceil(high) + 1, every)]
    between = [3 * power for power in powers[:-1]] if high - low < 3 else []
    below = [-power for power in powers] if mirrored else []
    axis.set_ticks([*below, 0.0, *powers, *between])
