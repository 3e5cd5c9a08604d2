"""Many runs of one image: where they agree, how stable each object is, and what most of them say.

Everything is a vote of runs, but what 900 of 1,000 runs have is read and compared once. Nothing
depends on the order of the runs or on label numbers. `distinct_results` has the results that
differ, the most typical first; `object_groups` finds objects of different results that are the same
object. Then runs vote:

- A pixel is in a group's *outline* if at least half of the runs that have the group give it to it.
- The *consensus* holds the groups that at least half of all runs have. A pixel in several outlines
  goes to the group with most votes there; of equal votes to the one that fewer runs have, so that a
  cell cut in half of the runs is shown cut, then to the smaller, then to the first. A group left
  with less than half of its outline is taken out, and its pixels are awarded again.

This is the majority vote of label fusion (Heckemann et al. 2006, "Automatic anatomical brain MRI
segmentation combining label propagation and decision fusion"), with objects in the place of
classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.distinct_results import (
    DistinctResult,
    Source,
    distinct_results,
    most_typical_first,
    statement_votes,
)
from cellrepro.comparison.object_groups import ObjectGroups, group_objects
from cellrepro.comparison.object_matching import Integers
from cellrepro.comparison.outline_votes import Outlines, count_votes, mean_iou, most_votes, outline
from cellrepro.words import place_text
from samebits.errors import BadInput
from samebits.results import Result, Row
from samebits.words import amount, verb_of


@dataclass(frozen=True)
class Stability:
    """One object as all runs see it."""

    label: int
    """Its number in `Agreement.consensus`; 0 if it is not there."""
    position: tuple[float, ...]
    """Centroid of the outline in pixels, (y, x) or (z, y, x)."""
    area: int
    """Pixels of the outline."""
    n_runs_with: int
    """Runs that have the object."""
    share: float
    """The share of all runs that have it, in (0, 1]."""
    mean_iou: float
    """Mean IoU of the runs' objects with the outline, over the runs that have it, in [0, 1]."""
    runs: tuple[int, ...]
    """Runs that have it, as positions in what was given, ascending."""


@dataclass(frozen=True, eq=False, repr=False)
class Agreement(Result):
    """How far many runs agree on the objects of one image; maps have the shape of the image."""

    n_runs: int
    """Runs that voted."""
    n_distinct: int
    """Results that differ in their objects; renumbered objects are the same result."""
    cell_share: NDArray[np.float32] = field(repr=False)
    """Share of the runs that call the pixel cell, in [0, 1]."""
    same_object_share: NDArray[np.float32] = field(repr=False)
    """Share of the runs that give the pixel the same object, in [0, 1]: the most votes of any one
    object."""
    consensus: NDArray[np.uint32] = field(repr=False)
    """The label image that most runs agree on, numbered from 1 in raster order."""
    objects: tuple[Stability, ...]
    """The least stable first: in fewest runs, then with the lowest mean IoU, then by position."""
    results: tuple[tuple[int, ...], ...]
    """The runs of each different result, the most typical result first."""
    members: tuple[Integers, ...] = field(repr=False)
    """The positions in ``objects`` of the objects of each of ``results``, in raster order."""

    @property
    def vacuous(self) -> bool:
        """Whether no run holds any object, so that agreement says nothing."""
        return not self.objects

    @property
    def n_stable(self) -> int:
        """Objects that all runs have."""
        return sum(item.n_runs_with == self.n_runs for item in self.objects)

    @property
    def n_disputed(self) -> int:
        """Pixels that some, but not all, runs give the same object."""
        share = self.same_object_share
        return int(np.count_nonzero((share > 0) & (share < 1)))

    def objects_of(self, run: int) -> tuple[Stability, ...]:
        """Get the objects of one run.

        Element i is the object ``i + 1`` of the run's masks, numbered in raster order.
        """
        for runs, members in zip(self.results, self.members, strict=True):
            if run in runs:
                return tuple(self.objects[i] for i in members)
        raise BadInput(f"there is no run {run}; expected one of 0 to {self.n_runs - 1}")

    def sentence(self) -> str:
        """Say how many results there are, and how many objects are in all of them."""
        if self.vacuous:
            return f"none of {amount(self.n_runs, 'run')} holds a cell: agreement says nothing"
        return (
            f"{amount(self.n_runs, 'run')} with {amount(self.n_distinct, 'different result')}: "
            f"{self.n_stable} of {amount(len(self.objects), 'cell')} "
            f"{verb_of(self.n_stable, 'is', 'are')} in all of them"
        )

    def rows(self) -> list[Row]:
        """Give a row for each object that not all runs have, or not with the same outline."""
        return [
            {
                "centre (px)": place_text(stability.position, self.consensus.shape),
                "runs with it": f"{stability.n_runs_with} of {self.n_runs}",
                # One run always agrees with itself.
                "mean IoU": f"{stability.mean_iou:.2f}" if stability.n_runs_with > 1 else "–",
                "area (px)": stability.area,
                "in the consensus": f"yes, as {stability.label}" if stability.label else "no",
            }
            for stability in self.objects
            if stability.n_runs_with < self.n_runs or stability.mean_iou < 1
        ]


