"""Synthetic fluorescence images of nuclei with exact masks: the same bytes on every machine.

From the random draws to the camera counts everything is integer arithmetic, since the last bit of
floating point is not portable. Three scales of fixed point are used: positions and distances count
1/256 of a pixel (``SUBPIXEL``), light 1/256 of a camera count (``SUBCOUNT``), fractions 1/65536
(``ONE``).
"""

import hashlib
import io
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

from cellrepro.errors import BadInput, whole
from cellrepro.images.folder import LabelledImage, is_litter
from cellrepro.words import joined

Integers = NDArray[np.int64]
Window = tuple[slice, slice]

SUBPIXEL = 256
SUBCOUNT = 256
ONE = 65536

CAMERA_OFFSET = 100  # counts that a camera adds so that read noise never goes below zero
CAMERA_MAXIMUM = 4095  # 12 bits
READ_NOISE = 4  # counts, one standard deviation
NOISE_SPREAD = 209  # standard deviation of the sum of eight random bytes: sqrt(8 * 65535 / 12)

DIGESTS_FILE = "SHA256SUMS"

LOOK: dict[str, tuple[float, int]] = {
    "diameter": (22, SUBPIXEL),  # of a typical nucleus, pixels; single ones differ by about a fifth
    "elongation": (1.35, ONE),  # long axis divided by short axis
    "touching": (0.25, ONE),  # share of the nuclei that are placed against another one
    # Counts above the background. About one nucleus in twelve is dim (a third of this), one in
    # twenty is small and nearly twice as bright.
    "brightness": (900, SUBCOUNT),
    "texture": (0.2, ONE),  # relative strength of the chromatin's
    "chromocentres": (0, 1),  # up to how many bright spots a nucleus shows; mouse nuclei do
    # Standard deviation of the optics, pixels. About one nucleus in five is blurred more.
    "blur": (1.0, SUBPIXEL),
    "haze": (0.2, ONE),  # share of the light that returns as a veil around the nuclei
    "unevenness": (0.25, ONE),  # share of the light missing in the darkest corner
}
"""What nuclei of an image have in common: the usual value, and the scale it is computed in."""

LIMITS: dict[str, tuple[float, float]] = {
    "diameter": (1, 512),
    "elongation": (1, 20),
    "touching": (0, 1),
    "brightness": (0, 100_000),
    "texture": (0, 10),
    "chromocentres": (0, 100),
    "blur": (0, 50),
    "haze": (0, 1),
    "unevenness": (0, 1),
}
"""The least and the most that each of `LOOK` can be, in the same units."""


@dataclass(frozen=True)
class SyntheticImage:
    """One image of nuclei and the truth about it."""

    image: NDArray[np.uint16]  # (Y, X), counts in [0, 4095], with the camera's offset of 100
    masks: NDArray[np.uint16]  # 0 is background; 1 to N are nuclei, each one 4-connected piece


def nuclei(
    seed: int, *, shape: tuple[int, int] = (256, 256), n_nuclei: int | None = None, **look: float
) -> SyntheticImage:
    """Nuclei as a fluorescence microscope shows them after a DNA stain, with their exact masks.

    Parameters
    ----------
    seed : int
        Another seed gives another image; 0 or more.
    shape : tuple of int
        (Y, X) in pixels, each from 16 to 4096.
    n_nuclei : int, optional
        By default as many as cover about a fifth of the image.
    look : float
        What differs from `LOOK`, by name, within `LIMITS`.

    Returns
    -------
    SyntheticImage

    Raises
    ------
    BadInput
        If one of these is no such number, or the nuclei find no place.
    """
    height, width = _height_and_width(shape)
    if unknown := look.keys() - LOOK.keys():
        raise BadInput(
            f"nuclei have no {joined(sorted(unknown))}; expected some of {', '.join(LOOK)}"
        )
    for name, value in look.items():
        least, most = LIMITS[name]
        if isinstance(value, bool) or not isinstance(value, Real) or not least <= value <= most:
            raise BadInput(
                f"{name} of nuclei is {value!r}; expected a number from {least:g} to {most:g}"
            )
    # One rounding of one double, which IEEE 754 defines exactly.
    fixed = {name: round(look.get(name, usual) * scale) for name, (usual, scale) in LOOK.items()}
    draws = _Draws(whole("seed", seed, 0))
    field = _Field(draws, (height, width), SimpleNamespace(**fixed))
    _place(field, draws, n_nuclei)
    _add_ghosts(field, draws)
    light = _through_the_optics(field)
    light += _background(draws, field)
    light = light * _illumination(draws, light.shape, field.look.unevenness) // ONE
    return SyntheticImage(
        image=_camera(draws, field.cropped(light)),
        masks=field.cropped(field.labels).astype(np.uint16),
    )


