"""What the report's sections are made of: figures, pictures, tables, their data, links."""

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

from cellrepro.same.metrics import MaskComparison, categories, compare_masks
from cellrepro.same.object_changes import ObjectChange, ObjectKind
from cellrepro.show.figures.pixels import (
    background_of,
    category_picture,
    flat,
    panel_shape,
    with_outlines,
)
from cellrepro.words import amount, grouped, joined, ppm_text, share_text

if TYPE_CHECKING:
    from cellrepro.show.figures.style import Picture
    from cellrepro.store.store import Repeat, Store

_DPI = 110  # of figures
MOST_ROWS = 300  # of what a page shows row by row; the files beside it hold all
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_TEXTS = {"ppm": ppm_text, "share": share_text, "count": grouped}

CHANGES: dict[str, tuple[str, str]] = {
    ObjectKind.KEPT: ("", "as before: a counterpart that covers it, less than 1 pixel away"),
    ObjectKind.MOVED: ("→", "a counterpart that went farther or overlaps less"),
    ObjectKind.LOST: ("−", "only in the first"),
    ObjectKind.GAINED: ("+", "only in the second"),
    ObjectKind.SPLIT: ("1:2", "one in the first, several in the second"),
    ObjectKind.MERGED: ("2:1", "several in the first, one in the second"),
}
"""What became of cells: the sign in pictures, and what it means."""

_MOST_MARKS = 40
_SMALLEST_WINDOW, _LARGEST_WINDOW = 40, 160
_LEAST_RADIUS = 0.014  # of a ring, share of the longer side

View = SimpleNamespace
"""What a section's template reads."""
Row = Mapping[str, Any]
Mark = tuple[str, float, float, float]  # sign; x, y, radius of a ring, pixels of the panel


@dataclass(frozen=True)
class Panel:
    """One picture of a figure."""

    png: str  # base64
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
        png = picture.png(dpi=_DPI)
    width, height = picture.get_size_inches()
    alt = picture.alt or picture.get_suptitle() or "Figure"
    one = Panel(_base64(png), alt, round(width * _DPI), round(height * _DPI), round(width * 100))
    return Shown((one,), data)


