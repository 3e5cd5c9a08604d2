"""Tables of masks: what became of the cells, how well they score, which are least stable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.comparison.object_changes import ObjectChange, ObjectKind
from cellrepro.show.tables.frames import frame
from cellrepro.words import amount, place_text, ppm_text

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.comparison.consensus import Agreement
    from cellrepro.comparison.mask_comparison import MaskComparison

_MOST_TELLING = ("split", "merged", "lost", "gained", "moved")
"""Few and worth a look come first: a cut cell says more than one that moved by a pixel."""


@dataclass(frozen=True)
class Score:
    """A score of masks, for a row of `score_table`."""

    name: str
    meaning: str
    value: Callable[[MaskComparison], float]
    """Of one image; NaN where it is not defined."""
    summed: bool = False
    """Over images; others are averaged."""


SCORES = {
    "ap50": Score(
        "AP at IoU 0.5",
        "matched cells, of all cells of either side; 1: every cell matches",
        lambda comparison: comparison.ap50,
    ),
    "ap": Score(
        "AP, 0.5 to 0.95",
        "the same, averaged over ten demands on the overlap",
        lambda comparison: float(comparison.ap.mean()),
    ),
    "precision50": Score(
        "precision",
        "share of the second side's cells that the first has as well",
        lambda comparison: comparison.precision50,
    ),
    "recall50": Score(
        "recall",
        "share of the first side's cells that the second has as well",
        lambda comparison: comparison.recall50,
    ),
    "mean_matched_iou": Score(
        "IoU of matches",
        "how well two matched cells cover each other",
        lambda comparison: comparison.mean_matched_iou,
    ),
    "pq": Score(
        "panoptic quality",
        "matched at all, times how well matched",
        lambda comparison: comparison.pq,
    ),
    "aji": Score(
        "AJI",
        "overlap cell by cell; what only one side has counts against it",
        lambda comparison: comparison.aji,
    ),
    "dice": Score(
        "Dice",
        "overlap of everything that is cell, whichever cell it is",
        lambda comparison: comparison.dice,
    ),
    "boundary_f1": Score(
        "boundary F1",
        "share of the outlines within 2 pixels of the other side's",
        lambda comparison: comparison.boundary_f1,
    ),
    "vi_split": Score(
        "VI, split",
        "bits, 0 is best; grows where the second side cuts cells",
        lambda comparison: comparison.vi_split,
    ),
    "vi_merge": Score(
        "VI, merge",
        "bits, 0 is best; grows where the second side joins cells",
        lambda comparison: comparison.vi_merge,
    ),
    "rand_error": Score(
        "adapted Rand error",
        "0 is best; pairs of pixels joined on one side only",
        lambda comparison: comparison.rand_error,
    ),
    "count": Score(
        "cells more",
        "in the second side than in the first, over all images",
        lambda comparison: comparison.n_objects_b - comparison.n_objects_a,
        summed=True,
    ),
    "area": Score(
        "pixels more",
        "per cell in the second side, where both sides have it",
        lambda comparison: comparison.mean_matched_area_difference,
    ),
}
"""The rows of `score_table`, by a name to choose them with."""


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


def change_table(masks: Mapping[str, MaskComparison], *, n: int = 12) -> pd.DataFrame:
    """List cells that are not kept: cut and joined ones first, then lost, gained, moved.

    Parameters
    ----------
    masks : mapping of str to MaskComparison
        By image.
    n : int
        Cells at most.

    Returns
    -------
    DataFrame
        Positions are centroids, areas of all parts together; ``went`` is from centroid to centroid.
    """
    changes = [
        (name, result.shape, change)
        for name, result in masks.items()
        for change in result.objects
        if change.kind != ObjectKind.KEPT
    ]
    changes.sort(key=lambda placed: _tells_most(placed[2]))
    rows = [
        {
            "image": name,
            "what": ", ".join(filter(None, (change.kind.in_words, change.cuts))),
            "position": place_text(change.position, shape),
            "IoU": change.iou,
            "went (px)": change.displacement,
            "area A (px)": change.area_a,
            "area B (px)": change.area_b,
            "label A": " ".join(map(str, change.labels_a)) or "–",
            "label B": " ".join(map(str, change.labels_b)) or "–",
        }
        for name, shape, change in changes[:n]
    ]
    columns = (
        "image",
        "what",
        "position",
        "IoU",
        "went (px)",
        "area A (px)",
        "area B (px)",
        "label A",
        "label B",
    )
    return frame(rows, "image", columns=columns)


def _tells_most(change: ObjectChange) -> tuple[int, float, int]:
    """To sort by: the kind, of moved cells those that overlap least, then the largest."""
    overlap = change.iou if change.kind == ObjectKind.MOVED else 0.0
    return _MOST_TELLING.index(change.kind), overlap, -max(change.area_a, change.area_b)


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
        values = {name: _over_images(score, results) for name, results in comparisons.items()}
        rows.append({"score": score.name, **values, "what it says": score.meaning})
    columns = ("score", *comparisons, "what it says")
    return frame(rows, "score", columns=columns, dtype=object)  # counts stay whole numbers


def _over_images(score: Score, comparisons: Sequence[MaskComparison]) -> float:
    values = [score.value(comparison) for comparison in comparisons]
    defined = [value for value in values if not math.isnan(value)]
    if not defined:
        return math.nan
    return sum(defined) if score.summed else sum(defined) / len(defined)


def stability_table(agreement: Agreement, *, n: int = 10) -> pd.DataFrame:
    """List the cells that fewest runs have, the least stable first, without those of all runs.

    Parameters
    ----------
    agreement : Agreement
        From `cellrepro.agree`.
    n : int
        Cells at most.

    Returns
    -------
    DataFrame
    """
    unstable = [item for item in agreement.objects if item.share < 1 or item.mean_iou < 1]
    rows = [
        {
            "position": place_text(item.position, agreement.consensus.shape),
            "in": f"{item.n_runs_with} of {amount(agreement.n_runs, 'run')}",
            # One run is always at one with itself.
            "mean IoU": item.mean_iou if item.n_runs_with > 1 else math.nan,
            "area (px)": item.area,
            "in the consensus": f"yes, as {item.label}" if item.label else "no",
        }
        for item in unstable[:n]
    ]
    columns = ("position", "in", "mean IoU", "area (px)", "in the consensus")
    return frame(rows, "position", columns=columns)
