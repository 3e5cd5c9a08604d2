"""Tables of masks: what became of the cells of each image, and how well masks score."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.show.tables.frames import frame
from cellrepro.words import ppm_text

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.comparison.mask_comparison import MaskComparison


_SIDES = ("the first side", "the second side")


@dataclass(frozen=True)
class Score:
    """A score of masks, as tables and pages name it."""

    name: str
    meaning: str
    """What it says; ``{a}`` and ``{b}`` stand for the two sides."""
    measure: Callable[[MaskComparison], float] | None = None
    """Computes it for one image; by default it is the field of its key."""
    summed: bool = False
    """Over images; others are averaged."""

    def meaning_of(self, a: str, b: str) -> str:
        """Say what it says of two sides."""
        return self.meaning.format(a=a, b=b)


SCORES = {
    "ap50": Score(
        "AP at IoU 0.5",
        "average precision at IoU 0.5, as Cellpose gives it: 1 where every cell has its match",
    ),
    "ap": Score(
        "AP, 0.5 to 0.95",
        "the same, averaged over ten demands on the overlap",
        measure=lambda comparison: float(comparison.ap.mean()),
    ),
    "f1": Score(
        "F1",
        "share of the cells with a match at IoU 0.5",
        measure=lambda comparison: float(comparison.f1[0]),
    ),
    "precision50": Score(
        "precision",
        "share of the cells of {b} that {a} has as well",
    ),
    "recall50": Score(
        "recall",
        "share of the cells of {a} that {b} has as well",
    ),
    "mean_matched_iou": Score(
        "IoU of matches",
        "mean overlap of the matching cells, of their union",
    ),
    "pq": Score(
        "panoptic quality",
        "panoptic quality: share of matching cells times their mean overlap",
    ),
    "aji": Score(
        "AJI",
        "overlap cell by cell; what only one side has counts against it",
    ),
    "dice": Score(
        "Dice",
        "overlap of all pixels that are cell, whichever cell",
    ),
    "boundary_f1": Score(
        "boundary F1",
        "outlines that agree to within 2 pixels",
    ),
    "vi_split": Score(
        "VI, split",
        "bits, 0 is best; grows where {b} cuts cells",
    ),
    "vi_merge": Score(
        "VI, merge",
        "bits, 0 is best; grows where {b} joins cells",
    ),
    "rand_error": Score(
        "adapted Rand error",
        "0 is best; pairs of pixels joined on one side only",
    ),
    "count": Score(
        "cells more",
        "in {b} than in {a}, over all images",
        measure=lambda comparison: comparison.n_objects_b - comparison.n_objects_a,
        summed=True,
    ),
    "mean_matched_area_difference": Score(
        "pixels more",
        "by how many pixels matching cells are larger in {b}",
    ),
}
"""By the field of `MaskComparison`, or a name of its own."""


def score_of(comparison: MaskComparison, key: str) -> float:
    """Get a score of one image; NaN where it is not defined."""
    measure = SCORES[key].measure
    return measure(comparison) if measure else getattr(comparison, key)


def kind_table(masks: Mapping[str, MaskComparison]) -> pd.DataFrame:
    """Count what became of the cells, image by image, and over all images."""
    counts = [
        {
            "image": name,
            "cells A": result.n_objects_a,
            "cells B": result.n_objects_b,
            **{kind.in_words: result.kinds[kind] for kind in ObjectKind},
            "renumbered": result.n_renumbered,
            "differing": result.n_differing,
            "pixels": result.n_pixels,
        }
        for name, result in masks.items()
    ]
    table = frame(counts, "image")
    if len(counts) > 1:
        table.loc["all"] = table.sum()
    ppm = 1e6 * table.pop("differing") / table.pop("pixels")
    # Without its unit, which is in the head of the column.
    table["ppm"] = [ppm_text(value).removesuffix(" ppm") for value in ppm]
    return table


def score_table(
    comparisons: Mapping[str, Sequence[MaskComparison]], *, fields: Sequence[str] = tuple(SCORES)
) -> pd.DataFrame:
    """List every usual score, one a row, with what it says.

    Parameters
    ----------
    comparisons : mapping of str to sequence of MaskComparison
        Of all images, by the heading of a column. The truth is the first side where there is one.
    fields : sequence of str
        Keys of `SCORES`, for fewer rows.

    Returns
    -------
    DataFrame
        Means over the images for which a score is defined, the sum for the number of cells.
    """
    rows = []
    for field in fields:
        score = SCORES[field]
        values = {name: _over_images(field, results) for name, results in comparisons.items()}
        rows.append({"score": score.name, **values, "what it says": score.meaning_of(*_SIDES)})
    columns = ("score", *comparisons, "what it says")
    return frame(rows, "score", columns=columns, dtype=object)  # counts stay whole numbers


def _over_images(key: str, comparisons: Sequence[MaskComparison]) -> float:
    values = [score_of(comparison, key) for comparison in comparisons]
    defined = [value for value in values if not math.isnan(value)]
    if not defined:
        return math.nan
    return sum(defined) if SCORES[key].summed else sum(defined) / len(defined)
