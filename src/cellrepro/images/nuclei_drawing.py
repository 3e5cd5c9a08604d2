"""Synthetic fluorescence images of nuclei with exact masks: the same bytes on every machine.

From the random draws to the camera counts everything is integer arithmetic, since the last bit of
floating point is not portable.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from cellrepro.images.canvas import Canvas, Form, Frame, draw_form
from cellrepro.images.integer_images import ONE, SUBPIXEL, Draws, Integers, square_root
from cellrepro.images.microscope import photograph
from cellrepro.images.nuclei_look import USUAL_LOOK, FixedLook, NucleiLook
from samebits.errors import BadInput, whole

_TRIES = 200  # for one nucleus to find a place

_MOST_NUCLEI = 65535


@dataclass(frozen=True)
class SyntheticImage:
    """One image of nuclei and the truth about it."""

    image: NDArray[np.uint16]
    """Shape (Y, X), counts in [0, 4095], with the camera's offset of 100."""
    masks: NDArray[np.uint16]
    """Shape (Y, X); 0 is background; 1 to N are nuclei, each one 4-connected piece."""


def nuclei(
    seed: int,
    *,
    shape: tuple[int, int] = (256, 256),
    n_nuclei: int | None = None,
    look: NucleiLook = USUAL_LOOK,
) -> SyntheticImage:
    """Nuclei as a fluorescence microscope shows them after a DNA stain, with their exact masks."""
    image_shape = _height_and_width(shape)
    draws = Draws(whole("seed", seed, 0))
    canvas = Canvas(draws, image_shape, FixedLook(look))
    _place_nuclei(canvas, draws, n_nuclei)
    return SyntheticImage(
        image=photograph(canvas, draws),
        masks=canvas.cropped(canvas.labels).astype(np.uint16),
    )


def _height_and_width(shape: Sequence[int]) -> tuple[int, int]:
    """Check the two sides of an image."""
    try:
        height, width = map(operator.index, shape)
        if min(height, width) < 16 or max(height, width) > 4096:
            raise ValueError("out of range")
    except (TypeError, ValueError) as error:  # also: no sequence, not two, or no whole numbers
        raise BadInput(
            f"shape must be (Y, X), two whole numbers from 16 to 4096 pixels, got {shape!r}"
        ) from error
    return height, width


# --- placing --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Nucleus:
    """One nucleus on the canvas."""

    form: Form
    y: int
    """Row of its centre, in SUBPIXEL; x is its column."""
    x: int
    condensed: bool
    """Smaller and brighter, as before a division."""


def _place_nuclei(canvas: Canvas, draws: Draws, n_nuclei: int | None) -> None:
    """Draw nuclei one after another where there is room for them."""
    n_wanted = _usual_number(canvas) if n_nuclei is None else whole("n_nuclei", n_nuclei, 0)
    if n_wanted > _MOST_NUCLEI:
        raise BadInput(
            f"n_nuclei is {n_wanted}; expected at most {_MOST_NUCLEI}, as masks have 16 bits"
        )
    placed: list[_Nucleus] = []
    for _ in range(n_wanted):
        nucleus = _place_one(canvas, draws, placed)
        if nucleus is None:
            break
        placed.append(nucleus)
        _add_light(canvas, draws, nucleus)
    if n_nuclei is not None and len(placed) < n_nuclei:
        raise BadInput(
            f"only {len(placed)} of n_nuclei={n_nuclei} nuclei found a place in an image of shape "
            f"{canvas.image_shape}; ask for fewer, smaller ones (diameter is "
            f"{canvas.look.diameter / SUBPIXEL:g} pixels) or a larger image"
        )


