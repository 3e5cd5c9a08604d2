"""Votes of many runs for pixels, and the outlines of cells that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.distinct_results import DistinctResult
from cellrepro.comparison.label_numbers import renumbered
from cellrepro.comparison.object_groups import ObjectGroups
from cellrepro.comparison.object_matching import Integers


@dataclass(frozen=True, eq=False)
class PixelVotes:
    """Every pixel with every group that a run gives it to; P pairs, each once."""

    pixels: Integers
    """Position in the flat image."""
    groups: Integers
    """Number of the group, from 1."""
    n_runs: Integers
    """Runs that give the pixel to the group."""

    def where(self, selected: NDArray[np.bool_]) -> PixelVotes:
        """Give the selected pairs alone; ``selected`` has shape (P,)."""
        return PixelVotes(self.pixels[selected], self.groups[selected], self.n_runs[selected])


@dataclass(frozen=True, eq=False)
class Outlines:
    """Outlines of G groups, and the label image of those in the consensus.

    A group of the consensus is outlined as it is there, without pixels that others won.
    """

    consensus: NDArray[np.uint32]
    """Label image, numbered from 1 in raster order; 0 is background."""
    winners: NDArray[np.uint32]
    """The same objects under the numbers of their groups, flat."""
    labels: Integers
    """Label of the group in the consensus; 0 if it is not there."""
    areas: Integers
    """Pixels of the outline."""
    positions: NDArray[np.float64]
    """Centroid of the outline in pixels, (y, x) or (z, y, x)."""
    pixels_elsewhere: NDArray[np.uint64]
    """Codes of pixel and group for the outlines that are not in the consensus, ascending."""


def count_votes(results: Sequence[DistinctResult], groups: ObjectGroups) -> PixelVotes:
    """Count for every pixel the runs that give it to each group.

    Most pairs are of the typical result: these come first, counted in an array; only the others
    are listed one by one.
    """
    typical = results[0].image.ravel()
    n_runs = sum(len(result.runs) for result in results)
    n_typical = np.zeros(typical.size, np.min_scalar_type(n_runs))
    other_codes = []
    other_weights = []
    for result, group_of in zip(results, groups.by_result, strict=True):
        group = group_of.astype(np.uint32)[result.image.ravel()]
        is_typical = group == typical
        n_typical += is_typical * n_typical.dtype.type(len(result.runs))
        others = np.flatnonzero(~is_typical & (group > 0))
        other_codes.append(_codes(others, group[others]))
        other_weights.append(np.full(len(others), len(result.runs)))
    codes, position = np.unique(np.concatenate(other_codes), return_inverse=True)
    n_other = np.bincount(position, np.concatenate(other_weights), len(codes)).astype(np.int64)
    other_pixels, other_groups = np.divmod(codes.astype(np.int64), 2**32)
    cells = np.flatnonzero(typical)
    return PixelVotes(
        pixels=np.concatenate([cells, other_pixels]),
        groups=np.concatenate([typical[cells].astype(np.int64), other_groups]),
        n_runs=np.concatenate([n_typical[cells].astype(np.int64), n_other]),
    )


def most_votes(votes: PixelVotes, shape: tuple[int, ...]) -> Integers:
    """Give, per pixel of an image of this shape, the votes of the group that has most of them."""
    most = np.zeros(shape, np.int64)
    np.maximum.at(most.reshape(-1), votes.pixels, votes.n_runs)
    return most


def outline(
    votes: PixelVotes, groups: ObjectGroups, *, n_runs: int, shape: tuple[int, ...]
) -> Outlines:
    """Outline every group, and award the pixels of those that at least half of all runs have."""
    votes = votes.where(2 * votes.n_runs >= groups.n_runs_with[votes.groups])
    winners = _winners(votes, groups, n_runs=n_runs, n_pixels=int(np.prod(shape)))
    consensus = renumbered(winners.reshape(shape))[0].astype(np.uint32)
    labels = np.zeros(groups.size, np.int64)
    labels[winners] = consensus.ravel()
    labels[0] = 0
    is_absent = labels[votes.groups] == 0
    absent = votes.where(is_absent)
    votes = votes.where(is_absent | (winners[votes.pixels] == votes.groups))
    areas = np.bincount(votes.groups, minlength=groups.size)
    coordinates = np.unravel_index(votes.pixels, shape)
    sums = np.array([np.bincount(votes.groups, axis, groups.size) for axis in coordinates])
    return Outlines(
        consensus=consensus,
        winners=winners,
        labels=labels,
        areas=areas,
        positions=sums / np.maximum(1, areas),
        pixels_elsewhere=np.sort(_codes(absent.pixels, absent.groups)),
    )


def _winners(
    votes: PixelVotes, groups: ObjectGroups, *, n_runs: int, n_pixels: int
) -> NDArray[np.uint32]:
    """Give the group of each pixel of the consensus, or 0, by the votes inside all outlines."""
    areas = np.bincount(votes.groups, minlength=groups.size)
    first_pixels = np.full(groups.size, n_pixels)
    np.minimum.at(first_pixels, votes.groups, votes.pixels)
    rank = np.argsort(np.lexsort((first_pixels, areas, groups.n_runs_with)))
    # Most votes win, then the best rank: both in one number.
    bids = votes.n_runs * groups.size + (groups.size - rank[votes.groups])
    takes_part = 2 * groups.n_runs_with >= n_runs
    while True:
        is_taking_part = takes_part[votes.groups]
        votes = votes.where(is_taking_part)
        bids = bids[is_taking_part]
        best_bids = np.zeros(n_pixels, np.int64)
        np.maximum.at(best_bids, votes.pixels, bids)
        has_won = bids == best_bids[votes.pixels]
        winners = np.zeros(n_pixels, np.uint32)
        winners[votes.pixels[has_won]] = votes.groups[has_won]
        areas_won = np.bincount(winners, minlength=groups.size)
        has_lost_most = takes_part & (2 * areas_won < areas)
        if not has_lost_most.any():
            return winners
        takes_part &= ~has_lost_most


def mean_iou(
    results: Sequence[DistinctResult], groups: ObjectGroups, outlines: Outlines
) -> NDArray[np.float64]:
    """Compare the runs' objects with the outline of their group."""
    is_absent = outlines.labels == 0
    is_absent[0] = False
    sums = np.zeros(groups.size)
    for result, group_of in zip(results, groups.by_result, strict=True):
        labels = result.image.ravel()
        areas = np.bincount(labels, minlength=len(group_of))[1:]
        is_inside = (group_of.astype(np.uint32)[labels] == outlines.winners) & (labels > 0)
        if is_absent[group_of].any():
            pixels = np.flatnonzero(is_absent[group_of][labels])
            codes = _codes(pixels, group_of[labels[pixels]])
            is_inside[pixels] = np.isin(codes, outlines.pixels_elsewhere)
        intersections = np.bincount(labels[is_inside], minlength=len(group_of))[1:]
        unions = areas + outlines.areas[group_of[1:]] - intersections
        sums[group_of[1:]] += len(result.runs) * intersections / unions
    return sums / np.maximum(1, groups.n_runs_with)


def _codes(pixels: Integers, groups: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Pixel and group in one number, the pixel in the upper 32 bits."""
    return (pixels.astype(np.uint64) << np.uint64(32)) | groups.astype(np.uint64)
