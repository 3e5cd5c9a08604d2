"""The code that the browser runs: one module of JavaScript and one style sheet."""

from __future__ import annotations

import json
from pathlib import Path

from cellrepro.comparison.object_changes import MOST_TELLING_FIRST, RESIZED, RESIZED_MEANS
from cellrepro.show.figures import colours

STATIC = Path(__file__).with_name("static")
# anywidget takes one module only; these files, in this order, make it.
_MODULES = (
    "explorer_planes.js",
    "explorer_pixels.js",
    "explorer_channels.js",
    "explorer_blink.js",
    "explorer_panes.js",
    "explorer_scale_bar.js",
    "explorer_overview.js",
    "explorer_drawing.js",
    "explorer_files.js",
    "explorer_parts.js",
    "explorer_cells.js",
    "explorer_labels.js",
    "explorer_readout.js",
    "explorer_listening.js",
    "explorer_live.js",
    "explorer.js",
)
_STYLES = ("explorer.css", "explorer_live.css")

DRAWING: dict[str, object] = {
    "colours": colours.COLOURS,
    "channels": colours.CHANNELS,
    "channel_colours": colours.CHANNEL_COLOURS,
    "dashes": colours.DASHES,
    "dots": colours.DOTS,
    "agree_share": colours.AGREE_SHARE,
    "dimmed": colours.DIMMED,
    "darker": colours.DARKER,
    "agreement": colours.AGREEMENT,
    "agreed": colours.AGREED,
}
"""Colours and shares with which it draws, the same as in still pictures."""

HELD_BYTES = 64 * 2**20
"""Size of the page's cache of planes, deflated; what is dropped can be asked for again."""


def module_text() -> str:
    """Give the module, whose default export makes a widget."""
    files = [(STATIC / name).read_text(encoding="utf-8") for name in _MODULES]
    *changed, kept = MOST_TELLING_FIRST
    meanings = {str(kind): kind.meaning("A", "B") for kind in changed}
    meanings |= {"resized": f"{RESIZED_MEANS} in B", str(kept): kept.meaning("A", "B")}
    signs = {str(kind): kind.sign for kind in MOST_TELLING_FIRST}
    words = {str(kind): kind.in_words for kind in MOST_TELLING_FIRST}
    constants = {
        "KINDS": meanings,
        "SIGNS": signs | {"resized": kept.sign},
        "OTHER_OBJECT": colours.OTHER_OBJECT,
        "KIND_WORDS": words | {"resized": RESIZED},
    }
    lines = [f"const {name} = {json.dumps(value)};" for name, value in constants.items()]
    return "\n".join([*lines, *files])


def style_text() -> str:
    """Give the style sheet."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in _STYLES)
