"""A view with its arrays: read once and checked, then compared on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.category_map import category_map
from cellrepro.comparison.changed_cells import rank
from cellrepro.comparison.consensus import Agreement, agree
from cellrepro.comparison.label_numbers import NumberedByPlane, numbered_by_plane, numbering
from cellrepro.comparison.label_pair import ReadPair, read_pair
from cellrepro.comparison.object_changes import ObjectChange, ObjectKind, object_changes
from cellrepro.comparison.object_matching import matches
from cellrepro.show.explorer.planes import NarrowImage, PackedPlane, packed_array, packed_json
from cellrepro.show.explorer.view import TRUTH, View, checked_image, checked_labels, read_source
from cellrepro.show.figures.colours import CATEGORIES
from cellrepro.show.figures.stack_planes import telling_plane
from samebits.digests import array_digest
from samebits.errors import BadInput

T = TypeVar("T")
_MOST_RESULTS = 64  # size of the cache: label images, maps and lists of changes of one image


@dataclass(frozen=True)
class Counts:
    """How two sides of a view differ, over all planes of a stack."""

    pixels: Mapping[str, int]
    """By the names in `CATEGORIES`."""
    changes: Mapping[ObjectKind, int]
    n_unmatched: int
    """Cells of either side without a match."""


class OpenView:
    """A view with its arrays: each is read once and checked, then compared on request.

    A *side* is what can be A or B: a run by its number, or the truth by the number after them.
    """

    def __init__(self, view: View, names: Sequence[str]):
        self.view = view
        self._names = names
        self._results: dict[str, object] = {}
        masks = self._read_masks(view.runs_with_masks[0])
        pixels = read_source(view.image)
        image = np.zeros(masks.shape, np.uint8) if pixels is None else pixels
        self.shape = image.shape[: masks.ndim]  # a further axis has the channels
        self.image = NarrowImage.of(checked_image(image, self.shape))
        truth = read_source(view.truth)
        self.truth = None if truth is None else checked_labels(TRUTH, truth, self.shape)
        self.sides = view.runs_with_masks
        if self.truth is not None:
            self.sides.append(len(view.masks))

    def put(self, side: int, masks: np.ndarray) -> None:
        """Replace the masks of a run; all that was computed of any side is dropped."""
        given = list(self.view.masks)
        given[side] = masks
        self.view = replace(self.view, masks=given)
        self._results.clear()

    @property
    def n_runs(self) -> int:
        """How many runs have masks of the image, or repeats that these stand for."""
        return len(self._voters)

    @cached_property
    def _voters(self) -> list[int]:
        """Each run with masks of the image, as often as it has repeats."""
        n_repeats = self.view.n_repeats
        if n_repeats is None:
            return self.view.runs_with_masks
        return [run for run in self.view.runs_with_masks for _ in range(n_repeats[run])]

    @property
    def n_planes(self) -> int:
        """Planes of a stack; 1 for a flat image."""
        return self.shape[0] if len(self.shape) == 3 else 1

    def first_plane(self, a: int, b: int) -> int:
        """Choose the plane that is shown first: that on which two sides differ most."""
        return telling_plane(self.categories(a, b)) if self.n_planes > 1 else 0

    def is_truth(self, side: int) -> bool:
        """Whether a side is the truth and no run."""
        return side == len(self.view.masks)

    def _once(self, key: str, make: Callable[[], T]) -> T:
        """Get a result from the cache, or make it; the least recently used one is dropped."""
        result = cast("T", self._results.pop(key)) if key in self._results else make()
        self._results[key] = result  # the last one used is the last of the dictionary
        while len(self._results) > _MOST_RESULTS:
            self._results.pop(next(iter(self._results)))
        return result

    def labels(self, side: int) -> np.ndarray:
        """Get the label image of a side, checked."""
        return self._once(f"labels {side}", lambda: self._numbered(side))

    def _numbered(self, side: int) -> np.ndarray:
        return self.by_plane(side).image if self.is_by_plane else self._given_labels(side)

    def by_plane(self, side: int) -> NumberedByPlane:
        """Number the cells of each plane of a side by themselves."""
        return numbered_by_plane(self._given_labels(side))

    @cached_property
    def is_by_plane(self) -> bool:
        """Whether planes are compared one by one, since on one side numbers begin anew in each."""
        return self.n_planes > 1 and any(
            numbering(self._given_labels(side)) == "anew" for side in self.sides
        )

    def _given_labels(self, side: int) -> np.ndarray:
        if self.is_truth(side) and self.truth is not None:
            return self.truth
        return checked_labels(f"masks of {self._names[side]}", self._read_masks(side), self.shape)

    def _read_masks(self, run: int) -> np.ndarray:
        masks = read_source(self.view.masks[run])
        if masks is None:
            raise BadInput(f"{self._names[run]} has no masks of {self.view.name}")
        return masks

    def digest(self, side: int) -> str:
        """Get a digest that is equal where masks are equal."""
        if self.is_truth(side):
            return TRUTH
        recorded = self.view.digests[side] if self.view.digests else None
        if recorded:
            return recorded
        return self._once(
            f"digest {side}", lambda: array_digest(self.labels(side).astype(np.uint32))
        )

    def _pair(self, a: int, b: int) -> ReadPair:
        return self._once(f"pair {a} {b}", lambda: read_pair(self.labels(a), self.labels(b)))

    def categories(self, a: int, b: int) -> NDArray[np.uint8]:
        """Get the map of categories of two sides, of `shape`; values are places in `CATEGORIES`."""
        return self._once(f"categories {a} {b}", lambda: category_map(self._pair(a, b)))

    def differs_by_plane(self, a: int, b: int) -> list[int]:
        """Count the pixels that differ between two sides in each plane."""
        planes = self.categories(a, b).reshape(self.n_planes, -1)
        return self._once(
            f"differs {a} {b}", lambda: [int(np.count_nonzero(plane >= 2)) for plane in planes]
        )

    def changes(self, a: int, b: int) -> tuple[ObjectChange, ...]:
        """Get what became of every object between two sides, those that tell most first."""
        return self._once(
            f"changes {a} {b}",
            lambda: tuple(sorted(object_changes(self._pair(a, b).table), key=rank)),
        )

    def counts(self, a: int, b: int) -> Counts:
        """Count pixels by category and changes by kind, between two sides."""
        return self._once(f"counts {a} {b}", lambda: self._counted(a, b))

    def _counted(self, a: int, b: int) -> Counts:
        categories = self.categories(a, b).ravel()
        n_pixels = np.bincount(categories, minlength=len(CATEGORIES)).tolist()
        table = self._pair(a, b).table
        return Counts(
            pixels=dict(zip(CATEGORIES, n_pixels, strict=True)),
            changes=Counter(change.kind for change in self.changes(a, b)),
            n_unmatched=table.n_a + table.n_b - 2 * len(matches(table, 0.5)),
        )

    @cached_property
    def agreement(self) -> Agreement:
        """The agreement of all runs that have masks."""
        masks = [partial(self.labels, run) for run in self._voters]
        return agree(masks, digests=[self.digest(run) for run in self._voters])

    def has_vote(self, run: int) -> bool:
        """Whether a run is in the agreement."""
        return run in self._voters

    def first_vote(self, run: int) -> int:
        """The place of a run in the agreement."""
        return self._voters.index(run)

    def votes(self, vote: str) -> NDArray[np.int64]:
        """Count for each pixel the runs that agree on it."""
        agreement = self.agreement
        share = agreement.cell_share if vote == "cells" else agreement.same_object_share
        return np.rint(share * agreement.n_runs).astype(np.int64)

    def flat(self, array: np.ndarray, z: int) -> np.ndarray:
        """Get one plane of an array in the shape of the image; of a flat image all of it."""
        return array[z] if len(self.shape) == 3 else array

    def packed(self, content: str, a: int, b: int, z: int) -> PackedPlane:
        """Pack what the browser asks for, by the contents of `Scene.planes`."""
        match content:
            case "story":
                return packed_json(story_of(self, a, b))
            case "image":
                return self.image.packed(self.flat(self.image.stored, z))
            case "truth":
                return packed_array(self.flat(self.labels(len(self.view.masks)), z))
            case "a":
                return packed_array(self.flat(self.labels(a), z))
            case "b":
                return packed_array(self.flat(self.labels(b), z))
            case "categories":
                return packed_array(self.flat(self.categories(a, b), z))
            case _:
                plane = packed_array(self.flat(self.votes(content), z))
                plane["n_runs"] = self.n_runs
                return plane


def story_of(view: OpenView, a: int, b: int) -> dict[str, object]:
    """Get what became of every object between two sides.

    Columns are the fields of `ObjectChange`; ``growth`` is None but of kept ones of another size,
    ``moved`` is the displacement in pixels, None where
    one side lacks the object. With three runs or more there are also ``n_runs``, how many there
    are, ``of_what``, what they are called, and ``runs``, how many of them have each object (None
    where only the truth does). Where numbers begin anew in each plane, ``given`` has the number in
    the file by side and label.
    """
    changes = view.changes(a, b)
    story: dict[str, object] = {
        "kind": [change.kind for change in changes],
        "labels_a": [change.labels_a for change in changes],
        "labels_b": [change.labels_b for change in changes],
        "area_a": [change.area_a for change in changes],
        "area_b": [change.area_b for change in changes],
        "iou": [change.iou for change in changes],
        "growth": [change.growth if change.is_resized else None for change in changes],
        "position": [change.position for change in changes],
        "cut_between": [change.cut_between for change in changes],
        "inside": [change.inside for change in changes],
        "moved": [
            None if np.isnan(change.displacement) else change.displacement for change in changes
        ],
    }
    if view.is_by_plane:
        story["given"] = _given_numbers(view, a, b)
    if view.n_runs > 2:
        story["n_runs"] = view.n_runs
        story["of_what"] = "runs" if view.view.n_repeats is None else "repeats"
        story["runs"] = _n_runs_with_each(view, a, b)
    return story


def _given_numbers(view: OpenView, a: int, b: int) -> dict[str, object]:
    """The numbers in the files by side and label, of stacks that begin anew in each plane."""
    sides = {"a": a, "b": b}
    if view.truth is not None:
        sides["truth"] = len(view.view.masks)
    return {name: view.by_plane(side).given.tolist() for name, side in sides.items()}


def _n_runs_with_each(view: OpenView, a: int, b: int) -> list[int | None]:
    """Count the runs that have each object of the story; of several objects the fewest."""
    counts_a = _n_runs_with_labels(view, a)
    counts_b = _n_runs_with_labels(view, b)
    n_runs: list[int | None] = []
    for change in view.changes(a, b):
        of_a = [counts_a[label] for label in change.labels_a if counts_a]
        of_b = [counts_b[label] for label in change.labels_b if counts_b]
        n_runs.append(min(of_a or of_b, default=None))
    return n_runs


def _n_runs_with_labels(view: OpenView, side: int) -> dict[int, int]:
    """Count the runs that have each object of a run, by its label.

    Empty for the truth, and for a run of so poor a score that it has no vote.
    """
    from pandas import unique

    if view.is_truth(side) or not view.has_vote(side):
        return {}
    objects = view.agreement.objects_of(view.first_vote(side))
    labels = unique(view.labels(side).ravel())  # in raster order, as the agreement has them
    return {
        label: stability.n_runs_with
        for label, stability in zip(labels[labels > 0].tolist(), objects, strict=True)
    }
