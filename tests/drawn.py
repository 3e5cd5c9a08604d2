"""What a figure shows, once it is drawn."""

import matplotlib.text
import numpy as np

from cellrepro.show.figures.style import Picture


def texts(picture: Picture) -> str:
    """Everything written in a picture; drawing must not warn."""
    assert picture.png(dpi=40, caption=True).startswith(b"\x89PNG")
    found = picture.findobj(matplotlib.text.Text)
    return "\n".join(text.get_text() for text in found if text.get_visible() and text.get_text())


def pixels(picture: Picture) -> list[np.ndarray]:
    """The arrays of colours in its panels."""
    return [axes.images[0].get_array() for axes in picture.axes if axes.images]


def is_coloured(array: np.ndarray) -> np.ndarray:
    """Which pixels are not grey."""
    return array.max(-1) != array.min(-1)
