"""The widget: two runs on one image, compared pixel by pixel and cell by cell in a notebook.

Each array travels to the browser once, deflated, when it is first looked at; everything that moves
afterwards (curtain, opacity, zoom, read-out, sorting) is done there and never waits for the kernel.
`Explorer.to_png` draws the same with matplotlib, for places without a kernel.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anywidget
import numpy as np
import traitlets

from cellrepro.comparison.changed_cells import ChangedCell, cell_rows, is_listed
from cellrepro.errors import CellreproError
from cellrepro.show.explorer import browser_code
from cellrepro.show.explorer.napari_layers import can_open_napari, opened_in_napari
from cellrepro.show.explorer.read_view import read_view
from cellrepro.show.explorer.scenes import Scene, Scenes
from cellrepro.show.explorer.view import View
from cellrepro.show.figures import masks
from cellrepro.show.figures.pixels import channels_text
from cellrepro.show.figures.stack_planes import plane_name
from cellrepro.show.figures.style import Picture, heading
from samebits.errors import BadInput
from samebits.results import Row
from samebits.words import some

if TYPE_CHECKING:
    import napari

_PANEL = 560  # longer side of a panel of the still picture, pixels
_STILL = "A still picture: run the cell again for the live explorer"
_CHOICE = ("view", "a", "b", "z")
# What only some will look at is sent when they do.
_SENT_AT_ONCE = ("image", "a", "b", "categories", "story", "truth")


class Explorer(anywidget.AnyWidget):
    """A canvas on which the masks of two runs are compared live; its traits are shared state."""

    _esm = browser_code.module_text()
    _css = browser_code.style_text()

    runs: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the runs, in the order of each view's masks."""
    images: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    # What the browser asks for: ``view``, ``a``, ``b``, ``z``, and ``asked``, the request's number.
    choice = traitlets.Dict().tag(sync=True)
    scene = traitlets.Dict().tag(sync=True)  # a `Scene`, what is shown now
    planes = traitlets.Dict().tag(sync=True)  # a `PackedPlane` by name: those that are sent at once
    answered = traitlets.Int().tag(sync=True)  # number of the last request that was dealt with
    problem = traitlets.Unicode().tag(sync=True)  # why it was refused
    selected = traitlets.Dict().tag(sync=True)  # the change of the cell that was clicked last
    title = traitlets.Unicode().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    held_bytes = traitlets.Int(browser_code.HELD_BYTES).tag(sync=True)
    height = traitlets.Int(512).tag(sync=True)
    drawing = traitlets.Dict(browser_code.DRAWING).tag(sync=True)
    has_napari = traitlets.Bool().tag(sync=True)  # whether it can be opened from here

    def __init__(
        self,
        views: Sequence[View],
        runs: Sequence[str],
        *,
        image: str = "",
        a: int = 0,
        b: int = 1,
        title: str = "",
        note: str = "",
        height: int = 512,
        still: bool = True,
    ):
        self._has_still = still
        self._scenes = Scenes(views, runs)
        images = [view.name for view in views]
        if image and image not in images:
            raise BadInput(f"there is no image {image!r}; expected one of {some(images, 8)}")
        first_view = images.index(image or images[0])
        first_a, first_b = self._scenes.pair(first_view, a, b)
        scene = self._scenes.scene(first_view, first_a, first_b)
        plane_names = scene["planes"]
        sent = [plane_names[content] for content in _SENT_AT_ONCE if content in plane_names]
        super().__init__(
            runs=list(self._scenes.names),
            images=images,
            choice=_choice_of(scene),
            scene=scene,
            planes={name: self._scenes.plane(name) for name in sent},
            title=title,
            note=note,
            height=height,
            has_napari=can_open_napari(),
        )
        self.observe(lambda change: self._follow(change.new), "choice")
        self.on_msg(self._answer)

    def _repr_mimebundle_(
        self, **kwargs: dict[str, object]
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Give the live widget, and a still picture for pages without a kernel."""
        # IPython's ``include`` and ``exclude`` go to anywidget.
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        png = base64.b64encode(self._still_picture(_STILL)).decode()
        return {**data, "image/png": png, "text/plain": self.scene["line"]}, metadata

    def _ipython_display_(self) -> None:
        """Show the live widget, and below it the still picture as an output of its own.

        A notebook that is opened again has no model of the widget, and JupyterLab then shows an
        error in place of that output, whatever else it holds. Beside a live widget the style sheet
        hides the picture.
        """
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        still = {"image/png": data.pop("image/png"), "text/plain": self.scene["line"]}
        display(data, metadata=metadata, raw=True)
        if self._has_still:
            display(still, raw=True)

    def to_png(self) -> bytes:
        """Draw what is shown now as a still picture.

        A PNG file: the outlines of A, of B, and where they differ; of more than two runs also how
        many call a pixel cell.
        """
        return self._still_picture(self.note)

    def _still_picture(self, note: str) -> bytes:
        """Draw what is shown now, with a note in its caption."""
        picture = self.to_picture(with_votes=True)
        if note:
            picture.caption += f". {note}"
        return picture.png(dpi=100, caption=True)

    def to_picture(self, *, with_votes: bool = False) -> Picture:
        """Draw the outlines of A and B, and where the two differ.

        ``with_votes`` adds a panel of how many runs call a pixel cell, where there are over two.
        """
        scene = self.scene
        view = self._scenes.open(scene["view"])
        flat = partial(view.flat, z=scene["z"])
        has_votes = with_votes and view.n_runs > 2
        picture = masks.difference(
            view.image.as_given(flat(view.image.stored)),
            flat(view.labels(scene["a"])),
            flat(view.labels(scene["b"])),
            name_a=_panel_name(scene["names"]["a"], "A"),
            name_b=_panel_name(scene["names"]["b"], "B"),
            votes=(flat(view.votes("cells")), view.n_runs) if has_votes else None,
            pixel_size=view.view.pixel_size,
            side=_PANEL,
        )
        if self.title:
            heading(picture, self.title)
        picture.caption = f"{scene['names']['image']}, from A to B: {scene['line']}"
        if view.n_planes > 1:
            picture.caption += f". Shown: {plane_name(scene['z'], view.n_planes)}"
        channels = channels_text(view.image.stored, view.shape)
        if channels:
            picture.caption += f". Image: {channels}"
        return picture

    def changed_cells(self) -> list[Row]:
        """List the changed cells of what is shown now, those that tell most first."""
        scene = self.scene
        changes = self._scenes.open(scene["view"]).changes(scene["a"], scene["b"])
        listed = [ChangedCell("", change) for change in changes if is_listed(change)]
        return cell_rows(listed, a="A", b="B", n_images=1)

    def to_napari(self) -> napari.Viewer:
        """Open what is shown in napari: the channels of the image, and masks as layers of labels.

        Where the size of a pixel is known, layers have it as their scale, in micrometres. napari
        must be installed beside cellrepro (``pip install "napari[all]"``), on a computer with a
        screen: that of the kernel.
        """
        return opened_in_napari(self._scenes, cast("Scene", self.scene))

    def _said_of_napari(self) -> str:
        """Open napari, and say why where that cannot be."""
        try:
            self.to_napari()
        except CellreproError as error:
            return str(error)
        return ""

    def _follow(self, choice: Mapping[str, int]) -> None:
        """Show what the browser chose, or say why that cannot be."""
        # This is also called for the choice that is set below, which is shown already.
        if any(choice[key] != self.scene[key] for key in _CHOICE):
            self.problem = ""  # so that the same refusal twice is two changes
            try:
                a, b = self._scenes.pair(choice["view"], choice["a"], choice["b"])
                is_other_image = choice["view"] != self.scene["view"]
                z = None if is_other_image else choice["z"]
                scene = self._scenes.scene(choice["view"], a, b, z)
            except CellreproError as error:
                self.problem = str(error)
            else:
                with self.hold_sync():
                    self.scene = dict(scene)
                    self.choice = _choice_of(scene)
        self.answered = choice.get("asked", self.answered)

    def _answer(
        self, _widget: object, content: Mapping[str, Sequence[str]], _buffers: object
    ) -> None:
        """Send the planes that the browser asks for, or open napari."""
        if content.get("open") == "napari":
            self.send({"said": self._said_of_napari()})
        for name in content.get("want", ()):
            try:
                plane = self._scenes.plane(name)
            except CellreproError as error:
                self.send({"plane": name, "error": str(error)})
                continue
            facts = {key: value for key, value in plane.items() if key != "data"}
            self.send({"plane": name, **facts}, [plane["data"]])


def _choice_of(scene: Scene) -> dict[str, int]:
    return {"view": scene["view"], "a": scene["a"], "b": scene["b"], "z": scene["z"]}


def _panel_name(name: str, letter: str) -> str:
    """The name of a run, after the letter that stands for it in sentences."""
    return name if name == letter else f"{letter}: {name}"


def explore(
    image: np.ndarray | str | Path,
    masks_a: np.ndarray | str | Path,
    masks_b: np.ndarray | str | Path,
    *,
    truth: np.ndarray | str | Path | None = None,
    name_a: str = "A",
    name_b: str = "B",
    title: str = "",
    height: int = 512,
) -> Explorer:
    """A live comparison of two label images of one image, in a notebook.

    Parameters
    ----------
    image : ndarray, str or Path
        Shape (Y, X) or (Z, Y, X), with or without channels last, of any real dtype, all finite; the
        read-out gives the values as they are. Or a file: TIFF, PNG or JPEG.
    masks_a, masks_b : ndarray of int, str or Path
        Label images of shape (Y, X) or (Z, Y, X), 0 is background; neither side is the truth.
        Stacks are shown plane by plane and compared whole. Or a file: TIFF, PNG, ``.npy``, or
        Cellpose's ``_seg.npy``; or outlines: ROIs of ImageJ, Cellpose's text, GeoJSON.
    truth : ndarray of int, str or Path, optional
        Annotated label image of the same shape, 0 is background; drawn on request, and can be
        chosen as A or B.
    name_a, name_b : str
        What the two are called on screen.
    title : str
        Shown above the picture.
    height : int
        Of the picture on screen, in CSS pixels; narrow pages show it smaller.

    Returns
    -------
    Explorer
        Shows itself as the last line of a notebook cell. Saved with its notebook, it carries all
        its arrays. ``cellrepro explore IMAGE A B`` opens the same in the browser.
    """
    view = read_view(image, masks_a, masks_b, truth=truth, name=title)
    return Explorer([view], [name_a, name_b], title=title, height=height)
