"""From the light of synthetic nuclei to camera counts: ghosts, optics, background, noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cellrepro.images.canvas import Canvas, draw_form
from cellrepro.images.integer_images import (
    NOISE_SPREAD,
    ONE,
    SUBCOUNT,
    SUBPIXEL,
    Draws,
    Integers,
    box_blur,
    fine_blur,
    smooth_noise,
    square_root,
)

CAMERA_OFFSET = 100
"""Counts that a camera adds so that read noise never goes below zero."""
CAMERA_MAXIMUM = 4095
"""Counts; 12 bits."""
READ_NOISE = 4
"""Counts, one standard deviation."""


def photograph(canvas: Canvas, draws: Draws) -> NDArray[np.uint16]:
    """Photograph the nuclei on a canvas: camera counts, uint16, (Y, X), in [0, 4095]."""
    _add_ghosts(canvas, draws)
    light = _through_the_optics(canvas)
    light += _background(draws, canvas)
    light = light * _illumination(draws, canvas.shape, canvas.look.unevenness) // ONE
    return _camera(draws, canvas.cropped(light))


def _add_ghosts(canvas: Canvas, draws: Draws) -> None:
    """Add faint nuclei far out of focus; nobody would outline them and neither do the masks."""
    height, width = canvas.shape
    diameter = canvas.look.diameter
    pixels_each = 60 * diameter**2 // SUBPIXEL**2
    for _ in range(draws.between(0, 1 + height * width // pixels_each)):
        form = draw_form(draws, diameter, ONE * 5 // 4, condensed=False)
        y = draws.between(0, height * SUBPIXEL)
        x = draws.between(0, width * SUBPIXEL)
        frame = canvas.frame(form, y, x)
        relief = np.maximum(0, ONE - frame.squared_radius(form))
        level = draws.between(ONE // 12, ONE // 5)
        canvas.ghosts[frame.window] += relief * level // ONE * canvas.look.brightness // ONE


def _through_the_optics(canvas: Canvas) -> Integers:
    """The light that reaches the camera, in SUBCOUNT, on the whole canvas."""
    pixels = canvas.look.diameter // SUBPIXEL
    n_passes = (2 * canvas.look.blur**2 + SUBPIXEL**2 // 2) // SUBPIXEL**2
    n_extra = max(2, pixels**2 // 80)
    focused = fine_blur(canvas.sharp, n_passes) + fine_blur(canvas.defocused, n_passes + n_extra)
    ghosts = box_blur(canvas.ghosts, pixels // 3 | 1)
    near = box_blur(focused, pixels // 2 | 1)
    far = box_blur(focused, pixels * 2 | 1)
    return focused + ghosts + (near + far) // 2 * canvas.look.haze // ONE


def _background(draws: Draws, canvas: Canvas) -> Integers:
    """Light of stain in the medium and in the cells, in SUBCOUNT, which is never flat."""
    cloud = smooth_noise(draws, canvas.shape, max(canvas.image_shape) // 4)
    wisps = smooth_noise(draws, canvas.shape, canvas.look.diameter // SUBPIXEL)
    level = ONE + cloud // 4 + wisps // 8
    return np.maximum(0, level) * (20 * SUBCOUNT + canvas.look.brightness // 25) // ONE


def _illumination(draws: Draws, shape: tuple[int, int], unevenness: int) -> Integers:
    """How much light each pixel gets: ONE at the brightest, less around it, as a paraboloid."""
    height, width = shape
    rows, columns = np.ogrid[:height, :width]
    y = draws.between(height // 4, height * 3 // 4)
    x = draws.between(width // 4, width * 3 // 4)
    away = (rows.astype(np.int64) - y) ** 2 + (columns.astype(np.int64) - x) ** 2
    return ONE - away * unevenness // int(away.max())


def _camera(draws: Draws, light: Integers) -> NDArray[np.uint16]:
    """Counts for light in SUBCOUNT: shot noise grows with the root of the light, read noise not."""
    variance = light * SUBCOUNT * 2 // 3 + (READ_NOISE * SUBCOUNT) ** 2
    noise = draws.noise((light.shape[0], light.shape[1])) * square_root(variance) // NOISE_SPREAD
    counts = (light + noise + SUBCOUNT // 2) // SUBCOUNT + CAMERA_OFFSET
    return np.clip(counts, 0, CAMERA_MAXIMUM).astype(np.uint16)
