"""Many runs of one image: where they agree, how stable each object is, and what most of them say.

Everything is a vote of runs, so a result that 900 of 1,000 runs have counts 900 times; but it is
read and compared once. What is computed depends on the outlines and on how many runs have them,
never on the order of the runs or on label numbers.

**Typical result.** The one with which the fewest runs disagree, summed over all pixels (is it
cell?) and all pairs of neighbouring pixels (do both belong to one object?). The second question is
what tells two touching cells from one merged cell.

**The same object.** Every object of the typical result starts a group. Objects of other results,
the nearest result first, join the group whose first object they match at IoU >= 0.5, or start one.
Sameness is judged against the object that started the group, so that a chain of small shifts
cannot join two cells.

**Outline.** A pixel belongs to a group if at least half of the runs that have the group give it
that pixel.

**Consensus.** It holds the groups that at least half of all runs have. A pixel in several outlines
goes to the group with most votes there; of equal votes to the group that fewer runs have, then to
the smaller outline, so that a cell which is cut in exactly half of the runs is shown cut, then to
the one that begins first. A group left with less than half of its outline is taken out and its
pixels are awarded again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.compare.labels import canonical
from cellrepro.compare.matching import Integers, matches, overlap
from cellrepro.errors import BadInput
from cellrepro.images.label_image import label_image
from cellrepro.store.digests import tensor_digest

_SAME = 0.5  # IoU from which two objects are the same

Source = ArrayLike | Callable[[], ArrayLike]
"""A label image, or a function without arguments that reads it."""


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
    members: tuple[Integers, ...]
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
    results = _different_results(masks, digests)
    n_runs, shape = len(masks), results[0].image.shape
    cell_votes = _rank(results, n_runs)
    groups = _groups(results)
    n_runs_with = np.zeros(1 + max(int(group.max()) for group in groups), np.int64)
    for result, group in zip(results, groups, strict=True):
        n_runs_with[group[1:]] += result.weight
    pixels, of_pixel, n = _votes(results, groups, n_runs)
    most_votes = np.zeros(math.prod(shape), np.int64)
    np.maximum.at(most_votes, pixels, n)
    inside = 2 * n >= n_runs_with[of_pixel]
    outlines = _outlines(pixels[inside], of_pixel[inside], n[inside], n_runs_with, n_runs, shape)
    mean_iou = _mean_iou(results, groups, outlines) / np.maximum(1, n_runs_with)
    objects, place = _stabilities(results, groups, outlines, mean_iou, n_runs_with, n_runs)
    return Agreement(
        n_runs=n_runs,
        n_distinct=len(results),
        cell_share=np.divide(cell_votes, n_runs, dtype=np.float32),
        same_object_share=np.divide(most_votes, n_runs, dtype=np.float32).reshape(shape),
        consensus=outlines.consensus,
        objects=objects,
        results=tuple(tuple(result.runs) for result in results),
        members=tuple(place[group[1:]] for group in groups),
    )


# -- which result is the most typical ------------------------------------------------------


class _Result:
    """One of the different results: who has it, and its label image in canonical numbers."""

    def __init__(self, given: NDArray[np.integer]):
        self.runs: list[int] = []
        image = canonical(given)
        self.n_objects = int(image.max(initial=0))
        self.image: NDArray = image if self.n_objects >= 2**16 else image.astype(np.uint16)
        self.digest = tensor_digest(self.image)

    @property
    def weight(self) -> int:
        """How many runs have it."""
        return len(self.runs)


def _different_results(masks: Sequence[Source], digests: Sequence[str] | None) -> list[_Result]:
    """Results that differ in their objects, with the runs that have each."""
    if not len(masks):
        raise BadInput("no masks were given; agreement takes those of one or more runs")
    if digests is not None and len(digests) != len(masks):
        raise BadInput(
            f"{len(digests)} digests were given for the masks of {len(masks)} runs; give one for "
            "each, or none"
        )

    def read(run: int) -> NDArray[np.integer]:
        source = masks[run]
        return label_image(f"run {run}", source() if callable(source) else source)

    by_digest: dict[str, _Result] = {}
    by_objects: dict[str, _Result] = {}
    for run in range(len(masks)):
        # Bits first: digesting them is far quicker than renumbering.
        given = read(run) if digests is None else None
        digest = digests[run] if digests is not None else tensor_digest(given)
        if digest not in by_digest:
            result = _Result(read(run) if given is None else given)
            by_digest[digest] = by_objects.setdefault(result.digest, result)
        by_digest[digest].runs.append(run)
        first, shape = by_digest[next(iter(by_digest))].image.shape, by_digest[digest].image.shape
        if shape != first:
            raise BadInput(
                f"label images differ in shape: run 0 has {first}, run {run} has {shape}; check "
                "that all belong to the same image, then transpose, crop or resize"
            )
    return list(by_objects.values())


def _rank(results: list[_Result], n_runs: int) -> NDArray[np.unsignedinteger]:
    """Sort results by their distance from all runs, in place; return the votes for "cell"."""
    # The sum over all pairs of runs follows from two counts per pixel. There is one map of votes
    # for "this pixel is cell", and one per axis for "it and the next are of one object".
    votes = [
        np.zeros(part.shape, np.min_scalar_type(n_runs)) for part in _statements(results[0].image)
    ]
    for result in results:
        for total, said in zip(votes, _statements(result.image), strict=True):
            total += said * total.dtype.type(result.weight)

    def distance(result: _Result) -> int:
        # Where V of N runs say yes, saying yes contradicts N - V runs and saying no V. What "no"
        # costs everywhere is the same for all results, so only N - 2 V is left at each yes.
        return sum(
            n_runs * int(np.count_nonzero(said)) - 2 * int(np.sum(total * said, dtype=np.int64))
            for total, said in zip(votes, _statements(result.image), strict=True)
        )

    if len(results) > 1:
        results.sort(key=lambda result: (distance(result), -result.weight, result.digest))
    return votes[0]


def _statements(image: NDArray[np.unsignedinteger]) -> Iterator[NDArray[np.bool_]]:
    cell = image > 0
    yield cell
    for axis in range(image.ndim):
        along, is_cell = np.moveaxis(image, axis, 0), np.moveaxis(cell, axis, 0)
        yield (along[:-1] == along[1:]) & is_cell[:-1]


# -- which objects are the same ------------------------------------------------------------


def _groups(results: list[_Result]) -> list[Integers]:
    """For each result the group of every object, element 0 being background; groups from 1."""
    import pandas as pd

    typical = results[0].image
    n_groups = results[0].n_objects
    groups = [np.arange(n_groups + 1)]
    areas_of_starters = np.zeros(n_groups + 1, np.int64)
    # The objects that started a group because the typical result has none like them. They overlap
    # each other, so a pixel may be listed with several groups.
    starters = pd.DataFrame({"pixel": [], "group": []}, dtype=np.int64)
    for result in results[1:]:
        table = overlap(typical, result.image)
        group = np.zeros(result.n_objects + 1, np.int64)
        same = matches(table, _SAME)
        group[table.columns[same] + 1] = table.rows[same] + 1
        flat = result.image.ravel()
        pixel = np.flatnonzero(np.append(False, group[1:] == 0)[flat])
        left_over = pd.DataFrame({"pixel": pixel, "object": flat[pixel].astype(np.int64)})
        areas = np.append(0, table.areas_b)
        pairs = left_over.merge(starters).groupby(["group", "object"], as_index=False).size()
        union = areas_of_starters[pairs.group] + areas[pairs.object] - pairs["size"]
        pairs["iou"] = pairs["size"] / union
        pairs = pairs[pairs.iou >= _SAME].sort_values("iou", ascending=False, kind="stable")
        taken = set()
        for candidate, i in zip(pairs.group, pairs.object, strict=True):
            if not group[i] and candidate not in taken:
                group[i] = candidate
                taken.add(candidate)
        new = np.flatnonzero(group[1:] == 0) + 1
        group[new] = n_groups + 1 + np.arange(len(new))
        n_groups += len(new)
        areas_of_starters = np.append(areas_of_starters, areas[new])
        started = left_over[left_over.object.isin(new)]
        more = pd.DataFrame({"pixel": started.pixel, "group": group[started.object]})
        starters = pd.concat([starters, more])
        groups.append(group)
    return groups


def _votes(
    results: list[_Result], groups: list[Integers], n_runs: int
) -> tuple[Integers, Integers, Integers]:
    """Every pixel and group that go together, and their votes.

    Runs agree at most pixels: what agrees with the typical result is counted in an array, the rest
    in a list.
    """
    typical = results[0].image.ravel()
    n_alike = np.zeros(typical.size, np.min_scalar_type(n_runs))
    every, weights = [], []
    for result, group in zip(results, groups, strict=True):
        flat = group.astype(np.uint32)[result.image.ravel()]
        alike = flat == typical
        n_alike += alike * n_alike.dtype.type(result.weight)
        other = np.flatnonzero(~alike & (flat > 0))
        every.append(_codes_of(other, flat[other]))
        weights.append(np.full(len(other), result.weight))
    codes, position = np.unique(np.concatenate(every), return_inverse=True)
    n = np.bincount(position, np.concatenate(weights), len(codes)).astype(np.int64)
    cells = np.flatnonzero(typical)
    pixels, others = np.divmod(codes.astype(np.int64), 2**32)
    return (
        np.concatenate([cells, pixels]),
        np.concatenate([typical[cells].astype(np.int64), others]),
        np.concatenate([n_alike[cells].astype(np.int64), n]),
    )


def _codes_of(pixels: Integers, groups: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Pixel and group in one number."""
    return (pixels.astype(np.uint64) << np.uint64(32)) | groups.astype(np.uint64)


