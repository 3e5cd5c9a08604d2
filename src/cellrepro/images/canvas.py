"""The canvas that synthetic nuclei are drawn on, and the form of one nucleus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.images.integer_images import (
    ONE,
    SUBPIXEL,
    Draws,
    Integers,
    smooth_noise,
    square_root,
)
from cellrepro.images.nuclei_look import FixedLook

Window = tuple[slice, slice]


@dataclass(frozen=True)
class Form:
    """Size and form of one nucleus: lengths in SUBPIXEL, the rest in ONE."""

    long: int
    """Half the long axis."""
    short: int
    """Half the short axis."""
    direction: tuple[int, int, int]
    """Direction of the long axis, see `Draws.direction`."""
    bend: int
    taper: int


def draw_form(draws: Draws, diameter: int, elongation: int, *, condensed: bool) -> Form:
    """Draw the form of a nucleus; a condensed one is smaller."""
    size = diameter * draws.bell(ONE * 3 // 4, ONE * 5 // 4) // ONE
    if condensed:
        size = size * 5 // 6
    stretch = ONE + (elongation - ONE) * draws.bell(0, 2 * ONE) // ONE
    stretch = max(ONE, stretch + draws.between(-ONE // 20, ONE // 8))
    ratio = int(square_root(np.array(stretch * ONE)))
    return Form(
        long=size * ratio // ONE // 2,
        short=size * ONE // ratio // 2,
        direction=draws.direction(),
        bend=draws.bell(-ONE * 3 // 10, ONE * 3 // 10),
        taper=draws.bell(-ONE // 4, ONE // 4),
    )


@dataclass(frozen=True)
class Frame:
    """The pixels around one nucleus, with their coordinates on its axes in SUBPIXEL."""

    window: Window
    along: Integers
    """Position on the long axis."""
    across: Integers
    """Position on the short axis."""

    def squared_radius(self, form: Form) -> Integers:
        """0 in the centre of a nucleus, ONE on its outline."""
        along = self.along * self.along * ONE // form.long**2
        return along + self.across * self.across * ONE // form.short**2


class Canvas:
    """The image and a margin around it, so that nuclei are cut by the image's edge."""

    def __init__(self, draws: Draws, image_shape: tuple[int, int], look: FixedLook) -> None:
        height, width = image_shape
        self.look = look
        self.margin = look.diameter * 2 // SUBPIXEL
        self.image_shape = image_shape
        self.n_pixels = height * width  # of the image
        self.shape = (height + 2 * self.margin, width + 2 * self.margin)
        self.seen = np.zeros(self.shape, bool)  # by the camera
        self.cropped(self.seen)[:] = True
        self.labels = np.zeros(self.shape, np.int64)
        self.n_labels = 0
        self.sharp = np.zeros(self.shape, np.int64)  # light in focus
        self.defocused = np.zeros(self.shape, np.int64)  # blurred more
        self.ghosts = np.zeros(self.shape, np.int64)  # from far above or below
        self._warp_y = self._warp(draws)
        self._warp_x = self._warp(draws)
        self.chromatin = self._chromatin(draws)

    def _warp(self, draws: Draws) -> Integers:
        """Shifts of positions along an axis, which make outlines irregular."""
        width = max(3, self.look.diameter // SUBPIXEL // 3)
        return smooth_noise(draws, self.shape, width) * (self.look.diameter // 32) // ONE

    def _chromatin(self, draws: Draws) -> Integers:
        """Grain at every scale, in ONE; the optics blur most of the finest."""
        finest = smooth_noise(draws, self.shape, 1)
        fine = smooth_noise(draws, self.shape, 3)
        coarse = smooth_noise(draws, self.shape, max(5, self.look.diameter // SUBPIXEL // 4))
        grain = (finest * 6 + fine * 4 + coarse * 3) // 6
        return np.clip(ONE + grain * self.look.texture // ONE, ONE // 4, 2 * ONE)

    def cropped(self, values: NDArray[Any]) -> NDArray[Any]:
        """A view of the part of an array that the image shows."""
        height, width = self.image_shape
        return values[self.margin :, self.margin :][:height, :width]

    def frame(self, form: Form, y: int, x: int) -> Frame:
        """The pixels around a nucleus at a position in SUBPIXEL."""
        window = self._window(y, x, form.long * 3 // 2 + SUBPIXEL)
        rows, columns = np.ogrid[window]
        dy = rows * SUBPIXEL - y + self._warp_y[window]
        dx = columns * SUBPIXEL - x + self._warp_x[window]
        p, q, r = form.direction
        along = (p * dx + q * dy) // r
        across = (p * dy - q * dx) // r
        across = across + form.bend * along // ONE * along // form.long
        across = across * (ONE + form.taper * along // form.long) // ONE
        return Frame(window, along, across)

    def _window(self, y: int, x: int, reach: int) -> Window:
        """The pixels of the canvas within `reach` of a position, both in SUBPIXEL."""
        return (
            _span(y, reach, self.shape[0]),
            _span(x, reach, self.shape[1]),
        )


def _span(centre: int, reach: int, n_pixels: int) -> slice:
    """The pixels of an axis within `reach` of a position, both in SUBPIXEL."""
    start = max(0, (centre - reach) // SUBPIXEL)
    stop = max(0, (centre + reach) // SUBPIXEL + 2)
    return slice(start, min(n_pixels, stop))
