"""The colours, signs and shares in which still pictures and the explorer show masks."""

from __future__ import annotations

import itertools

from cellrepro.comparison.object_changes import ObjectKind

CATEGORIES = ("background", "agree", "only_a", "only_b", "other_object")
"""What each value of a categories map means, in order: 0, 1, 2, 3, 4."""
OTHER_OBJECT = "not the same cell"
"""What the last of them is called; the pixel is cell in both."""
COLOURS = {
    "a": "#56B4E9",
    "b": "#E69F00",
    "truth": "#F0E442",
    "agree": "#FFFFFF",
    "only_a": "#56B4E9",
    "only_b": "#E69F00",
    "other_object": "#CC79A7",
}
"""Okabe-Ito colours (white is faint), the same in the browser and in the static picture."""
_OF_MANY_CHANNELS = {
    "sky": "#56B4E9",
    "orange": "#E69F00",
    "teal": "#009E73",
    "pink": "#CC79A7",
    "yellow": "#F0E442",
    "vermilion": "#D55E00",
    "deep blue": "#0072B2",
    "grey": "#FFFFFF",
}
CHANNELS: tuple[dict[str, str], ...] = (
    {"grey": "#FFFFFF"},
    {"green": "#00FF00", "magenta": "#FF00FF"},
    {"red": "#FF0000", "green": "#00FF00", "blue": "#0000FF"},
    *(
        dict(itertools.islice(_OF_MANY_CHANNELS.items(), n_channels))
        for n_channels in range(4, len(_OF_MANY_CHANNELS) + 1)
    ),
)
"""How the channels of an image are shown: of one, of two, of three (red, green and blue, as a
photograph), and of more. Of still more than these the first are shown."""
CHANNEL_COLOURS = {name: colour for channels in CHANNELS for name, colour in channels.items()}
"""Every colour that a channel can be given, by its name."""
DOTS = {
    ObjectKind.KEPT: "agree",
    ObjectKind.MOVED: "agree",
    ObjectKind.SPLIT: "other_object",
    ObjectKind.MERGED: "other_object",
    ObjectKind.LOST: "only_a",
    ObjectKind.GAINED: "only_b",
}
"""The colour of the dot on a listed cell, by its name in `COLOURS`; where two dots meet, the later
kind is seen. Kept ones are listed where they have another size."""
RESULTS = ("#B5E2D0", "#D5C8EE", "#EFE79A", "#CFCFCF", "#D9C7AE", "#C3D59A", "#EBCBE0")
"""Behind letters of results, for black text: neither blue nor orange, which are sides and verdicts,
and no red beside a green."""
DASHES: dict[str, tuple[int, int] | None] = {"a": None, "b": (6, 4), "truth": (2, 4)}
"""How outlines differ in style: pixels on and off along the line; None is solid."""
AGREE_SHARE = 0.25
"""Factor of the overlay's opacity where masks agree: what agrees must not shout."""
DIMMED = 0.55
"""Factor of the image's brightness under the categories."""
DARKER = 0.45
"""Factor of a colour's brightness on the lines of its pattern."""
AGREEMENT = ("#F0E442", "#E69F00", "#D55E00", "#8C4A86", "#2F4A7A")
"""From few runs (bright) to all runs (dark): what runs dispute stands out, also without colour."""
AGREED = 0.5
"""Factor of the opacity of pixels on which all runs agree."""


def rgb(colour: str) -> list[int]:
    """Read red, green and blue of ``#RRGGBB``.

    >>> rgb("#0072B2")
    [0, 114, 178]
    """
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
