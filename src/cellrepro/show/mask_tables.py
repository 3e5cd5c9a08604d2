"""Tables of masks: what became of the cells, how well they score, which are least stable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from cellrepro.same.object_changes import ObjectChange, ObjectKind
from cellrepro.same.verdicts import Verdict
from cellrepro.show.tables import frame
from cellrepro.words import amount, ppm_text, share_text

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.same.consensus import Agreement
    from cellrepro.same.metrics import MaskComparison

_MOST_TELLING = ("split", "merged", "lost", "gained", "moved")
"""Few and worth a look come first: a cut cell says more than one that moved by a pixel."""

SCORES: dict[str, tuple[str, str]] = {
    "ap50": ("AP at IoU 0.5", "matched cells, of all cells of either side; 1: every cell matches"),
    "ap": ("AP, 0.5 to 0.95", "the same, averaged over ten demands on the overlap"),
    "precision50": ("precision", "share of the second side's cells that the first has as well"),
    "recall50": ("recall", "share of the first side's cells that the second has as well"),
    "mean_matched_iou": ("IoU of matches", "how well two matched cells cover each other"),
    "pq": ("panoptic quality", "matched at all, times how well matched"),
    "aji": ("AJI", "overlap cell by cell; what only one side has counts against it"),
    "dice": ("Dice", "overlap of everything that is cell, whichever cell it is"),
    "boundary_f1": ("boundary F1", "share of the outlines within 2 pixels of the other side's"),
    "vi_split": ("VI, split", "bits, 0 is best; grows where the second side cuts cells"),
    "vi_merge": ("VI, merge", "bits, 0 is best; grows where the second side joins cells"),
    "rand_error": ("adapted Rand error", "0 is best; pairs of pixels joined on one side only"),
    "count": ("cells more", "in the second side than in the first, over all images"),
    "area": ("pixels more", "per cell in the second side, where both sides have it"),
}
"""What `score_table` lists: the name a reader sees, and what it says."""


def comparison_sentence(masks: Mapping[str, MaskComparison], *, a: str = "A", b: str = "B") -> str:
    """How two sets of masks, called a and b, differ over all images, in one sentence."""
    over = amount(len(masks), "image")
    both = f"{a[:1].upper()}{a[1:]} and {b}"
    n_a = sum(result.n_objects_a for result in masks.values())
    n_b = sum(result.n_objects_b for result in masks.values())
    if not n_a and not n_b:
        return f"Neither {a} nor {b} has a cell in any of the {over}: nothing can be compared."
    n_differing = sum(result.n_differing for result in masks.values())
    if not n_differing:
        renumbered = any(result.verdict == Verdict.SAME_OBJECTS for result in masks.values())
        also = ", some under other numbers" if renumbered else ""
        return f"{both} have the same {amount(n_a, 'cell')}{also}, pixel for pixel, on {over}."
    counts = {kind: sum(result.kinds[kind] for result in masks.values()) for kind in ObjectKind}
    said = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    n_unmatched = sum(result.n_unmatched for result in masks.values())
    n_pixels = sum(result.n_pixels for result in masks.values())
    changed = (
        f"{share_text(n_unmatched / (n_a + n_b))} of the cells changed, that is, have no "
        "counterpart that overlaps by half"
    )
    if not n_unmatched:
        changed = "Every cell has a counterpart that overlaps by half"
    return (
        f"{both} differ: {amount(n_a, 'cell')} in {a}, {n_b} in {b}, over {over} ({said}). "
        f"{changed}, and {ppm_text(1e6 * n_differing / n_pixels)} of the pixels differ."
    )


def kind_table(masks: Mapping[str, MaskComparison]) -> pd.DataFrame:
    """What became of the cells, image by image, and over all images."""
    rows = [
        {
            "image": name,
            "cells A": result.n_objects_a,
            "cells B": result.n_objects_b,
            **{str(kind): result.kinds[kind] for kind in ObjectKind},
            "renumbered": result.n_renumbered,
            "ppm": result.n_differing,
            "pixels": result.n_pixels,
        }
        for name, result in masks.items()
    ]
    table = frame(rows, "image")
    if len(rows) > 1:
        table.loc["all"] = table.sum()
    ppm = 1e6 * table["ppm"] / table.pop("pixels")
    # Without its unit, which is in the head of the column.
    table["ppm"] = [ppm_text(value).removesuffix(" ppm") for value in ppm]
    return table


def change_table(masks: Mapping[str, MaskComparison], *, n: int = 12) -> pd.DataFrame:
    """The n cells that are not kept: cut and joined ones first, then lost, gained, changed."""

    def order(found: tuple[str, ObjectChange]) -> tuple[int, float, int]:
        change = found[1]
        overlap = change.iou if change.kind == ObjectKind.MOVED else 0.0
        return _MOST_TELLING.index(change.kind), overlap, -max(change.area_a, change.area_b)

    every = ((name, change) for name, result in masks.items() for change in result.objects)
    found = [one for one in every if one[1].kind != ObjectKind.KEPT]
    rows = [
        {
            "image": name,
            "what": ", ".join(filter(None, (str(change.kind), change.cuts))),
            "position": _position(change.position),
            "IoU": change.iou,
            "went (px)": change.displacement,
            "area A (px)": change.area_a,
            "area B (px)": change.area_b,
            "label A": " ".join(map(str, change.labels_a)) or "–",
            "label B": " ".join(map(str, change.labels_b)) or "–",
        }
        for name, change in sorted(found, key=order)[:n]
    ]
    columns = ("image", "what", "position", "IoU", "went (px)", "area A (px)", "area B (px)")
    return frame(rows, "image", columns=(*columns, "label A", "label B"))


def _position(position: Sequence[float]) -> str:
    """A centroid to find in a picture: y 12, x 31."""
    axes = "zyx"[-len(position) :]
    return ", ".join(f"{axis} {place:.0f}" for axis, place in zip(axes, position, strict=True))


def score_table(
    comparisons: Mapping[str, Sequence[MaskComparison]], *, fields: Iterable[str] = SCORES
) -> pd.DataFrame:
    """Every usual score, or those ``fields`` of `SCORES`, one a row, with what it says.

    Means over the images for which a score is defined, the sum for the number of cells. Each column
    holds the comparisons of all images; the truth is the first side where there is one.
    """
    rows = []
    for field in fields:
        name, meaning = SCORES[field]
        scores = {of: _score(field, results) for of, results in comparisons.items()}
        rows.append({"score": name, **scores, "what it says": meaning})
    columns = ("score", *comparisons, "what it says")
    return frame(rows, "score", columns=columns, dtype=object)  # counts stay whole numbers


def _score(field: str, results: Sequence[MaskComparison]) -> float:
    read: dict[str, Callable[[MaskComparison], float]] = {
        "count": lambda one: one.n_objects_b - one.n_objects_a,
        "area": lambda one: one.mean_matched_area_difference,
        "ap": lambda one: float(one.ap.mean()),
    }
    values = [read.get(field, attrgetter(field))(result) for result in results]
    defined = [value for value in values if not math.isnan(value)]
    if not defined:
        return math.nan
    return sum(defined) if field == "count" else sum(defined) / len(defined)


def stability_table(agreement: Agreement, *, n: int = 10) -> pd.DataFrame:
    """The n cells that fewest runs have, the least stable first, without those of all runs."""
    unstable = [item for item in agreement.objects if item.share < 1 or item.mean_iou < 1]
    rows = [
        {
            "position": _position(item.position),
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
