"""The look of nuclei in a synthetic image, in usual units and in fixed point."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real
from typing import NamedTuple

from cellrepro.images.integer_images import ONE, SUBCOUNT, SUBPIXEL
from samebits.errors import BadInput


class _Range(NamedTuple):
    """The bounds of a field of `NucleiLook`, and its scale in fixed point."""

    least: float
    most: float
    scale: int


_RANGES = {
    "diameter": _Range(1, 512, SUBPIXEL),
    "elongation": _Range(1, 20, ONE),
    "touching": _Range(0, 1, ONE),
    "brightness": _Range(0, 100_000, SUBCOUNT),
    "texture": _Range(0, 10, ONE),
    "chromocentres": _Range(0, 100, 1),
    "blur": _Range(0, 50, SUBPIXEL),
    "haze": _Range(0, 1, ONE),
    "unevenness": _Range(0, 1, ONE),
}


@dataclass(frozen=True)
class NucleiLook:
    """The look that the nuclei of one image have in common."""

    diameter: float = 22
    """Diameter of a typical nucleus, pixels, 1 to 512; single ones differ by about a fifth."""
    elongation: float = 1.35
    """Long axis divided by short axis, 1 to 20."""
    touching: float = 0.25
    """Share of the nuclei that are placed against another one, 0 to 1."""
    brightness: float = 900
    """Camera counts above the background, 0 to 100,000. About one nucleus in twelve is dim (two
    fifths of this), one in twenty is small and nearly twice as bright."""
    texture: float = 0.2
    """Relative strength of the chromatin's grain, 0 to 10."""
    chromocentres: float = 0
    """Up to how many bright spots a nucleus shows, 0 to 100; mouse nuclei do."""
    blur: float = 1.0
    """Standard deviation of the optics, pixels, 0 to 50. About one nucleus in five is blurred
    more."""
    haze: float = 0.2
    """Share of the light that returns as a veil around the nuclei, 0 to 1."""
    unevenness: float = 0.25
    """Share of the light that is missing in the darkest corner of the canvas, which is larger than
    the image, 0 to 1."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least, most, _scale = _RANGES[field.name]
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not least <= value <= most:
                raise BadInput(
                    f"{field.name} of nuclei is {value!r}; expected a number from {least:g} to "
                    f"{most:g}"
                )


USUAL_LOOK = NucleiLook()


class FixedLook:
    """A `NucleiLook` in fixed point, field by field; the scale of each is in its range."""

    def __init__(self, look: NucleiLook) -> None:
        self._look = look

    def __getattr__(self, name: str) -> int:
        """Round one double once, which IEEE 754 defines exactly."""
        return round(getattr(self._look, name) * _RANGES[name].scale)
