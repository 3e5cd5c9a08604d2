"""How far two segmentations of one image lie apart, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.divergence.evidence import Cause
from cellrepro.divergence.first_difference import Size
from cellrepro.divergence.segmented_again import IMAGE_STAGES, SegmentedAgain
from cellrepro.model.stages import MADE_BY
from cellrepro.words import that_differ
from samebits.words import amount, grouped

_OF_OLDER_LEDGERS = ("flows", "filtered")  # their only stages of an image
_WITH_CHANNELS_LAST = ("channels", "normalised")
_ARRAYS = {"tiles": "tile", "network": "tile"}  # one array each; at other stages each is a plane
_FLOWS = ("the flows", "the cell probability")


def with_sizes(cause: Cause, a: SegmentedAgain, b: SegmentedAgain) -> Cause:
    """Add how far apart the two are in each stage; older ledgers do not name the first."""
    sizes = dict(_sizes_by_stage(a, b))
    difference = cause.difference
    if difference.stage in _OF_OLDER_LEDGERS and sizes:
        difference = replace(difference, stage=next(iter(sizes)))
    if difference.stage in sizes:
        module, op = MADE_BY.get(difference.stage, (None, None))
        sized = difference.of_size(sizes[difference.stage])
        # Of this stage: no operation of the network that made it was named.
        difference = replace(sized, op=op, module=module, source=None, phase=None, inputs=None)
    stages_apart = tuple(f"{stage}: {size.sentence()}" for stage, size in sizes.items())
    evidence = replace(cause.evidence, stages_apart=stages_apart)
    return replace(cause, difference=difference, evidence=evidence)


def _sizes_by_stage(a: SegmentedAgain, b: SegmentedAgain) -> Iterator[tuple[str, Size]]:
    """How far apart two results are in every stage that differs, in order."""
    for stage in IMAGE_STAGES:
        if a.digests.get(stage) != b.digests.get(stage):
            size = _size_at(stage, a.arrays.get(stage, []), b.arrays.get(stage, []))
            are_known = bool(a.resized_to and b.resized_to)
            if stage == "resized" and size.max_abs is None and are_known:
                in_a, in_b = (_resized_in_words(side) for side in (a, b))
                size = Size(words=f"{in_a} in A, {in_b} in B")
            yield stage, size


def _size_at(stage: str, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Size:
    """How far apart the arrays of a stage are, and where or how."""
    shapes_a = [array.shape for array in a]
    shapes_b = [array.shape for array in b]
    if shapes_a != shapes_b or not a:
        in_a = _shapes_in_words(stage, shapes_a)
        in_b = _shapes_in_words(stage, shapes_b)
        return Size(words=f"{in_a} in A, {in_b} in B")
    if stage in ("masks", "filtered"):
        return _size_of_masks(a, b)
    largest = _largest_difference(a, b)
    y, x = largest.position[-3:-1] if stage in _WITH_CHANNELS_LAST else largest.position[-2:]
    of_array = f" of {_array_in_words(stage, largest.array, len(a))}" if len(a) > 1 else ""
    n_values = sum(array.size for array in a)
    return Size(
        max_abs=largest.max_abs,
        n_elements=largest.n_differing,
        words=(
            f"at y {y}, x {x}{of_array}, {grouped(largest.n_differing)} of {grouped(n_values)} "
            "values"
        ),
    )


def _size_of_masks(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Size:
    results = [compare_masks(masks_a, masks_b) for masks_a, masks_b in zip(a, b, strict=True)]
    n_pixels = sum(result.n_differing for result in results)
    n_cells = sum(result.n_unmatched for result in results)
    cells = amount(n_cells, "cell") if n_cells else "no cell"
    words = f"{that_differ(n_pixels, 'pixel')}, {cells} without a match"
    return Size(n_elements=n_pixels, words=words)


class _Largest(NamedTuple):
    """The largest difference of two lists of arrays."""

    max_abs: float
    array: int
    """Index of its array in the lists."""
    position: tuple[int, ...]
    """Index in that array."""
    n_differing: int
    """Values that differ, in all arrays."""


def _largest_difference(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> _Largest:
    differences = [
        _difference(array_a.astype(np.float64), array_b.astype(np.float64))
        for array_a, array_b in zip(a, b, strict=True)
    ]
    array = int(np.argmax([difference.max(initial=0) for difference in differences]))
    difference = differences[array]
    index = np.unravel_index(int(difference.argmax()), difference.shape)
    return _Largest(
        max_abs=float(difference[index]),
        array=array,
        position=tuple(int(coordinate) for coordinate in index),
        n_differing=sum(int(np.count_nonzero(each)) for each in differences),
    )


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distances of values; 0 between two NaNs, as between two infinities of one sign."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(a - b)
    distance[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
    return distance


def _array_in_words(stage: str, array: int, n_arrays: int) -> str:
    if stage == "flows":
        return _FLOWS[array]
    if stage not in _ARRAYS:
        return f"plane z {array} (of 0 to {n_arrays - 1})"
    return f"{_ARRAYS[stage]} {array + 1} of {n_arrays}"


def _resized_in_words(side: SegmentedAgain) -> str:
    """Give the size of the resized image, and that with the edge that tiles need."""
    resized = " × ".join(map(str, side.resized_to[0]))
    with_edge = " × ".join(map(str, side.arrays["resized"][0].shape[-2:]))
    return f"{resized} pixels (with the edge for tiles {with_edge})"


def _shapes_in_words(stage: str, shapes: Sequence[tuple[int, ...]]) -> str:
    if not shapes:
        return "nothing"
    size = " x ".join(map(str, shapes[0]))
    return f"{amount(len(shapes), _ARRAYS.get(stage, 'plane'))} of {size}"
