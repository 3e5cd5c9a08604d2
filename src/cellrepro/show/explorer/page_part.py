"""The explorer as a part of a page that stands alone: no kernel, no server, one file."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellrepro.show.explorer.browser_code import DRAWING, HELD_BYTES, module_text, style_text
from cellrepro.show.explorer.planes import PackedPlane
from cellrepro.show.explorer.scenes import Scene, Scenes
from cellrepro.show.explorer.view import View
from samebits.errors import BadInput

_MODELS = Path(__file__).with_name("page")
_EXPORT = "export default "
_MOST_BYTES = 300 * 2**20  # in one page; a browser takes several times as much memory


@dataclass(frozen=True)
class ExplorerPart:
    """The explorer of one page, each field for an element of its own."""

    data: str
    """JSON, for ``<script type="application/json" id="explorer-data">``."""
    module: str
    """JavaScript, for ``<script type="module">``; it draws into the element ``explorer``."""
    style: str
    """CSS, for ``<style>``."""
    line: str
    """What became of the cells, and how many pixels differ, as a sentence."""


def explorer_part(view: View, name_a: str, name_b: str, *, height: int = 620) -> ExplorerPart:
    """Make the explorer of one image with two label images, and all planes that it can show."""
    packed = PackedScenes([name_a, name_b])
    if not packed.add(view, most_bytes=_MOST_BYTES):
        raise BadInput(
            f"image and masks of {view.name} are {packed.n_bytes_refused // 2**20} MiB when "
            f"packed; expected at most {_MOST_BYTES // 2**20} MiB, which a browser can open: crop "
            "image and masks, or take one plane of the stack"
        )
    return packed.part(first="0 0 1", height=height)


class PackedScenes:
    """Every scene of some images with the masks of the same runs, packed image by image."""

    def __init__(self, names: Sequence[str]):
        self._given_names = list(names)
        self._names: Sequence[str] = names
        self._images: list[str] = []
        self.scenes: dict[str, Scene] = {}
        """By the numbers of image, A and B: "0 0 1"."""
        self.without_picture: list[Scene] = []
        """The scenes of images for which there was no room."""
        self._planes: dict[str, PackedPlane] = {}
        self.n_bytes = 0
        self.n_bytes_refused = 0
        """Of the last image for which there was no room."""

    def add(self, view: View, *, most_bytes: int) -> bool:
        """Add an image with all that can be shown of it, unless it takes more bytes than that."""
        scenes = Scenes([view], self._given_names)
        number = len(self._images)
        of_image = _every_scene(scenes)
        # Of an image that stands alone, planes are numbered by 0.
        planes = {name: scenes.plane(name) for name in _plane_names(of_image.values())}
        n_bytes = sum(len(plane["data"]) for plane in planes.values())
        if n_bytes > most_bytes:
            self.n_bytes_refused = n_bytes
            self.without_picture += of_image.values()
            return False
        for sides, scene in of_image.items():
            scene["view"] = number
            scene["planes"] = {
                content: _of_view(number, name) for content, name in scene["planes"].items()
            }
            self.scenes[f"{number} {sides}"] = scene
        self._planes |= {_of_view(number, name): plane for name, plane in planes.items()}
        self._images.append(view.name)
        self.n_bytes += n_bytes
        if len(scenes.names) > len(self._names):  # the truth is a side, too
            self._names = scenes.names
        return True

    def part(self, *, first: str, height: int = 620, note: str = "") -> ExplorerPart:
        """Make the explorer, which opens with one of the scenes."""
        shown = self.scenes[first]
        content = {
            "state": first_state(
                shown, runs=self._names, images=self._images, height=height, note=note
            ),
            "scenes": self.scenes,
            "planes": {
                name: {**plane, "data": base64.b64encode(plane["data"]).decode("ascii")}
                for name, plane in self._planes.items()
            },
        }
        return ExplorerPart(
            data=json_in_a_script(content),
            module=module_with("page_model.js"),
            style=style_text(),
            line=shown["line"],
        )


def _of_view(number: int, plane: str) -> str:
    """The name of a plane, which begins with the number of its image."""
    return f"{number}/{plane.partition('/')[2]}"


def first_state(
    scene: Scene, *, runs: Sequence[str], images: Sequence[str], height: int, note: str = ""
) -> dict[str, object]:
    """The state of a page's model as it begins, but for its planes."""
    return {
        "runs": list(runs),
        "images": list(images),
        "choice": {key: scene[key] for key in ("view", "a", "b", "z")},
        "scene": scene,
        "answered": 0,
        "problem": "",
        "selected": {},
        "title": "",
        "note": note,
        "held_bytes": HELD_BYTES,
        "height": height,
        "drawing": DRAWING,
    }


def _every_scene(scenes: Scenes) -> dict[str, Scene]:
    """Make the scene of every two sides of one image, by their numbers: "0 1"."""
    sides = scenes.open(0).sides
    return {f"{a} {b}": scenes.scene(0, a, b) for a, b in itertools.permutations(sides, 2)}


def _plane_names(scenes: Iterable[Scene]) -> list[str]:
    """Name every plane that these scenes can show, through whole stacks."""
    names: dict[str, None] = {}  # in the order of the scenes, so that equal pages are equal files
    for scene in scenes:
        for content, name in scene["planes"].items():
            stem = name.rpartition("/")[0]
            n_planes = 1 if content == "story" else scene["n_planes"]  # a story is of the stack
            names |= dict.fromkeys(f"{stem}/{z}" for z in range(n_planes))
    return list(names)


def module_with(model: Literal["page_model.js", "server_model.js"]) -> str:
    """The module, with a model of a page in place of the export that anywidget imports."""
    of_notebooks = module_text()
    assert of_notebooks.count(_EXPORT) == 1
    alone = of_notebooks.replace(_EXPORT, "const makeWidget = ")
    of_page = [(_MODELS / name).read_text(encoding="utf-8") for name in ("values.js", model)]
    return "\n".join([alone, *of_page])


def json_in_a_script(content: object) -> str:
    """Write JSON in which nothing ends the element of the page that holds it."""
    return json.dumps(content, allow_nan=False).replace("<", "\\u003c")
