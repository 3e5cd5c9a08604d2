"""What the report's sections are made of: figures with captions, tables, their data, links."""

from __future__ import annotations

import base64
import csv
import io
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.text import ppm_text, share_text

if TYPE_CHECKING:
    from cellrepro.show.figures.style import Picture
    from cellrepro.store.store import Repeat, Store

_DPI = 110
_MOST_ROWS = 2000  # of the data beside a figure: the page stays small enough to send
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True)
class Download:
    """The numbers behind a figure, as a file inside the page: ``href`` asks no server."""

    name: str
    href: str
    n_rows: int
    n_left_out: int = 0


@dataclass(frozen=True)
class Mark:
    """A sign beside the ring around one object of a panel; all lengths in its pixels."""

    x: float
    y: float
    radius: float
    sign: str
    sign_x: float
    sign_y: float


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: its size in pixels, and its width on a wide page, CSS pixels."""

    source: str
    alt: str
    width: int
    height: int
    shown: int
    heading: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Shown:
    """A figure of the page: pictures, what they show and over how much, and their data."""

    panels: tuple[Panel, ...]
    caption: str
    data: Download | None = None


def figure(picture: Picture, caption: str, data: Download | None) -> Shown:
    """A drawing as a figure of the page: what it shows over how many images and runs, and the
    numbers that were drawn. For those who do not see it, its heading says what is in it.
    """
    with warnings.catch_warnings():
        # A file name in a script that the font lacks shows as boxes; the caption spells it out.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        source = _image_address(picture.png(dpi=_DPI))
    width, height = picture.get_size_inches()
    alt = picture.alt or picture.get_suptitle() or caption
    one = Panel(source, alt, round(width * _DPI), round(height * _DPI), round(width * 100))
    return Shown((one,), caption, data)


def panel(
    pixels: NDArray[np.uint8], *, alt: str, heading: str, marks: Sequence[Mark] = ()
) -> Panel:
    """An array of colours, uint8 of shape (Y, X, 3), as one picture of a figure."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png")
    height, width = pixels.shape[:2]
    return Panel(_image_address(buffer.getvalue()), alt, width, height, 480, heading, tuple(marks))


def _image_address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


# -- tables --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What stands in a table: a text, a note in small letters, whether it should be seen first,
    and a background on which its letters are dark or light.
    """

    text: str
    note: str = ""
    marked: bool = False
    colour: str = ""
    dark: bool = True


_TEXTS: dict[str, Callable[[Any], str]] = {"ppm": ppm_text, "share": share_text}


@dataclass(frozen=True)
class Column:
    """A column of a table on the page and of its file: both are made from this alone.

    Attributes
    ----------
    title : str
    of : callable
        Its value of a row, as it stands in the file; None where there is none.
    kind : str
        How the page shows it: ``number``, ``ppm`` and ``share`` to the right, ``value`` and
        ``long`` for texts, ``code``, ``verdict``; ``file`` stands in the file only.
    text : callable, optional
        What the page says of the value: a text, or a `Cell`.
    """

    title: str
    of: Callable[[Any], Any]
    kind: str = ""
    text: Callable[[Any], Any] | None = None

    @property
    def style(self) -> str:
        """CSS class."""
        style = "number" if self.kind in _TEXTS else self.kind
        return style if style in ("number", "value", "long") else ""

    def cell(self, row: Any) -> Cell:
        """What stands on the page."""
        value = self.of(row)
        if value is not None and not isinstance(value, Cell):
            value = (self.text or _TEXTS.get(self.kind, str))(value)
        return value if isinstance(value, Cell) else Cell("–" if value is None else value)


@dataclass(frozen=True)
class Table:
    """A table of the page: the first column names the row."""

    columns: list[Column]
    rows: list[list[Cell]]
    caption: str
    data: Download | None


def table(
    rows: Iterable[Any], columns: Sequence[Column], *, caption: str = "", file: str = ""
) -> Table:
    """Things as the rows of a table, and as a file if it has a name.

    Examples
    --------
    >>> found = table([0.25], [Column("share", lambda n: n, "share")], file="shares")
    >>> found.rows[0][0].text, found.data.name
    ('25 %', 'shares.csv')
    """
    rows = list(rows)
    shown = [column for column in columns if column.kind != "file"]
    data = table_file(file, [{c.title: c.of(row) for c in columns} for row in rows])
    cells = [[column.cell(row) for column in shown] for row in rows]
    return Table(shown, cells, caption, data if file else None)


def table_file(name: str, rows: Sequence[Mapping[str, Any]]) -> Download | None:
    """Rows as a CSV file inside the page; none where there is nothing to write.

    Parameters
    ----------
    name : str
        Of the file, without its ending.
    rows : sequence of mapping
        Columns are the keys of all rows, in the order in which they first appear.

    Examples
    --------
    >>> table_file("cells", [{"run": "a", "lost": 1}]).href
    'data:text/csv;charset=utf-8;base64,cnVuLGxvc3QKYSwxCg=='
    """
    if not rows:
        return None
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_no_formula, columns))
    for row in rows[:_MOST_ROWS]:
        values = (row.get(column) for column in columns)
        writer.writerow(["" if value is None else _no_formula(value) for value in values])
    content = base64.b64encode(text.getvalue().encode("utf-8")).decode("ascii")
    href = f"data:text/csv;charset=utf-8;base64,{content}"
    n_shown = min(len(rows), _MOST_ROWS)
    return Download(f"{name}.csv", href, n_shown, len(rows) - n_shown)


def _no_formula(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula, as OWASP advises against CSV injection.

    Examples
    --------
    >>> [_no_formula(value) for value in ("=1+1", "-2.5", -2.5, "-")]
    ["'=1+1", '-2.5', -2.5, '-']
    """
    if not isinstance(value, str) or not value.startswith(_FORMULA) or value == "-":
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


# -- links and words -----------------------------------------------------------------------


def runs_folder(page: Path, store: Store) -> str | None:
    """The store's folder ``runs``, relative to the page's folder; none for a page outside of its
    store, which must not say where that is."""
    folder, root = page.resolve().parent, store.root.resolve()
    if root not in (folder, *folder.parents):
        return None
    return "../" * len(folder.relative_to(root).parts) + "runs"


def links_to(repeat: Repeat, runs: str | None) -> dict[str, str]:
    """The folder, manifest and notebook of a repeat, as far as they are there."""
    if runs is None:
        return {}
    # The folder and not what the manifest says: a store can be put together by hand.
    folder = "/".join([runs, *repeat.folder.parts[-3:], ""])
    files = {"folder": "", "manifest": "manifest.json", "notebook": "notebook.ipynb"}
    there = {what: file for what, file in files.items() if (repeat.folder / file).exists()}
    return {what: folder + file for what, file in there.items()}


def which(members: Sequence[str], total: int, noun: str, *, most: int = 6) -> str:
    """Names of some of a number of things, without a list that nobody reads.

    Examples
    --------
    >>> which(["a", "b"], 2, "run"), which(["a"] * 9, 10, "run", most=1)
    ('all 2 runs', 'a; and 8 more')
    """
    if len(members) == total > 1:
        return f"all {total} {noun}s"
    shown = "; ".join(members[:most])
    return shown + (f"; and {len(members) - most} more" if len(members) > most else "")
