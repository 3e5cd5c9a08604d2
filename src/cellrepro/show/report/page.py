"""What the report's sections are made of: figures, tables, their data, links."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.text import ppm_text, share_text

if TYPE_CHECKING:
    from cellrepro.show.figures.style import Picture
    from cellrepro.store.store import Repeat, Store

_DPI = 110
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_TEXTS = {"ppm": ppm_text, "share": share_text}

View = SimpleNamespace
"""What a section's template reads."""
Row = Mapping[str, Any]
Mark = tuple[str, float, float, float]
"""A sign beside a ring around one object of a panel: x, y and radius in the panel's pixels."""


@dataclass(frozen=True)
class Panel:
    """One picture of a figure."""

    source: str
    alt: str
    width: int  # pixels
    height: int
    shown: int  # width on a wide page, CSS pixels
    heading: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Shown:
    """A figure of the page: pictures and their data; the templates say what they show."""

    panels: tuple[Panel, ...]
    data: View | None = None  # from `table_file`


def figure(picture: Picture, data: View | None = None) -> Shown:
    """A drawing as a figure; for those who do not see it, its heading says what is in it."""
    with warnings.catch_warnings():
        # A file name in a script that the font lacks shows as boxes; the caption spells it out.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        source = _image_address(picture.png(dpi=_DPI))
    width, height = picture.get_size_inches()
    alt = picture.alt or picture.get_suptitle() or "Figure"
    one = Panel(source, alt, round(width * _DPI), round(height * _DPI), round(width * 100))
    return Shown((one,), data)


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
    """What stands in a table where its value alone does not say how."""

    text: str
    marked: bool = False  # to be seen first
    colours: str = ""  # CSS
    value: Any = None  # in the file


def table(rows: Sequence[Row], kinds: Mapping[str, str], *, file: str = "") -> View:
    """Rows as a table, and as a file if it has a name; the first cell of a row names it.

    The kind of a column says how the page shows it: ``number``, ``ppm``, ``share`` or a format such
    as ``{:.2f}`` to the right, ``value`` for texts, ``verdict``; ``file`` is in the file only.
    """
    titles = dict.fromkeys(title for row in rows for title in row)
    columns = [(t, kinds.get(t, "")) for t in titles if kinds.get(t) != "file"]
    cells = [[_cell(row.get(title), kind) for title, kind in columns] for row in rows]
    styles = [(t, "number" if k in _TEXTS or "{" in k else k) for t, k in columns]
    return View(columns=styles, rows=cells, data=table_file(file, rows) if file else None)


def _cell(value: Any, kind: str) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell("–")
    return Cell(_TEXTS.get(kind, kind.format if "{" in kind else str)(value))


def table_file(name: str, rows: Sequence[Row]) -> View | None:
    """Rows as a CSV file inside the page, which asks no server; none where there are none."""
    from pandas import DataFrame

    if not rows:
        return None
    shown = [{_plain(k): _plain(v) for k, v in row.items()} for row in rows]
    text = DataFrame(shown, dtype=object).to_csv(index=False, lineterminator="\n")
    content = base64.b64encode(text.encode("utf-8")).decode("ascii")
    href = f"data:text/csv;charset=utf-8;base64,{content}"
    return View(name=f"{name}.csv", href=href, n_rows=len(rows))


def _plain(value: Any) -> Any:
    """What no spreadsheet takes for a formula, as OWASP advises against CSV injection."""
    if isinstance(value, Cell):
        return value.value
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


# -- links and words -----------------------------------------------------------------------


def runs_folder(page: Path, store: Store) -> str | None:
    """The store's folder ``runs``, relative to the page's folder; none for a page outside of its
    store, which must not say where that is."""
    folder, root = page.resolve().parent, store.root.resolve()
    if not folder.is_relative_to(root):
        return None
    return "../" * len(folder.relative_to(root).parts) + "runs"


def links_to(repeat: Repeat, runs: str | None) -> dict[str, str]:
    """The folder, manifest and notebook of a repeat, as far as they are there."""
    if runs is None:
        return {}
    # The folder and not what the manifest says: a store can be put together by hand.
    folder = "/".join([runs, *repeat.folder.parts[-3:], ""])
    files = {"folder": "", "manifest": "manifest.json", "notebook": "notebook.ipynb"}
    return {what: folder + file for what, file in files.items() if (repeat.folder / file).exists()}


def which(members: Sequence[str], total: int, noun: str, *, most: int = 6) -> str:
    """Names of some of a number of things, without a list that nobody reads."""
    if len(members) == total > 1:
        return f"all {total} {noun}s"
    more = [f"and {len(members) - most} more"] if len(members) > most else []
    return "; ".join([*members[:most], *more])
