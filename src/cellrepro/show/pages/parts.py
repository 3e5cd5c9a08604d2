"""What pages are made of: figures, tables, and the data of both as CSV files inside the page."""

from __future__ import annotations

import base64
import csv
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.words import iou_text, percent_text
from samebits.words import grouped

if TYPE_CHECKING:
    from cellrepro.show.figures.style import Picture

_DPI = 110  # of figures
_NARROW_DPI = 160  # of those for phones, whose pixels are small
_PANEL_WIDTH = 480  # of a picture of an image on a wide page, CSS pixels
MOST_ROWS = 300  # of a table on a page; its CSV file holds all
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_TEXTS = {"share": percent_text, "count": grouped, "iou": iou_text}

Row = Mapping[str, Any]
"""The values of a row, or its `Cell`s, by the titles of the columns."""


@dataclass(frozen=True)
class Mark:
    """A ring with a sign around a cell of a panel; lengths in pixels of the panel."""

    sign: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class TableFile:
    """A CSV file inside the page."""

    name: str
    href: str
    """The file itself, as a ``data:`` URL."""
    n_rows: int


@dataclass(frozen=True)
class Drawing:
    """A figure as a wide page shows it, and as a phone does."""

    wide: Picture
    narrow: Picture


def drawn_twice(draw: Callable[..., Picture], *values: Any, **options: Any) -> Drawing:
    """Draw a figure for a wide page and for a phone; the arguments are those of ``draw``."""
    from cellrepro.show.figures.style import NARROW

    return Drawing(draw(*values, **options), draw(*values, width=NARROW, **options))


@dataclass(frozen=True)
class Panel:
    """One picture of a figure."""

    png: str
    """Base64."""
    alt: str
    width: int
    """Pixels."""
    height: int
    shown: int
    """Width on a wide page, CSS pixels."""
    narrow: str = ""
    """The same for a phone, base64; empty where that shows the same picture."""
    heading: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Figure:
    """Pictures side by side with their data; the templates write the caption."""

    panels: tuple[Panel, ...]
    data: TableFile | None = None


def figure(picture: Picture | Drawing, data: TableFile | None = None) -> Figure:
    """Make a figure of a drawing, whose heading is its alternative text if it has no other."""
    wide, narrow = (
        (picture.wide, picture.narrow) if isinstance(picture, Drawing) else (picture, None)
    )
    width, height = wide.get_size_inches()
    alt = wide.alt or wide.get_suptitle() or "Figure"
    drawing = Panel(
        png=_png(wide),
        alt=alt,
        width=round(width * _DPI),
        height=round(height * _DPI),
        shown=round(width * 100),
        narrow=_png(narrow, _NARROW_DPI) if narrow else "",
    )
    return Figure((drawing,), data)


def _png(picture: Picture, dpi: int = _DPI) -> str:
    with warnings.catch_warnings():
        # A file name in a script that the font lacks shows as boxes; the caption spells it out.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        return _base64(picture.png(dpi=dpi))


def panel(pixels: np.ndarray, heading: str, alt: str, marks: Sequence[Mark] = ()) -> Panel:
    """Make one picture of a figure from an array of colours."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    height, width = pixels.shape[:2]
    return Panel(
        png=_base64(buffer.getvalue()),
        alt=alt,
        width=width,
        height=height,
        shown=_PANEL_WIDTH,
        heading=heading,
        marks=tuple(marks),
    )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


# -- tables --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A cell of a table that looks otherwise than its value."""

    text: str
    marked: bool = False
    """Whether it is highlighted."""
    colours: str = ""
    """CSS of its background and text."""
    href: str = ""
    """Where a click on it leads; empty where nowhere."""
    value: Any = None
    """What stands in the CSV file."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    kind: str
    """Its class in the style sheet: ``number``, ``value``, ``verdict``, or none."""


@dataclass(frozen=True)
class Table:
    """A table on the page, and its CSV file."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    data: TableFile | None = None


def table(rows: Sequence[Row], kinds: Mapping[str, str], *, file: str = "") -> Table:
    """Make a table of rows, and a CSV file if it has a name.

    ``kinds`` says by title how a column is written: as ``share``, ``count`` or ``iou``, by a format
    such as ``{:.2f}``, in a class of the style sheet, or only in the ``file``.
    """
    titles = dict.fromkeys(title for row in rows for title in row)
    shown = {title: kinds.get(title, "") for title in titles if kinds.get(title) != "file"}
    return Table(
        columns=[Column(title, _style_of(kind)) for title, kind in shown.items()],
        rows=[[_cell(row.get(title), kind) for title, kind in shown.items()] for row in rows],
        data=table_file(file, rows) if file else None,
    )


def _style_of(kind: str) -> str:
    """Get the class of a column in the style sheet."""
    return "number" if kind in _TEXTS or "{" in kind else kind


def _cell(value: Any, kind: str) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None or _is_nan(value):
        return Cell("–")
    if kind in _TEXTS:
        return Cell(_TEXTS[kind](value))
    return Cell(kind.format(value) if "{" in kind else str(value))


def table_file(name: str, rows: Sequence[Row]) -> TableFile | None:
    """Make a CSV file inside the page; None without rows."""
    if not rows:
        return None
    shown = [{_plain(title): _plain(value) for title, value in row.items()} for row in rows]
    text = io.StringIO()
    titles = dict.fromkeys(title for row in shown for title in row)
    writer = csv.DictWriter(text, list(titles), lineterminator="\n")
    writer.writeheader()
    writer.writerows(shown)
    href = f"data:text/csv;charset=utf-8;base64,{_base64(text.getvalue().encode('utf-8'))}"
    return TableFile(name=f"{name}.csv", href=href, n_rows=len(rows))


def _plain(value: Any) -> Any:
    """Escape what a spreadsheet would take for a formula, as OWASP advises."""
    if isinstance(value, Cell):
        return _plain(value.value)
    if _is_nan(value):
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and bool(np.isnan(value))


# -- words ---------------------------------------------------------------------------------


def which(members: Sequence[str], total: int, noun: str, *, most: int = 6) -> str:
    """Name some members of a list, and count the others.

    >>> which(["a", "b", "c"], 5, "run", most=2), which(["a", "b"], 2, "run")
    ('a; b; and 1 more', 'all 2 runs')
    """
    if len(members) == total > 1:
        return f"all {total} {noun}s"
    shown = list(members[:most])
    n_hidden = len(members) - len(shown)
    if n_hidden:
        shown.append(f"and {n_hidden} more")
    return "; ".join(shown)