def _height_and_width(shape: Sequence[int]) -> tuple[int, int]:
    """The two sides of an image; NumPy's numbers become Python's."""
    try:
        height, width = map(operator.index, shape)
    except (TypeError, ValueError):  # no sequence, not two, or no whole numbers
        height = width = 0
    if not all(16 <= side <= 4096 for side in (height, width)):
        raise BadInput(
            f"shape must be (Y, X), two whole numbers from 16 to 4096 pixels, got {shape!r}"
        )
    return height, width


def labelled_nuclei(n: int, **look: Any) -> list[LabelledImage]:
    """Nuclei of the seeds 0 to ``n`` - 1, as a folder gives them, but without files."""
    drawn = [nuclei(seed, **look) for seed in range(n)]
    return [
        LabelledImage(f"synth_{seed}", made.image, made.masks.astype(np.int32), Path())
        for seed, made in enumerate(drawn)
    ]


# Each image of a set has a look of its own; a set of more images starts again from the first. The
# last three, the test images of the default set, resemble the others without repeating one.
LOOKS: tuple[dict[str, Any], ...] = tuple(
    {"diameter": diameter, "n_nuclei": n_nuclei, "brightness": brightness, "blur": blur, **others}
    for diameter, n_nuclei, brightness, blur, others in (
        (22, 36, 900, 1.0, {"elongation": 1.4}),
        (30, 20, 1500, 1.0, {"texture": 0.26}),
        (18, 52, 700, 0.8, {"elongation": 1.25}),
        (21, 62, 1000, 1.0, {"touching": 0.8, "haze": 0.35}),
        (26, 22, 320, 1.6, {"unevenness": 0.45}),
        (24, 26, 1300, 0.9, {"chromocentres": 8, "elongation": 1.15}),
        (20, 38, 800, 1.2, {"elongation": 1.9}),
        (34, 16, 1100, 1.4, {"elongation": 1.5, "texture": 0.25}),
        (20, 56, 900, 1.1, {"touching": 0.6}),
        (28, 22, 1200, 1.2, {"elongation": 1.5}),
        (23, 32, 450, 1.0, {"unevenness": 0.4}),
    )
)


def write_folder(
    folder: Path,
    *,
    seed: int = 0,
    n_train: int = 8,
    n_test: int = 3,
    shape: tuple[int, int] = (256, 256),
    n_cells: int | None = None,
) -> dict[str, str]:
    """Write a set of synthetic images, the same bytes everywhere; their digests by path, sorted.

    The layout is Cellpose's; the test images go on counting. ``SHA256SUMS`` is written last, so a
    folder that holds it is whole. Image number i depends on `seed`, i, `shape` and `n_cells` alone
    (every image then holds as many, drawn smaller where they need it); right files are left alone,
    a folder with others is refused.
    """
    folder = Path(folder)
    n_images = whole("n_train", n_train, 0), whole("n_test", n_test, 0)
    contents = _draw_set(whole("seed", seed, 0), *n_images, shape, n_cells)
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)}
    listing = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    contents[DIGESTS_FILE] = listing.encode("ascii")

    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        ours = name in contents and path.read_bytes() == contents[name]
        if not (ours or path.is_dir() or is_litter(name)):
            raise BadInput(
                f"{path} is no file of this synthetic set, or another one (another seed or shape, "
                "or changed since); delete it or choose another folder"
            )
    for name, content in contents.items():
        target = folder / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            staged = target.with_name(f".{target.name}")
            staged.write_bytes(content)
            staged.replace(target)  # whole or not at all
    return digests


# --- integer building blocks ----------------------------------------------------------------