def _usual_number(canvas: Canvas) -> int:
    """The number of nuclei that covers about a fifth of the image."""
    pixels_each = 4 * canvas.look.diameter**2 // SUBPIXEL**2  # five times a nucleus's area
    return max(1, canvas.n_pixels // pixels_each)


def _place_one(canvas: Canvas, draws: Draws, placed: Sequence[_Nucleus]) -> _Nucleus | None:
    """Draw a nucleus and label its pixels; None where no position was free."""
    look = canvas.look
    for _ in range(_TRIES):
        condensed = draws.chance(ONE // 20)
        form = draw_form(draws, look.diameter, look.elongation, condensed=condensed)
        if placed and draws.chance(look.touching):
            position = _take_position_beside(canvas, draws, form, placed)
        else:
            position = _take_free_position(canvas, draws, form)
        if position is not None:
            y, x = position
            return _Nucleus(form, y, x, condensed)
    return None


def _take_free_position(canvas: Canvas, draws: Draws, form: Form) -> tuple[int, int] | None:
    """Try one position at random, away from all other nuclei; None where it is not free."""
    height, width = canvas.image_shape
    edge = canvas.margin * SUBPIXEL
    y = draws.between(edge, edge + height * SUBPIXEL)
    x = draws.between(edge, edge + width * SUBPIXEL)
    frame = canvas.frame(form, y, x)
    around = frame.squared_radius(form) < ONE * 8 // 5
    if np.any(canvas.labels[frame.window][around]):
        return None
    return (y, x) if _take(canvas, form, frame) else None


def _take_position_beside(
    canvas: Canvas, draws: Draws, form: Form, placed: Sequence[_Nucleus]
) -> tuple[int, int] | None:
    """Try one direction from another nucleus, at random; None where the position is not free.

    The new nucleus moves outwards from the other's centre until hardly any of it overlaps others:
    its light may overlap theirs, its label may not.
    """
    other = placed[draws.between(0, len(placed) - 1)]
    p, q, r = draws.direction()
    shared_percent = draws.between(0, 9)
    diameter = canvas.look.diameter
    for step in range(diameter // 2, diameter * 2, SUBPIXEL):
        y = other.y + step * q // r
        x = other.x + step * p // r
        frame = canvas.frame(form, y, x)
        inside = frame.squared_radius(form) < ONE
        n_shared = np.count_nonzero(canvas.labels[frame.window][inside])
        if n_shared * 100 <= shared_percent * np.count_nonzero(inside):
            return (y, x) if _take(canvas, form, frame) else None
    return None


def _take(canvas: Canvas, form: Form, frame: Frame) -> bool:
    """Label a nucleus's pixels, unless too little of it would be seen; say whether it was."""
    labels = canvas.labels[frame.window]
    seen = canvas.seen[frame.window]
    free = (frame.squared_radius(form) < ONE) & (labels == 0)
    pieces, n_pieces = ndimage.label(free & seen)
    if n_pieces == 0:
        return False
    sizes = np.bincount(pieces.ravel())[1:]
    largest = int(np.argmax(sizes)) + 1
    typical_size = canvas.look.diameter**2 * 3 // 4 // SUBPIXEL**2
    if sizes[largest - 1] * 4 < min(typical_size, canvas.n_pixels):
        return False
    canvas.n_labels += 1
    labels[pieces == largest] = canvas.n_labels
    labels[free & ~seen] = canvas.n_labels  # outside the image only to keep later nuclei away
    return True


# --- light ----------------------------------------------------------------------------------


def _add_light(canvas: Canvas, draws: Draws, nucleus: _Nucleus) -> None:
    """Add one nucleus's light: thicker in the middle, grainy, with nucleoli and bright spots."""
    form = nucleus.form
    frame = canvas.frame(form, nucleus.y, nucleus.x)
    relief = _relief(frame.squared_radius(form))
    for _ in range(draws.between(0, 3)):  # nucleoli hold little DNA
        spot = _spot(draws, form, frame, ONE // 8, ONE // 4)
        relief -= relief * (spot * draws.between(ONE // 8, ONE * 2 // 5) // ONE) // ONE
    n_most = canvas.look.chromocentres
    for _ in range(draws.between(n_most // 2, n_most)):
        spot = _spot(draws, form, frame, ONE // 9, ONE // 5)
        relief += relief * (spot * draws.between(ONE // 2, ONE * 5 // 4) // ONE) // ONE

    level = draws.bell(ONE * 11 // 20, ONE * 29 // 20)
    if nucleus.condensed:
        level = level * 9 // 5
    elif draws.chance(ONE // 12):
        level = level * 2 // 5
    grain = canvas.chromatin[frame.window]
    light = relief * grain // ONE * level // ONE * canvas.look.brightness // ONE
    layer = canvas.defocused if draws.chance(ONE // 5) else canvas.sharp
    layer[frame.window] += light


def _relief(radius: Integers) -> Integers:
    """Thickness of a nucleus at each pixel, ONE in the middle, with a steep rim."""
    thickness = square_root(np.maximum(0, ONE - radius) * ONE)
    rim = np.clip((ONE - radius) * 4, 0, ONE)
    return (thickness * 7 + rim * 9) // 16


def _spot(draws: Draws, form: Form, frame: Frame, smallest: int, largest: int) -> Integers:
    """A soft round spot inside a nucleus, ONE in its middle; sizes relative to the short axis."""
    along = form.long * draws.bell(-ONE * 4 // 5, ONE * 4 // 5) // ONE
    across = form.short * draws.bell(-ONE * 4 // 5, ONE * 4 // 5) // ONE
    size = form.short * draws.between(smallest, largest) * 3 // 2 // ONE
    squared_distance = (frame.along - along) ** 2 + (frame.across - across) ** 2
    return np.maximum(0, ONE - squared_distance * ONE // max(1, size) ** 2)
