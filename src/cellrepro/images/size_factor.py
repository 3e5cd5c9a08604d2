"""The factors between the sizes of two images, and why masks are larger or smaller than theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_LEAST_FACTOR = 1.1
_USUAL_DIAMETER = 30  # pixels, to which Cellpose's networks scale cells


class SizeFactors(NamedTuple):
    """How many times as many pixels one image has as another one."""

    y: float
    """Along Y, of rows; below 1 it has fewer."""
    x: float
    """Along X, of columns."""

    @property
    def are_one(self) -> bool:
        """Whether both are the same."""
        return self.y == self.x

    @property
    def mean(self) -> float:
        """Their geometric mean, above 1 for the image with more pixels."""
        return self.y if self.are_one else (self.y * self.x) ** 0.5

    @property
    def inverse(self) -> SizeFactors:
        """Those of the other image."""
        return SizeFactors(1 / self.y, 1 / self.x)

    def text(self, name_a: str, name_b: str) -> str:
        """Say how many times as large the larger one is as the other.

        >>> SizeFactors(0.5, 0.5).text("A", "B")
        'B is 2 times as large as A along Y and X'
        >>> SizeFactors(1, 2).text("A", "B")
        'A has as many rows as B and 2 times as many columns'
        """
        if self.mean < 1:
            return self.inverse.text(name_b, name_a)
        is_plural = name_a.endswith("masks")
        if self.are_one:
            be = "are" if is_plural else "is"
            return f"{name_a} {be} {self.y:.3g} times as large as {name_b} along Y and X"
        rows, columns = (_times_as_many(factor) for factor in self)
        have = "have" if is_plural else "has"
        return f"{name_a} {have} {rows} rows as {name_b} and {columns} columns"


def _times_as_many(factor: float) -> str:
    return "as many" if factor == 1 else f"{factor:.3g} times as many"


def size_factors(a: Sequence[int], b: Sequence[int]) -> SizeFactors | None:
    """Compute the factors by which image a is larger than b, equal ones where sizes were rounded.

    None where the sizes are nearly equal.

    >>> size_factors((500, 512), (256, 256)), size_factors((64, 64), (64, 60))
    (SizeFactors(y=1.953125, x=2.0), None)
    """
    if len(a) != len(b) or len(a) < 2 or 0 in (*a, *b) or tuple(a[:-2]) != tuple(b[:-2]):
        return None
    factor = size_factor(a, b)
    if factor is not None:
        return SizeFactors(factor, factor)
    factors = SizeFactors(a[-2] / b[-2], a[-1] / b[-1])
    return None if all(_is_nearly_one(factor) for factor in factors) else factors


def _is_nearly_one(factor: float) -> bool:
    return 1 / _LEAST_FACTOR < factor < _LEAST_FACTOR


def size_factor(a: Sequence[int], b: Sequence[int]) -> float | None:
    """Compute the factor by which image a is larger than b along both Y and X.

    None where the sizes are nearly equal, or the factors along Y and X differ, as those of a crop
    do.

    >>> size_factor((1802, 3764), (901, 1882)), size_factor((341, 341), (512, 512))
    (2.0, 0.6666666666666666)
    >>> size_factor((100, 100), (100, 200)), size_factor((64, 64), (64, 64))
    (None, None)
    """
    if len(a) != len(b) or len(a) < 2 or 0 in (*a, *b) or tuple(a[:-2]) != tuple(b[:-2]):
        return None
    along_y, along_x = (n_a / n_b for n_a, n_b in zip(a[-2:], b[-2:], strict=True))
    # Programs round sizes to whole pixels, up or down.
    rounding = sum(max(1, n_a / n_b) / n_b for n_a, n_b in zip(a[-2:], b[-2:], strict=True))
    factor = (along_y * along_x) ** 0.5
    if abs(along_y - along_x) > rounding or _is_nearly_one(factor):
        return None
    halves = round(2 * factor) / 2 if factor > 1 else 2 / round(2 / factor)
    return halves if abs(halves - factor) <= rounding else factor


def times_text(name_a: str, a: Sequence[int], name_b: str, b: Sequence[int]) -> str:
    """Say how many times as large one is as the other; empty where no factor is.

    >>> times_text("A", (64, 64), "B", (48, 48)), times_text("A", (64, 64), "B", (64, 64))
    ('A is 1.33 times as large as B along Y and X', '')
    """
    factor = size_factor(a, b)
    return "" if factor is None else SizeFactors(factor, factor).text(name_a, name_b)


def other_size_text(masks: Sequence[int], image: Sequence[int]) -> str:
    """Say what makes masks larger or smaller than an image by a factor, and what to do.

    A clause that begins with ": ", and a line for each reason; nothing where there is no such
    factor.

    >>> other_size_text((64, 64), (64, 60))
    ''
    >>> print(other_size_text((128, 128), (64, 64)).splitlines()[0])
    : the masks are 2 times as large as the image along Y and X. Reasons may be
    """
    factor = size_factor(masks, image)
    if factor is None:
        return ""
    times = times_text("the masks", masks, "the image", image)
    of_part = "they are of a part of the image: give that part, as it was segmented"
    reasons = (
        *([of_part] if factor < 1 else []),
        "it is the image of other masks: give the image of these",
        "the image was binned or enlarged before it was segmented: give that one",
        f"they are of {by_cellpose_text(diameter_of(factor))}: segment again with resample=True",
    )
    bring = at_size(1 / factor, n_axes=len(masks))
    return "\n  - ".join([f": {times}. Reasons may be", *reasons]) + (
        f"\nMasks of the whole image are brought to its size without new numbers by {bring}"
    )


def by_cellpose_text(diameter: str) -> str:
    """Name what Cellpose itself makes of another size than the image."""
    return (
        f"Cellpose 4 before 4.2 with resample=False, whose masks are {_USUAL_DIAMETER} / diameter "
        f"times the size of their image (here diameter={diameter})"
    )


def diameter_of(factor: float) -> str:
    """The diameter that makes masks so many times as large as their image."""
    return f"{_USUAL_DIAMETER / factor:.3g}"


def at_size(factor: float | SizeFactors, name: str = "masks", *, n_axes: int = 2) -> str:
    """Write how labels become so many times as large along Y and X, without new numbers.

    >>> at_size(0.5), at_size(3.0)
    ('masks[::2, ::2]', 'masks.repeat(3, axis=-2).repeat(3, axis=-1)')
    >>> at_size(2 / 3, n_axes=3)
    'scipy.ndimage.zoom(masks, (1, 0.6667, 0.6667), order=0, mode="nearest")'
    """
    along = factor if isinstance(factor, SizeFactors) else SizeFactors(factor, factor)
    factor = along.mean
    times = max(factor, 1 / factor)
    if times != round(times) or not along.are_one:
        factors = ", ".join(["1"] * (n_axes - 2) + [f"{each:.4g}" for each in along])
        # In its usual mode SciPy 1.17.1 at times fills the last row and column with background.
        return f'scipy.ndimage.zoom({name}, ({factors}), order=0, mode="nearest")'
    if factor < 1:
        planes = "..., " if n_axes > 2 else ""
        return f"{name}[{planes}::{times:.0f}, ::{times:.0f}]"
    return f"{name}.repeat({times:.0f}, axis=-2).repeat({times:.0f}, axis=-1)"