def agree(masks: Sequence[Source], *, digests: Sequence[str] | None = None) -> Agreement:
    """Get the votes of many runs on one image: agreement maps, stability of objects, consensus.

    Parameters
    ----------
    masks : sequence of array_like of int, shape (Y, X) or (Z, Y, X), or of callables
        One label image per run, 0 is background; or a function without arguments that reads it.
    digests : sequence of str, optional
        One per run; equal digests promise equal objects, and then only the first is read.

    Returns
    -------
    Agreement
        Time and memory grow with the number of different results.

    Raises
    ------
    BadInput
        There are no masks, not one digest for each, a label image that is none, or shapes differ.

    Examples
    --------
    >>> agreement = agree([[[1, 1, 0, 2]], [[7, 7, 0, 0]], [[5, 5, 0, 4]], [[1, 1, 1, 0]]])
    >>> agreement.n_distinct, agreement.consensus.tolist()
    (3, [[1, 1, 0, 2]])
    >>> agreement.cell_share.tolist()
    [[1.0, 1.0, 0.25, 0.5]]
    >>> [(item.label, item.runs) for item in agreement.objects]
    [(2, (0, 2)), (1, (0, 1, 2, 3))]
    """
    n_runs = len(masks)
    unsorted = distinct_results(masks, digests)
    statements = statement_votes(unsorted)
    results = most_typical_first(unsorted, statements)
    shape = results[0].image.shape
    groups = group_objects(results)
    votes = count_votes(results, groups)
    outlines = outline(votes, groups, n_runs=n_runs, shape=shape)
    ious = mean_iou(results, groups, outlines)
    order = _least_stable_first(groups, outlines, ious)
    position_of_group = np.zeros(groups.size, np.int64)
    position_of_group[order] = np.arange(len(order))
    return Agreement(
        n_runs=n_runs,
        n_distinct=len(results),
        cell_share=np.divide(statements.is_cell, n_runs, dtype=np.float32),
        same_object_share=np.divide(most_votes(votes, shape), n_runs, dtype=np.float32),
        consensus=outlines.consensus,
        objects=tuple(
            Stability(
                label=int(outlines.labels[group]),
                position=tuple(outlines.positions[:, group].tolist()),
                area=int(outlines.areas[group]),
                n_runs_with=int(groups.n_runs_with[group]),
                share=int(groups.n_runs_with[group]) / n_runs,
                mean_iou=float(ious[group]),
                runs=runs,
            )
            for group, runs in zip(order.tolist(), _runs_with(order, results, groups), strict=True)
        ),
        results=tuple(result.runs for result in results),
        members=tuple(position_of_group[group_of[1:]] for group_of in groups.by_result),
    )


def _least_stable_first(
    groups: ObjectGroups, outlines: Outlines, ious: NDArray[np.float64]
) -> Integers:
    """Sort the groups by the runs that have them, then mean IoU, then position, then area."""
    least_important_first = [outlines.areas, *outlines.positions[::-1], ious, groups.n_runs_with]
    return np.lexsort([key[1:] for key in least_important_first]) + 1


def _runs_with(
    order: Integers, results: Sequence[DistinctResult], groups: ObjectGroups
) -> list[tuple[int, ...]]:
    """List the runs that have each group, in this order of the groups."""
    results_with: list[list[int]] = [[] for _ in range(groups.size)]
    for i, group_of in enumerate(groups.by_result):
        for group in group_of[1:].tolist():
            results_with[group].append(i)

    @cache  # most objects are in all results and share their (long) list of runs
    def runs_of(*positions: int) -> tuple[int, ...]:
        return tuple(sorted(run for i in positions for run in results[i].runs))

    return [runs_of(*results_with[group]) for group in order.tolist()]
