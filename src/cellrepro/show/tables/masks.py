"""Tables of masks: what became of the cells of each image, and how well masks score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.scores import SCORES, Score
from cellrepro.show.tables.frames import frame
from cellrepro.words import name_of_all, percent_text

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.comparison.mask_comparison import MaskComparison

_SIDES = ("the first side", "the second side")

_CELLS_MORE = "count"
"""The only key of `SHOWN` that is no field of `MaskComparison`; it adds up over images."""

_LISTED = {
    _CELLS_MORE: Score("matches", "cells more", "in {b} than in {a}", best=None),
    **{name: score for name, score in SCORES.items() if score.label},
}
SHOWN = dict(sorted(_LISTED.items(), key=lambda entry: entry[1].best is None))
"""Every row of `score_table` by its key; last come those of which no direction is better."""


def score_of(comparison: MaskComparison, key: str) -> float:
    """Get a score of one image; NaN where it is not defined."""
    if key == _CELLS_MORE:
        return comparison.n_objects_b - comparison.n_objects_a
    return SHOWN[key].number(getattr(comparison, key))


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
        table.loc[name_of_all(masks)] = table.sum()
    shares = table.pop("differing") / table.pop("pixels")
    table["pixels that differ"] = list(map(percent_text, shares))
    return table


def score_table(
    comparisons: Mapping[str, Sequence[MaskComparison]], *, fields: Sequence[str] = tuple(SHOWN)
) -> pd.DataFrame:
    """List every usual score, one a row, with what it says.

    Parameters
    ----------
    comparisons : mapping of str to sequence of MaskComparison
        Of all images, by the heading of a column. The truth is the first side where there is one.
    fields : sequence of str
        Keys of `SHOWN`, for fewer rows.

    Returns
    -------
    DataFrame
        Means over the images for which a score is defined, the sum for the number of cells.
    """
    are_sums = any(len(results) > 1 for results in comparisons.values())
    rows = []
    for field in fields:
        score = SHOWN[field]
        meaning = score.meaning_of(*_SIDES)
        if field == _CELLS_MORE and are_sums:
            meaning += ", over all images"
        values = {name: _over_images(field, results) for name, results in comparisons.items()}
        rows.append({"score": score.label, **values, "what it says": meaning})
    columns = ("score", *comparisons, "what it says")
    return frame(rows, "score", columns=columns, dtype=object)  # counts stay whole numbers


def _over_images(key: str, comparisons: Sequence[MaskComparison]) -> float:
    values = [score_of(comparison, key) for comparison in comparisons]
    defined = [value for value in values if not math.isnan(value)]
    if not defined:
        return math.nan
    return sum(defined) if key == _CELLS_MORE else sum(defined) / len(defined)
