"""Planes of a stack that were joined differently: cells whole on one side, cut on the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samebits.words import some, with_verb

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.comparison.object_changes import ObjectChange


def cut_cells(result: MaskComparison) -> list[ObjectChange]:
    """Give the cells of one side that are cut between planes on the other."""
    return [change for change in result.objects if change.cut_between]


def stitching_text(cut: Sequence[ObjectChange]) -> str:
    """Say between which planes cells of one side are cut on the other; empty where none are."""
    if not cut:
        return ""
    cuts = sorted({planes for change in cut for planes in change.cut_between})
    planes = some([f"z {z} | {after}" for z, after in cuts])
    return (
        "planes were joined into cells differently: "
        f"{with_verb(len(cut), 'cell', 'is', 'are')} whole on one side and in parts on the other, "
        f"cut between planes {planes} (planes count from 0)"
    )
