"""The factor between the sizes of two images, and how it comes about."""

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
    """Say how many times as large one size is as the other; empty where no factor is.

    >>> times_text("A", (64, 64), "B", (48, 48)), times_text("A", (64, 64), "B", (64, 64))
    ('the size of A is 1.33 times that of B, along Y and X alike', '')
    """
    factor = size_factor(a, b)
    if factor is None:
        return ""
    larger, smaller = (name_a, name_b) if factor > 1 else (name_b, name_a)
    times = max(factor, 1 / factor)
    return f"the size of {larger} is {times:.3g} times that of {smaller}, along Y and X alike"


def factor_text(
    name_a: str, a: Sequence[int], name_b: str, b: Sequence[int], *, b_is_image: bool = False
) -> str:
    """Say by which factor two sizes differ, and what makes masks larger or smaller than an image.

    A clause that begins with "; ", or nothing where there is no such factor.

    >>> factor_text("a", (64, 64), "b", (64, 60))
    ''
    >>> text = factor_text("the masks", (128, 128), "the image", (64, 64), b_is_image=True)
    >>> text[:42], "(here diameter=15)" in text
    ('; perhaps this is the image of other masks', True)
    """
    factor = size_factor(a, b)
    if factor is None:
        return ""
    times = max(factor, 1 / factor)
    diameters = f"diameter={_USUAL_DIAMETER / factor:.3g}"
    if not b_is_image:
        diameters += f" for {name_a}, or {_USUAL_DIAMETER * factor:.3g} for {name_b}"
    perhaps = "perhaps this is the image of other masks: is it the right file? If it is: "
    return (
        f"; {perhaps if b_is_image else ''}{times_text(name_a, a, name_b, b)}. Masks differ in "
        "size from their image where that was binned or enlarged before it was segmented, or "
        "where Cellpose 4 before 4.2 was given resample=False and a diameter: its masks are "
        "30 / diameter times the image "
        f"(here {diameters}). Segment again with resample=True, or bring the larger one to the "
        f"smaller size without new numbers: scipy.ndimage.zoom(masks, {1 / times:.4g}, order=0)"
    )
