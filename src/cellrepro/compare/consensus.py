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

**The same object.** Every object of the typical result starts a group. The objects of the other
results, nearest result first, join the group of the typical object that they match at IoU >= 0.5;
an IoU above 0.5 has no competitor, and of two exact halves the first in raster order joins. What
is left over joins, best IoU first, the groups started by the left-over objects of earlier
results, again at IoU >= 0.5 with the object that started the group; what fits none starts a new
one. So each object belongs to one group and a group holds at most one object of a run. Objects in
one group are *the same object*. Sameness is judged against the object that started the group, not
from one member to the next, so that a chain of small shifts cannot join two cells.

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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.compare.labels import canonical, label_image
from cellrepro.compare.matching import matches, overlap
from cellrepro.errors import BadInput
from cellrepro.store.digests import tensor_digest

_SAME = 0.5
"""IoU from which two objects are the same."""

_KEPT_BYTES = 2**28
"""Label images held at a time; what does not fit is read again for each of the four looks."""

_PENDING = 2**22
"""Votes that are held one by one before they are added up."""


@dataclass(frozen=True)
class Stability:
    """One object as all runs see it.

    Attributes
    ----------
    label : int
        In ``Agreement.consensus``; 0 if it is not there.
    position : tuple of float
        Centroid of the outline, pixels, (y, x) or (z, y, x).
    area : int
        Pixels of the outline: of the object in the consensus, or, if it is not there, those that
        at least half of the runs that have the object give to it.
    n_runs_with : int
        Runs that have the object.
    share : float
        ``n_runs_with`` over all runs, in (0, 1].
    mean_iou : float
        Mean IoU of the runs' objects with the outline, over the runs that have the object.
    runs : tuple of int
        Which runs have it, as positions in the sequence that was given, ascending.
    """

    label: int
    position: tuple[float, ...]
    area: int
    n_runs_with: int
    share: float
    mean_iou: float
    runs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Agreement:
    """How far many runs agree on the objects of one image.

    Attributes
    ----------
    n_runs : int
        Runs.
    n_distinct : int
        Results that differ in their objects; renumbered objects are the same result.
    cell_share : ndarray of float32, shape (Y, X) or (Z, Y, X)
        Share of the runs that call the pixel cell; 0 where all call it background.
    same_object_share : ndarray of float32, same shape
        Share of the runs that give the pixel the same object: the most votes that any one object
        gets there. Never more than ``cell_share``; both are 1 where all agree on a cell.
    consensus : ndarray of uint32, same shape
        What most runs say, numbered from 1 in raster order; 0 is background.
    objects : tuple of Stability
        Every object that any run has, the least stable first: in fewest runs, then with the
        lowest mean IoU, then in raster order of their positions.
    results : tuple of tuple of int
        The runs of each different result, the most typical result first.
    members : tuple of ndarray of int64, shape (N,)
        For each of ``results``, where its N objects, in raster order of first appearance, are in
        ``objects``.
    """

    n_runs: int
    n_distinct: int
    cell_share: NDArray[np.float32]
    same_object_share: NDArray[np.float32]
    consensus: NDArray[np.uint32]
    objects: tuple[Stability, ...]
    results: tuple[tuple[int, ...], ...]
    members: tuple[NDArray[np.int64], ...]

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
        """The objects of one run: element i is the object ``i + 1`` of its canonical masks.

        Parameters
        ----------
        run : int
            Position in the sequence that was given.

        Returns
        -------
        tuple of Stability

        Raises
        ------
        BadInput
            If there is no such run.
        """
        for runs, members in zip(self.results, self.members, strict=True):
            if run in runs:
                return tuple(self.objects[i] for i in members)
        raise BadInput(f"there is no run {run}; expected one of 0 to {self.n_runs - 1}")


