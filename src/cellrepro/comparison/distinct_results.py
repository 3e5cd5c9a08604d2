"""The different results among many runs, and which of them is the most typical one.

The *typical result* is the one with which the fewest runs disagree, summed over all pixels (is it
cell?) and all pairs of neighbours (do both belong to one object?). Two touching cells and one
merged cell answer the second question differently.

The typical result is a medoid: the member of a set with the smallest sum of distances to all
others (Kaufman and Rousseeuw 1987, "Clustering by means of medoids"). The distance of two results
counts the statements on which they differ, as the Rand index does for pairs of points (Rand 1971).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.comparison.label_numbers import canonical
from cellrepro.images.label_image import label_image
from samebits.digests import array_digest
from samebits.errors import BadInput
from samebits.words import amount, with_verb

Source = ArrayLike | Callable[[], ArrayLike]
"""A label image, or a function without arguments that reads it."""


@dataclass(frozen=True, eq=False)
class DistinctResult:
    """Objects that one or more runs have, and that differ from those of every other run."""

    image: NDArray[np.unsignedinteger]
    """Label image; objects count from 1 in raster order, 0 is background."""
    n_objects: int
    """Objects in ``image``."""
    digest: str
    """SHA-256 of ``image``, see `samebits.digests.array_digest`."""
    runs: tuple[int, ...]
    """The runs that have these objects, as positions in what was given, ascending."""


@dataclass(frozen=True, eq=False)
class StatementVotes:
    """How many runs say yes to each statement about the pixels of one image."""

    is_cell: NDArray[np.unsignedinteger]
    """Runs for which the pixel belongs to an object."""
    joined: tuple[NDArray[np.unsignedinteger], ...]
    """One array per axis, one element shorter along that axis, which is moved to the front: runs
    for which a pixel and the next along the axis belong to one object."""


def distinct_results(
    masks: Sequence[Source], digests: Sequence[str] | None = None
) -> list[DistinctResult]:
    """Get the results that differ in their objects, in the order of their first runs."""
    if not len(masks):
        raise BadInput("no masks were given; agreement takes those of one or more runs")
    if digests is not None and len(digests) != len(masks):
        raise BadInput(
            f"{with_verb(len(digests), 'digest', 'was', 'were')} given for the masks of "
            f"{amount(len(masks), 'run')}; give one for each, or none"
        )
    images: dict[str, NDArray[np.unsignedinteger]] = {}  # by the digest of the image
    runs: dict[str, list[int]] = {}  # by the digest of the image
    image_digests: dict[str, str] = {}  # by a digest that was given, or that of the masks as read
    for run, source in enumerate(masks):
        digest = "" if digests is None else digests[run]
        if digest not in image_digests:
            labels = label_image(f"run {run}", source() if callable(source) else source)
            _check_shape(labels, run, images)
            digest = digest or array_digest(labels)
            if digest not in image_digests:  # digesting bits is far quicker than renumbering
                image = _smallest(canonical(labels))
                image_digests[digest] = array_digest(image)
                images.setdefault(image_digests[digest], image)
        runs.setdefault(image_digests[digest], []).append(run)
    return [
        DistinctResult(
            image=image,
            n_objects=int(image.max(initial=0)),
            digest=digest,
            runs=tuple(runs[digest]),
        )
        for digest, image in images.items()
    ]


def _check_shape(
    labels: NDArray[np.integer], run: int, images: dict[str, NDArray[np.unsignedinteger]]
) -> None:
    """Refuse masks whose shape is not that of the masks before."""
    for image in images.values():
        if labels.shape != image.shape:
            raise BadInput(
                f"label images differ in shape: run 0 has {image.shape}, run {run} has "
                f"{labels.shape}; check that all belong to the same image, then transpose, crop or "
                "resize"
            )
        return


def _smallest(image: NDArray[np.uint32]) -> NDArray[np.unsignedinteger]:
    """Store labels in two bytes where they fit."""
    return image if image.max(initial=0) >= 2**16 else image.astype(np.uint16)


def statement_votes(results: Sequence[DistinctResult]) -> StatementVotes:
    """Count the runs that say yes to each statement."""
    dtype = np.min_scalar_type(_n_runs(results))
    is_cell, *joined = (
        np.zeros(statement.shape, dtype) for statement in _statements(results[0].image)
    )
    for result in results:
        for n_yes, statement in zip([is_cell, *joined], _statements(result.image), strict=True):
            n_yes += statement * dtype.type(len(result.runs))
    return StatementVotes(is_cell=is_cell, joined=tuple(joined))


def most_typical_first(
    results: Sequence[DistinctResult], votes: StatementVotes
) -> list[DistinctResult]:
    """Sort results by the number of statements on which all runs disagree with them.

    Of results that are equally typical the one that more runs have comes first, then the one
    with the lower digest, so that the order of the runs does not matter.
    """
    if len(results) == 1:
        return list(results)
    n_runs = _n_runs(results)

    def key(result: DistinctResult) -> tuple[int, int, str]:
        return _n_disagreements(result, votes, n_runs), -len(result.runs), result.digest

    return sorted(results, key=key)


def _n_disagreements(result: DistinctResult, votes: StatementVotes, n_runs: int) -> int:
    """Count on how many statements the runs disagree with a result, but for a constant.

    Where V of N runs say yes, saying yes contradicts N - V runs and saying no V. What "no" costs
    everywhere is the same for all results, so only N - 2 V is left at each yes.
    """
    total = 0
    for n_yes, statement in zip(
        [votes.is_cell, *votes.joined], _statements(result.image), strict=True
    ):
        n_statements = int(np.count_nonzero(statement))
        total += n_runs * n_statements - 2 * int(np.sum(n_yes * statement, dtype=np.int64))
    return total


def _statements(image: NDArray[np.unsignedinteger]) -> Iterator[NDArray[np.bool_]]:
    """Yield what is true in one result: pixels that are cell, then, per axis, joined neighbours."""
    is_cell = image > 0
    yield is_cell
    for axis in range(image.ndim):
        labels_along = np.moveaxis(image, axis, 0)
        is_cell_along = np.moveaxis(is_cell, axis, 0)
        yield (labels_along[:-1] == labels_along[1:]) & is_cell_along[:-1]


def _n_runs(results: Sequence[DistinctResult]) -> int:
    return sum(len(result.runs) for result in results)
