"""The explorer: two runs on one image, compared pixel by pixel and cell by cell in the notebook.

Each array travels to the browser once, deflated, when it is first looked at; everything that moves
afterwards (curtain, opacity, zoom, read-out, sorting) is done there and never waits for the kernel.
`Explorer.to_png` draws the same with matplotlib, for places without a kernel.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from cellrepro.errors import BadInput, CellreproError
from cellrepro.show.explorer.planes import View, Views, count, counts_line, grey, packed, unpacked
from cellrepro.show.explorer.still import still
from cellrepro.show.figures.masks import (
    AGREE_SHARE,
    AGREED,
    AGREEMENT,
    CATEGORIES,
    COLOURS,
    DARKER,
    DASHES,
    DIMMED,
    agreement_colours,
    outlined,
)

__all__ = [
    "CATEGORIES",
    "COLOURS",
    "Explorer",
    "View",
    "agreement_colours",
    "count",
    "counts_line",
    "explore",
    "explore_views",
    "grey",
    "outlined",
    "packed",
    "unpacked",
]

_STATIC = Path(__file__).with_name("static")
# One module for the browser, which can only be given one; written as three to be read.
_MODULES = ("explorer_pixels.js", "explorer_parts.js", "explorer.js")


class Explorer(anywidget.AnyWidget):
    """A canvas on which the masks of two runs are compared live; made by `explore`.

    Attributes
    ----------
    counts : dict
        Pixels of each of `CATEGORIES`, ``differ`` (the last three together), ``pixels`` (all of
        them) and ``ppm`` (``differ`` per million of ``pixels``), of what is shown now.
    line : str
        The counts as one sentence, as shown under the title.
    name_a, name_b, image_name : str
        What is shown now.
    scene : dict
        What is shown now, in plain values; ``planes`` names the arrays.
    planes : dict
        The deflated arrays that are sent at once, by name; see `unpacked`.
    selected : dict
        The change of the cell that was clicked last: ``kind``, ``labels_a``, ``labels_b``,
        ``iou``, ``position``, ``area_a``, ``area_b``, ``moved``; empty before.
    """

    _esm = "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in _MODULES)
    _css = (_STATIC / "explorer.css").read_text(encoding="utf-8")

    runs: Any = traitlets.List().tag(sync=True)
    images: Any = traitlets.List().tag(sync=True)
    choice = traitlets.Dict().tag(sync=True)
    scene = traitlets.Dict().tag(sync=True)
    planes = traitlets.Dict().tag(sync=True)
    answered = traitlets.Int().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)
    selected = traitlets.Dict().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(512).tag(sync=True)
    drawing = traitlets.Dict(
        {
            "colours": COLOURS,
            "dashes": DASHES,
            "agree_share": AGREE_SHARE,
            "dimmed": DIMMED,
            "darker": DARKER,
            "agreement": AGREEMENT,
            "agreed": AGREED,
        }
    ).tag(sync=True)

    def __init__(
        self,
        views: Sequence[View],
        runs: Sequence[str],
        *,
        image: str | int = 0,
        a: str | int = 0,
        b: str | int = 1,
        title: str = "",
        height: int = 512,
    ):
        self._views = Views(views, runs)
        first = _position("image", image, [view.name for view in views])
        pair = _position("run", a, runs), _position("run", b, runs)
        scene = self._views.scene(first, *self._views.pair(first, *pair))
        # What only some will look at is sent when they do.
        at_once = ("image", "a", "b", "categories", "story", "truth")
        names = [scene["planes"][key] for key in at_once if key in scene["planes"]]
        super().__init__(
            runs=list(runs),
            images=[view.name for view in views],
            choice={key: scene[key] for key in ("view", "a", "b", "z")},
            scene=scene,
            planes={name: self._views.plane(name) for name in names},
            title=title,
            height=height,
        )
        self.observe(lambda change: self._chosen(change.new), "choice")
        self.on_msg(self._answer)

    @property
    def counts(self) -> dict[str, int | float]:
        """Pixels of each category, of what is shown now."""
        return self.scene["counts"]

    @property
    def line(self) -> str:
        """The counts as a sentence."""
        return self.scene["line"]

    @property
    def name_a(self) -> str:
        """What the first run is called."""
        return self.scene["names"]["a"]

    @property
    def name_b(self) -> str:
        """What the second run is called."""
        return self.scene["names"]["b"]

    @property
    def image_name(self) -> str:
        """What the image is called."""
        return self.scene["names"]["image"]

    def show(
        self,
        image: str | int | None = None,
        a: str | int | None = None,
        b: str | int | None = None,
        *,
        z: int | None = None,
    ) -> None:
        """Show another image or other runs, as their selectors do.

        Parameters
        ----------
        image : str or int, optional
            By name or position; what is not given stays.
        a, b : str or int, optional
            Runs, by name or position.
        z : int, optional
            Plane of a stack.

        Raises
        ------
        BadInput
            If there is none of that name, or the masks do not fit the image.
        """
        choice = dict(self.choice)
        if image is not None:
            choice["view"] = _position("image", image, self.images)
        if a is not None:
            choice["a"] = _position("run", a, self.runs)
        if b is not None:
            choice["b"] = _position("run", b, self.runs)
        if z is not None:
            choice["z"] = z
        self._choose(choice, strict=True)

    def plane(self, key: str) -> Any:
        """An array as the browser has it of what is shown now.

        Parameters
        ----------
        key : str
            ``image``, ``a``, ``b``, ``categories``, ``truth``, ``story``, and of more than two
            runs ``cells`` and ``objects`` (runs that call the pixel cell, or give it the same
            object).
        """
        return unpacked(self._views.plane(self.scene["planes"][key]))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live widget, and the same as a still picture for pages without a kernel."""
        live = super()._repr_mimebundle_(**kwargs)
        data, metadata = live if isinstance(live, tuple) else (live or {}, {})
        picture = {"image/png": base64.b64encode(self.to_png()).decode(), "text/plain": self.line}
        return {**data, **picture}, metadata

    def to_png(self, path: str | Path | None = None, *, panel: int = 560) -> bytes:
        """The comparison as one PNG: outlines of A, outlines of B, categories, counts.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the picture as well; its folder must exist.
        panel : int
            Longer side of each panel, in pixels.

        Returns
        -------
        bytes
            The PNG file. Of more than two runs it has a fourth panel: how many call a pixel cell.
        """
        title = self.title or (self.image_name if len(self.images) > 1 else "")
        content = still(self._views, self.scene, title=title, line=self.line, panel=panel)
        if path is not None:
            Path(path).write_bytes(content)
        return content

    def save_png(self, path: str | Path, *, panel: int = 560) -> Path:
        """Write `to_png` to a file and return its path."""
        self.to_png(path, panel=panel)
        return Path(path)

    def save_masks(self, folder: str | Path) -> tuple[Path, ...]:
        """Write the label images that are shown now as TIFF files that napari and Fiji open.

        Parameters
        ----------
        folder : str or Path
            Made if need be; files of the same names are replaced.

        Returns
        -------
        tuple of Path
            ``IMAGE_a_masks.tif`` and ``IMAGE_b_masks.tif`` (uint16, or uint32 where labels need
            it), ``IMAGE_difference.tif`` (uint8, the values of `CATEGORIES`) and, where there is
            one, ``IMAGE_truth_masks.tif``. Stacks are whole.
        """
        import tifffile

        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file; expected a folder, or a name to make")
        folder.mkdir(parents=True, exist_ok=True)
        view, a, b = (self.scene[key] for key in ("view", "a", "b"))
        arrays = {
            "a_masks": self._views.labels(view, a),
            "b_masks": self._views.labels(view, b),
            "difference": self._views.categories(view, a, b),
        }
        truth = self._views.truth(view)
        if truth is not None:
            arrays["truth_masks"] = truth
        stem = re.sub(r"[^\w.-]+", "_", self.image_name).strip("_") or "image"
        written = []
        for name, array in arrays.items():
            narrow = array if name == "difference" else array.astype(_label_dtype(array))
            written.append(folder / f"{stem}_{name}.tif")
            axes = "ZYX" if narrow.ndim == 3 else "YX"
            tifffile.imwrite(written[-1], narrow, photometric="minisblack", metadata={"axes": axes})
        return tuple(written)

    def _chosen(self, choice: dict[str, int]) -> None:
        """Follow the browser, which chose; not what `_choose` itself wrote there."""
        if any(choice[key] != self.scene[key] for key in ("view", "a", "b", "z")):
            self._choose(choice)
        self.answered = choice.get("asked", self.answered)

    def _choose(self, choice: dict[str, int], *, strict: bool = False) -> None:
        """Show what was chosen, or say why that cannot be."""
        try:
            view = choice["view"]
            a, b = self._views.pair(view, choice["a"], choice["b"])
            z = min(choice.get("z", 0), self._views.n_planes(view) - 1)
            scene = self._views.scene(view, a, b, z)
        except CellreproError as error:
            if strict:
                raise
            self.problem = ""  # so that the same refusal is told again
            self.problem = str(error)
            return
        with self.hold_sync():
            self.problem = ""
            self.scene = scene
            self.choice = {key: scene[key] for key in ("view", "a", "b", "z")}

    def _answer(self, _: Any, content: Any, buffers: Any) -> None:
        """Send the planes that the browser asks for."""
        for name in content.get("want", ()):
            try:
                plane = dict(self._views.plane(name))
            except CellreproError as error:
                self.send({"plane": name, "error": str(error)})
                continue
            data = plane.pop("data")
            self.send({"plane": name, **plane}, [data])


