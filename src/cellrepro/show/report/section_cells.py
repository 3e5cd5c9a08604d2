"""The section on cells: where they differ between runs, along every axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.comparison.spread_axes import AXES
from cellrepro.comparison.verdicts import Verdict
from cellrepro.show.pages.parts import Table, table
from cellrepro.show.report.section_worst import WorstImage, worst_image
from cellrepro.show.report.summary import Chapter

_EQUALITY = {True: Verdict.IDENTICAL, False: Verdict.DIFFERENT, None: None}
_COUNTED = [kind for kind in ObjectKind if kind != ObjectKind.KEPT]
_KINDS = {
    "weights": "verdict",
    "masks": "verdict",
    "pixels": "share",
    "cells without a match": "share",
    "AP@0.5 apart": "{:.2g}",
    "images": "number",
    "run a": "file",
    "run b": "file",
} | dict.fromkeys((kind.in_words for kind in _COUNTED), "number")
"""How the table of comparisons shows its columns."""


@dataclass(frozen=True)
class AxisSection:
    """The comparisons along one axis."""

    axis: Axis
    weights: Sequence[bool]
    """Whether the weights are equal, for each pair of runs that trained."""
    worst: WorstImage | None
    above: bool
    """Whether its worst image stands at the top of the page."""
    every: Table


def axis_section(chapter: Chapter, axis: Axis, shown: WorstImage | None) -> AxisSection:
    """Make the section of one axis: every comparison, largest difference first, the worst image."""
    above = shown is not None and shown.axis is axis
    is_drawn = axis.name in AXES and not above
    pairs = sorted(axis.pairs, key=lambda pair: (-np.nan_to_num(pair.changed), -pair.ppm))
    never = [kind for kind in _COUNTED if not any(pair.kinds[kind] for pair in pairs)]
    # Of what never happened there are zeros in the file alone.
    kinds = _KINDS | dict.fromkeys((kind.in_words for kind in never), "file")
    return AxisSection(
        axis=axis,
        weights=[pair.weights_equal for pair in axis.pairs if pair.weights_equal is not None],
        worst=worst_image([(chapter, axis)], f"{axis.name}-") if is_drawn else None,
        above=above,
        every=table(list(map(_row, pairs)), kinds, file=f"{axis.name}-{chapter.data}"),
    )


def _row(pair: Pair) -> dict[str, object]:
    ap50_a = pair.a.manifest.ap50
    ap50_b = pair.b.manifest.ap50
    apart = None if ap50_a is None or ap50_b is None else abs(ap50_a - ap50_b)
    row: dict[str, object] = {
        "with": pair.context or None,
        "between": pair.name_a,
        "and": pair.name_b,
        "run a": pair.a.name,
        "run b": pair.b.name,
        "weights": _EQUALITY[pair.weights_equal],
        "masks": Verdict.VACUOUS if pair.vacuous else pair.verdict,
        "pixels": pair.ppm / 1e6,
        "cells without a match": pair.changed,
    }
    row.update({kind.in_words: pair.kinds[kind] for kind in _COUNTED})
    row["AP@0.5 apart"] = apart
    row["images"] = pair.n_images
    return row
