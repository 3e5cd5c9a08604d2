"""What all figures share: colours, sizes, the class `Picture`, and small parts of axes.

Colours are Okabe and Ito's, and nothing is said by colour alone: lines differ in width and dashes,
fields hold words and signs.
"""

from __future__ import annotations

import base64
import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from samebits.errors import BadInput
from samebits.words import with_verb

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from numpy.typing import ArrayLike

SERIES = ("#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#D55E00")
"""Colours for lines and bars on white; no green, so that nothing is red against green."""

MARKERS = "osD^v<>"

GREY = "#444444"
"""For captions and other explanations."""

_TEXT_GAP = 0.03
"""Share of the width between a bar, the text behind it and the edge of the picture."""
_LEAST_BAR = 0.15
"""Share of the width that the longest bar keeps, however long its text is."""

PALE = "#DDDDDD"
"""For grids."""

EDGE = "#555555"
"""For the edges of bars and fields."""

WIDTH = 9.0
"""Inches, which suits a notebook's column."""

NARROW = 4.3
"""Inches, which suit a phone: the same letters are as large there as on a page."""

_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
_ON_WHITE: dict[str, Any] = {
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
}
"""What is written over lines stays readable."""
_HEADING_SIZE = 11
"""Points."""
_LETTERS = 110
"""How many of the heading fit beside each other in a figure of `WIDTH`."""
_MOST_LINES = 4
"""Of a title; more would leave no room for the figure."""
_TICK_LETTERS = 60
"""How many a label beside an axis has at most; longer ones are shortened."""


