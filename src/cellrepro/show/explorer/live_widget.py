"""The explorer with sliders: masks of one image as settings move, in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from cellrepro.progress import progress
from cellrepro.show.explorer.live_start import NAMES, LiveImage, start_live
from cellrepro.show.explorer.live_view import LiveView, Shown
from cellrepro.show.explorer.widget import Explorer
from cellrepro.spec import defaults
from samebits.mode_names import Mode


class LiveExplorer(Explorer):
    """A canvas on which masks follow the sliders; its process ends with `close`."""

    live = traitlets.Dict().tag(sync=True)  # `LiveView.live`

    def __init__(self, image: LiveImage, *, title: str = "", height: int = 512):
        super().__init__([image.view], NAMES, title=title, height=height)
        self._live_view = LiveView(
            self._scenes,
            image.first,
            image.now,
            image.segmentation,
            commands=image.commands,
            why_none=image.why_none,
            show=self._show,
        )
        self.live = self._live_view.live
        image.answers.follow = self._live_view.answer

    def close(self) -> None:
        """End the process that segments."""
        if hasattr(self, "_live_view"):
            self._live_view.close()
        super().close()

    def _show(self, shown: Shown) -> None:
        for name, plane in shown.planes.items():
            facts = {key: value for key, value in plane.items() if key != "data"}
            self.send({"plane": name, **facts}, [plane["data"]])
        with self.hold_sync():
            self.live = dict(shown.live)
            if shown.scene is not None:
                self.scene = dict(shown.scene)

    def _follow(self, choice: Mapping[str, int]) -> None:
        with self._live_view.lock:
            super()._follow(choice)
            self._live_view.sides = (self.scene["a"], self.scene["b"])

    def _answer(self, widget: object, content: Mapping[str, Any], buffers: object) -> None:
        with self._live_view.lock:
            super()._answer(widget, content, buffers)
            if isinstance(content.get("live"), Mapping):
                self._live_view.receive(content["live"])


def explore_settings(
    image: np.ndarray | str | Path,
    *,
    model: str,
    settings: Mapping[str, Any] | None = None,
    moved: Mapping[str, float] | None = None,
    truth: np.ndarray | str | Path | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    seed: int | None = None,
    store: str | Path = defaults.STORE,
    title: str = "",
    height: int = 512,
    quiet: bool = False,
) -> LiveExplorer:
    """Masks of one image that follow sliders of Cellpose's settings, in a notebook.

    Parameters
    ----------
    image : ndarray, str or Path
        One plane, shape (Y, X) or (Y, X, C), or its file: TIFF, PNG or JPEG.
    model : str
        As for `cellrepro.segment`.
    settings : mapping, optional
        Those of the reference, also those without a slider, as ``diameter=60``; default Cellpose's
        own.
    moved : mapping, optional
        Where sliders begin that do not begin at ``settings``, as ``flow_threshold=0``.
    truth : ndarray of int, str or Path, optional
        Annotated label image of the same shape, 0 is background; it can be chosen as A.
    profile, mode, seed, store
        As for `cellrepro.segment`, which gives the same masks with them.
    title : str
        Shown above the picture.
    height : int
        Of the picture on screen, in CSS pixels.
    quiet : bool
        Show no progress.

    Returns
    -------
    LiveExplorer
        Shows itself as the last line of a notebook cell. A is the reference, at first the masks
        with ``settings``; B are the masks of now. Its process ends with ``close()``.

    Raises
    ------
    BadInput
        If the image cannot be read or is a stack, a setting is not known, or a slider cannot stand
        where ``moved`` says.
    CellreproError
        If the network cannot be loaded or run here.
    """
    with progress(1, "segmenting once", quiet=quiet) as bar:
        live_image = start_live(
            image,
            model,
            settings=settings,
            moved=moved,
            truth=truth,
            profile=profile,
            mode=mode,
            seed=seed,
            store=store,
        )
        bar.advance("done")
    return LiveExplorer(live_image, title=title, height=height)
