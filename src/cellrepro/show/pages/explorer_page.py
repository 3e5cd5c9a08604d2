"""The explorer of two label images as a page in the browser, without store and notebook."""

from __future__ import annotations

import contextlib
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.object_changes import MOST_TELLING_FIRST
from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import no_such_file
from cellrepro.show.explorer.page_part import explorer_part
from cellrepro.show.explorer.read_view import read_view
from cellrepro.show.explorer.view import read_source
from cellrepro.show.local_server import LocalServer, open_in_browser
from cellrepro.show.pages.comparison_page import headline_over
from cellrepro.show.pages.page_file import PageTarget, page_target, rendered, write_page
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName, Switch
from cellrepro.terminal_values import EvalSettings
from samebits.errors import BadInput
from samebits.mode_names import Mode
from samebits.results import Result

if TYPE_CHECKING:
    from cellrepro.show.explorer.live_start import LiveImage

_HEIGHT = 760  # of the picture, CSS pixels: image and list fill a laptop's screen
_TEMPORARY = "cellrepro-explorer-"
_SECONDS_KEPT = 24 * 60 * 60


@dataclass(frozen=True, repr=False)
class ExplorerPage(Result):
    """A page with the explorer."""

    html: Path | None
    """The file. It asks no server for anything and can be sent by mail; None of a page on which
    settings moved, which has ended."""
    line: str
    """How many pixels differ, as a sentence."""
    opened: bool = False
    """Whether a browser was asked to show it."""

    def sentence(self) -> str:
        """Say how many pixels differ, and where the page is."""
        return self.line if self.html is None else f"{self.line}; {self.html}"

    def lines(self) -> list[str]:
        """Say how many pixels differ, and in a second line where the page is."""
        if self.html is None:
            return [f"ended; between the reference and the last masks {self.line}"]
        where = "shown in the browser" if self.opened else "open it in a browser"
        return [self.line, f"{self.html}: {where}"]

    def open(self) -> bool:
        """Show it in the browser."""
        return self.html is not None and open_in_browser(self.html.resolve().as_uri())


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
        As for `explore`.
    name_a, name_b : str
        What the two are called on screen; the names of their files by default.
    html : str or Path, optional
        The file, which ends in ``.html``; by default one in a new folder for temporary files,
        which the first such page of a later day removes. Folders that are not there are made.
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
    files = [given for given in (masks_a, masks_b, image) if isinstance(given, str | Path)]
    a, b, of_image = files if len(files) == 3 else ("A", "B", "IMAGE")
    view = read_view(image, masks_a, masks_b, truth=truth)
    name_a = name_a or side_name(masks_a, masks_b, "A")
    name_b = name_b or side_name(masks_b, masks_a, "B")
    part = explorer_part(view, name_a, name_b, height=_HEIGHT)
    comparison = compare_masks(*(np.asarray(read_source(masks)) for masks in view.masks))
    if target is None:
        target = PageTarget(_temporary_folder() / "explorer.html", overwrite=False)
    write_page(
        target,
        rendered(
            "explorer.html.j2",
            part=part,
            name=view.name,
            name_a=name_a,
            name_b=name_b,
            headline=headline_over([comparison]),
            is_different=comparison.verdict == Verdict.DIFFERENT,
            kinds=MOST_TELLING_FIRST,
            find_out=lab_command("compare", a, b, "--image", of_image, store=None),
        ),
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
    a: FileName | None = None,
    b: FileName | None = None,
    /,
    *,
    truth: FileName | None = None,
    html: FileName | None = None,
    overwrite: bool = False,
    model: str | None = None,
    settings: EvalSettings | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    seed: int | None = None,
    store: FileName = defaults.STORE,
    browser: Switch = True,
) -> ExplorerPage:
    """Look at two masks of an image in the browser; or move Cellpose's settings and see the cells.

    With two files the page is a file with both: zoom, curtain, blink, every changed cell. With
    ``model`` it has sliders of the settings instead, and the masks follow them; the page runs until
    Stop is pressed on it, or Ctrl-C here.

    Parameters
    ----------
    image : str or Path
        The image: TIFF, PNG or JPEG.
    a : str or Path, optional
        Masks of it: TIFF, PNG, .npy, .npz or _seg.npy, ROIs of ImageJ, outlines of Cellpose, or
        GeoJSON.
    b : str or Path, optional
        Different masks of it.
    truth : str or Path, optional
        Annotated masks of it.
    html : str or Path, optional
        Write the page to this file instead of opening it. Folders that are not there are made.
    overwrite : bool
        Whether a page that is there is replaced.
    model : str, optional
        Segment the image with this network, as for `segment`, with sliders.
    settings : mapping, optional
        Where the sliders begin, and settings that have none, as ``diameter=60``.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    store : str or Path
        Folder of finished runs, where ``model`` may be one.
    browser : bool
        Whether the browser is opened for the page.

    Returns
    -------
    ExplorerPage
        Where the page is, and whether a browser was opened.

    Raises
    ------
    BadInput
        If a file cannot be read, image and masks do not fit together, or the page is there
        already or cannot be written; with ``model`` if the image is a stack.

    Examples
    --------
    Look at two results of one image in the browser

    ``cellrepro explore cells.tif a_masks.tif b_masks.tif``

    Move the settings of a segmentation, and see at once what becomes of the cells

    ``cellrepro explore cells.tif --model cpsam_v2``
    """
    for file in (image, a, b, truth):
        if file is not None and not Path(file).exists():
            raise no_such_file(file)
    if model is not None:
        refuse_idle(("html", "overwrite"), "with --model, where the page asks this computer")
        if a is not None:
            raise BadInput(
                f"{a} and a model are given; expected either two masks to compare, or --model, "
                "which makes them"
            )
        from cellrepro.show.explorer.live_start import start_live

        live_image = start_live(
            image,
            model,
            settings=settings,
            moved=None,
            truth=truth,
            profile=profile,
            mode=mode,
            seed=seed,
            store=store,
        )
        return _shown_live(live_image, model, browser=browser)
    if a is None or b is None:
        raise BadInput(
            f"{image} is given and {'no' if a is None else 'one file of'} masks; expected two "
            "files of masks to compare, or --model with the network that is to segment it"
        )
    refuse_idle(
        ("settings", "profile", "mode", "seed", "store"),
        "without --model, as nothing is segmented",
    )
    if html is None:
        refuse_idle(("overwrite",), "without --html")
    else:
        refuse_idle(("browser",), "with --html, where the page is written to a file")
    page = explorer_page(image, a, b, truth=truth, html=html, overwrite=overwrite)
    return replace(page, opened=html is None and browser and page.open())


def _shown_live(image: LiveImage, model: str, *, browser: bool) -> ExplorerPage:
    """Serve the page with sliders until somebody ends it."""
    from cellrepro.show.pages.live_page import LivePage

    page = LivePage(image, model)
    try:
        with LocalServer(page.routes()) as server:
            server.serve("the page with the settings", browser=browser)
    finally:
        page.close()
    return ExplorerPage(None, page.line, opened=browser)
