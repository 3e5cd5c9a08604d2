"""Label images side by side: the same objects or not, how many pixels differ, and where.

A label image is an integer array of shape (Y, X) or (Z, Y, X); 0 is background and every other
number, up to 2**32 - 1 and with gaps allowed, is one object. ``a`` and ``b`` stand where neither
side is the truth.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.compare.verdicts import Verdict
from cellrepro.errors import BadInput

LARGEST_LABEL = 2**32 - 1
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
    at least 0.5; objects are counted by that. An IoU above 0.5 implies partners.

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
    n_matched : int
        Objects of a with a match (IoU >= 0.5) in b, one to one.
    n_kept : int
        Objects outlined alike in both, pixel for pixel (IoU = 1).
    lost, gained : tuple of int
        Labels, as given, of the objects of a (of b) without a match; in raster order.
    thresholds : tuple of float
        IoU thresholds of ``ap``.
    ap : ndarray of float64, shape (T,)
        `average_precision` at each threshold; the same whichever image is called the truth.
    ap50, precision50, recall50 : float
        At IoU 0.5 with a as the truth: matched over all objects of either, over the objects of b,
        over the objects of a. NaN where there are none of these.
    mean_matched_iou : float
        Mean IoU of the matches; NaN if there are none.
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
    n_matched: int
    n_kept: int
    lost: tuple[int, ...]
    gained: tuple[int, ...]
    thresholds: tuple[float, ...]
    ap: NDArray[np.float64]
    ap50: float
    precision50: float
    recall50: float
    mean_matched_iou: float
    mean_area_a: float
    mean_area_b: float
    mean_area_difference: float
    mean_matched_area_difference: float


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
    image = _label_image("masks", masks)
    return _in_raster_order(image).image.astype(np.uint32)


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
    image_a, image_b = _label_images(("a", a), ("b", b))
    return bool(np.array_equal(canonical(image_a), canonical(image_b)))


def compare_masks(
    a: ArrayLike, b: ArrayLike, *, thresholds: Iterable[float] = THRESHOLDS
) -> MaskComparison:
    """Get the verdict on two label images, and how many pixels and objects differ.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object. Neither has to be the truth; for
        ``precision50`` and ``recall50`` a is.
    thresholds : iterable of float
        IoU thresholds of ``ap``, in (0, 1].

    Returns
    -------
    MaskComparison
        Swapping a and b swaps its sides and changes nothing else; renumbering the objects of
        either only turns ``identical`` into ``same-objects``.

    Raises
    ------
    BadInput
        If the shapes differ, one is no label image, or a threshold is outside (0, 1].
    """
    image_a, image_b = _label_images(("a", a), ("b", b))
    limits = _thresholds(thresholds)
    overlap = _overlap(image_a, image_b)
    counts = _category_counts(overlap)
    n_differing = int(counts[Category.ONLY_A :].sum())
    matches = _matches(overlap, 0.5)
    rows, columns = overlap.rows[matches], overlap.columns[matches]
    mean_area_a, mean_area_b = _mean(overlap.areas_a), _mean(overlap.areas_b)
    return MaskComparison(
        verdict=_verdict(image_a, image_b, overlap, n_differing),
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
        n_objects_a=overlap.n_a,
        n_objects_b=overlap.n_b,
        n_matched=len(matches),
        n_kept=int(np.count_nonzero(overlap.iou == 1)),
        lost=_labels_without(overlap.labels_a, rows),
        gained=_labels_without(overlap.labels_b, columns),
        thresholds=tuple(limits.tolist()),
        ap=_average_precision(overlap, limits),
        ap50=float(_average_precision(overlap, np.array([0.5]))[0]),
        precision50=_ratio(len(matches), overlap.n_b),
        recall50=_ratio(len(matches), overlap.n_a),
        mean_matched_iou=_mean(overlap.iou[matches]),
        mean_area_a=mean_area_a,
        mean_area_b=mean_area_b,
        mean_area_difference=mean_area_b - mean_area_a,
        mean_matched_area_difference=_mean(overlap.areas_b[columns] - overlap.areas_a[rows]),
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
    image_a, image_b = _label_images(("a", a), ("b", b))
    overlap = _overlap(image_a, image_b)
    partner_of = np.zeros(overlap.n_a + 1, np.int64)  # 0: none
    partners = _partners(overlap)
    partner_of[overlap.rows[partners] + 1] = overlap.columns[partners] + 1

    in_a, in_b = overlap.image_a > 0, overlap.image_b > 0
    result = np.zeros(image_a.shape, np.uint8)
    result[in_a & ~in_b] = Category.ONLY_A
    result[in_b & ~in_a] = Category.ONLY_B
    same = partner_of[overlap.image_a] == overlap.image_b
    result[in_a & in_b & same] = Category.AGREE
    result[in_a & in_b & ~same] = Category.OTHER_OBJECT
    return result


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
    image_truth, image_predicted = _label_images(("truth", truth), ("predicted", predicted))
    return _average_precision(_overlap(image_truth, image_predicted), _thresholds(thresholds))


# Checking what was given


def _label_image(name: str, masks: ArrayLike) -> NDArray[np.integer]:
    image = np.asarray(masks)
    if image.dtype.kind not in "iu":
        raise BadInput(
            f"{name} has dtype {image.dtype}, and a label image holds integers, 0 for background "
            "and one number per object; label a foreground map first (scipy.ndimage.label), or "
            "cast with .astype('int32') if every value is whole and none is NaN"
        )
    if image.ndim not in (2, 3):
        raise BadInput(
            f"{name} has shape {image.shape}, and a label image has shape (Y, X) or (Z, Y, X); "
            "compare the images of a series one by one, without channels"
        )
    if image.size and image.min() < 0:
        raise BadInput(
            f"{name} holds the negative label {image.min()}, and labels are 0 for background and "
            "positive for objects; set what is to be ignored to 0 in both images"
        )
    if image.size and image.max() > LARGEST_LABEL:
        raise BadInput(
            f"{name} holds the label {image.max()}, and the largest one is {LARGEST_LABEL}; "
            "renumber the objects first (skimage.segmentation.relabel_sequential)"
        )
    return image


def _label_images(
    first: tuple[str, ArrayLike], second: tuple[str, ArrayLike]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    a, b = _label_image(*first), _label_image(*second)
    if a.shape != b.shape:
        # Cellpose 4.2.1.1 compares sizes only, and scores (2, 3) against (3, 2).
        raise BadInput(
            f"label images differ in shape: {first[0]} has {a.shape}, {second[0]} has {b.shape}; "
            "check that both belong to the same image, then transpose, crop or resize one of them"
        )
    return a, b


def _thresholds(thresholds: Iterable[float] | float) -> NDArray[np.float64]:
    given = thresholds if isinstance(thresholds, float | int) else list(thresholds)
    limits = np.atleast_1d(np.asarray(given, np.float64))
    if not np.all((limits > 0) & (limits <= 1)):
        raise BadInput(
            f"IoU thresholds {limits.tolist()} are not all in (0, 1]; every pair of objects "
            "reaches 0 and none exceeds 1, so choose for example 0.5"
        )
    return limits


# The contingency table of two label images


@dataclass(frozen=True)
class _Numbered:
    """A label image numbered by first appearance, and the ``labels`` its objects had."""

    image: NDArray[np.int64]
    labels: NDArray[np.integer]


def _in_raster_order(image: NDArray[np.integer]) -> _Numbered:
    flat = image.ravel()
    labels = np.unique(flat)
    labels = labels[labels > 0]
    position = _positions(flat, labels)
    # Of equal indices the last assignment stays, so running backwards keeps the first pixel.
    first = np.zeros(len(labels) + 1, np.int64)
    first[position[::-1]] = np.arange(flat.size - 1, -1, -1)
    order = np.argsort(first[1:])
    number = np.zeros(len(labels) + 1, np.int64)
    number[order + 1] = np.arange(1, len(labels) + 1)
    return _Numbered(number[position].reshape(image.shape), labels[order])


def _positions(flat: NDArray[np.integer], labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Position of every pixel's label in the sorted ``labels``, from 1; 0 is background."""
    if not len(labels):
        return np.zeros(flat.size, np.int64)
    if labels[-1] <= 4 * flat.size:  # a table costs less than a search per pixel
        table = np.zeros(int(labels[-1]) + 1, np.int64)
        table[labels] = np.arange(1, len(labels) + 1)
        return table[flat]
    position = np.searchsorted(labels, flat) + 1
    position[flat == 0] = 0
    return position


