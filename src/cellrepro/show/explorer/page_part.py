"""The explorer as a part of a page that stands alone: no kernel, no server, one file."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellrepro.errors import BadInput
from cellrepro.show.explorer.browser_code import DRAWING, HELD_BYTES, module_text, style_text
from cellrepro.show.explorer.scenes import Scene, Scenes
from cellrepro.show.explorer.view import View

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
    """How many pixels differ, as a sentence."""


def explorer_part(view: View, name_a: str, name_b: str, *, height: int = 620) -> ExplorerPart:
    """Make the explorer of one image with two label images, and all planes that it can show."""
    scenes = Scenes([view], [name_a, name_b])
    by_sides = _every_scene(scenes)
    first = by_sides["0 1"]
    planes = {name: scenes.plane(name) for name in _plane_names(by_sides.values())}
    n_bytes = sum(len(plane["data"]) for plane in planes.values())
    if n_bytes > _MOST_BYTES:
        raise BadInput(
            f"image and masks of {view.name} are {n_bytes // 2**20} MiB when packed; expected at "
            f"most {_MOST_BYTES // 2**20} MiB, which a browser can open: crop image and masks, or "
            "take one plane of the stack"
        )
    content = {
        "state": first_state(scenes, first, height=height),
        "scenes": by_sides,
        "planes": {
            name: {**plane, "data": base64.b64encode(plane["data"]).decode("ascii")}
            for name, plane in planes.items()
        },
    }
    return ExplorerPart(
        data=inside_a_script(json.dumps(content, allow_nan=False)),
        module=module_with("page_model.js"),
        style=style_text(),
        line=first["line"],
    )


def first_state(scenes: Scenes, scene: Scene, *, height: int) -> dict[str, object]:
    """The state of a page's model as it begins, but for its planes."""
    return {
        "runs": list(scenes.names),
        "images": [scene["names"]["image"]],
        "choice": {key: scene[key] for key in ("view", "a", "b", "z")},
        "scene": scene,
        "answered": 0,
        "problem": "",
        "selected": {},
        "title": "",
        "note": "",
        "held_bytes": HELD_BYTES,
        "height": height,
        "drawing": DRAWING,
    }


def _every_scene(scenes: Scenes) -> dict[str, Scene]:
    """Make the scene of every two sides, by their numbers: "0 1"."""
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
    return f"{alone}\n{(_MODELS / model).read_text(encoding='utf-8')}"


def inside_a_script(text: str) -> str:
    """Escape JSON so that nothing in it ends the element that holds it."""
    return text.replace("<", "\\u003c")
