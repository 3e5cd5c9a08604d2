"""What a figure shows, once it is drawn."""

import matplotlib.text
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from cellrepro.show.figures.colours import COLOURS
from cellrepro.show.figures.style import Picture

_SIDES = {
    **{"A": "a", "lost": "only_a", "only A": "only_a", "only in A": "only_a"},
    **{"B": "b", "gained": "only_b", "only B": "only_b", "only in B": "only_b"},
}
"""What figures call a side, or the cells of one side alone, and the name of its colour."""


def _colours_of_sides(picture: Picture) -> dict[str, str]:
    """The colours of all that stands for a side: in legends, and of lines with its name."""
    named = [(str(line.get_gid()), line.get_color()) for line in picture.findobj(Line2D)]
    for legend in picture.findobj(Legend):
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            is_line = isinstance(handle, Line2D)
            colour = handle.get_color() if is_line else handle.get_facecolor()
            named.append((text.get_text(), colour))
    return {name: to_hex(colour).upper() for name, colour in named if name in _SIDES}


def texts(picture: Picture) -> str:
    """Everything written in a picture; drawing must not warn, sides have their colours, headings
    one colon at most, and what is logarithmic says so."""
    assert picture.png(dpi=40, caption=True).startswith(b"\x89PNG")
    shown = _colours_of_sides(picture)
    assert shown == {name: COLOURS[_SIDES[name]] for name in shown}
    assert picture.get_suptitle().replace("\n", " ").count(": ") <= 1
    found = picture.findobj(matplotlib.text.Text)
    for axes in picture.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() != "linear":
                beside = [axis.get_label_text(), picture.get_supylabel(), picture.caption]
                assert "logarithmic" in " ".join(beside)
    return "\n".join(text.get_text() for text in found if text.get_visible() and text.get_text())


def pixels(picture: Picture) -> list[np.ndarray]:
    """The arrays of colours in its panels."""
    return [axes.images[0].get_array() for axes in picture.axes if axes.images]


def is_coloured(array: np.ndarray) -> np.ndarray:
    """Which pixels are not grey."""
    return array.max(-1) != array.min(-1)