def explore(
    image: np.ndarray,
    masks_a: np.ndarray,
    masks_b: np.ndarray,
    *,
    truth: np.ndarray | None = None,
    name_a: str = "A",
    name_b: str = "B",
    title: str = "",
    categories: np.ndarray | None = None,
    height: int = 512,
) -> Explorer:
    """A live comparison of the masks that two runs made on one image.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Z, Y, X), with or without channels last
        Any real dtype, all finite. Shown in grey, stretched from the 1st to the 99th percentile of
        each channel; the read-out gives the values as they are.
    masks_a, masks_b : ndarray of int, shape (Y, X) or (Z, Y, X)
        Label images, 0 is background; neither side is the truth. Stacks are shown plane by plane
        and compared whole.
    truth : ndarray of int, same shape, optional
        Annotated label image, 0 is background; drawn on request, never counted.
    name_a, name_b : str
        What the two runs are called on screen.
    title : str
        Shown above the picture.
    categories : ndarray of uint8, same shape, optional
        0 background in both, 1 the same object in both, 2 cell only in A, 3 cell only in B, 4 cell
        in both but another object. Computed by `cellrepro.compare.metrics.categories` if not given.
    height : int
        Height of the picture on screen, in CSS pixels; narrow pages show it smaller.

    Returns
    -------
    Explorer
        Shows itself as the last line of a notebook cell.

    Raises
    ------
    BadInput
        If an array has another shape or kind of number than described here, or `categories`
        contradicts the masks.

    Notes
    -----
    Saved with its notebook, the widget carries all its arrays; in a batch execute with
    ``store_widget_state=False`` and show `Explorer.to_png` instead.
    """
    given = (np.asarray(masks_a), np.asarray(masks_b))
    view = View(title or "image", given, image, truth, categories=categories)
    return Explorer([view], [name_a, name_b], title=title, height=height)


