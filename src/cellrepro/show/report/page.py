"""What the report's sections are made of: figures with captions, their data, links to runs."""

from __future__ import annotations

import base64
import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from cellrepro.show.figures.style import Picture
    from cellrepro.store.store import Repeat, Store

_DPI = 110
_MOST_ROWS = 2000  # of the data beside a figure: the page stays small enough to send
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True)
class Download:
    """The numbers behind a figure, as a file inside the page.

    Attributes
    ----------
    name : str
        Of the file, ``….csv``.
    href : str
        A ``data:`` address: no server is asked.
    n_rows : int
        In the file, below its first line.
    n_left_out : int
        Rows beyond what a page should carry.
    """

    name: str
    href: str
    n_rows: int
    n_left_out: int = 0


@dataclass(frozen=True)
class Mark:
    """A sign at one place of a panel.

    Attributes
    ----------
    x, y : float
        Pixels of the panel's image.
    radius : float
        Of the ring around the object, pixels of the panel's image.
    sign : str
        What happened to the object.
    sign_x, sign_y : float
        Where the sign stands: on the ring, but inside the panel.
    """

    x: float
    y: float
    radius: float
    sign: str
    sign_x: float
    sign_y: float


@dataclass(frozen=True)
class Panel:
    """One picture of a figure.

    Attributes
    ----------
    source : str
        A ``data:`` address.
    alt : str
        What it shows, for those who cannot see it.
    width, height : int
        Pixels of the picture.
    shown : int
        Its width on a page that is wide enough, CSS pixels.
    heading : str
        Written above it; empty if the picture says it all.
    marks : tuple of Mark
    """

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


def figure(
    picture: Picture, *, alt: str, caption: str, data: Download | None = None, dpi: int = _DPI
) -> Shown:
    """A drawing as a figure of the page.

    Parameters
    ----------
    picture : Picture
    alt : str
        Its content in words, with the figures that matter.
    caption : str
        What it shows, over how many images and runs.
    data : Download, optional
        The numbers that were drawn.
    dpi : int
        Pixels per inch.
    """
    with warnings.catch_warnings():
        # A file name in a script that the font lacks shows as boxes; the caption spells it out.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        content = picture.png(dpi=dpi)
    width, height = picture.get_size_inches()
    panel = Panel(
        _image_address(content), alt, round(width * dpi), round(height * dpi), round(width * 100)
    )
    return Shown((panel,), caption, data)


def panel(
    pixels: NDArray[np.uint8],
    *,
    alt: str,
    heading: str = "",
    marks: Sequence[Mark] = (),
    shown: int = 480,
) -> Panel:
    """An array of colours as one picture of a figure.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (Y, X, 3)
    alt, heading, marks, shown
        As in `Panel`.
    """
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG", compress_level=3)
    height, width = pixels.shape[:2]
    return Panel(
        _image_address(buffer.getvalue()), alt, width, height, shown, heading, tuple(marks)
    )


def _image_address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


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
    writer.writerows(
        [_no_formula(row.get(column, "")) for column in columns] for row in rows[:_MOST_ROWS]
    )
    content = base64.b64encode(text.getvalue().encode("utf-8")).decode("ascii")
    return Download(
        f"{name}.csv",
        f"data:text/csv;charset=utf-8;base64,{content}",
        min(len(rows), _MOST_ROWS),
        max(0, len(rows) - _MOST_ROWS),
    )


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


# -- links ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Links:
    """Where runs lie, seen from the page.

    Attributes
    ----------
    runs : str or None
        The store's folder ``runs``, relative to the page's folder; none for a page outside of
        its store, which must not tell where that is.
    """

    runs: str | None

    @classmethod
    def between(cls, page: Path, store: Store) -> Links:
        """Those from a page to a store."""
        folder, root = page.resolve().parent, store.root.resolve()
        if root not in (folder, *folder.parents):
            return cls(None)
        return cls("../" * len(folder.relative_to(root).parts) + "runs")

    def of(self, repeat: Repeat) -> dict[str, str]:
        """Of one repeat: its folder, manifest and notebook, as far as they are there."""
        if self.runs is None:
            return {}
        # The folder and not what the manifest says: a store can be put together by hand.
        folder = "/".join([self.runs, *repeat.folder.parts[-3:], ""])
        found = {"folder": folder, "manifest": f"{folder}manifest.json"}
        if (repeat.folder / "notebook.ipynb").exists():
            found["notebook"] = f"{folder}notebook.ipynb"
        return found


# -- words ---------------------------------------------------------------------------------


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


def letters(number: int) -> str:
    """A to Z, then AA, AB, …: the name of group ``number``, from 0.

    Examples
    --------
    >>> [letters(n) for n in (0, 25, 26, 27, 701, 702)]
    ['A', 'Z', 'AA', 'AB', 'ZZ', 'AAA']
    """
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name
