"""The factor between the sizes of two images, and why masks are larger or smaller than theirs."""

from __future__ import annotations

from collections.abc import Sequence

_LEAST_FACTOR = 1.1
_USUAL_DIAMETER = 30  # pixels, to which Cellpose's networks scale cells


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
    if abs(along_y - along_x) > rounding or 1 / _LEAST_FACTOR < factor < _LEAST_FACTOR:
        return None
    halves = round(2 * factor) / 2 if factor > 1 else 2 / round(2 / factor)
    return halves if abs(halves - factor) <= rounding else factor


def times_text(name_a: str, a: Sequence[int], name_b: str, b: Sequence[int]) -> str:
    """Say how many times as large one is as the other; empty where no factor is.

    >>> times_text("A", (64, 64), "B", (48, 48)), times_text("A", (64, 64), "B", (64, 64))
    ('A is 1.33 times as large as B along Y and X', '')
    """
    factor = size_factor(a, b)
    if factor is None:
        return ""
    larger, smaller = (name_a, name_b) if factor > 1 else (name_b, name_a)
    be = "are" if larger.endswith("masks") else "is"
    return f"{larger} {be} {max(factor, 1 / factor):.3g} times as large as {smaller} along Y and X"


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
    reasons = (
        "it is the image of other masks: give the image of these",
        "the image was binned or enlarged before it was segmented: give that one",
        f"they are of {by_cellpose_text(diameter_of(factor))}: segment again with resample=True",
    )
    bring = at_size(1 / factor, n_axes=len(masks))
    return "\n  - ".join([f": {times}. Reasons may be", *reasons]) + (
        f"\nTo use these masks, bring them to the size of the image without new numbers: {bring}"
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


def at_size(factor: float, name: str = "masks", *, n_axes: int = 2) -> str:
    """Write how labels become so many times as large along Y and X, without new numbers.

    >>> at_size(0.5), at_size(3.0)
    ('masks[::2, ::2]', 'masks.repeat(3, axis=-2).repeat(3, axis=-1)')
    >>> at_size(2 / 3, n_axes=3)
    'scipy.ndimage.zoom(masks, (1, 0.6667, 0.6667), order=0, mode="nearest")'
    """
    times = max(factor, 1 / factor)
    if times != round(times):
        factors = ", ".join(["1"] * (n_axes - 2) + [f"{factor:.4g}"] * 2)
        # In its usual mode SciPy 1.17.1 at times fills the last row and column with background.
        return f'scipy.ndimage.zoom({name}, ({factors}), order=0, mode="nearest")'
    if factor < 1:
        planes = "..., " if n_axes > 2 else ""
        return f"{name}[{planes}::{times:.0f}, ::{times:.0f}]"
    return f"{name}.repeat({times:.0f}, axis=-2).repeat({times:.0f}, axis=-1)"