class Picture(Figure):
    """A figure that shows itself in a notebook, made without pyplot: no global state changes."""

    def __init__(self, width: float = WIDTH, height: float = 4.0) -> None:
        super().__init__(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")
        self.caption = ""
        self.alt = ""

    @property
    def is_narrow(self) -> bool:
        """Whether names stand above their rows, as there is no room beside them."""
        return self.get_figwidth() < (NARROW + WIDTH) / 2

    @property
    def n_letters(self) -> int:
        """How many letters of a heading fit beside each other."""
        return round(_LETTERS * self.get_figwidth() / WIDTH)

    def described(self, text: str, caption: str = "", alt: str = "") -> Picture:
        """Set the heading, the caption and the alternative text; returns the same picture."""
        heading(self, text)
        self.caption = caption
        self.alt = alt
        return self

    def png(self, *, dpi: int = 100, caption: bool = False) -> bytes:
        """Write the figure as a PNG file."""
        buffer = io.BytesIO()
        # No software version inside: equal pictures are equal files.
        self.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        if caption and self.caption:
            return self._above_its_caption(buffer, dpi)
        return buffer.getvalue()

    def _above_its_caption(self, drawn: io.BytesIO, dpi: int) -> bytes:
        """Stack two pictures: in one larger figure legends and titles would move to its edges."""
        from PIL import Image

        width = self.get_figwidth()
        n_letters = round(13 * width)
        text = wrapped(self.caption, n_letters, most_lines=None)
        below = Picture(width, 0.27 + 0.17 * text.count("\n"))
        below.text(0.01, 0.98, text, va="top", fontsize=9, color=GREY, parse_math=False)
        files = (drawn, io.BytesIO(below.png(dpi=dpi)))
        stacked = np.vstack([np.asarray(Image.open(file).convert("RGB")) for file in files])
        buffer = io.BytesIO()
        Image.fromarray(stacked).save(buffer, format="PNG", optimize=True)
        return buffer.getvalue()

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Show it in Jupyter, which names the formats that it would like or not."""
        content = base64.b64encode(self.png(caption=True)).decode("ascii")
        shown = {"image/png": content, "text/plain": self.alt or "a picture"}
        metadata = {"image/png": {"alt": self.alt}} if self.alt else {}
        return shown, metadata


def labels_of(labels: Sequence[str] | None, default: Iterable[str]) -> list[str]:
    """Get the labels that were given, one for each default label, or the default ones."""
    names = list(default)
    if labels is not None and len(labels) != len(names):
        raise BadInput(
            f"{with_verb(len(labels), 'label', 'was', 'were')} given for {len(names)}; "
            "give one for each"
        )
    return names if labels is None else list(labels)


def clipped(text: str, most: int = _TICK_LETTERS) -> str:
    """Cut the middle out of a long text, between words if it has any.

    >>> clipped("a text that is far too long", 16), clipped("0123456789abcdef", 8)
    ('a text … long', '012 … ef')
    """
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    n_first = most // 2 - 1
    n_last = most // 2 - 2
    words_first = text[: n_first + 1].rpartition(" ")[0]
    words_last = text[-n_last - 1 :].partition(" ")[2]
    begins = words_first if len(words_first) > n_first // 2 else text[:n_first]
    ends = words_last if len(words_last) > n_last // 2 else text[-n_last:]
    return f"{begins} … {ends}"


def texts_beside(axes: Axes, bars: BarContainer, texts: Sequence[str], ends: ArrayLike) -> None:
    """Write a text behind each horizontal bar, and extend the axis until every text fits."""
    background = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    labels = axes.bar_label(bars, texts, padding=6, fontsize=9, bbox=background)
    for label in labels:
        label.set_in_layout(False)  # else the axes shrink, to make room beside them
    positions = np.asarray(ends, float)
    longest = positions.max() or 1.0
    axes.set_xlim(0, longest)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest])
    picture_of(axes).draw_without_rendering()  # lays it out
    width = axes.get_window_extent().width
    taken = np.array([label.get_window_extent().width for label in labels]) / width
    shares = np.clip(1 - taken - _TEXT_GAP, _LEAST_BAR, 1)  # of the width that a bar may take
    axes.set_xlim(0, max(longest, (positions / shares).max()))


def wrapped(text: str, n_letters: int, *, most_lines: int | None = _MOST_LINES) -> str:
    """Break each line of a text into lines that fit; what is far too long ends between words.

    >>> print(wrapped("one title\\nand a line too long", 10))
    one title
    and a line
    too long
    """
    # A number such as 2 198 is not torn apart at the end of a line.
    whole_numbers = re.sub(r"(?<=\d) (?=\d{3}(?!\d))", "\N{NO-BREAK SPACE}", text)
    lines = [
        textwrap.fill(line, n_letters, max_lines=most_lines, placeholder=" …")
        for line in whole_numbers.splitlines()
    ]
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def heading(figure: Picture, text: str) -> None:
    """Write the heading of a figure, in as many lines as it needs."""
    figure.suptitle(wrapped(text, figure.n_letters), fontsize=_HEADING_SIZE, parse_math=False)


def title(axes: Axes, text: str, *, size: float = 10) -> None:
    """Write the title of a panel, in as many lines as it needs beside its neighbours."""
    place = axes.get_subplotspec()
    share = len(place.colspan) / place.get_gridspec().ncols if place else 1.0
    n_letters = round(picture_of(axes).n_letters * share * _HEADING_SIZE / size)
    axes.set_title(wrapped(text, n_letters), fontsize=size, parse_math=False)


def picture_of(axes: Axes) -> Picture:
    """The picture that a panel is part of."""
    picture = axes.get_figure()
    assert isinstance(picture, Picture)
    return picture


def note(text: str, *, height: float = 1.6) -> Picture:
    """Make a picture that says in words why there is nothing to draw."""
    figure = Picture(height=height)
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=10, parse_math=False)
    return figure


def label_axes(axes: Axes, *, x: str = "", y: str = "") -> None:
    """Label the axes that are given a name, and hide the frame on the top and right."""
    if x:
        axes.set_xlabel(x, fontsize=9)
    if y:
        axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def x_grid(axes: Axes) -> None:
    """Draw pale lines up from the ticks, behind all else."""
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)


def rows(axes: Axes, names: Iterable[str], *, size: float = 8) -> None:
    """Name the rows of a chart, the first at the top; in a narrow picture above the rows."""
    listed = ["\n".join(map(clipped, name.splitlines())) for name in names]
    positions = range(len(listed))
    if not picture_of(axes).is_narrow:
        axes.set_yticks(positions, listed, parse_math=False, fontsize=size)
        axes.set_ylim(len(listed) - 0.4, -0.6)
        return
    axes.set_yticks(positions, [""] * len(listed))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(listed) - 0.55, -0.55)
    for y, name in enumerate(listed):
        _write(
            axes,
            0.0,
            y - 0.47,
            name,
            offset=(4, 0),
            va="top",
            ha="left",
            fontsize=size,
            **_ON_WHITE,
        )


def beside_row(
    axes: Axes,
    y: float,
    text: str,
    *,
    x: float = 1.0,
    away: float = 4,
    size: float = 8,
    colour: str = "black",
) -> None:
    """Write to the right of a row; in a narrow picture above its right end."""
    if picture_of(axes).is_narrow:
        _write(
            axes,
            1.0,
            y - 0.47,
            text,
            va="top",
            ha="right",
            fontsize=size,
            color=colour,
            **_ON_WHITE,
        )
        return
    offset = (away, 0)
    _write(axes, x, y, text, offset=offset, va="center", ha="left", fontsize=size, color=colour)


def _write(
    axes: Axes, x: float, y: float, text: str, *, offset: tuple[float, float] = (0, 0), **look: Any
) -> None:
    """Write at a share of the width and a row; ``look`` is matplotlib's ``Text`` properties."""
    axes.annotate(
        text,
        (x, y),
        offset,
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        annotation_clip=False,
        parse_math=False,
        **look,
    )


def image_panel(panel: Axes, picture: np.ndarray) -> None:
    """Show an array of colours, (Y, X, 3) of uint8, without ticks."""
    panel.imshow(picture)
    panel.set_xticks([])
    panel.set_yticks([])


class LineStyle(TypedDict):
    """Keyword arguments of `matplotlib.axes.Axes.plot`, by which lines in one place stay apart."""

    color: str
    linestyle: Any
    linewidth: float
    alpha: float


def line_style(i: int, n: int) -> LineStyle:
    """Get the style of a line: each is thinner than the one before and dashed otherwise."""
    is_wide = i == 0 and n > 1
    return {
        "color": SERIES[i % len(SERIES)],
        "linestyle": _DASHES[min(i, 1 + (i - 1) % 3)] if i else "-",
        "linewidth": 5.0 if is_wide else max(1.2, 2.6 - 0.3 * i),
        "alpha": 0.55 if is_wide else 1.0,
    }


_MOST_COLUMNS = 6  # of a legend


def line(label: str, **options: Any) -> Line2D:
    """Make a line for a legend; with a marker, the marker alone."""
    if "marker" in options:
        options["linestyle"] = "none"
    return Line2D([], [], label=label, **options)


def patch(label: str, **options: Any) -> Patch:
    """Make a field for a legend."""
    options.setdefault("ec", "#404040")
    options.setdefault("lw", 0)
    return Patch(label=label, **options)


def legend(figure: Picture, *groups: Sequence[Artist]) -> None:
    """Explain lines and fields below the axes, in as few rows as there is room for.

    Each group begins in a column of its own.
    """
    columns, n_rows = _columns([group for group in groups if group], figure.n_letters)
    handles: list[Artist] = []
    for column in columns:
        n_empty = -len(handles) % n_rows
        handles += [*(line("", linestyle="none") for _ in range(n_empty)), *column]
    drawn = figure.legend(
        handles,
        [clipped(str(handle.get_label()), figure.n_letters) for handle in handles],
        loc="outside lower center",
        ncols=len(columns),
        fontsize=9,
        frameon=False,
        handlelength=3,
    )
    for text in drawn.get_texts():
        text.set_parse_math(False)


def _columns(
    groups: Sequence[Sequence[Artist]], n_letters: int
) -> tuple[list[Sequence[Artist]], int]:
    """Distribute handles over columns, and give the rows of the longest.

    A column is as wide as its longest label and the handles beside it.
    """
    n_handles = sum(map(len, groups))
    for n_rows in range(math.ceil(n_handles / _MOST_COLUMNS), n_handles + 1):
        columns = [
            group[start : start + n_rows]
            for group in groups
            for start in range(0, len(group), n_rows)
        ]
        widths = [max(len(str(one.get_label())) for one in column) + 8 for column in columns]
        if len(columns) <= _MOST_COLUMNS and sum(widths) <= 1.1 * n_letters:
            return columns, n_rows
    return [[handle for group in groups for handle in group]], n_handles


def with_zero(
    axes: Axes, which: Literal["x", "y"], values: Iterable[float], *, mirrored: bool = False
) -> None:
    """Make an axis logarithmic, with room for zero.

    matplotlib's ``symlog`` does that: it is linear up to the smallest value that is not zero.
    """
    sizes = [abs(value) for value in values if 0 < abs(value) < math.inf]
    low = math.log10(min(sizes, default=0.1))
    high = math.log10(max(sizes, default=1.0))
    if not mirrored:
        low = math.floor(low + 1e-9)
    scale = axes.set_xscale if which == "x" else axes.set_yscale
    scale("symlog", linthresh=10.0**low, linscale=0.3 if mirrored else 0.6)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(_short_power if mirrored else "{x:g}")
    axis.set_ticks([], minor=True)  # they take longer to draw than all else
    axis.set_ticks(_ticks_with_zero(low, high, mirrored=mirrored))


def _short_power(value: float, _: object = None) -> str:
    """A power of ten with its exponent raised, which takes half of the room.

    >>> _short_power(-1e-06), _short_power(0.0)
    ('$-10^{-6}$', '0')
    """
    exponent = math.log10(abs(value)) if value else 0.5
    if abs(exponent - round(exponent)) > 1e-9:  # a tick between two powers, or zero
        return f"{value:g}"
    sign = "-" if value < 0 else ""
    return f"${sign}10^{{{round(exponent)}}}$"


def _ticks_with_zero(low: float, high: float, *, mirrored: bool) -> list[float]:
    """Zero and some powers of ten between two, given as exponents."""
    step = max(1, math.ceil((high - low) / (3 if mirrored else 5)))
    exponents = range(math.ceil(low), math.ceil(high) + 1, step)
    if mirrored:  # there is no room beside zero
        exponents = range(math.floor(high), math.ceil(low) + step - 1, -step)[::-1]
    powers = [10.0**power for power in exponents]
    negative = [-power for power in powers] if mirrored else []
    return [*negative, 0.0, *powers, *_between(powers, low, high)]


def _between(powers: Sequence[float], low: float, high: float) -> list[float]:
    """Ticks between powers of ten, where these are few."""
    return [3 * power for power in powers[:-1]] if high - low < 2 else []
