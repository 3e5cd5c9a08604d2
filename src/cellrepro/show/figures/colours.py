"""The colours, signs and shares in which still pictures and the explorer show masks."""

from __future__ import annotations

CATEGORIES = ("background", "agree", "only_a", "only_b", "other_object")
"""What each value of a categories map means, in order: 0, 1, 2, 3, 4."""
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
CHANNELS: tuple[dict[str, str], ...] = (
    {"grey": "#FFFFFF"},
    {"green": "#00FF00", "magenta": "#FF00FF"},
    {"red": "#FF0000", "green": "#00FF00", "blue": "#0000FF"},
)
"""How the channels of an image are shown: of one, of two, of three; of more, the first three."""
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