@dataclass(frozen=True)
class _Overlap:
    """Which objects of two label images overlap, and by how much; only pairs that do.

    Objects count from 0 in raster order of first appearance, so that nothing computed from this
    depends on their labels. Pairs are sorted by (row, column).
    """

    image_a: NDArray[np.int64]
    image_b: NDArray[np.int64]
    labels_a: NDArray[np.integer]
    labels_b: NDArray[np.integer]
    areas_a: NDArray[np.int64]
    areas_b: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    pixels: NDArray[np.int64]
    iou: NDArray[np.float64]
    n_background: int

    @property
    def n_a(self) -> int:
        return len(self.labels_a)

    @property
    def n_b(self) -> int:
        return len(self.labels_b)


def _overlap(a: NDArray[np.integer], b: NDArray[np.integer]) -> _Overlap:
    numbered_a, numbered_b = _in_raster_order(a), _in_raster_order(b)
    n_columns = len(numbered_b.labels) + 1
    codes = numbered_a.image.ravel() * n_columns + numbered_b.image.ravel()
    pairs, pixels = np.unique(codes, return_counts=True)
    rows, columns = np.divmod(pairs, n_columns)
    areas_a = np.bincount(numbered_a.image.ravel(), minlength=len(numbered_a.labels) + 1)
    areas_b = np.bincount(numbered_b.image.ravel(), minlength=n_columns)
    background = (rows == 0) & (columns == 0)
    objects = (rows > 0) & (columns > 0)
    intersection = pixels[objects]
    union = areas_a[rows[objects]] + areas_b[columns[objects]] - intersection
    return _Overlap(
        image_a=numbered_a.image,
        image_b=numbered_b.image,
        labels_a=numbered_a.labels,
        labels_b=numbered_b.labels,
        areas_a=areas_a[1:],
        areas_b=areas_b[1:],
        rows=rows[objects] - 1,
        columns=columns[objects] - 1,
        pixels=intersection,
        iou=intersection / union,
        n_background=int(pixels[background].sum()),
    )


