"""What the browser runs of the explorer: one module of JavaScript and one style sheet."""

from __future__ import annotations

import json
from pathlib import Path

from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.show.figures import pixels

STATIC = Path(__file__).with_name("static")
# The browser can be given one module only; these files, in this order, make it.
_MODULES = (
    "explorer_planes.js",
    "explorer_pixels.js",
    "explorer_drawing.js",
    "explorer_files.js",
    "explorer_parts.js",
    "explorer_cells.js",
    "explorer_listening.js",
    "explorer.js",
)

DRAWING: dict[str, object] = {
    "colours": pixels.COLOURS,
    "channels": pixels.CHANNELS,
    "dashes": pixels.DASHES,
    "agree_share": pixels.AGREE_SHARE,
    "dimmed": pixels.DIMMED,
    "darker": pixels.DARKER,
    "agreement": pixels.AGREEMENT,
    "agreed": pixels.AGREED,
}
"""How it draws, as the still pictures do."""

HELD_BYTES = 64 * 2**20
"""How much a page keeps of what it can ask for again, deflated."""


def module_text() -> str:
    """Give the module, whose default export makes a widget."""
    files = [(STATIC / name).read_text(encoding="utf-8") for name in _MODULES]
    words = {kind: kind.in_words for kind in ObjectKind}
    constants = {"SIGNS": pixels.SIGNS, "KIND_WORDS": words}
    lines = [f"const {name} = {json.dumps(value)};" for name, value in constants.items()]
    return "\n".join([*lines, *files])


def style_text() -> str:
    """Give the style sheet."""
    return (STATIC / "explorer.css").read_text(encoding="utf-8")
