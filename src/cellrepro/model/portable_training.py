"""Portable forms in the place of what Cellpose's training computes outside PyTorch.

What they leave as it is in ``cellpose/train.py`` (4.2.1.1) is portable already: the order of the
images (``permutation`` and ``choice`` of NumPy's generator of whole numbers; ``choice`` adds
chances one after the other), the schedule (``linspace``, halves), and sums of chances and
diameters, whose order in NumPy follows from their number (``loops_utils.h``, NumPy 1.9 to 2.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray

from cellrepro.model.patching import replaced
from cellrepro.model.portable_augmentation import rotate_and_resize

_ROOT_OF_PI = math.sqrt(math.pi)  # a square root is correctly rounded everywhere; ``** 0.5`` is not


@contextmanager
def portable_training() -> Iterator[None]:
    """Put portable forms of augmentation and diameters in the place of Cellpose's for one block.

    Operations of PyTorch become portable by `PortableArithmetic`,
    normalisation and flows by the portable forms of the segmentation.
    """
    import cellpose.train
    import cellpose.transforms
    import cellpose.utils

    with ExitStack() as stack:
        for home in (cellpose.train, cellpose.transforms):
            stack.enter_context(replaced(home, "random_rotate_and_resize", rotate_and_resize))
        stack.enter_context(replaced(cellpose.utils, "diameters", diameters))
        yield


def diameters(masks: NDArray[np.integer]) -> tuple[float, NDArray[np.float64]]:
    """The median diameter of cells, and what it is the median of, as ``cellpose.utils.diameters``.

    >>> median, roots = diameters(np.array([[0, 1, 1], [1, 0, 0], [1, 1, 0]]))
    >>> round(median, 3), roots.round(3).tolist()
    (2.523, [2.236])
    """
    _, areas = np.unique(masks.astype(np.int32), return_counts=True)
    roots = np.sqrt(areas[1:].astype(np.float64))
    if len(roots) == 0:
        return 0.0, roots
    ordered = np.sort(roots)
    middle = (ordered[(len(roots) - 1) // 2] + ordered[len(roots) // 2]) / 2.0
    return float(middle / (_ROOT_OF_PI / 2)), roots