# Pairing objects; both functions return positions in the list of overlapping pairs


def _matches(overlap: _Overlap, threshold: float) -> NDArray[np.intp]:
    """Largest set of one-to-one pairs with at least this IoU."""
    eligible = np.flatnonzero(overlap.iou >= threshold)
    rows, columns = overlap.rows[eligible], overlap.columns[eligible]
    if threshold >= 0.5:
        # No assignment is needed. Say object i overlaps j and k with IoU >= 1/2 each. Then
        # |i & j| >= |i | j| / 2 >= |i| / 2, and so does |i & k|. As j and k are disjoint, both
        # are |i| / 2 exactly, hence |i | j| = |i|: j and k are the two halves of i, inside it,
        # and overlap nothing else. So above 1/2 every eligible pair is on its own, and at 1/2
        # the only ties are an object and its two exact halves, of which one can match.
        first_of_row = np.zeros(len(eligible), bool)
        first_of_row[np.unique(rows, return_index=True)[1]] = True
        first_of_column = np.zeros(len(eligible), bool)
        first_of_column[np.unique(columns, return_index=True)[1]] = True
        return eligible[first_of_row & first_of_column]
    if not len(eligible):
        return eligible
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    graph = csr_array((np.ones(len(eligible)), (rows, columns)), shape=(overlap.n_a, overlap.n_b))
    column_of_row = maximum_bipartite_matching(graph, perm_type="column")
    return eligible[column_of_row[rows] == columns]


