"""Many runs of one image: where they agree, how stable each object is, and what most of them say.

Everything is a vote of runs, so a result that 900 of 1,000 runs have counts 900 times; but it is
read and compared once, because runs with equal objects are found first. What is computed depends
on the outlines and on how many runs have them, never on the order of the runs or on label numbers.

**Typical result.** Results are ranked by how far they lie from all runs: the number of runs that
disagree, summed over all pixels (is it cell?) and all pairs of neighbouring pixels (do both
belong to one object?). The second question is what tells two touching cells from one merged cell.
The sum over all runs follows from two counts per pixel, so the ranking takes two looks at each
result, where comparing all pairs of results would take time with their square. Of equal distances
the result of more runs comes first, then the smaller digest, which is arbitrary but fixed.

**The same object** is settled in `cellrepro.compare.object_groups`.

**Outline.** A pixel belongs to a group if at least half of the runs that have the group give it
that pixel: exactly half is enough, as a border moved by one pixel in half of the runs should not
make cells shrink.

**Consensus.** It holds the groups that at least half of all runs have (exactly half is enough). A
pixel in several outlines goes to the group with most votes there; of equal votes to the group
that fewer runs have, as its runs are more of one mind, then to the one with the smaller outline,
so that a cell which is cut in exactly half of the runs is shown cut, then to the one whose
outline begins first in raster order. A group left with less than half of its
outline is taken out and its pixels are awarded again, so that no slivers of it remain. Objects
are not made connected: a run's objects need not be either, and a forced choice of one part would
be nobody's vote.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.labels import canonical
from cellrepro.compare.object_groups import (
    Groups,
    Result,
    Source,
    codes_of,
    counter,
    different_results,
    vote,
)
from cellrepro.errors import BadInput


@dataclass(frozen=True)
class Stability:
    """One object as all runs see it."""

    label: int  # in `Agreement.consensus`; 0 if it is not there
    position: tuple[float, ...]  # centroid of the outline, pixels, (y, x) or (z, y, x)
    area: int  # pixels of the outline
    n_runs_with: int
    share: float  # of all runs, in (0, 1]
    mean_iou: float  # of the runs' objects with the outline, over the runs that have the object
    runs: tuple[int, ...]  # that have it, as positions in what was given, ascending


@dataclass(frozen=True, eq=False)
class Agreement:
    """How far many runs agree on the objects of one image; maps have the shape of the image."""

    n_runs: int
    n_distinct: int
    """Results that differ in their objects; renumbered objects are the same result."""
    cell_share: NDArray[np.float32]
    """Share of the runs that call the pixel cell."""
    same_object_share: NDArray[np.float32]
    """Share of the runs that give the pixel the same object: the most votes of any one object."""
    consensus: NDArray[np.uint32]
    """What most runs say, numbered from 1 in raster order; 0 is background."""
    objects: tuple[Stability, ...]
    """The least stable first: in fewest runs, then with the lowest mean IoU, then by position."""
    results: tuple[tuple[int, ...], ...]
    """The runs of each different result, the most typical result first."""
    members: tuple[NDArray[np.int64], ...]
    """For each of ``results``, where its objects, in raster order, are in ``objects``."""

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
        """The objects of one run: element i is the object ``i + 1`` of its canonical masks."""
        for runs, members in zip(self.results, self.members, strict=True):
            if run in runs:
                return tuple(self.objects[i] for i in members)
        raise BadInput(f"there is no run {run}; expected one of 0 to {self.n_runs - 1}")


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
    results = different_results(masks, digests)
    n_runs, shape = len(masks), results[0].shape
    cell_votes = _rank(results, n_runs)
    groups, votes = vote(results, n_runs)
    outlines = _outlines(*votes.counted(), groups.n_runs_with, n_runs, shape)
    mean_iou = _mean_iou(results, groups, outlines)
    objects, rank = _stabilities(results, groups, outlines, mean_iou, n_runs)
    return Agreement(
        n_runs=n_runs,
        n_distinct=len(results),
        cell_share=_share(cell_votes, n_runs),
        same_object_share=_share(outlines.most_votes, n_runs).reshape(shape),
        consensus=outlines.consensus,
        objects=objects,
        results=tuple(tuple(result.runs) for result in results),
        members=tuple(rank[of_object[1:]] for of_object in groups.of_object),
    )


def _share(votes: NDArray[np.integer], n_runs: int) -> NDArray[np.float32]:
    return np.divide(votes, n_runs, dtype=np.float32)


# -- which result is the most typical ------------------------------------------------------


def _rank(results: list[Result], n_runs: int) -> NDArray[np.unsignedinteger]:
    """Sort results by their distance from all runs, in place; return the votes for "cell"."""
    shape = results[0].shape
    # One map of votes for "this pixel is cell", and one per axis for "it and the next pixel
    # along this axis are of one object".
    votes = [np.zeros(shape, counter(n_runs)) for _ in range(1 + len(shape))]
    if len(results) == 1:
        votes[0] += (results[0].image() > 0) * votes[0].dtype.type(n_runs)
        return votes[0]
    for result in results:
        for total, said in zip(votes, _statements(result.image()), strict=True):
            part = total[tuple(slice(0, n) for n in said.shape)]
            part += said * part.dtype.type(result.weight)

    def distance(result: Result) -> int:
        # Where V of N runs say yes, saying yes contradicts N - V runs and saying no V. What "no"
        # costs everywhere is the same for all results, so only N - 2 V is left at each yes.
        sum_ = 0
        for total, said in zip(votes, _statements(result.image()), strict=True):
            part = total[tuple(slice(0, n) for n in said.shape)]
            sum_ += n_runs * int(np.count_nonzero(said))
            sum_ -= 2 * int(np.sum(part * said, dtype=np.int64))
        return sum_

    order = {id(result): distance(result) for result in results}
    results.sort(key=lambda result: (order[id(result)], -result.weight, result.digest))
    return votes[0]


def _statements(image: NDArray[np.unsignedinteger]) -> Iterator[NDArray[np.bool_]]:
    cell = image > 0
    yield cell
    for axis in range(image.ndim):
        here = tuple(slice(None, -1) if i == axis else slice(None) for i in range(image.ndim))
        after = tuple(slice(1, None) if i == axis else slice(None) for i in range(image.ndim))
        yield (image[here] == image[after]) & cell[here]


# -- outlines and consensus ----------------------------------------------------------------


@dataclass(frozen=True)
class _Outlines:
    """The consensus, and the outline of every group; those of groups in it lie in it."""

    consensus: NDArray[np.uint32]
    winners: NDArray[np.uint32]  # per pixel, the group in the consensus
    labels: NDArray[np.int64]  # per group, in the consensus; 0 if it is not there
    elsewhere: NDArray[np.uint64]  # pixels of the outlines of groups that are not there
    areas: NDArray[np.int64]  # per group, pixels
    positions: NDArray[np.float64]  # per group from group 1 on, centroids
    most_votes: NDArray[np.int64]  # per pixel, of any group


def _outlines(
    pixels: NDArray[np.int64],
    groups: NDArray[np.int64],
    n: NDArray[np.int64],
    n_runs_with: NDArray[np.int64],
    n_runs: int,
    shape: tuple[int, ...],
) -> _Outlines:
    most_votes = np.zeros(math.prod(shape), np.int64)
    np.maximum.at(most_votes, pixels, n)
    inside = 2 * n >= n_runs_with[groups]
    pixels, groups, n = pixels[inside], groups[inside], n[inside]
    winners = _award(pixels, groups, n, n_runs_with, n_runs, len(most_votes))
    consensus = canonical(winners.reshape(shape))
    labels = np.zeros(len(n_runs_with), np.int64)
    labels[winners] = consensus.ravel()
    labels[0] = 0
    # An object of the consensus is outlined as it is there, without pixels that others won.
    held = (labels[groups] == 0) | (winners[pixels] == groups)
    pixels, groups = pixels[held], groups[held]
    areas = np.bincount(groups, minlength=len(labels))
    sums = [np.bincount(groups, at, len(labels)) for at in np.unravel_index(pixels, shape)]
    absent = labels[groups] == 0
    return _Outlines(
        consensus=consensus,
        winners=winners,
        labels=labels,
        elsewhere=np.sort(codes_of(pixels[absent], groups[absent])),
        areas=areas,
        positions=(np.array(sums)[:, 1:] / areas[1:]).T,
        most_votes=most_votes,
    )


def _award(
    pixels: NDArray[np.int64],
    groups: NDArray[np.int64],
    n: NDArray[np.int64],
    n_runs_with: NDArray[np.int64],
    n_runs: int,
    n_pixels: int,
) -> NDArray[np.uint32]:
    """The group that each pixel of the consensus goes to, given the votes inside all outlines."""
    n_groups = len(n_runs_with)
    areas = np.bincount(groups, minlength=n_groups)
    first = np.full(n_groups, n_pixels)
    np.minimum.at(first, groups, pixels)
    rank = np.empty(n_groups, np.int64)
    rank[np.lexsort((first, areas, n_runs_with))] = np.arange(n_groups)
    bids = n * n_groups + (n_groups - rank[groups])  # most votes, then the best rank
    takes_part = 2 * n_runs_with >= n_runs
    while True:
        taking = takes_part[groups]
        pixels, groups, bids = pixels[taking], groups[taking], bids[taking]
        best = np.zeros(n_pixels, np.int64)
        np.maximum.at(best, pixels, bids)
        won = bids == best[pixels]
        winners = np.zeros(n_pixels, np.uint32)
        winners[pixels[won]] = groups[won]
        out = takes_part & (2 * np.bincount(winners, minlength=n_groups) < areas)
        if not out.any():
            return winners
        takes_part &= ~out


# -- how stable an object is ---------------------------------------------------------------


def _mean_iou(results: list[Result], groups: Groups, outlines: _Outlines) -> NDArray[np.float64]:
    """Per group, over the runs that have it; element 0 means nothing."""
    n_groups = len(groups.n_runs_with)
    absent = outlines.labels == 0
    absent[0] = False
    sums = np.zeros(n_groups)
    for result, group in zip(results, groups.of_object, strict=True):
        flat = result.image().ravel()
        areas = np.bincount(flat, minlength=result.n_objects + 1)[1:]
        in_consensus = (group.astype(np.uint32)[flat] == outlines.winners) & (flat > 0)
        shared = np.bincount(flat[in_consensus], minlength=result.n_objects + 1)[1:]
        if absent[group].any():
            other = np.flatnonzero(absent[group][flat])
            held = np.isin(codes_of(other, group[flat[other]]), outlines.elsewhere)
            shared += np.bincount(flat[other[held]], minlength=result.n_objects + 1)[1:]
        sums[group[1:]] += result.weight * shared / (areas + outlines.areas[group[1:]] - shared)
    return np.divide(sums, groups.n_runs_with, out=sums, where=groups.n_runs_with > 0)


def _stabilities(
    results: list[Result],
    groups: Groups,
    outlines: _Outlines,
    mean_iou: NDArray[np.float64],
    n_runs: int,
) -> tuple[tuple[Stability, ...], NDArray[np.int64]]:
    """All objects, least stable first, and the place of every group among them."""
    n_groups = len(groups.n_runs_with)
    results_with: list[list[int]] = [[] for _ in range(n_groups)]
    for i, group in enumerate(groups.of_object):
        for number in group[1:].tolist():
            results_with[number].append(i)
    # Most objects are in all results, so their (long) lists of runs are made once and shared.
    runs: dict[tuple[int, ...], tuple[int, ...]] = {}
    for held in map(tuple, results_with):
        if held not in runs:
            runs[held] = tuple(sorted(run for i in held for run in results[i].runs))
    keys = [outlines.areas[1:], *outlines.positions.T[::-1], mean_iou[1:], groups.n_runs_with[1:]]
    order = np.lexsort(keys) + 1
    place = np.zeros(n_groups, np.int64)
    place[order] = np.arange(n_groups - 1)
    objects = tuple(
        Stability(
            label=int(outlines.labels[number]),
            position=tuple(outlines.positions[number - 1].tolist()),
            area=int(outlines.areas[number]),
            n_runs_with=int(groups.n_runs_with[number]),
            share=int(groups.n_runs_with[number]) / n_runs,
            mean_iou=float(mean_iou[number]),
            runs=runs[tuple(results_with[number])],
        )
        for number in order.tolist()
    )
    return objects, place
