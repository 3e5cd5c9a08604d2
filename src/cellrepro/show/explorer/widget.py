"""The explorer: two runs on one image, compared pixel by pixel and cell by cell in the notebook.

Each array travels to the browser once, deflated, when it is first looked at; everything that moves
afterwards (curtain, opacity, zoom, read-out, sorting) is done there and never waits for the kernel.
`Explorer.to_png` draws the same with matplotlib, for places without a kernel.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from cellrepro.compare.names import Names
from cellrepro.errors import BadInput, CellreproError
from cellrepro.show.explorer.planes import View, Views
from cellrepro.show.explorer.stored_runs import first_shown, shared_images, stored_repeats
from cellrepro.show.figures.masks import (
    AGREE_SHARE,
    AGREED,
    AGREEMENT,
    COLOURS,
    DARKER,
    DASHES,
    DIMMED,
    difference,
)
from cellrepro.show.figures.style import heading
from cellrepro.store.store import Store
from cellrepro.text import some

_PANEL = 560  # longer side of a panel of the still picture, pixels
_STATIC = Path(__file__).with_name("static")
# One module for the browser, which can only be given one; written as three to be read.
_MODULES = ("explorer_pixels.js", "explorer_parts.js", "explorer.js")


class Explorer(anywidget.AnyWidget):
    """A canvas on which the masks of two runs are compared live."""

    _esm = "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in _MODULES)
    _css = (_STATIC / "explorer.css").read_text(encoding="utf-8")

    runs: Any = traitlets.List().tag(sync=True)
    images: Any = traitlets.List().tag(sync=True)
    choice = traitlets.Dict().tag(sync=True)  # what the browser asks for: view, a, b, z
    scene = traitlets.Dict().tag(sync=True)  # what is shown now, in plain values
    planes = traitlets.Dict().tag(sync=True)  # the deflated arrays that are sent at once, by name
    answered = traitlets.Int().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)
    selected = traitlets.Dict().tag(sync=True)  # the change of the cell that was clicked last
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
        image: str = "",
        a: int = 0,
        b: int = 1,
        title: str = "",
        height: int = 512,
    ):
        self._views = Views(views, runs)
        images = [view.name for view in views]
        if image and image not in images:
            raise BadInput(f"there is no image {image!r}; expected one of {some(images, 8)}")
        first = images.index(image or images[0])
        scene = self._views.scene(first, *self._views.pair(first, a, b))
        # What only some will look at is sent when they do.
        at_once = ("image", "a", "b", "categories", "story", "truth")
        names = [scene["planes"][key] for key in at_once if key in scene["planes"]]
        super().__init__(
            runs=list(runs),
            images=images,
            choice={key: scene[key] for key in ("view", "a", "b", "z")},
            scene=scene,
            planes={name: self._views.plane(name) for name in names},
            title=title,
            height=height,
        )
        self.observe(lambda change: self._follow(change.new), "choice")
        self.on_msg(self._answer)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live widget, and the same as a still picture for pages without a kernel."""
        live = super()._repr_mimebundle_(**kwargs)
        data, metadata = live if isinstance(live, tuple) else (live or {}, {})
        png = base64.b64encode(self.to_png()).decode()
        return {**data, "image/png": png, "text/plain": self.scene["line"]}, metadata

    def to_png(self) -> bytes:
        """What is shown now as a still picture, a PNG file: outlines of A, of B, where they differ;
        of more than two runs, also how many call a pixel cell."""
        scene, opened = self.scene, self._views.open(self.scene["view"])

        def flat(array: np.ndarray) -> np.ndarray:
            return array[scene["z"]] if len(opened.shape) == 3 else array

        n_runs = len(scene["having"])
        names = {
            key: name if name == short else f"{short}: {name}"
            for key, short in scene["short"].items()
            for name in [scene["names"][key]]
        }
        picture = difference(
            flat(opened.image),
            flat(opened.labels(scene["a"])),
            flat(opened.labels(scene["b"])),
            name_a=names["a"],
            name_b=names["b"],
            truth=None if opened.truth is None else flat(opened.truth),
            votes=(flat(opened.votes("cells")), n_runs) if n_runs > 2 else None,
            side=_PANEL,
        )
        if self.title:
            heading(picture, self.title)
        kinds = ", ".join(f"{n} {kind}" for kind, n in scene["kinds"].items() if n)
        picture.caption = f"cells: {kinds or 'none'}. {scene['line']}"
        return picture.png(dpi=100, caption=True)

    def _follow(self, choice: dict[str, int]) -> None:
        """Do what the browser chose, or say why that cannot be."""
        # Not what is written there below.
        if any(choice[key] != self.scene[key] for key in ("view", "a", "b", "z")):
            self.problem = ""  # so that the same refusal is told again
            try:
                a, b = self._views.pair(choice["view"], choice["a"], choice["b"])
                scene = self._views.scene(choice["view"], a, b, choice.get("z", 0))
            except CellreproError as error:
                self.problem = str(error)
            else:
                with self.hold_sync():
                    self.scene = scene
                    self.choice = {key: scene[key] for key in ("view", "a", "b", "z")}
        self.answered = choice.get("asked", self.answered)

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
    height: int = 512,
) -> Explorer:
    """A live comparison of the masks that two runs made on one image.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Z, Y, X), with or without channels last
        Any real dtype, all finite; the read-out gives the values as they are.
    masks_a, masks_b : ndarray of int, shape (Y, X) or (Z, Y, X)
        Label images, 0 is background; neither side is the truth. Stacks are shown plane by plane
        and compared whole.
    truth : ndarray of int, same shape, optional
        Annotated label image, 0 is background; drawn on request, never counted.
    name_a, name_b : str
        What the two runs are called on screen.
    title : str
        Shown above the picture.
    height : int
        Of the picture on screen, in CSS pixels; narrow pages show it smaller.

    Returns
    -------
    Explorer
        Shows itself as the last line of a notebook cell. Saved with its notebook, it carries all
        its arrays.
    """
    view = View(title or "image", [np.asarray(masks_a), np.asarray(masks_b)], image, truth)
    return Explorer([view], [name_a, name_b], title=title, height=height)


def explore_runs(
    store: Store | str | Path,
    runs: Sequence[str] = (),
    *,
    data: str | Path | None = None,
    image: str = "",
    title: str = "",
    height: int = 512,
) -> Explorer:
    """Show stored runs in the explorer; masks are read when they are looked at.

    Parameters
    ----------
    store, runs, data
        As for `stored_repeats`; the first two that are named are shown first, else two whose masks
        differ.
    image : str
        Which image is shown first; by default one on which the first two runs differ.
    title, height
        As for `explore`.
    """
    store = store if isinstance(store, Store) else Store(store)
    shown = stored_repeats(store, runs, data=data)
    if len(shown) < 2:
        which = f"named by {', '.join(runs)}" if runs else f"over {data or 'the same images'}"
        raise BadInput(
            f"{store.root} has {len(shown)} repeats {which}; the explorer compares two or more: "
            "name another one, or train again with `cellrepro train`"
        )
    images, names = shared_images(store, shown), Names(shown)
    first, a, b = first_shown(shown, images, chosen=bool(runs))
    return Explorer(
        [view for view, _ in images],
        [names.label(one) for one in shown],
        image=image or first,
        a=a,
        b=b,
        title=title,
        height=height,
    )