class _Draws:
    """Random integers from the raw stream of PCG64, which NumPy promises to keep (NEP 19)."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high], both included; at most 2**31 apart."""
        return low + ((int(self._bits.random_raw()) >> 32) * (high - low + 1) >> 32)

    def chance(self, fraction: int) -> bool:
        """True with probability fraction / ONE."""
        return self.between(0, ONE - 1) < fraction

    def bell(self, low: int, high: int) -> int:
        """A whole number in [low, high], most often near the middle."""
        return sum(self.between(low, high) for _ in range(3)) // 3

    def direction(self) -> tuple[int, int, int]:
        """A rational rotation: (p, q, r) with p*p + q*q == r*r, in any of the four quadrants."""
        step = self.between(0, 256)
        p, q, r = 256 * 256 - step * step, 2 * 256 * step, 256 * 256 + step * step
        if self.chance(ONE // 2):
            p, q = q, p
        return (-p if self.chance(ONE // 2) else p), (-q if self.chance(ONE // 2) else q), r

    def noise(self, shape: tuple[int, int]) -> Integers:
        """Bell-shaped noise: sums of eight random bytes less their mean, spread NOISE_SPREAD."""
        raw = self._bits.random_raw(shape[0] * shape[1]).reshape(shape)
        total = np.zeros(shape, np.int64)
        for shift in range(0, 64, 8):
            total += ((raw >> np.uint64(shift)) & np.uint64(255)).astype(np.int64)
        return total - 8 * 255 // 2


def _square_root(value: Integers) -> Integers:
    """The whole part of the square root of whole numbers below 2**52, exactly."""
    root = np.sqrt(value.astype(np.float64)).astype(np.int64)
    root -= root * root > value
    root += (root + 1) * (root + 1) <= value
    return root


def _box_blur(values: Integers, width: int) -> Integers:
    """Three passes of a moving average of odd width along both axes: close to a Gaussian."""
    half = width // 2
    for _ in range(6):  # along Y, X, Y, X, Y, X: each round turns the image
        padded = np.pad(values, ((half + 1, half), (0, 0)), mode="edge")
        sums = np.cumsum(padded, axis=0)
        values = ((sums[width:] - sums[:-width]) // width).T
    return values


def _fine_blur(values: Integers, n_passes: int) -> Integers:
    """Passes of the weights 1, 2, 1 along both axes; each adds 1/2 to the variance in pixels."""
    for _ in range(2 * n_passes):  # along Y, then X: each round turns the image
        padded = np.pad(values, ((1, 1), (0, 0)), mode="edge")
        values = ((padded[:-2] + 2 * padded[1:-1] + padded[2:]) >> 2).T
    return values


def _smooth_noise(draws: _Draws, shape: tuple[int, int], width: int) -> Integers:
    """Noise that varies over about `width` pixels, mean 0 and standard deviation ONE."""
    blurred = _box_blur(draws.noise(shape) << 16, width | 1)
    blurred -= int(blurred.sum()) // blurred.size
    blurred >>= 4  # keeps the squares, summed over 4096 * 4096 pixels, inside 63 bits
    spread = _square_root(np.array(int((blurred * blurred >> 8).sum()) // blurred.size))
    return blurred * (ONE // 16) // max(1, int(spread))


# --- nuclei ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Size and form of one nucleus: lengths in SUBPIXEL, the rest in ONE."""

    long: int  # half axes
    short: int
    direction: tuple[int, int, int]
    bend: int
    taper: int


class _Field:
    """The canvas: the image and a margin around it, so that nuclei are cut by the image's edge."""

    def __init__(self, draws: _Draws, shape: tuple[int, int], look: SimpleNamespace) -> None:
        self.look, self.diameter = look, look.diameter
        self.margin = look.diameter * 2 // SUBPIXEL
        height, width = map(operator.index, shape)
        self.image_shape, self.n_pixels = (height, width), height * width
        self.shape = (height + 2 * self.margin, width + 2 * self.margin)
        self.seen = np.zeros(self.shape, bool)  # by the camera
        self.cropped(self.seen)[:] = True
        self.labels = np.zeros(self.shape, np.int64)
        self.n_labels = 0
        # Light in focus, blurred more, and from far above or below
        self.sharp, self.defocused, self.ghosts = np.zeros((3, *self.shape), np.int64)

        pixels = look.diameter // SUBPIXEL
        # Positions are pushed around by this much before a shape is drawn: irregular outlines.
        push = look.diameter // 32
        self.warp = tuple(
            _smooth_noise(draws, self.shape, max(3, pixels // 3)) * push // ONE for _ in "YX"
        )
        # Chromatin is grainy at every scale; the optics will take most of the finest away.
        finest = _smooth_noise(draws, self.shape, 1)
        fine = _smooth_noise(draws, self.shape, 3)
        coarse = _smooth_noise(draws, self.shape, max(5, pixels // 4))
        grain = (finest * 6 + fine * 4 + coarse * 3) // 6
        self.chromatin = np.clip(ONE + grain * look.texture // ONE, ONE // 4, 2 * ONE)

    def cropped(self, values: NDArray[Any]) -> NDArray[Any]:
        height, width = self.image_shape
        return values[self.margin :, self.margin :][:height, :width]

    def window(self, y: int, x: int, reach: int) -> Window:
        """The pixels of the canvas within `reach` of a position, both in SUBPIXEL."""
        top, left = (max(0, (centre - reach) // SUBPIXEL) for centre in (y, x))
        bottom, right = (max(0, (centre + reach) // SUBPIXEL + 2) for centre in (y, x))
        return slice(top, min(self.shape[0], bottom)), slice(left, min(self.shape[1], right))

    def own_frame(self, form: _Form, y: int, x: int) -> tuple[Window, Integers, Integers]:
        """A window around a nucleus and its pixels' coordinates u (along) and v (across)."""
        window = self.window(y, x, form.long * 3 // 2 + SUBPIXEL)
        rows, columns = np.ogrid[window]
        dy = rows * SUBPIXEL - y + self.warp[0][window]
        dx = columns * SUBPIXEL - x + self.warp[1][window]
        p, q, r = form.direction
        u = (p * dx + q * dy) // r
        v = (p * dy - q * dx) // r
        v = v + form.bend * u // ONE * u // form.long
        v = v * (ONE + form.taper * u // form.long) // ONE
        return window, u, v


def _squared_radius(form: _Form, u: Integers, v: Integers) -> Integers:
    """0 in the centre of a nucleus, ONE on its outline."""
    return u * u * ONE // form.long**2 + v * v * ONE // form.short**2


def _place(field: _Field, draws: _Draws, n_nuclei: int | None) -> None:
    """Draw nuclei one after another where there is room for them."""
    pixels_each = 4 * field.diameter**2 // SUBPIXEL**2  # five times a nucleus's area
    wanted = max(1, field.n_pixels // pixels_each) if n_nuclei is None else n_nuclei
    placed: list[tuple[int, int]] = []
    for _ in range(wanted):
        for _ in range(200):
            condensed = draws.chance(ONE // 20)
            form = _draw_form(draws, field.diameter, field.look.elongation, condensed)
            if placed and draws.chance(field.look.touching):
                found = _find_place_beside(field, draws, form, placed)
            else:
                found = _find_free_place(field, draws, form)
            if found is not None:
                break
        else:
            break
        placed.append(found)
        _add_light(field, draws, form, found, condensed)
    if n_nuclei is not None and len(placed) < n_nuclei:
        raise BadInput(
            f"only {len(placed)} of n_nuclei={n_nuclei} nuclei found a place in an image of shape "
            f"{field.image_shape}; ask for fewer, smaller ones (diameter is "
            f"{field.diameter / SUBPIXEL:g} pixels) or a larger image"
        )


def _draw_form(draws: _Draws, diameter: int, elongation: int, condensed: bool) -> _Form:
    size = diameter * draws.bell(ONE * 3 // 4, ONE * 5 // 4) // ONE
    if condensed:
        size = size * 5 // 6
    stretch = ONE + (elongation - ONE) * draws.bell(0, 2 * ONE) // ONE
    stretch = max(ONE, stretch + draws.between(-ONE // 20, ONE // 8))
    ratio = int(_square_root(np.array(stretch * ONE)))
    return _Form(
        long=size * ratio // ONE // 2,
        short=size * ONE // ratio // 2,
        direction=draws.direction(),
        bend=draws.bell(-ONE * 3 // 10, ONE * 3 // 10),
        taper=draws.bell(-ONE // 4, ONE // 4),
    )


def _find_free_place(field: _Field, draws: _Draws, form: _Form) -> tuple[int, int] | None:
    """A position away from all other nuclei, now taken, or None where this draw was unlucky."""
    edge = field.margin * SUBPIXEL
    y, x = (draws.between(edge, edge + size * SUBPIXEL) for size in field.image_shape)
    window, u, v = field.own_frame(form, y, x)
    radius = _squared_radius(form, u, v)
    if np.any(field.labels[window][radius < ONE * 8 // 5]):
        return None
    return (y, x) if _take(field, window, radius) else None


def _find_place_beside(
    field: _Field, draws: _Draws, form: _Form, placed: list[tuple[int, int]]
) -> tuple[int, int] | None:
    """A position that touches a nucleus, now taken, or None where this draw was unlucky.

    The new one moves outwards from the other's centre until hardly any of it lies on top of others:
    its light may overlap theirs, its label may not.
    """
    from_y, from_x = placed[draws.between(0, len(placed) - 1)]
    p, q, r = draws.direction()
    shared_percent = draws.between(0, 9)
    for step in range(field.diameter // 2, field.diameter * 2, SUBPIXEL):
        y, x = from_y + step * q // r, from_x + step * p // r
        window, u, v = field.own_frame(form, y, x)
        radius = _squared_radius(form, u, v)
        inside = radius < ONE
        n_shared = np.count_nonzero(field.labels[window][inside])
        if n_shared * 100 <= shared_percent * np.count_nonzero(inside):
            return (y, x) if _take(field, window, radius) else None
    return None


def _take(field: _Field, window: Window, radius: Integers) -> bool:
    """Label one nucleus's pixels, unless too little of it would be seen."""
    labels, seen = field.labels[window], field.seen[window]
    free = (radius < ONE) & (labels == 0)
    pieces, n_pieces = ndimage.label(free & seen)
    if n_pieces == 0:
        return False
    sizes = np.bincount(pieces.ravel())[1:]
    largest = int(np.argmax(sizes)) + 1
    typical_size = field.diameter**2 * 3 // 4 // SUBPIXEL**2
    if sizes[largest - 1] * 4 < min(typical_size, field.n_pixels):
        return False
    field.n_labels += 1
    labels[pieces == largest] = field.n_labels
    labels[free & ~seen] = field.n_labels  # outside the image only to keep later nuclei away
    return True


def _add_light(
    field: _Field, draws: _Draws, form: _Form, place: tuple[int, int], condensed: bool
) -> None:
    """Add one nucleus's light: thicker in the middle, grainy, with nucleoli and bright spots."""
    window, u, v = field.own_frame(form, *place)
    radius = _squared_radius(form, u, v)
    thickness = _square_root(np.maximum(0, ONE - radius) * ONE)
    rim = np.clip((ONE - radius) * 4, 0, ONE)
    relief = (thickness * 7 + rim * 9) // 16

    for _ in range(draws.between(0, 3)):  # nucleoli hold little DNA
        spot = _spot(draws, form, u, v, ONE // 8, ONE // 4)
        relief -= relief * (spot * draws.between(ONE // 8, ONE * 2 // 5) // ONE) // ONE
    n_most = field.look.chromocentres
    for _ in range(draws.between(n_most // 2, n_most)):
        spot = _spot(draws, form, u, v, ONE // 9, ONE // 5)
        relief += relief * (spot * draws.between(ONE // 2, ONE * 5 // 4) // ONE) // ONE

    level = draws.bell(ONE * 11 // 20, ONE * 29 // 20)
    if condensed:
        level = level * 9 // 5
    elif draws.chance(ONE // 12):
        level = level * 2 // 5
    light = relief * field.chromatin[window] // ONE * level // ONE * field.look.brightness // ONE
    layer = field.defocused if draws.chance(ONE // 5) else field.sharp
    layer[window] += light


def _spot(
    draws: _Draws, form: _Form, u: Integers, v: Integers, smallest: int, largest: int
) -> Integers:
    """A soft round spot inside a nucleus, ONE in its middle; sizes relative to the short axis."""
    at_u = form.long * draws.bell(-ONE * 4 // 5, ONE * 4 // 5) // ONE
    at_v = form.short * draws.bell(-ONE * 4 // 5, ONE * 4 // 5) // ONE
    size = form.short * draws.between(smallest, largest) * 3 // 2 // ONE
    away = ((u - at_u) ** 2 + (v - at_v) ** 2) * ONE // max(1, size) ** 2
    return np.maximum(0, ONE - away)


# --- microscope -----------------------------------------------------------------------------


def _add_ghosts(field: _Field, draws: _Draws) -> None:
    """Add faint nuclei far out of focus; nobody would outline them and neither do the masks."""
    height, width = field.shape
    pixels_each = 60 * field.diameter**2 // SUBPIXEL**2
    for _ in range(draws.between(0, 1 + height * width // pixels_each)):
        form = _draw_form(draws, field.diameter, ONE * 5 // 4, condensed=False)
        y, x = (draws.between(0, size * SUBPIXEL) for size in field.shape)
        window, u, v = field.own_frame(form, y, x)
        relief = np.maximum(0, ONE - _squared_radius(form, u, v))
        level = draws.between(ONE // 12, ONE // 5)
        field.ghosts[window] += relief * level // ONE * field.look.brightness // ONE


def _through_the_optics(field: _Field) -> Integers:
    """The light that reaches the camera, in SUBCOUNT, on the whole canvas."""
    n_passes = (2 * field.look.blur**2 + SUBPIXEL**2 // 2) // SUBPIXEL**2
    n_extra = max(2, (field.diameter // SUBPIXEL) ** 2 // 80)
    focused = _fine_blur(field.sharp, n_passes) + _fine_blur(field.defocused, n_passes + n_extra)
    pixels = field.diameter // SUBPIXEL
    ghosts = _box_blur(field.ghosts, pixels // 3 | 1)
    near = _box_blur(focused, pixels // 2 | 1)
    far = _box_blur(focused, pixels * 2 | 1)
    return focused + ghosts + (near + far) // 2 * field.look.haze // ONE


def _background(draws: _Draws, field: _Field) -> Integers:
    """Stain left in the medium and in the cells, in SUBCOUNT: never flat."""
    cloud = _smooth_noise(draws, field.shape, max(field.image_shape) // 4)
    wisps = _smooth_noise(draws, field.shape, field.diameter // SUBPIXEL)
    level = ONE + cloud // 4 + wisps // 8
    return np.maximum(0, level) * (20 * SUBCOUNT + field.look.brightness // 25) // ONE


def _illumination(draws: _Draws, shape: tuple[int, ...], unevenness: int) -> Integers:
    """How much light each pixel gets: ONE at the brightest, less around it, as a paraboloid."""
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    y, x = (draws.between(size // 4, size * 3 // 4) for size in shape)
    away = (rows.astype(np.int64) - y) ** 2 + (columns.astype(np.int64) - x) ** 2
    return ONE - away * unevenness // int(away.max())


def _camera(draws: _Draws, light: Integers) -> NDArray[np.uint16]:
    """Counts for light in SUBCOUNT: shot noise grows with the root of the light, read noise not."""
    variance = light * SUBCOUNT * 2 // 3 + (READ_NOISE * SUBCOUNT) ** 2
    noise = draws.noise((light.shape[0], light.shape[1])) * _square_root(variance) // NOISE_SPREAD
    counts = (light + noise + SUBCOUNT // 2) // SUBCOUNT + CAMERA_OFFSET
    return np.clip(counts, 0, CAMERA_MAXIMUM).astype(np.uint16)


# --- files ----------------------------------------------------------------------------------


def _draw_set(
    seed: int, n_train: int, n_test: int, shape: tuple[int, int], n_cells: int | None
) -> dict[str, bytes]:
    """Every image file of a set, by relative path."""
    contents = {}
    for number in range(n_train + n_test):
        look = dict(LOOKS[number % len(LOOKS)])
        look["n_nuclei"] = max(1, look["n_nuclei"] * shape[0] * shape[1] // 256**2)
        if n_cells is not None:
            room = (shape[0] * shape[1] / (3 * max(n_cells, 1))) ** 0.5  # a quarter is then covered
            look |= {"n_nuclei": n_cells, "diameter": min(look["diameter"], room)}
        own_seed = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1, np.uint64)
        made = nuclei(int(own_seed[0]), shape=shape, **look)
        part = "train" if number < n_train else "test"
        contents[f"{part}/synth_{number:03d}.tif"] = _tiff(made.image)
        contents[f"{part}/synth_{number:03d}_masks.tif"] = _tiff(made.masks)
    return contents


def _tiff(pixels: NDArray[np.uint16]) -> bytes:
    """A plain TIFF file: no compression, date, software name or description."""
    buffer = io.BytesIO()
    plain: dict[str, Any] = {"photometric": "minisblack", "metadata": None, "software": False}
    tifffile.imwrite(buffer, pixels, byteorder="<", **plain)
    return buffer.getvalue()