# -- outlines and consensus ----------------------------------------------------------------


@dataclass(frozen=True)
class _Outlines:
    """The consensus, and the outline of every group; those of groups in it lie in it."""

    consensus: NDArray[np.uint32]
    winners: NDArray[np.uint32]  # per pixel, the group in the consensus
    labels: Integers  # per group, in the consensus; 0 if it is not there
    elsewhere: NDArray[np.uint64]  # pixels of the outlines of groups that are not there
    areas: Integers  # per group, pixels
    positions: NDArray[np.float64]  # per group, centroids; element 0 means nothing


def _outlines(
    pixels: Integers,
    groups: Integers,
    n: Integers,
    n_runs_with: Integers,
    n_runs: int,
    shape: tuple[int, ...],
) -> _Outlines:
    """Of the pixels and groups that go together in at least half of the group's runs."""
    winners = _award(pixels, groups, n, n_runs_with, n_runs, math.prod(shape))
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
    elsewhere = np.sort(_codes_of(pixels[absent], groups[absent]))
    positions = (np.array(sums) / np.maximum(1, areas)).T
    return _Outlines(consensus, winners, labels, elsewhere, areas, positions)


def _award(
    pixels: Integers,
    groups: Integers,
    n: Integers,
    n_runs_with: Integers,
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


def _mean_iou(
    results: list[_Result], groups: list[Integers], outlines: _Outlines
) -> NDArray[np.float64]:
    """Per group, summed over the runs that have it."""
    absent = outlines.labels == 0
    absent[0] = False
    sums = np.zeros(len(absent))
    for result, group in zip(results, groups, strict=True):
        flat = result.image.ravel()
        areas = np.bincount(flat, minlength=len(group))[1:]
        held = (group.astype(np.uint32)[flat] == outlines.winners) & (flat > 0)
        if absent[group].any():
            other = np.flatnonzero(absent[group][flat])
            held[other] = np.isin(_codes_of(other, group[flat[other]]), outlines.elsewhere)
        shared = np.bincount(flat[held], minlength=len(group))[1:]
        sums[group[1:]] += result.weight * shared / (areas + outlines.areas[group[1:]] - shared)
    return sums


def _stabilities(
    results: list[_Result],
    groups: list[Integers],
    outlines: _Outlines,
    mean_iou: NDArray[np.float64],
    n_runs_with: Integers,
    n_runs: int,
) -> tuple[tuple[Stability, ...], Integers]:
    """All objects, least stable first, and the place of every group among them."""
    n_groups = len(n_runs_with)
    results_with: list[list[int]] = [[] for _ in range(n_groups)]
    for i, group in enumerate(groups):
        for number in group[1:].tolist():
            results_with[number].append(i)
    # Most objects are in all results, so their (long) lists of runs are made once and shared.
    runs = {
        held: tuple(sorted(run for i in held for run in results[i].runs))
        for held in set(map(tuple, results_with))
    }
    keys = [outlines.areas, *outlines.positions.T[::-1], mean_iou, n_runs_with]
    order = np.lexsort([key[1:] for key in keys]) + 1
    place = np.zeros(n_groups, np.int64)
    place[order] = np.arange(n_groups - 1)
    objects = tuple(
        Stability(
            label=int(outlines.labels[number]),
            position=tuple(outlines.positions[number].tolist()),
            area=int(outlines.areas[number]),
            n_runs_with=int(n_runs_with[number]),
            share=int(n_runs_with[number]) / n_runs,
            mean_iou=float(mean_iou[number]),
            runs=runs[tuple(results_with[number])],
        )
        for number in order.tolist()
    )
    return objects, place
