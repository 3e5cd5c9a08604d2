"""The page on which masks follow the sliders of settings: ``explore IMAGE --model M``."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping

from cellrepro.errors import CellreproError
from cellrepro.show.explorer.browser_code import style_text
from cellrepro.show.explorer.live_start import NAMES, LiveImage
from cellrepro.show.explorer.live_view import LiveView, Shown
from cellrepro.show.explorer.page_part import first_state, json_in_a_script, module_with
from cellrepro.show.explorer.planes import PackedPlane
from cellrepro.show.explorer.scenes import Scene, Scenes
from cellrepro.show.local_server import (
    Request,
    Response,
    Route,
    Routes,
    json_response,
    page_response,
)
from cellrepro.show.pages.page_file import rendered
from samebits.errors import BadInput

_HEIGHT = 700  # of the picture, CSS pixels
_PLANES_KEPT = 24  # of the last scenes, for a page that asks for what was just shown
_SECONDS_WITHOUT_NEWS = 20.0  # until a page that waits is answered all the same
_MOST_SENT = 2**14  # bytes


class LivePage:
    """One image on a page, whose masks follow the sliders."""

    def __init__(self, image: LiveImage, model: str) -> None:
        self._model = model
        self._scenes = Scenes([image.view], NAMES)
        self._news = threading.Condition()
        self._version = 0
        self._values: dict[str, object] = {}
        self._planes: OrderedDict[str, PackedPlane] = OrderedDict()
        self._view = LiveView(
            self._scenes,
            image.first,
            image.now,
            image.segmentation,
            commands=image.commands,
            why_none=image.why_none,
            show=self._show,
        )
        self._scene: Scene = self._scenes.scene(0, 0, 1)
        image.answers.follow = self._view.answer

    def close(self) -> None:
        """End the process that segments."""
        self._view.close()

    @property
    def line(self) -> str:
        """What became of the cells between the reference and now, as a sentence."""
        return self._scene["line"]

    def routes(self) -> Routes:
        """What the server answers."""
        return {
            ("GET", "/"): Route(lambda request: page_response(self._html())),
            ("GET", "/explorer.js"): Route(lambda request: _script()),
            ("GET", "/plane"): Route(self._plane),
            ("GET", "/changes"): Route(self._changes),
            ("POST", "/choice"): Route(self._choose, most_bytes=_MOST_SENT),
            ("POST", "/live"): Route(self._receive, most_bytes=_MOST_SENT),
        }

    def _html(self) -> str:
        with self._view.lock:
            name = self._scene["names"]["image"]
            state = first_state(self._scene, runs=self._scenes.names, images=[name], height=_HEIGHT)
            state["live"] = self._view.live
        return rendered(
            "live.html.j2",
            name=name,
            model=self._model,
            style=style_text(),
            data=json_in_a_script(state),
        )

    def _show(self, shown: Shown) -> None:
        with self._news:
            for name, plane in shown.planes.items():
                self._planes[name] = plane
                self._planes.move_to_end(name)
            while len(self._planes) > _PLANES_KEPT:
                self._planes.popitem(last=False)
            self._values["live"] = shown.live
            if shown.scene is not None:
                self._scene = shown.scene
                self._values["scene"] = shown.scene
            self._version += 1
            self._news.notify_all()

    def _changes(self, request: Request) -> Response:
        """Wait for something to show that this page does not know."""
        after = request.query.get("after", "")
        if not after.isdecimal() or len(after) > 15:
            raise BadInput(f"after is {after!r}; expected a number")
        with self._news:
            self._news.wait_for(lambda: self._version > int(after), _SECONDS_WITHOUT_NEWS)
            values = self._values if self._version > int(after) else {}
            return json_response({"version": self._version, "values": dict(values)})

    def _plane(self, request: Request) -> Response:
        name = request.query.get("name", "")
        plane = self._planes.get(name)
        if plane is None:
            with self._view.lock:
                plane = self._scenes.plane(name)
        facts = {key: value for key, value in plane.items() if key != "data"}
        return Response(json.dumps(facts).encode() + b"\n" + plane["data"])

    def _choose(self, request: Request) -> Response:
        """Show two other sides."""
        choice = _fields(request)
        sides = [choice.get("a"), choice.get("b")]
        asked = choice.get("asked")
        if not all(type(number) is int for number in (*sides, asked)):
            raise BadInput(f"the choice is {choice}; expected the numbers of two sides")
        with self._view.lock:
            try:
                a, b = self._scenes.pair(0, *sides)  # type: ignore[arg-type]
                self._view.sides = (a, b)
                self._scene = self._scenes.scene(0, a, b)
            except CellreproError as error:
                return json_response({"problem": str(error), "answered": asked})
            return json_response({"scene": self._scene, "answered": asked})

    def _receive(self, request: Request) -> Response:
        self._view.receive(_fields(request))
        return json_response({})


def _fields(request: Request) -> Mapping[str, object]:
    fields = request.json()
    if not isinstance(fields, dict):
        raise BadInput(f"{request.path} takes an object, got {type(fields).__name__}")
    return fields


def _script() -> Response:
    return Response(module_with("server_model.js").encode(), "text/javascript; charset=utf-8")
