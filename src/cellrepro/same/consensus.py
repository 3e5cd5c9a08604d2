"""Many runs of one image: where they agree, how stable each object is, and what most of them say.

Everything is a vote of runs, but what 900 of 1,000 runs have is read and compared once. Nothing
depends on the order of the runs or on label numbers.

- The *typical result* is the one with which the fewest runs disagree, summed over all pixels (is it
  cell?) and all pairs of neighbours (do both belong to one object?), which two touching cells and
  one merged cell answer differently.
- Every object of it starts a *group*. Objects of other results, the nearest result first, join the
  group whose first object they match at IoU >= 0.5, so that no chain of small shifts joins two
  cells, or start one.
- A pixel is in a group's *outline* if at least half of the runs that have the group give it to it.
- The *consensus* holds the groups that at least half of all runs have. A pixel in several outlines
  goes to the group with most votes there; of equal votes to the one that fewer runs have, so that a
  cell cut in half of the runs is shown cut, then to the smaller, then to the first. A group left
  with less than half of its outline is taken out, and its pixels are awarded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.bits.digests import tensor_digest
from cellrepro.errors import BadInput
from cellrepro.images.label_image import label_image
from cellrepro.results import Result, Row
from cellrepro.same.labels import canonical
from cellrepro.same.matching import Integers, matches, overlap
from cellrepro.words import amount

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


@dataclass(frozen=True, eq=False, repr=False)
class Agreement(Result):
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

    def sentence(self) -> str:
        """Say how many results there are, and how many objects are in all of them."""
        if self.vacuous:
            return f"none of {amount(self.n_runs, 'run')} holds an object: agreement says nothing"
        return (
            f"{amount(self.n_runs, 'run')} with {amount(self.n_distinct, 'different result')}: "
            f"{self.n_stable} of {amount(len(self.objects), 'object')} are in all of them"
        )

    def rows(self) -> list[Row]:
        """Give a row for each object that is not in all runs."""
        return [
            {
                "centre (px)": ", ".join(f"{position:.0f}" for position in stability.position),
                "runs with it": f"{stability.n_runs_with} of {self.n_runs}",
                "mean IoU": f"{stability.mean_iou:.2f}",
            }
            for stability in self.objects
            if stability.n_runs_with < self.n_runs
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
    results, n_runs = _different_results(masks, digests), len(masks)
    cell_votes = _rank(results, n_runs)
    votes = _Votes(results, n_runs)
    objects, place = votes.objects()
    return Agreement(
        n_runs=n_runs,
        n_distinct=len(results),
        cell_share=np.divide(cell_votes, n_runs, dtype=np.float32),
        same_object_share=np.divide(votes.most, n_runs, dtype=np.float32),
        consensus=votes.consensus,
        objects=objects,
        results=tuple(tuple(result.runs) for result in results),
        members=tuple(place[group[1:]] for group in votes.groups),
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


def _different_results(masks: Sequence[Source], digests: Sequence[str] | None) -> list[_Result]:
    """Results that differ in their objects, with the runs that have each."""
    if not len(masks):
        raise BadInput("no masks were given; agreement takes those of one or more runs")
    if digests is not None and len(digests) != len(masks):
        raise BadInput(
            f"{len(digests)} digests were given for the masks of {len(masks)} runs; give one for "
            "each, or none"
        )

    by_digest: dict[str, _Result] = {}
    by_objects: dict[str, _Result] = {}
    first = None
    for run, source in enumerate(masks):
        digest = "" if digests is None else digests[run]
        if digest not in by_digest:
            given = label_image(f"run {run}", source() if callable(source) else source)
            digest = digest or tensor_digest(given)
            if digest not in by_digest:  # digesting bits is far quicker than renumbering
                result = _Result(given)
                by_digest[digest] = by_objects.setdefault(result.digest, result)
        by_digest[digest].runs.append(run)
        shape = by_digest[digest].image.shape
        first = first or shape
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
            total += said * total.dtype.type(len(result.runs))

    def distance(result: _Result) -> int:
        # Where V of N runs say yes, saying yes contradicts N - V runs and saying no V. What "no"
        # costs everywhere is the same for all results, so only N - 2 V is left at each yes.
        return sum(
            n_runs * int(np.count_nonzero(said)) - 2 * int(np.sum(total * said, dtype=np.int64))
            for total, said in zip(votes, _statements(result.image), strict=True)
        )

    if len(results) > 1:
        results.sort(key=lambda result: (distance(result), -len(result.runs), result.digest))
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


# -- votes, outlines and consensus ---------------------------------------------------------


class _Votes:
    """What all runs say of every group of objects; groups count from 1."""

    def __init__(self, results: list[_Result], n_runs: int):
        self._results, self._n_runs = results, n_runs
        self.groups = _groups(results)
        self._n_groups = 1 + max(int(group.max()) for group in self.groups)
        self._n_runs_with = np.zeros(self._n_groups, np.int64)
        for result, group in zip(results, self.groups, strict=True):
            self._n_runs_with[group[1:]] += len(result.runs)
        image = results[0].image
        pixels, groups, n = self._counted()
        most = np.zeros(image.size, np.int64)
        np.maximum.at(most, pixels, n)
        self.most = most.reshape(image.shape)
        """Per pixel, the votes of the group that has most of them."""
        inside = 2 * n >= self._n_runs_with[groups]
        pixels, groups = pixels[inside], groups[inside]
        self._winners = self._award(pixels, groups, n[inside])  # the group of each pixel, or 0
        self.consensus = canonical(self._winners.reshape(image.shape))
        self._labels = np.zeros(self._n_groups, np.int64)  # in the consensus; 0 if not there
        self._labels[self._winners] = self.consensus.ravel()
        self._labels[0] = 0
        # An object of the consensus is outlined as it is there, without pixels that others won.
        held = (self._labels[groups] == 0) | (self._winners[pixels] == groups)
        pixels, groups = pixels[held], groups[held]
        self._areas = np.bincount(groups, minlength=self._n_groups)
        at = np.unravel_index(pixels, image.shape)
        sums = np.array([np.bincount(groups, along, self._n_groups) for along in at])
        self._positions = sums / np.maximum(1, self._areas)
        absent = self._labels[groups] == 0
        self._elsewhere = np.sort(_codes_of(pixels[absent], groups[absent]))

    def _counted(self) -> tuple[Integers, Integers, Integers]:
        """Every pixel and group that go together, and their votes; most are the typical result's,
        and are counted in an array."""
        typical = self._results[0].image.ravel()
        n_alike = np.zeros(typical.size, np.min_scalar_type(self._n_runs))
        every, weights = [], []
        for result, group in zip(self._results, self.groups, strict=True):
            flat = group.astype(np.uint32)[result.image.ravel()]
            alike = flat == typical
            n_alike += alike * n_alike.dtype.type(len(result.runs))
            other = np.flatnonzero(~alike & (flat > 0))
            every.append(_codes_of(other, flat[other]))
            weights.append(np.full(len(other), len(result.runs)))
        codes, position = np.unique(np.concatenate(every), return_inverse=True)
        n = np.bincount(position, np.concatenate(weights), len(codes)).astype(np.int64)
        cells = np.flatnonzero(typical)
        pixels, others = np.divmod(codes.astype(np.int64), 2**32)
        return (
            np.concatenate([cells, pixels]),
            np.concatenate([typical[cells].astype(np.int64), others]),
            np.concatenate([n_alike[cells].astype(np.int64), n]),
        )

    def _award(self, pixels: Integers, groups: Integers, n: Integers) -> NDArray[np.uint32]:
        """The group that each pixel of the consensus goes to, by the votes inside all outlines."""
        n_pixels = self.most.size
        areas = np.bincount(groups, minlength=self._n_groups)
        first = np.full(self._n_groups, n_pixels)
        np.minimum.at(first, groups, pixels)
        rank = np.argsort(np.lexsort((first, areas, self._n_runs_with)))
        bids = n * self._n_groups + (self._n_groups - rank[groups])  # most votes, then best rank
        takes_part = 2 * self._n_runs_with >= self._n_runs
        while True:
            taking = takes_part[groups]
            pixels, groups, bids = pixels[taking], groups[taking], bids[taking]
            best = np.zeros(n_pixels, np.int64)
            np.maximum.at(best, pixels, bids)
            won = bids == best[pixels]
            winners = np.zeros(n_pixels, np.uint32)
            winners[pixels[won]] = groups[won]
            out = takes_part & (2 * np.bincount(winners, minlength=self._n_groups) < areas)
            if not out.any():
                return winners
            takes_part &= ~out

    def _mean_iou(self) -> NDArray[np.float64]:
        """Per group, over the runs that have it."""
        absent = self._labels == 0
        absent[0] = False
        sums = np.zeros(self._n_groups)
        for result, group in zip(self._results, self.groups, strict=True):
            flat = result.image.ravel()
            areas = np.bincount(flat, minlength=len(group))[1:]
            held = (group.astype(np.uint32)[flat] == self._winners) & (flat > 0)
            if absent[group].any():
                other = np.flatnonzero(absent[group][flat])
                held[other] = np.isin(_codes_of(other, group[flat[other]]), self._elsewhere)
            shared = np.bincount(flat[held], minlength=len(group))[1:]
            sums[group[1:]] += len(result.runs) * shared / (areas + self._areas[group[1:]] - shared)
        return sums / np.maximum(1, self._n_runs_with)

    def objects(self) -> tuple[tuple[Stability, ...], Integers]:
        """All objects, least stable first, and the place of every group among them."""
        results_with: list[list[int]] = [[] for _ in range(self._n_groups)]
        for i, group in enumerate(self.groups):
            for number in group[1:].tolist():
                results_with[number].append(i)

        @cache  # most objects are in all results and share their (long) list of runs
        def runs(*held: int) -> tuple[int, ...]:
            return tuple(sorted(run for i in held for run in self._results[i].runs))

        mean_iou = self._mean_iou()
        keys = [self._areas, *self._positions[::-1], mean_iou, self._n_runs_with]
        order = np.lexsort([key[1:] for key in keys]) + 1
        place = np.zeros(self._n_groups, np.int64)
        place[order] = np.arange(self._n_groups - 1)
        objects = tuple(
            Stability(
                label=int(self._labels[number]),
                position=tuple(self._positions[:, number].tolist()),
                area=int(self._areas[number]),
                n_runs_with=int(self._n_runs_with[number]),
                share=int(self._n_runs_with[number]) / self._n_runs,
                mean_iou=float(mean_iou[number]),
                runs=runs(*results_with[number]),
            )
            for number in order.tolist()
        )
        return objects, place


def _codes_of(pixels: Integers, groups: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Pixel and group in one number."""
    return (pixels.astype(np.uint64) << np.uint64(32)) | groups.astype(np.uint64)