def panel(pixels: np.ndarray, heading: str, alt: str, marks: Sequence[Mark] = ()) -> Panel:
    """An array of colours, uint8 of shape (Y, X, 3), as one picture of a figure."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png")
    height, width = pixels.shape[:2]
    return Panel(_base64(buffer.getvalue()), alt, width, height, 480, heading, tuple(marks))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


# -- pictures of images: side by side, or below each other on a phone ---------------------


def counts_text(comparison: MaskComparison) -> str:
    """What became of the cells: "3 kept and 1 lost"."""
    parts = [f"{n} {kind}" for kind in CHANGES if (n := comparison.kinds[kind])]
    return joined(parts) if parts else "no cell on either side"


def _changed(comparison: MaskComparison) -> list[ObjectChange]:
    """The cells that are not kept, the largest first."""
    found = [change for change in comparison.objects if change.kind != ObjectKind.KEPT]
    return sorted(found, key=lambda change: -max(change.area_a, change.area_b))


def beside(
    name: str, image: np.ndarray | None, a: np.ndarray, b: np.ndarray, file: str
) -> tuple[MaskComparison, Shown]:
    """Two label images of an image compared, with pictures and a file of every cell."""
    found = compare_masks(a, b)
    data = table_file(file, _rows_of_cells(name, found))
    plane, image, labels = flat(image, a, b)
    a, b = (each for each in labels if each is not None)
    shown = compare_masks(a, b) if plane else found
    return found, Shown(_difference_panels(image, a, b, shown, plane), data)


def _rows_of_cells(name: str, comparison: MaskComparison) -> list[dict[str, Any]]:
    """What became of every cell of both sides, those that are not kept first."""
    kept = [change for change in comparison.objects if change.kind == ObjectKind.KEPT]
    rows = []
    for change in [*_changed(comparison), *kept]:
        y, x = (round(place, 1) for place in change.position[-2:])
        row = {"image": name, "what": str(change.kind), "y": y, "x": x, "iou": change.iou}
        for side in "ab":
            row[f"area_{side}"] = getattr(change, f"area_{side}")
            row[f"labels_{side}"] = " ".join(map(str, getattr(change, f"labels_{side}")))
        rows.append(row)
    return rows


def _difference_panels(
    image: np.ndarray | None,
    a: np.ndarray,
    b: np.ndarray,
    comparison: MaskComparison,
    plane: str,
) -> tuple[Panel, ...]:
    """The image, if there is one; the outlines of two label images of it; what differs, with a sign
    at every cell that is not kept; and, where the image is large, the place where most differs.
    """
    background, map_ = background_of(image, a.shape), categories(a, b)
    outlines = (
        f"Outlines of the first (blue), {amount(comparison.n_objects_a, 'cell')}, and of the "
        f"second (orange, dashed), {amount(comparison.n_objects_b, 'cell')}; white where they "
        "coincide."
    )
    differing = (
        f"What differs{plane and f' on {plane}'}: {grouped(comparison.n_differing)} of "
        f"{grouped(comparison.n_pixels)} pixels ({ppm_text(comparison.ppm)}). "
        f"{counts_text(comparison)}."
    )
    map_picture, marks = category_picture(background, map_)[0], _marks(comparison, a.shape)
    found = [
        panel(with_outlines(background, {"a": a, "b": b}), "Outlines of both", outlines),
        panel(map_picture, f"What differs{plane and f', {plane}'}", differing, marks),
    ]
    if image is not None:
        alone = with_outlines(background, {})
        found.insert(0, panel(alone, "Image", "The image alone."))
    window = _window(map_ >= 2)
    if window is not None:
        rows, columns = (f"{one.start}–{one.stop}" for one in window)
        near = with_outlines(background[window], {"a": a[window], "b": b[window]})
        alt = f"Outlines of both in rows {rows} and columns {columns}, where most pixels differ."
        found.append(panel(near, f"Closer: rows {rows}, columns {columns}", alt))
    return tuple(found)


def _marks(comparison: MaskComparison, shape: Sequence[int]) -> list[Mark]:
    """In pixels of the panel, which is an image of that shape enlarged or shrunk."""
    longer = max(panel_shape(shape))
    scale = longer / max(shape)
    marks = []
    for change in _changed(comparison)[:_MOST_MARKS]:
        y, x = ((place + 0.5) * scale for place in change.position)
        area = max(change.area_a, change.area_b)
        radius = max(_LEAST_RADIUS * longer, 1.25 * scale * (area / np.pi) ** 0.5)
        marks.append((CHANGES[change.kind][0], round(x, 1), round(y, 1), round(radius, 1)))
    return marks


def _window(differs: np.ndarray) -> tuple[slice, slice] | None:
    """The rows and columns around the place where most pixels differ; none of a small image."""
    from scipy import ndimage

    least = min(differs.shape)
    side = int(np.clip(least // 4, _SMALLEST_WINDOW, _LARGEST_WINDOW))
    if least < 2 * side or not differs.any():
        return None
    density = ndimage.gaussian_filter(differs.astype(np.float32), side / 4)
    middle = np.unravel_index(density.argmax(), density.shape)
    starts = np.clip(np.array(middle) - side // 2, 0, np.array(differs.shape) - side).tolist()
    return slice(starts[0], starts[0] + side), slice(starts[1], starts[1] + side)


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

    The kind of a column says how the page shows it: ``number``, ``count``, ``ppm``, ``share`` or a
    format such as ``{:.2f}`` to the right, ``value`` for texts, ``verdict``; ``file`` is in the
    file only.
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
    href = f"data:text/csv;charset=utf-8;base64,{_base64(text.encode('utf-8'))}"
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
