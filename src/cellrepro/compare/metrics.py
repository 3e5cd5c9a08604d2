"""Label images side by side: the same objects or not, how many pixels differ, and where.

A label image is an integer array of shape (Y, X) or (Z, Y, X); 0 is background and every other
number, up to 2**32 - 1 and with gaps allowed, is one object. ``a`` and ``b`` stand where neither
side is the truth; where one is, it is ``a``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.compare.boundaries import TOLERANCE, match_boundaries
from cellrepro.compare.labels import LARGEST_LABEL, label_image, label_images
from cellrepro.compare.matching import Overlap, matches, overlap, partners, runs
from cellrepro.compare.object_changes import ObjectChange, ObjectKind, object_changes
from cellrepro.compare.verdicts import Verdict
from cellrepro.errors import BadInput

__all__ = [
    "LARGEST_LABEL",
    "THRESHOLDS",
    "Category",
    "MaskComparison",
    "average_precision",
    "canonical",
    "categories",
    "compare_masks",
    "same_objects",
]

# Written out: arange(0.5, 1, 0.05) holds 0.6000000000000001, which an IoU of 3/5 fails.
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


class Category(IntEnum):
    """What a pixel is in two label images; the values of a ``categories`` map."""

    BACKGROUND = 0
    """Background in both."""
    AGREE = 1
    """The same object in both."""
    ONLY_A = 2
    """An object in a, background in b."""
    ONLY_B = 3
    """Background in a, an object in b."""
    OTHER_OBJECT = 4
    """An object in both, but the two are not partners."""


@dataclass(frozen=True, eq=False)
class MaskComparison:
    """How two label images of equal shape differ.

    Two objects are *partners* if the one-to-one assignment with the largest total overlap pairs
    them; pixels are counted by it. Two objects *match* if their intersection over union (IoU) is
    at least a threshold; scores are counted by that, and where no threshold is named it is 0.5. An
    IoU above 0.5 implies partners. ``objects`` says in words what became of each.

    Attributes
    ----------
    verdict : Verdict
        ``identical`` (same values; see ``same_dtype``), ``same-objects``, ``different``, or
        ``vacuous`` when neither image holds an object. Never ``within-spread``, which takes more
        than two images to know.
    shape : tuple of int
        (Y, X) or (Z, Y, X), pixels.
    dtype_a, dtype_b : str
        As given.
    same_dtype : bool
        Whether they are equal; the verdict ignores the dtype.
    n_pixels : int
        The sum of the five counts that follow.
    n_background, n_agree, n_only_a, n_only_b, n_other_object : int
        Pixels per `Category`.
    n_differing : int
        Pixels only in a, only in b or of another object; 0 exactly if the objects are the same.
    ppm : float
        Differing pixels per million; NaN if there are no pixels.
    n_objects_a, n_objects_b : int
        Objects.
    objects : tuple of ObjectChange
        What became of every object, each in exactly one; see `cellrepro.compare.object_changes`.
    thresholds : tuple of float
        IoU thresholds of the four arrays that follow.
    ap, precision, recall, f1 : ndarray of float64, shape (T,)
        With TP matches: TP over all objects of either (`average_precision`), over the objects of
        b, over the objects of a, and 2 TP over the sum of both. NaN where there are none of these.
    n_matched : int
        Objects of a with a match in b, one to one.
    ap50, precision50, recall50 : float
        At IoU 0.5.
    mean_matched_iou : float
        Mean IoU of the matches; NaN if there are none.
    dice : float
        Twice the pixels that are cell in both over the sum of the pixels that are cell in each
        (Dice 1945); NaN if there are none.
    aji : float
        Aggregated Jaccard index with a as the truth (Kumar et al., IEEE TMI 2017): for each object
        of a the object of b with the largest IoU; their intersections over their unions and all
        that is left over. NaN if there are no objects. Not the measure that
        ``cellpose.metrics.aggregated_jaccard_index`` (4.2.1.1) returns under that name.
    pq, sq, dq : float
        Panoptic quality (Kirillov et al., CVPR 2019) = segmentation quality (mean IoU of the
        matches with an IoU above 0.5; NaN if there are none) times detection quality (their F1).
        ``pq`` and ``dq`` are NaN if there are no objects.
    boundary_f1, boundary_precision, boundary_recall : float
        See `cellrepro.compare.boundaries.match_boundaries`.
    tolerance : float
        Of the boundaries, pixels.
    vi, vi_split, vi_merge : float
        Variation of information in bits (Meilă 2003), background counting as one more object:
        ``vi_split`` = H(b | a) grows where b cuts objects of a, ``vi_merge`` = H(a | b) where it
        joins them, and ``vi`` is their sum. NaN if there are no pixels.
    rand_error, rand_precision, rand_recall : float
        Adapted Rand error (SNEMI3D) with a as the truth, over the pixels where a has an object.
        Precision is the share of the pairs of pixels joined in b that are joined in a as well,
        recall the reverse; ``skimage.metrics.adapted_rand_error`` (0.26) returns the two the other
        way round. NaN where there is no pair of pixels.
    mean_area_a, mean_area_b : float
        Pixels per object; NaN if there are none.
    mean_area_difference : float
        ``mean_area_b - mean_area_a``, pixels.
    mean_matched_area_difference : float
        Mean over the matches of area in b minus area in a, pixels; NaN if there are none.
    """

    verdict: Verdict
    shape: tuple[int, ...]
    dtype_a: str
    dtype_b: str
    same_dtype: bool
    n_pixels: int
    n_background: int
    n_agree: int
    n_only_a: int
    n_only_b: int
    n_other_object: int
    n_differing: int
    ppm: float
    n_objects_a: int
    n_objects_b: int
    objects: tuple[ObjectChange, ...]
    thresholds: tuple[float, ...]
    ap: NDArray[np.float64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    n_matched: int
    ap50: float
    precision50: float
    recall50: float
    mean_matched_iou: float
    dice: float
    aji: float
    pq: float
    sq: float
    dq: float
    boundary_f1: float
    boundary_precision: float
    boundary_recall: float
    tolerance: float
    vi: float
    vi_split: float
    vi_merge: float
    rand_error: float
    rand_precision: float
    rand_recall: float
    mean_area_a: float
    mean_area_b: float
    mean_area_difference: float
    mean_matched_area_difference: float

    @property
    def n_unmatched(self) -> int:
        """Objects of either side without a match."""
        return self.n_objects_a + self.n_objects_b - 2 * self.n_matched

    @property
    def changed(self) -> float:
        """Share of the objects of both sides that have no match, 1 - F1; NaN if there are none."""
        return _ratio(self.n_unmatched, self.n_objects_a + self.n_objects_b)

    @cached_property
    def _n_of_kind(self) -> Counter[ObjectKind]:
        return Counter(change.kind for change in self.objects)

    @property
    def n_kept(self) -> int:
        """Objects that are where they were."""
        return self._n_of_kind[ObjectKind.KEPT]

    @property
    def n_moved(self) -> int:
        """Objects whose counterpart lies elsewhere."""
        return self._n_of_kind[ObjectKind.MOVED]

    @property
    def n_lost(self) -> int:
        """Objects that only a has."""
        return self._n_of_kind[ObjectKind.LOST]

    @property
    def n_gained(self) -> int:
        """Objects that only b has."""
        return self._n_of_kind[ObjectKind.GAINED]

    @property
    def n_split(self) -> int:
        """Objects of a that are several in b."""
        return self._n_of_kind[ObjectKind.SPLIT]

    @property
    def n_merged(self) -> int:
        """Objects of b that are several in a."""
        return self._n_of_kind[ObjectKind.MERGED]

    @property
    def n_renumbered(self) -> int:
        """Kept and moved objects whose number differs."""
        return sum(change.renumbered for change in self.objects)

    @property
    def lost(self) -> tuple[int, ...]:
        """Labels of the objects that only a has."""
        return tuple(c.labels_a[0] for c in self.objects if c.kind == ObjectKind.LOST)

    @property
    def gained(self) -> tuple[int, ...]:
        """Labels of the objects that only b has."""
        return tuple(c.labels_b[0] for c in self.objects if c.kind == ObjectKind.GAINED)


def canonical(masks: ArrayLike) -> NDArray[np.uint32]:
    """Get the label image numbered 1 to N in raster order of first appearance.

    Equal outlines give equal arrays, and therefore equal bytes and digests, whatever their
    numbers and dtype were.

    Parameters
    ----------
    masks : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object.

    Returns
    -------
    ndarray of uint32, same shape
        0 is background. Always uint32: it holds as many objects as there can be labels.

    Raises
    ------
    BadInput
        If this is no label image: not of integers, negative labels, too large ones, not 2-D or 3-D.

    Examples
    --------
    >>> canonical([[0, 9], [7, 9]]).tolist()
    [[0, 1], [2, 1]]
    """
    image = label_image("masks", masks)
    labels, first = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for block in runs(image, image):
        found, at = np.unique(block.labels_a.astype(np.int64), return_index=True)
        new = ~np.isin(found, labels, assume_unique=True) & (found > 0)
        labels = np.concatenate([labels, found[new]])
        first = np.concatenate([first, block.starts[at[new]]])
    by_label = np.argsort(labels)
    number = np.empty(len(labels) + 1, np.uint32)
    number[0] = 0
    number[1:][np.argsort(first[by_label])] = np.arange(1, len(labels) + 1)
    known = np.concatenate([np.zeros(1, np.int64), labels[by_label]])
    return _painted(
        image, image, np.uint32, lambda a, _: number[np.searchsorted(known, a.astype(np.int64))]
    )


def same_objects(a: ArrayLike, b: ArrayLike) -> bool:
    """Whether two label images outline the same objects, whatever their numbers.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, which must match; every other label is one object.

    Returns
    -------
    bool
        True for two images without objects as well; `compare_masks` calls these vacuous.

    Raises
    ------
    BadInput
        If the shapes differ or one is no label image.

    Examples
    --------
    >>> same_objects([[0, 1], [2, 2]], [[0, 7], [5, 5]])
    True
    >>> same_objects([[0, 1], [1, 1]], [[0, 1], [2, 2]])
    False
    """
    table = overlap(*label_images(("a", a), ("b", b)))
    return not _category_counts(table)[Category.ONLY_A :].any()


def compare_masks(
    a: ArrayLike,
    b: ArrayLike,
    *,
    thresholds: Iterable[float] = THRESHOLDS,
    tolerance: float = TOLERANCE,
) -> MaskComparison:
    """Get the verdict on two label images, what became of every object, and every score.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object. Neither has to be the truth; where the two
        sides mean different things (precision, recall, AJI, the Rand error), a is.
    thresholds : iterable of float
        IoU thresholds of ``ap``, ``precision``, ``recall`` and ``f1``, in (0, 1].
    tolerance : float
        By which boundaries may lie apart, pixels.

    Returns
    -------
    MaskComparison
        Renumbering the objects of either only turns ``identical`` into ``same-objects``. Swapping
        a and b swaps the two sides, and changes nothing else but the AJI and the Rand error.

    Raises
    ------
    BadInput
        If the shapes differ, one is no label image, a threshold is outside (0, 1], or the tolerance
        is no number of pixels.

    Examples
    --------
    >>> result = compare_masks([[1, 1, 0, 2]], [[1, 1, 0, 0]])
    >>> [(change.kind.value, change.labels_a, change.position) for change in result.objects]
    [('kept', (1,), (0.0, 0.5)), ('lost', (2,), (0.0, 3.0))]
    """
    image_a, image_b = label_images(("a", a), ("b", b))
    limits = _thresholds(thresholds)
    table = overlap(image_a, image_b)
    counts = _category_counts(table)
    n_differing = int(counts[Category.ONLY_A :].sum())
    matched = matches(table, 0.5)
    rows, columns = table.rows[matched], table.columns[matched]
    n_each = np.array([len(matches(table, limit)) for limit in limits], np.float64)
    mean_area_a, mean_area_b = _mean(table.areas_a), _mean(table.areas_b)
    boundaries = match_boundaries(image_a, image_b, tolerance=tolerance)
    sq, dq, pq = _panoptic(table)
    vi_split, vi_merge = _information(table)
    rand_error, rand_precision, rand_recall = _rand(table)
    return MaskComparison(
        verdict=_verdict(table, n_differing),
        shape=image_a.shape,
        dtype_a=str(image_a.dtype),
        dtype_b=str(image_b.dtype),
        same_dtype=image_a.dtype == image_b.dtype,
        n_pixels=image_a.size,
        n_background=int(counts[Category.BACKGROUND]),
        n_agree=int(counts[Category.AGREE]),
        n_only_a=int(counts[Category.ONLY_A]),
        n_only_b=int(counts[Category.ONLY_B]),
        n_other_object=int(counts[Category.OTHER_OBJECT]),
        n_differing=n_differing,
        ppm=1e6 * _ratio(n_differing, image_a.size),
        n_objects_a=table.n_a,
        n_objects_b=table.n_b,
        objects=object_changes(table),
        thresholds=tuple(limits.tolist()),
        ap=_shares(n_each, table.n_a + table.n_b - n_each),
        precision=_shares(n_each, table.n_b),
        recall=_shares(n_each, table.n_a),
        f1=_shares(2 * n_each, table.n_a + table.n_b),
        n_matched=len(matched),
        ap50=_ratio(len(matched), table.n_a + table.n_b - len(matched)),
        precision50=_ratio(len(matched), table.n_b),
        recall50=_ratio(len(matched), table.n_a),
        mean_matched_iou=_mean(table.iou[matched]),
        dice=_ratio(2 * int(table.pixels.sum()), int(table.areas_a.sum() + table.areas_b.sum())),
        aji=_aggregated_jaccard(table),
        pq=pq,
        sq=sq,
        dq=dq,
        boundary_f1=boundaries.f1,
        boundary_precision=boundaries.precision,
        boundary_recall=boundaries.recall,
        tolerance=float(tolerance),
        vi=vi_split + vi_merge,
        vi_split=vi_split,
        vi_merge=vi_merge,
        rand_error=rand_error,
        rand_precision=rand_precision,
        rand_recall=rand_recall,
        mean_area_a=mean_area_a,
        mean_area_b=mean_area_b,
        mean_area_difference=mean_area_b - mean_area_a,
        mean_matched_area_difference=_mean(table.areas_b[columns] - table.areas_a[rows]),
    )


def categories(a: ArrayLike, b: ArrayLike) -> NDArray[np.uint8]:
    """Get a map of where two label images agree and how they differ where they do not.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object.

    Returns
    -------
    ndarray of uint8, same shape
        `Category` values: 0 background in both, 1 the same object, 2 only in a, 3 only in b,
        4 another object. Objects are the same if they are partners: paired by the one-to-one
        assignment with the largest total overlap. Where several assignments overlap equally,
        as for an object cut into exact halves, the map shows one of them, chosen by outlines
        and never by numbers; the counts are equal for all.

    Raises
    ------
    BadInput
        If the shapes differ or one is no label image.

    Examples
    --------
    >>> categories([[1, 1, 1, 0]], [[4, 4, 9, 9]]).tolist()
    [[1, 1, 4, 3]]
    """
    image_a, image_b = label_images(("a", a), ("b", b))
    table = overlap(image_a, image_b)
    chosen = partners(table)
    with_partner = np.sort(table.labels_a[table.rows[chosen]])
    by_label = np.argsort(table.labels_a[table.rows[chosen]])
    partner = table.labels_b[table.columns[chosen]][by_label]

    def category(labels_a: NDArray, labels_b: NDArray) -> NDArray[np.uint8]:
        wide_a, wide_b = labels_a.astype(np.int64), labels_b.astype(np.int64)
        same = np.zeros(len(wide_a), bool)
        if len(with_partner):
            at = np.minimum(np.searchsorted(with_partner, wide_a), len(with_partner) - 1)
            same = (with_partner[at] == wide_a) & (partner[at] == wide_b)
        in_a, in_b = wide_a > 0, wide_b > 0
        result = np.where(in_a & in_b, Category.OTHER_OBJECT, 2 * in_a + 3 * in_b)
        result[same] = Category.AGREE
        return result.astype(np.uint8)

    return _painted(image_a, image_b, np.uint8, category)


def average_precision(
    truth: ArrayLike, predicted: ArrayLike, thresholds: Iterable[float] | float = (0.5,)
) -> NDArray[np.float64]:
    """Get the average precision TP / (TP + FP + FN) at each IoU threshold.

    TP is the largest number of one-to-one pairs of a true and a predicted object whose IoU is at
    least the threshold, FP the predicted and FN the true objects left over. This is what
    ``cellpose.metrics.average_precision`` (4.2.1.1) computes, in float32, on images of equal shape
    that hold background and an object; unlike it, this function refuses unequal shapes, needs no
    background pixel and has a documented answer for images without objects.

    Parameters
    ----------
    truth, predicted : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object. The result is the same if they swap.
    thresholds : iterable of float, or float
        In (0, 1].

    Returns
    -------
    ndarray of float64, shape (T,)
        NaN if neither image holds an object: a score over nothing would be a claim (verdict
        ``vacuous``). 0 if only one of them does.

    Raises
    ------
    BadInput
        If the shapes differ, one is no label image, or a threshold is outside (0, 1].

    Examples
    --------
    >>> truth = [[1, 1, 0, 2], [1, 1, 0, 2]]
    >>> average_precision(truth, [[3, 3, 0, 0], [3, 0, 0, 0]], (0.5, 0.75, 0.8)).tolist()
    [0.5, 0.5, 0.0]
    """
    limits = _thresholds(thresholds)
    table = overlap(*label_images(("truth", truth), ("predicted", predicted)))
    n_each = np.array([len(matches(table, limit)) for limit in limits], np.float64)
    return _shares(n_each, table.n_a + table.n_b - n_each)


def _thresholds(thresholds: Iterable[float] | float) -> NDArray[np.float64]:
    given = thresholds if isinstance(thresholds, float | int) else list(thresholds)
    limits = np.atleast_1d(np.asarray(given, np.float64))
    if not np.all((limits > 0) & (limits <= 1)):
        raise BadInput(
            f"IoU thresholds {limits.tolist()} are not all in (0, 1]; every pair of objects "
            "reaches 0 and none exceeds 1, so choose for example 0.5"
        )
    return limits


def _painted(
    a: NDArray[np.integer],
    b: NDArray[np.integer],
    dtype: type[np.generic],
    value: Callable[[NDArray, NDArray], NDArray],
) -> NDArray:
    """An image of the shape of a and b with a value for every run of the two."""
    result = np.empty(a.size, dtype)
    for block in runs(a, b):
        painted = np.repeat(value(block.labels_a, block.labels_b), block.lengths)
        result[block.starts[0] : block.starts[0] + len(painted)] = painted
    return result.reshape(a.shape)


# Figures


def _category_counts(table: Overlap) -> NDArray[np.int64]:
    """Pixels per category, shape (5,); without drawing the map."""
    n_both = int(table.pixels.sum())
    n_agree = int(table.pixels[partners(table)].sum())
    counts = np.zeros(len(Category), np.int64)
    counts[Category.BACKGROUND] = table.n_background
    counts[Category.AGREE] = n_agree
    counts[Category.ONLY_A] = table.areas_a.sum() - n_both
    counts[Category.ONLY_B] = table.areas_b.sum() - n_both
    counts[Category.OTHER_OBJECT] = n_both - n_agree
    return counts


def _verdict(table: Overlap, n_differing: int) -> Verdict:
    if table.n_a == table.n_b == 0:
        return Verdict.VACUOUS
    if table.equal_labels:
        return Verdict.IDENTICAL
    return Verdict.DIFFERENT if n_differing else Verdict.SAME_OBJECTS


def _aggregated_jaccard(table: Overlap) -> float:
    if not (table.n_a or table.n_b):
        return math.nan
    best_first = np.lexsort((table.columns, -table.pixels, -table.iou, table.rows))
    best = best_first[np.unique(table.rows[best_first], return_index=True)[1]]
    shared = table.pixels[best]
    union = table.areas_a[table.rows[best]] + table.areas_b[table.columns[best]] - shared
    alone = np.delete(table.areas_a, table.rows[best]).sum()
    never_taken = np.delete(table.areas_b, np.unique(table.columns[best])).sum()
    return float(shared.sum() / (union.sum() + alone + never_taken))


def _panoptic(table: Overlap) -> tuple[float, float, float]:
    """Segmentation, detection and panoptic quality."""
    found = table.iou[table.iou > 0.5]
    dq = _ratio(2 * len(found), table.n_a + table.n_b)
    sq = _mean(found)
    return sq, dq, dq * sq if len(found) else dq


def _information(table: Overlap) -> tuple[float, float]:
    """H(b | a) and H(a | b), bits."""
    n = math.prod(table.shape)
    if not n:
        return math.nan, math.nan
    in_a, in_b, shared = _whole_table(table)
    joint = shared / n
    n_a = np.bincount(in_a, shared)
    n_b = np.bincount(in_b, shared)
    # Logarithms of ratios of whole numbers: an object that is not cut adds exactly 0.
    split = -np.sum(joint * np.log2(shared / n_a[in_a]))
    merge = -np.sum(joint * np.log2(shared / n_b[in_b]))
    return float(split) + 0.0, float(merge) + 0.0  # no -0


def _rand(table: Overlap) -> tuple[float, float, float]:
    """Adapted Rand error, precision and recall; numbers of ordered pairs of pixels."""
    in_a, in_b, shared = _whole_table(table)
    of_a = in_a > 0
    in_a, in_b, shared = in_a[of_a], in_b[of_a], shared[of_a].astype(np.float64)
    n = shared.sum()
    both = np.sum(shared**2) - n
    joined_a = np.sum(np.bincount(in_a, shared) ** 2) - n
    joined_b = np.sum(np.bincount(in_b, shared) ** 2) - n
    error = 1 - 2 * both / (joined_a + joined_b) if joined_a + joined_b else math.nan
    return (
        float(error),
        float(both / joined_b) if joined_b else math.nan,
        float(both / joined_a) if joined_a else math.nan,
    )


def _whole_table(
    table: Overlap,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row, column and pixels of every pair, background included as 0."""
    alone_a = table.areas_a - np.bincount(table.rows, table.pixels, table.n_a).astype(np.int64)
    alone_b = table.areas_b - np.bincount(table.columns, table.pixels, table.n_b).astype(np.int64)
    of_a, of_b = np.flatnonzero(alone_a), np.flatnonzero(alone_b)
    n_background = [table.n_background] if table.n_background else []
    nothing = np.zeros(len(n_background), np.int64)
    return (
        np.concatenate([table.rows + 1, of_a + 1, 0 * of_b, nothing]),
        np.concatenate([table.columns + 1, 0 * of_a, of_b + 1, nothing]),
        np.concatenate([table.pixels, alone_a[of_a], alone_b[of_b], n_background]).astype(np.int64),
    )


def _shares(part: NDArray[np.float64], whole: NDArray[np.float64] | int) -> NDArray[np.float64]:
    whole = np.broadcast_to(np.asarray(whole, np.float64), part.shape)
    return np.divide(part, whole, out=np.full(len(part), math.nan), where=whole > 0)


def _mean(values: NDArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