def explore_views(
    views: Sequence[View],
    runs: Sequence[str],
    *,
    image: str | int = 0,
    a: str | int = 0,
    b: str | int = 1,
    title: str = "",
    height: int = 512,
) -> Explorer:
    """A live comparison of any two of several runs on any of several images.

    Parameters
    ----------
    views : sequence of View
        Images with the masks of every run.
    runs : sequence of str
        What the runs are called, in the order of each view's masks; two or more.
    image, a, b : str or int
        What is shown first, by name or position.
    title : str
        Shown above the picture.
    height : int
        Height of the picture on screen, in CSS pixels.

    Returns
    -------
    Explorer

    Raises
    ------
    BadInput
        If there are fewer than two runs, or an array is not as `View` describes it.
    """
    return Explorer(views, runs, image=image, a=a, b=b, title=title, height=height)


def _position(noun: str, wanted: str | int, names: Sequence[str]) -> int:
    """Where something is that was named or counted."""
    if isinstance(wanted, str) and wanted in names:
        return list(names).index(wanted)
    if isinstance(wanted, int) and 0 <= wanted < len(names):
        return wanted
    listed = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    raise BadInput(f"there is no {noun} {wanted!r}; expected one of {len(names)}: {listed}")


def _label_dtype(labels: np.ndarray) -> type[np.unsignedinteger]:
    return np.uint16 if int(labels.max(initial=0)) < 2**16 else np.uint32