def _partners(overlap: _Overlap) -> NDArray[np.intp]:
    """One-to-one pairs with the largest total overlap in pixels."""
    # A pair (i, j) with IoU > 1/2 is in every such assignment: if i went with k and j with l
    # instead, then |i & k| + |l & j| <= |i| - |i & j| + |j| - |i & j| < |i & j|, because
    # IoU > 1/2 means |i| + |j| < 3 |i & j|; so pairing i with j overlaps more.
    certain = overlap.iou > 0.5
    free_row = np.ones(overlap.n_a, bool)
    free_row[overlap.rows[certain]] = False
    free_column = np.ones(overlap.n_b, bool)
    free_column[overlap.columns[certain]] = False
    open_pairs = np.flatnonzero(free_row[overlap.rows] & free_column[overlap.columns])
    chosen = _heaviest_assignment(
        overlap.rows[open_pairs], overlap.columns[open_pairs], overlap.pixels[open_pairs]
    )
    return np.sort(np.concatenate([np.flatnonzero(certain), open_pairs[chosen]]))


def _heaviest_assignment(
    rows: NDArray[np.int64], columns: NDArray[np.int64], weights: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Positions of the pairs of a heaviest one-to-one assignment on a sparse graph."""
    if not len(rows):
        return np.zeros(0, np.intp)
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    # linear_sum_assignment (scipy 1.17) wants a dense table, and scipy's sparse solver only knows
    # assignments in which every row has a partner. So every row and column gets a stand-in of
    # weight 0, and the stand-ins of an overlapping pair may pair with each other: what is left
    # over takes its stand-in, and the stand-ins of a chosen pair take each other. Adding 1 to
    # every weight changes no ranking, as all such assignments have the same number of pairs; it
    # is needed because the solver takes 0 as "no edge".
    row_ids, row = np.unique(rows, return_inverse=True)
    column_ids, column = np.unique(columns, return_inverse=True)
    n_rows, n_columns = len(row_ids), len(column_ids)
    all_rows, all_columns = np.arange(n_rows), np.arange(n_columns)
    edges_from = np.concatenate([row, all_rows, n_rows + all_columns, n_rows + column])
    edges_to = np.concatenate([column, n_columns + all_rows, all_columns, n_columns + row])
    edge_weights = np.ones(len(edges_from))
    edge_weights[: len(weights)] += weights
    n = n_rows + n_columns
    graph = csr_array((edge_weights, (edges_from, edges_to)), shape=(n, n))
    chosen_rows, chosen_columns = min_weight_full_bipartite_matching(graph, maximize=True)
    column_of_row = np.empty(n, np.int64)
    column_of_row[chosen_rows] = chosen_columns
    return np.flatnonzero(column_of_row[row] == column)


# Figures


def _category_counts(overlap: _Overlap) -> NDArray[np.int64]:
    """Pixels per category, shape (5,); without drawing the map."""
    n_both = int(overlap.pixels.sum())
    n_agree = int(overlap.pixels[_partners(overlap)].sum())
    counts = np.zeros(len(Category), np.int64)
    counts[Category.BACKGROUND] = overlap.n_background
    counts[Category.AGREE] = n_agree
    counts[Category.ONLY_A] = overlap.areas_a.sum() - n_both
    counts[Category.ONLY_B] = overlap.areas_b.sum() - n_both
    counts[Category.OTHER_OBJECT] = n_both - n_agree
    return counts


def _verdict(
    a: NDArray[np.integer], b: NDArray[np.integer], overlap: _Overlap, n_differing: int
) -> Verdict:
    if overlap.n_a == overlap.n_b == 0:
        return Verdict.VACUOUS
    if np.array_equal(a, b):
        return Verdict.IDENTICAL
    return Verdict.DIFFERENT if n_differing else Verdict.SAME_OBJECTS


def _average_precision(overlap: _Overlap, limits: NDArray[np.float64]) -> NDArray[np.float64]:
    n_matched = np.array([len(_matches(overlap, limit)) for limit in limits], np.float64)
    n_either = overlap.n_a + overlap.n_b - n_matched  # TP + FP + FN
    return np.divide(n_matched, n_either, out=np.full(len(limits), np.nan), where=n_either > 0)


def _labels_without(labels: NDArray[np.integer], matched: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(np.delete(labels, matched).tolist())


def _mean(values: NDArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
