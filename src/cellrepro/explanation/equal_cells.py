"""What cells that are equal in every pixel tell of the cause, where nobody recorded a setting.

On two images of nuclei (29 and 49 cells) one network with another diameter, cellprob_threshold
(even by 0.05) or percentile left no cell equal in every pixel; flow_threshold left each cell equal
that it did not add or remove, and niter 70 to 90 % of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.explanation.one_size import is_copy
from samebits.words import with_verb

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison

_WHOLE_CELLS = (ObjectKind.LOST, ObjectKind.GAINED)


def hint_of_equal_cells(result: MaskComparison) -> str:
    """Say which kind of cause is likely where few cells differ; empty where many do."""
    if not is_copy(result):
        return ""
    numbers = {
        "A": {label for change in result.objects for label in change.labels_a},
        "B": {label for change in result.objects for label in change.labels_b},
    }
    for side, of_side in numbers.items():
        if len(of_side) == 1 and min(result.n_objects_a, result.n_objects_b) > 1:
            return (
                f"all cells of {side} have the number {min(of_side)}, as in black-and-white masks: "
                "what made them so may have changed outlines, too"
            )
    others = [change for change in result.objects if not change.is_equal]
    n_equal = len(result.objects) - len(others)
    likely = (
        "cells drawn or changed by hand, niter, another precision (bfloat16), or rounding on a "
        "different computer"
    )
    if all(change.kind in _WHOLE_CELLS for change in others):
        likely = "flow_threshold, a limit of size, or cells added or removed by hand"
    return (
        f"{with_verb(n_equal, 'cell', 'is', 'are')} the same in every pixel, and a different "
        "network, diameter, cellprob_threshold or normalisation usually changes nearly every "
        f"outline; more likely causes: {likely}"
    )
