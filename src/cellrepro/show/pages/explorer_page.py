"""The explorer of two label images as a page in the browser, without store and notebook."""

from __future__ import annotations

import contextlib
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cellrepro.results import Result
from cellrepro.show.explorer.page_part import explorer_part
from cellrepro.show.explorer.read_view import read_view
from cellrepro.show.local_server import open_in_browser
from cellrepro.show.pages.page_file import PageTarget, page_target, rendered, write_page
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName

_HEIGHT = 760  # of the picture, CSS pixels: image and list fill a laptop's screen
_TEMPORARY = "cellrepro-explorer-"
_SECONDS_KEPT = 24 * 60 * 60


@dataclass(frozen=True, repr=False)
class ExplorerPage(Result):
    """A page with the explorer."""

    html: Path
    """The file. It asks no server for anything and can be sent by mail."""
    line: str
    """How many pixels differ, as a sentence."""
    opened: bool = False
    """Whether a browser was asked to show it."""

    def sentence(self) -> str:
        """Say how many pixels differ, and where the page is."""
        return f"{self.line}; {self.html}"

    def lines(self) -> list[str]:
        """Say how many pixels differ, and in a second line where the page is."""
        where = "shown in the browser" if self.opened else "open it in a browser"
        return [self.line, f"{self.html}: {where}"]

    def open(self) -> bool:
        """Show it in the browser."""
        return open_in_browser(self.html.resolve().as_uri())


def explorer_page(
    image: np.ndarray | str | Path,
    masks_a: np.ndarray | str | Path,
    masks_b: np.ndarray | str | Path,
    *,
    truth: np.ndarray | str | Path | None = None,
    name_a: str = "",
    name_b: str = "",
    html: str | Path | None = None,
    overwrite: bool = False,
) -> ExplorerPage:
    """Write the explorer of two label images as one file that works in every browser.

    Parameters
    ----------
    image, masks_a, masks_b, truth
        As for `cellrepro.explore`.
    name_a, name_b : str
        What the two are called on screen; the names of their files by default.
    html : str or Path, optional
        The file, which ends in ``.html``; by default one in a new folder for temporary files,
        which the first such page of a later day removes.
    overwrite : bool
        Whether a file that is there becomes the page.

    Returns
    -------
    ExplorerPage

    Raises
    ------
    BadInput
        If a file cannot be read, image and masks do not fit together, or the page is there
        already or cannot be written.
    """
    target = None if html is None else page_target(html, overwrite=overwrite)
    view = read_view(image, masks_a, masks_b, truth=truth)
    name_a = name_a or side_name(masks_a, masks_b, "A")
    name_b = name_b or side_name(masks_b, masks_a, "B")
    part = explorer_part(view, name_a, name_b, height=_HEIGHT)
    if target is None:
        target = PageTarget(_temporary_folder() / "explorer.html", overwrite=False)
    write_page(
        target,
        rendered("explorer.html.j2", part=part, name=view.name, name_a=name_a, name_b=name_b),
    )
    return ExplorerPage(target.path, part.line)


def _temporary_folder() -> Path:
    """Make a temporary folder for a page, and remove those of earlier days."""
    folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
    for earlier in folder.parent.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            status = earlier.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_mtime < time.time() - _SECONDS_KEPT:
                shutil.rmtree(earlier)
    return folder


def side_name(side: np.ndarray | str | Path, other: np.ndarray | str | Path, letter: str) -> str:
    """Give what one of two results is called on screen.

    The name of its file, with the folder where both files have one name.

    >>> side_name("gui/a_seg.npy", "script/a_seg.npy", "A"), side_name("a.tif", "b.tif", "A")
    ('gui/a_seg.npy', 'a.tif')
    """
    if not isinstance(side, str | Path):
        return letter
    path = Path(side)
    if isinstance(other, str | Path) and Path(other).name == path.name and path != Path(other):
        return path.as_posix()
    return path.name


def explore_files(
    image: FileName,
    a: FileName,
    b: FileName,
    /,
    *,
    truth: FileName | None = None,
    html: FileName | None = None,
    overwrite: bool = False,
) -> ExplorerPage:
    """Look at two masks of an image in the browser: zoom, curtain, blink, every changed cell.

    Parameters
    ----------
    image : str or Path
        The image: TIFF, PNG or JPEG.
    a : str or Path
        Masks of it: TIFF, PNG, .npy or _seg.npy.
    b : str or Path
        Different masks of it.
    truth : str or Path, optional
        Annotated masks of it.
    html : str or Path, optional
        Write the page to this file instead of opening it.
    overwrite : bool
        Whether a page that is there is replaced.

    Returns
    -------
    ExplorerPage
        Where the page is, and whether a browser was opened.

    Raises
    ------
    BadInput
        If a file cannot be read, image and masks do not fit together, or the page is there
        already or cannot be written.

    Examples
    --------
    Look at two results of one image in the browser

    ``cellrepro explore cells.tif a_masks.tif b_masks.tif``
    """
    if html is None:
        refuse_idle(("overwrite",), "without --html")
    page = explorer_page(image, a, b, truth=truth, html=html, overwrite=overwrite)
    return replace(page, opened=html is None and page.open())