def agree(
    masks: Sequence[ArrayLike | Callable[[], ArrayLike]], *, digests: Sequence[str] | None = None
) -> Agreement:
    """Get the votes of many runs on one image: agreement maps, stability of objects, consensus.

    Parameters
    ----------
    masks : sequence of array_like of int, shape (Y, X) or (Z, Y, X), or of callables
        One label image per run, 0 is background, every other label one object; or a function
        without arguments that reads it.
    digests : sequence of str, optional
        One per run; equal digests promise equal objects, and then only the first of them is
        read. Without digests every image is read once. Different digests promise nothing:
        equal objects are found in either case.

    Returns
    -------
    Agreement
        See the head of this module for what counts as the same object and for how the consensus
        is found. Time and memory grow with the number of different results.

    Raises
    ------
    BadInput
        If there are no runs, one holds no label image, the shapes differ, there is not one digest
        per run, or a function returns something else when it is called again.

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
    n_runs = len(masks)
    cell_votes = _rank(results, n_runs)
    groups, votes = _vote(results, n_runs)
    shape = results[0].shape
    outlines = _outlines(votes, groups.n_runs_with, n_runs, shape)
    mean_iou = _mean_iou(results, groups, votes, outlines)
    objects, rank = _stabilities(results, groups, outlines, mean_iou, n_runs)
    return Agreement(
        n_runs=n_runs,
        n_distinct=len(results),
        cell_share=_share(cell_votes, n_runs),
        same_object_share=_share(votes.largest(), n_runs).reshape(shape),
        consensus=outlines.consensus,
        objects=objects,
        results=tuple(tuple(result.runs) for result in results),
        members=tuple(rank[of_object[1:]] for of_object in groups.of_object),
    )


def _share(votes: NDArray[np.unsignedinteger], n_runs: int) -> NDArray[np.float32]:
    return np.divide(votes, n_runs, dtype=np.float32)


# Which runs have equal results


class _Result:
    """One of the different results: who has it, and its label image in canonical numbers."""

    def __init__(
        self, run: int, source: ArrayLike | Callable[[], ArrayLike], given: NDArray[np.integer]
    ):
        self.runs = [run]
        self._source = source
        image = _compact(canonical(given))
        self.shape = image.shape
        self.n_bytes = image.nbytes
        self.n_objects = int(image.max()) if image.size else 0
        self.digest = tensor_digest(image)
        self._kept: NDArray[np.unsignedinteger] | None = image

    @property
    def weight(self) -> int:
        return len(self.runs)

    def image(self) -> NDArray[np.unsignedinteger]:
        """Objects 1 to ``n_objects`` in raster order."""
        if self._kept is not None:
            return self._kept
        run = self.runs[0]
        image = _compact(canonical(_read(run, self._source)))
        if tensor_digest(image) != self.digest:
            raise BadInput(
                f"the masks of run {run} changed while they were compared: the function that "
                "reads them returned other objects when called again; compare copies that stay"
            )
        return image

    def forget(self) -> None:
        self._kept = None


def _read(run: int, source: ArrayLike | Callable[[], ArrayLike]) -> NDArray[np.integer]:
    return label_image(f"run {run}", source() if callable(source) else source)


def _compact(image: NDArray[np.uint32]) -> NDArray[np.unsignedinteger]:
    small = not image.size or image.max() < 2**16
    return image.astype(np.uint16) if small else image


def _different_results(
    masks: Sequence[ArrayLike | Callable[[], ArrayLike]], digests: Sequence[str] | None
) -> list[_Result]:
    if not len(masks):
        raise BadInput("no masks were given; agreement takes those of one or more runs")
    if digests is not None and len(digests) != len(masks):
        raise BadInput(
            f"{len(digests)} digests were given for the masks of {len(masks)} runs; give one for "
            "each, or none"
        )
    by_digest: dict[str, _Result] = {}
    by_objects: dict[str, _Result] = {}
    n_bytes = 0
    for run, source in enumerate(masks):
        given = None
        if digests is None:  # bits first: digesting them is far quicker than renumbering
            given = _read(run, source)
            digest = tensor_digest(given)
        else:
            digest = digests[run]
        known = by_digest.get(digest)
        if known is not None:
            known.runs.append(run)
            continue
        result = _Result(run, source, _read(run, source) if given is None else given)
        first = by_objects.setdefault(result.digest, result)
        by_digest[digest] = first
        if first is not result:
            first.runs.append(run)
            continue
        _check_shape(result, next(iter(by_objects.values())))
        n_bytes += result.n_bytes
        if n_bytes > _KEPT_BYTES:
            result.forget()
    return list(by_objects.values())


def _check_shape(result: _Result, first: _Result) -> None:
    if result.shape != first.shape:
        raise BadInput(
            f"label images differ in shape: run {first.runs[0]} has {first.shape}, run "
            f"{result.runs[0]} has {result.shape}; check that all belong to the same image, then "
            "transpose, crop or resize"
        )


# Which result is the most typical


def _rank(results: list[_Result], n_runs: int) -> NDArray[np.unsignedinteger]:
    """Sort results by their distance from all runs, in place; return the votes for "cell"."""
    shape = results[0].shape
    # One map of votes for "this pixel is cell", and one per axis for "it and the next pixel
    # along this axis are of one object".
    votes = [np.zeros(shape, _counter(n_runs)) for _ in range(1 + len(shape))]
    if len(results) == 1:
        votes[0] += (results[0].image() > 0) * votes[0].dtype.type(n_runs)
        return votes[0]
    for result in results:
        for total, said in zip(votes, _statements(result.image()), strict=True):
            part = total[tuple(slice(0, n) for n in said.shape)]
            part += said * part.dtype.type(result.weight)

    def distance(result: _Result) -> int:
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


def _counter(n_runs: int) -> type[np.unsignedinteger]:
    return np.uint16 if n_runs < 2**16 else np.uint32


# Which objects are the same


@dataclass(frozen=True)
class _Groups:
    """Objects that are the same. Groups count from 1; 0 is background."""

    of_object: list[NDArray[np.int64]]
    """For each result the group of every object, element 0 being background."""
    n_runs_with: NDArray[np.int64]
    """Per group; element 0 means nothing."""


def _vote(results: list[_Result], n_runs: int) -> tuple[_Groups, _Votes]:
    typical = results[0].image()
    starters = _Starters(results[0].n_objects)
    votes = _Votes(typical.size, n_runs)
    of_object = [np.arange(results[0].n_objects + 1)]
    votes.add(typical.ravel(), results[0].weight)
    for result in results[1:]:
        image = result.image()
        group = np.zeros(result.n_objects + 1, np.int64)
        table = overlap(typical, image)
        same = matches(table, _SAME)
        group[table.columns[same] + 1] = table.rows[same] + 1
        left_over = np.flatnonzero(group[1:] == 0) + 1
        if len(left_over):
            group[left_over] = starters.groups_of(image.ravel(), left_over, result.n_objects)
        of_object.append(group)
        votes.add(group.astype(np.uint32)[image.ravel()], result.weight)
    votes.add_up()
    n_runs_with = np.zeros(starters.n_groups + 1, np.int64)
    for result, group in zip(results, of_object, strict=True):
        n_runs_with[group[1:]] += result.weight
    return _Groups(of_object, n_runs_with), votes


class _Starters:
    """The objects that started a group because the typical result has none like them."""

    def __init__(self, n_groups: int):
        self.n_groups = n_groups
        self._areas = np.zeros(n_groups + 1, np.int64)  # of starters only
        # Starters overlap each other, so a pixel may be listed with several groups.
        self._pixels = np.zeros(0, np.int64)
        self._groups = np.zeros(0, np.int64)

    def groups_of(
        self, flat: NDArray[np.unsignedinteger], objects: NDArray[np.int64], n_objects: int
    ) -> NDArray[np.int64]:
        """Groups of some objects of a result; objects that match none start new ones."""
        chosen = np.zeros(n_objects + 1, bool)
        chosen[objects] = True
        pixels = np.flatnonzero(chosen[flat])
        position = np.searchsorted(objects, flat[pixels])
        areas = np.bincount(position, minlength=len(objects))
        group = np.zeros(len(objects), np.int64)
        taken = set()
        for candidate, i in self._candidates(pixels, position, areas):
            if not group[i] and candidate not in taken:
                group[i] = candidate
                taken.add(candidate)
        new = np.flatnonzero(group == 0)
        group[new] = self.n_groups + 1 + np.arange(len(new))
        self.n_groups += len(new)
        self._areas = np.concatenate([self._areas, areas[new]])
        started = np.isin(position, new)
        all_pixels = np.concatenate([self._pixels, pixels[started]])
        all_groups = np.concatenate([self._groups, group[position[started]]])
        order = np.argsort(all_pixels, kind="stable")
        self._pixels, self._groups = all_pixels[order], all_groups[order]
        return group

    def _candidates(
        self, pixels: NDArray[np.int64], position: NDArray[np.int64], areas: NDArray[np.int64]
    ) -> list[tuple[int, int]]:
        """Pairs of (group, object) that match, best IoU first."""
        first = np.searchsorted(self._pixels, pixels, "left")
        n_listed = np.searchsorted(self._pixels, pixels, "right") - first
        before = np.cumsum(n_listed) - n_listed
        listed = np.repeat(first - before, n_listed) + np.arange(n_listed.sum())
        codes = self._groups[listed] * len(areas) + np.repeat(position, n_listed)
        pairs, shared = np.unique(codes, return_counts=True)
        groups, objects = np.divmod(pairs, len(areas))
        iou = shared / (self._areas[groups] + areas[objects] - shared)
        order = np.lexsort((objects, groups, -iou))
        order = order[iou[order] >= _SAME]
        return list(zip(groups[order].tolist(), objects[order].tolist(), strict=True))


# How many runs give a pixel to a group


class _Votes:
    """Votes per pixel and group: dense for the first group seen at a pixel, sparse for others.

    Runs agree at most pixels, so nearly all votes are in the dense part.
    """

    def __init__(self, n_pixels: int, n_runs: int):
        self.group = np.zeros(n_pixels, np.uint32)
        """Per pixel, 0 where no run has an object."""
        self.n = np.zeros(n_pixels, _counter(n_runs))
        """Votes for ``group``."""
        self.codes = np.zeros(0, np.uint64)
        """Pixels and groups of the sparse part, ascending; see `_codes`."""
        self.n_sparse = np.zeros(0, np.int64)
        self._pending: list[tuple[NDArray[np.uint64], int]] = []
        self._n_pending = 0

    @property
    def pixels(self) -> NDArray[np.int64]:
        """Of the sparse part."""
        return (self.codes >> np.uint64(32)).astype(np.int64)

    @property
    def groups(self) -> NDArray[np.int64]:
        """Of the sparse part."""
        return (self.codes & np.uint64(2**32 - 1)).astype(np.int64)

    def add(self, flat: NDArray[np.unsignedinteger], weight: int) -> None:
        """Count the votes of the runs with one result, given the group of every pixel."""
        n_votes = self.n.dtype.type(weight)
        same = flat == self.group
        other = np.flatnonzero(~same)
        same &= flat > 0
        self.n += same * n_votes
        other = other[flat[other] > 0]
        fresh = self.group[other] == 0
        self.group[other[fresh]] = flat[other[fresh]]
        self.n[other[fresh]] = n_votes
        other = other[~fresh]
        self._pending.append((_codes(other, flat[other]), weight))
        self._n_pending += len(other)
        if self._n_pending > _PENDING:
            self.add_up()

    def add_up(self) -> None:
        codes = [self.codes, *(codes for codes, _ in self._pending)]
        n = [self.n_sparse, *(np.full(len(codes), n) for codes, n in self._pending)]
        self.codes, position = np.unique(np.concatenate(codes), return_inverse=True)
        sums = np.bincount(position, np.concatenate(n), len(self.codes))
        self.n_sparse = sums.astype(np.int64)
        self._pending, self._n_pending = [], 0

    def largest(self) -> NDArray[np.unsignedinteger]:
        """The most votes of any group at each pixel."""
        most = self.n.copy()
        np.maximum.at(most, self.pixels, self.n_sparse.astype(most.dtype))
        return most


def _codes(pixels: NDArray[np.int64], groups: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    return (pixels.astype(np.uint64) << np.uint64(32)) | groups.astype(np.uint64)


# Outlines and consensus


@dataclass(frozen=True)
class _Outlines:
    """The consensus, and which votes lie inside the outline of the group that they are for."""

    consensus: NDArray[np.uint32]
    labels: NDArray[np.int64]  # per group, in the consensus; 0 if it is not there
    dense: NDArray[np.bool_]
    sparse: NDArray[np.bool_]
    areas: NDArray[np.int64]  # per group, pixels
    positions: NDArray[np.float64]  # per group from group 1 on, centroids


def _outlines(
    votes: _Votes, n_runs_with: NDArray[np.int64], n_runs: int, shape: tuple[int, ...]
) -> _Outlines:
    dense = (2 * votes.n.astype(np.int64) >= n_runs_with[votes.group]) & (votes.group > 0)
    sparse = 2 * votes.n_sparse >= n_runs_with[votes.groups]
    winners = _award(votes, dense, sparse, n_runs_with, n_runs)
    consensus = canonical(winners.reshape(shape))
    labels = np.zeros(len(n_runs_with), np.int64)
    labels[winners] = consensus.ravel()
    labels[0] = 0
    # An object of the consensus is outlined as it is there, without pixels that others won.
    present = labels > 0
    dense &= (winners == votes.group) | ~present[votes.group]
    sparse &= (winners[votes.pixels] == votes.groups) | ~present[votes.groups]
    areas = _sums(votes, dense, sparse, len(labels))
    within = np.flatnonzero(dense)
    axes = zip(
        np.unravel_index(within, shape), np.unravel_index(votes.pixels[sparse], shape), strict=True
    )
    sums = [
        np.bincount(votes.group[within], along_dense, len(labels))
        + np.bincount(votes.groups[sparse], along_sparse, len(labels))
        for along_dense, along_sparse in axes
    ]
    positions = (np.array(sums)[:, 1:] / areas[1:]).T
    return _Outlines(consensus, labels, dense, sparse, areas, positions)


def _award(
    votes: _Votes,
    dense: NDArray[np.bool_],
    sparse: NDArray[np.bool_],
    n_runs_with: NDArray[np.int64],
    n_runs: int,
) -> NDArray[np.uint32]:
    """The group that each pixel of the consensus goes to, given the pixels of all outlines."""
    n_groups = len(n_runs_with)
    areas = _sums(votes, dense, sparse, n_groups)
    rank = np.empty(n_groups, np.int64)
    rank[np.lexsort((_first_pixels(votes, dense, sparse, n_groups), areas, n_runs_with))] = (
        np.arange(n_groups)
    )
    # Sparse votes as they come up at their pixel, the best one first.
    order = np.lexsort((rank[votes.groups], -votes.n_sparse, votes.pixels))
    order = order[sparse[order]]
    pixels, groups, n = votes.pixels[order], votes.groups[order], votes.n_sparse[order]
    takes_part = 2 * n_runs_with >= n_runs
    takes_part[0] = False
    while True:
        winners = np.where(dense & takes_part[votes.group], votes.group, np.uint32(0))
        candidates = np.flatnonzero(takes_part[groups])
        candidates = candidates[_first_of_each(pixels[candidates])]
        at = pixels[candidates]
        n_winner = np.where(winners[at] > 0, votes.n[at], 0).astype(np.int64)
        wins = (n[candidates] > n_winner) | (
            (n[candidates] == n_winner) & (rank[groups[candidates]] < rank[winners[at]])
        )
        winners[at[wins]] = groups[candidates[wins]]
        kept = np.bincount(winners, minlength=n_groups)
        out = takes_part & (2 * kept < areas)
        if not out.any():
            return winners
        takes_part &= ~out


def _first_of_each(ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    first = np.ones(len(ascending), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return first


def _sums(
    votes: _Votes, dense: NDArray[np.bool_], sparse: NDArray[np.bool_], n_groups: int
) -> NDArray[np.int64]:
    """Pixels per group among chosen votes."""
    return np.bincount(votes.group[dense], minlength=n_groups) + np.bincount(
        votes.groups[sparse], minlength=n_groups
    )


def _first_pixels(
    votes: _Votes, dense: NDArray[np.bool_], sparse: NDArray[np.bool_], n_groups: int
) -> NDArray[np.int64]:
    # Of equal indices the last assignment stays, so running backwards keeps the first pixel.
    within = np.flatnonzero(dense)[::-1]
    first = np.full(n_groups, len(dense))
    first[votes.group[within]] = within
    np.minimum.at(first, votes.groups[sparse], votes.pixels[sparse])
    return first


# How stable an object is


def _mean_iou(
    results: list[_Result], groups: _Groups, votes: _Votes, outlines: _Outlines
) -> NDArray[np.float64]:
    """Per group, over the runs that have it; element 0 means nothing."""
    n_groups = len(groups.n_runs_with)
    sums = np.zeros(n_groups)
    for result, group in zip(results, groups.of_object, strict=True):
        flat = result.image().ravel()
        areas = np.bincount(flat, minlength=result.n_objects + 1)[1:]
        of_pixel = group.astype(np.uint32)[flat]
        same = of_pixel == votes.group
        shared = np.bincount(of_pixel[same & outlines.dense], minlength=n_groups)
        other = np.flatnonzero(~same)
        other = other[of_pixel[other] > 0]
        listed = np.searchsorted(votes.codes, _codes(other, of_pixel[other]))
        inside = outlines.sparse[listed]
        shared += np.bincount(of_pixel[other[inside]], minlength=n_groups)
        held = group[1:]
        both = shared[held]
        sums[held] += result.weight * both / (areas + outlines.areas[held] - both)
    return np.divide(sums, groups.n_runs_with, out=sums, where=groups.n_runs_with > 0)


def _stabilities(
    results: list[_Result],
    groups: _Groups,
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
