"""Straight cuts as evidence of a cause; what finds them is loaded only where cells have parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.images.integer_images import Integers

if TYPE_CHECKING:
    from cellrepro.explanation.straight_cuts import OneSidedCuts


def cut_evidence(
    masks_a: Integers,
    masks_b: Integers,
    comparison: MaskComparison,
    *,
    files: tuple[str, str],
) -> OneSidedCuts | None:
    """Find the straight cuts of planes that explain split or merged cells; None without any."""
    kinds = comparison.kinds
    if masks_a.ndim != 2 or not (kinds[ObjectKind.SPLIT] or kinds[ObjectKind.MERGED]):
        return None
    from cellrepro.explanation.straight_cuts import one_sided_cuts

    return one_sided_cuts(masks_a, masks_b, comparison, files=files)
