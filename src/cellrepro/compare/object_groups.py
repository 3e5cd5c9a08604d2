"""Which objects of many runs of one image are the same, and how many runs give each pixel to each.

Every object of the typical result starts a group. The objects of the other
results, nearest result first, join the group of the typical object that they match at IoU >= 0.5;
an IoU above 0.5 has no competitor, and of two exact halves the first in raster order joins. What
is left over joins, best IoU first, the groups started by the left-over objects of earlier
results, again at IoU >= 0.5 with the object that started the group; what fits none starts a new
one. So each object belongs to one group and a group holds at most one object of a run. Objects in
one group are *the same object*. Sameness is judged against the object that started the group, not
from one member to the next, so that a chain of small shifts cannot join two cells.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.compare.labels import canonical
from cellrepro.compare.matching import matches, overlap
from cellrepro.errors import BadInput
from cellrepro.images.label_image import label_image
from cellrepro.store.digests import tensor_digest

_SAME = 0.5
"""IoU from which two objects are the same."""

KEPT = 2**27
"""Pixels of label images that are held as they are; further ones are compressed."""

_PENDING = 2**22
"""Votes that are held one by one before they are added up."""

Source = ArrayLike | Callable[[], ArrayLike]
"""A label image, or a function without arguments that reads it."""


# -- which runs have equal results ------------------------------------------------------------


class Result:
    """One of the different results: who has it, and its label image in canonical numbers."""

    def __init__(self, run: int, given: NDArray[np.integer]):
        self.runs = [run]
        image = canonical(given)
        self.n_objects = int(image.max(initial=0))
        self._image: NDArray[Any] = image if self.n_objects >= 2**16 else image.astype(np.uint16)
        self._packed = b""
        self.shape, self._dtype = image.shape, self._image.dtype
        self.digest = tensor_digest(self._image)

    @property
    def weight(self) -> int:
        """How many runs have it."""
        return len(self.runs)

    def image(self) -> NDArray[np.unsignedinteger]:
        """Objects 1 to ``n_objects`` in raster order."""
        if not self._packed:
            return self._image
        return np.frombuffer(zlib.decompress(self._packed), self._dtype).reshape(self.shape)

    def pack(self) -> None:
        """Hold it compressed from here on."""
        self._packed = zlib.compress(self._image.tobytes(), 1)
        self._image = self._image[:0]


def _read(run: int, source: Source) -> NDArray[np.integer]:
    return label_image(f"run {run}", source() if callable(source) else source)


def different_results(masks: Sequence[Source], digests: Sequence[str] | None) -> list[Result]:
    """Results that differ in their objects, with the runs that have each."""
    if not len(masks):
        raise BadInput("no masks were given; agreement takes those of one or more runs")
    if digests is not None and len(digests) != len(masks):
        raise BadInput(
            f"{len(digests)} digests were given for the masks of {len(masks)} runs; give one for "
            "each, or none"
        )
    by_digest: dict[str, Result] = {}
    by_objects: dict[str, Result] = {}
    n_pixels = 0
    for run, source in enumerate(masks):
        # Bits first: digesting them is far quicker than renumbering.
        given = _read(run, source) if digests is None else None
        digest = digests[run] if digests is not None else tensor_digest(given)
        if digest in by_digest:
            by_digest[digest].runs.append(run)
            continue
        result = Result(run, _read(run, source) if given is None else given)
        first = by_digest[digest] = by_objects.setdefault(result.digest, result)
        if first is not result:
            first.runs.append(run)
            continue
        shape = next(iter(by_objects.values())).shape
        if result.shape != shape:
            raise BadInput(
                f"label images differ in shape: run 0 has {shape}, run {run} has {result.shape}; "
                "check that all belong to the same image, then transpose, crop or resize"
            )
        n_pixels += math.prod(shape)
        if n_pixels > KEPT:
            result.pack()
    return list(by_objects.values())


def counter(n_runs: int) -> type[np.unsignedinteger]:
    """The smallest type that counts so many runs."""
    return np.uint16 if n_runs < 2**16 else np.uint32


# -- which objects are the same ------------------------------------------------------------


@dataclass(frozen=True)
class Groups:
    """Objects that are the same. Groups count from 1; 0 is background."""

    of_object: list[NDArray[np.int64]]
    """For each result the group of every object, element 0 being background."""
    n_runs_with: NDArray[np.int64]
    """Per group; element 0 means nothing."""


def vote(results: list[Result], n_runs: int) -> tuple[Groups, Votes]:
    """Group the objects of results, the most typical first, and count the votes of their runs."""
    typical = results[0].image()
    starters = _Starters(results[0].n_objects)
    votes = Votes(typical.size, n_runs)
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
    n_runs_with = np.zeros(starters.n_groups + 1, np.int64)
    for result, group in zip(results, of_object, strict=True):
        n_runs_with[group[1:]] += result.weight
    return Groups(of_object, n_runs_with), votes


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


# -- how many runs give a pixel to a group -------------------------------------------------


class Votes:
    """Votes per pixel and group: dense for the first group seen at a pixel, sparse for others.

    Runs agree at most pixels, so nearly all votes are in the dense part.
    """

    def __init__(self, n_pixels: int, n_runs: int):
        self._group = np.zeros(n_pixels, np.uint32)  # 0 where no run has an object
        self._n = np.zeros(n_pixels, counter(n_runs))
        self._codes = np.zeros(0, np.uint64)  # pixel and group of the sparse part
        self._n_sparse = np.zeros(0, np.int64)
        self._pending: list[tuple[NDArray[np.uint64], int]] = []

    def add(self, flat: NDArray[np.unsignedinteger], weight: int) -> None:
        """Count the votes of the runs with one result, given the group of every pixel."""
        same = flat == self._group
        other = np.flatnonzero(~same)
        same &= flat > 0
        self._n += same * self._n.dtype.type(weight)
        other = other[flat[other] > 0]
        fresh = self._group[other] == 0
        self._group[other[fresh]] = flat[other[fresh]]
        self._n[other[fresh]] = weight
        other = other[~fresh]
        self._pending.append((codes_of(other, flat[other]), weight))
        if sum(len(codes) for codes, _ in self._pending) > _PENDING:
            self._add_up()

    def _add_up(self) -> None:
        codes = [self._codes, *(codes for codes, _ in self._pending)]
        n = [self._n_sparse, *(np.full(len(codes), n) for codes, n in self._pending)]
        self._codes, position = np.unique(np.concatenate(codes), return_inverse=True)
        sums = np.bincount(position, np.concatenate(n), len(self._codes))
        self._n_sparse = sums.astype(np.int64)
        self._pending = []

    def counted(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Every pixel and group that go together, and their votes."""
        self._add_up()
        dense = np.flatnonzero(self._group)
        pixels = (self._codes >> np.uint64(32)).astype(np.int64)
        groups = (self._codes & np.uint64(2**32 - 1)).astype(np.int64)
        return (
            np.concatenate([dense, pixels]),
            np.concatenate([self._group[dense].astype(np.int64), groups]),
            np.concatenate([self._n[dense].astype(np.int64), self._n_sparse]),
        )


def codes_of(pixels: NDArray[np.int64], groups: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Pixel and group in one number."""
    return (pixels.astype(np.uint64) << np.uint64(32)) | groups.astype(np.uint64)
