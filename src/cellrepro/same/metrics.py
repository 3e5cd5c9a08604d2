"""Label images side by side: the same objects or not, how many pixels differ, and every score.

``a`` and ``b`` stand where neither side is the truth; where one is, it is ``a``.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.errors import BadInput
from cellrepro.same.labels import label_images
from cellrepro.same.matching import BLOCK, Integers, Overlap, matches, overlap, partners, runs
from cellrepro.same.object_changes import ObjectKind, object_changes
from cellrepro.same.verdicts import Verdict

# Written out: arange(0.5, 1, 0.05) holds 0.6000000000000001, which an IoU of 3/5 fails.
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)

TOLERANCE = 2  # pixels by which boundaries may lie apart and still count as the same

Scores = NDArray[np.float64]


class MaskComparison:
    """How two label images of equal shape differ, as `compare_masks` returns it.

    Two objects are *partners* if the one-to-one assignment with the largest total overlap pairs
    them; pixels are counted by it. Two objects *match* if their intersection over union (IoU) is
    at least a threshold; scores are counted by that, and where no threshold is named it is 0.5. An
    IoU above 0.5 implies partners. A score over nothing is NaN.
    """

    # Long: one line for each score.
    def __init__(self, a: NDArray[np.integer], b: NDArray[np.integer]):
        table = overlap(a, b)
        n_a, n_b, n_shared = table.n_a, table.n_b, int(table.pixels.sum())
        self.shape = a.shape  # (Y, X) or (Z, Y, X), pixels
        # The pixels are the next five together; they differ in the last three.
        self.n_pixels = a.size
        self.n_background = table.n_background  # in both
        self.n_agree = int(table.pixels[partners(table)].sum())  # the same object in both
        self.n_only_a = int(table.areas_a.sum()) - n_shared  # an object in a, background in b
        self.n_only_b = int(table.areas_b.sum()) - n_shared
        self.n_other_object = n_shared - self.n_agree  # objects in both, but no partners
        self.n_differing = self.n_only_a + self.n_only_b + self.n_other_object
        self.ppm = 1e6 * _ratio(self.n_differing, self.n_pixels)  # differing pixels per million
        # Never ``within-spread``, which takes more than two images to know.
        self.verdict = Verdict.DIFFERENT if self.n_differing else Verdict.SAME_OBJECTS
        if table.equal_labels:
            self.verdict = Verdict.IDENTICAL if n_a else Verdict.VACUOUS
        self.objects = object_changes(table)  # each object in exactly one change
        self.kinds: Counter[str] = Counter(change.kind for change in self.objects)
        self.n_objects_a, self.n_objects_b = n_a, n_b
        self.n_renumbered = sum(change.renumbered for change in self.objects)
        matched = matches(table, 0.5)
        self.n_matched = len(matched)  # objects of a with a match in b, one to one
        self.n_unmatched = n_a + n_b - 2 * self.n_matched  # of either side
        self.changed = _ratio(self.n_unmatched, n_a + n_b)  # share of both sides' objects, 1 - F1
        # At each of `THRESHOLDS`, and at 0.5.
        n_at_each = np.array([len(matches(table, limit)) for limit in THRESHOLDS], np.float64)
        self.ap = _ratios(n_at_each, n_a + n_b - n_at_each)  # see `average_precision`
        self.precision = _ratios(n_at_each, n_b)  # matches over the objects of b
        self.recall = _ratios(n_at_each, n_a)
        self.f1 = _ratios(2 * n_at_each, n_a + n_b)
        self.ap50, self.precision50, self.recall50 = (
            float(score[0]) for score in (self.ap, self.precision, self.recall)
        )
        rows, columns = table.rows[matched], table.columns[matched]
        self.mean_matched_iou = _mean(table.iou[matched])
        self.mean_matched_area_difference = _mean(table.areas_b[columns] - table.areas_a[rows])
        # Panoptic quality (Kirillov et al., CVPR 2019): mean IoU times F1, above an IoU of 0.5.
        self.pq = _ratio(2 * table.iou[table.iou > 0.5].sum(), n_a + n_b)
        self.aji = _aji(table)
        # Pixels that are cell in both, twice, over those that are cell in each (Dice 1945).
        self.dice = _ratio(2 * n_shared, 2 * n_shared + self.n_only_a + self.n_only_b)
        self.boundary_f1 = _boundary_f1(a, b)  # 0 if one side has no boundary
        rows, columns, pixels = _with_background(table)
        # Variation of information in bits (Meilă 2003): H(b | a), which grows where b cuts
        # objects, H(a | b), which grows where it joins them, and their sum.
        self.vi_split = _conditional_entropy(rows, pixels)
        self.vi_merge = _conditional_entropy(columns, pixels)
        self.vi = self.vi_split + self.vi_merge
        self.rand_error = _rand_error(rows, columns, pixels)

    def figures(self) -> dict[str, Any]:
        """Every count and score by name, for JSON; what became of each object is in ``objects``."""
        hidden = ("objects", "kinds")
        shown = {name: value for name, value in vars(self).items() if name not in hidden}
        shown |= {f"n_{kind}": self.kinds[kind] for kind in ObjectKind}
        return {**shown, "thresholds": THRESHOLDS}


def _aji(table: Overlap) -> float:
    """Aggregated Jaccard index with a as the truth (Kumar et al., IEEE TMI 2017), which
    ``cellpose.metrics.aggregated_jaccard_index`` (4.2.1.1) is not."""
    best_first = np.lexsort((table.columns, -table.pixels, -table.iou, table.rows))
    best = best_first[np.unique(table.rows[best_first], return_index=True)[1]]
    rows, columns, shared = table.rows[best], table.columns[best], table.pixels[best]
    unions = table.areas_a[rows] + table.areas_b[columns] - shared
    alone = np.delete(table.areas_a, rows).sum()
    never_taken = np.delete(table.areas_b, np.unique(columns)).sum()
    return _ratio(shared.sum(), unions.sum() + alone + never_taken)


def _with_background(t: Overlap) -> tuple[Integers, Integers, Integers]:
    """Row, column and pixels of every pair that shares any, background being 0."""
    alone_a = t.areas_a - np.bincount(t.rows, t.pixels, t.n_a).astype(np.int64)
    alone_b = t.areas_b - np.bincount(t.columns, t.pixels, t.n_b).astype(np.int64)
    rows = np.concatenate([t.rows + 1, np.arange(t.n_a) + 1, np.zeros(t.n_b + 1, np.int64)])
    columns = np.concatenate([t.columns + 1, np.zeros(t.n_a, np.int64), np.arange(t.n_b) + 1, [0]])
    pixels = np.concatenate([t.pixels, alone_a, alone_b, [t.n_background]])
    held = pixels > 0
    return rows[held], columns[held], pixels[held]


def _conditional_entropy(given: Integers, shared: Integers) -> float:
    if not len(shared):
        return math.nan
    # Logarithms of ratios of whole numbers: an object that is not cut adds exactly 0.
    bits = np.log2(shared / np.bincount(given, shared)[given])
    return abs(float(np.sum(shared / shared.sum() * bits)))  # never -0


def _rand_error(in_a: Integers, in_b: Integers, pixels: Integers) -> float:
    """Adapted Rand error (SNEMI3D), a being the truth: 1 - F1 over the ordered pairs of pixels of
    a's objects that one object joins."""
    held = in_a > 0
    in_a, in_b, shared = in_a[held], in_b[held], pixels[held].astype(np.float64)
    counts = (shared, np.bincount(in_a, shared), np.bincount(in_b, shared))
    both, a, b = (float(np.sum(count**2) - shared.sum()) for count in counts)
    return 1 - _ratio(2 * both, a + b)


def compare_masks(a: ArrayLike, b: ArrayLike) -> MaskComparison:
    """Get the verdict on two label images, what became of every object, and every score.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object. Neither has to be the truth; where the two
        sides mean different things (precision, recall, AJI, the Rand error), a is.

    Returns
    -------
    MaskComparison
        Renumbering the objects of either only turns ``identical`` into ``same-objects``. Swapping
        a and b swaps the two sides, and changes nothing else but the AJI and the Rand error.

    Examples
    --------
    >>> result = compare_masks([[1, 1, 0, 2]], [[1, 1, 0, 0]])
    >>> [(change.kind.value, change.labels_a, change.position) for change in result.objects]
    [('kept', (1,), (0.0, 0.5)), ('lost', (2,), (0.0, 3.0))]
    """
    return MaskComparison(*label_images(("a", a), ("b", b)))


def categories(a: ArrayLike, b: ArrayLike) -> NDArray[np.uint8]:
    """Get a map of where two label images agree and how they differ where they do not.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object.

    Returns
    -------
    ndarray of uint8, same shape
        0 background in both, 1 the same object, 2 only in a, 3 only in b, 4 another object.
        Objects are the same if they are partners. Where several assignments overlap equally, as
        for an object cut into exact halves, the map shows one of them, chosen by outlines and
        never by numbers; the counts are equal for all.

    Examples
    --------
    >>> categories([[1, 1, 1, 0]], [[4, 4, 9, 9]]).tolist()
    [[1, 1, 4, 3]]
    """
    image_a, image_b = label_images(("a", a), ("b", b))
    table = overlap(image_a, image_b)
    chosen = partners(table)
    labels, partner = table.labels_a[table.rows[chosen]], table.labels_b[table.columns[chosen]]
    order = np.argsort(labels)
    labels, partner = np.append(labels[order], -1), np.append(partner[order], -1)
    result = np.empty(image_a.size, np.uint8)
    for block in runs(image_a, image_b):
        of_a, of_b = block.labels_a.astype(np.int64), block.labels_b.astype(np.int64)
        at = np.searchsorted(labels[:-1], of_a)
        same = (labels[at] == of_a) & (partner[at] == of_b)
        kind = np.where((of_a > 0) & (of_b > 0), 4, 2 * (of_a > 0) + 3 * (of_b > 0))
        kind[same] = 1
        start = block.starts[0]
        result[start : start + block.lengths.sum()] = np.repeat(kind, block.lengths)
    return result.reshape(image_a.shape)


def average_precision(
    truth: ArrayLike, predicted: ArrayLike, thresholds: Iterable[float] = (0.5,)
) -> Scores:
    """Get TP / (TP + FP + FN) of two label images at each IoU threshold, in (0, 1].

    TP is the largest number of one-to-one pairs of objects whose IoU is at least the threshold, FP
    the predicted and FN the true objects left over. ``cellpose.metrics.average_precision``
    (4.2.1.1) computes the same in float32, but also for unequal shapes, and wrongly without
    background. NaN if neither image holds an object, 0 if only one does.

    >>> truth = [[1, 1, 0, 2], [1, 1, 0, 2]]
    >>> average_precision(truth, [[3, 3, 0, 0], [3, 0, 0, 0]], (0.5, 0.75, 0.8)).tolist()
    [0.5, 0.5, 0.0]
    """
    limits = list(thresholds)
    if not all(0 < limit <= 1 for limit in limits):
        raise BadInput(f"IoU thresholds {limits} are not all above 0 and at most 1; 0.5 is usual")
    table = overlap(*label_images(("truth", truth), ("predicted", predicted)))
    n_each = np.array([len(matches(table, limit)) for limit in limits], np.float64)
    return _ratios(n_each, table.n_a + table.n_b - n_each)


def _ratios(part: Scores, whole: Scores | int) -> Scores:
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        return part / whole


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else math.nan


def _mean(values: NDArray) -> float:
    return float(values.mean()) if len(values) else math.nan


# -- boundaries ------------------------------------------------------------------------------


def _boundary_f1(a: NDArray[np.integer], b: NDArray[np.integer]) -> float:
    """F1 of the pixels of objects with another label beside a face, give or take `TOLERANCE`
    (Csurka et al., BMVC 2013). 0 if one side has none, NaN if neither has."""
    counts = np.zeros(4, np.int64)
    step = max(1, BLOCK // max(1, a[:1].size))
    around = itertools.product(range(-TOLERANCE, TOLERANCE + 1), repeat=a.ndim)
    near = [shift for shift in around if math.hypot(*shift) <= TOLERANCE]
    shifts = np.array(sorted(near, key=lambda shift: math.hypot(*shift)))  # the nearest first
    for first in range(0, len(a) if a.size else 0, step):
        low = max(0, first - TOLERANCE - 1)  # the edge of a block would hide a boundary
        of_a, of_b = (
            np.pad(_boundary(image[low : first + step + TOLERANCE + 1]), TOLERANCE)
            for image in (a, b)
        )
        inner = slice(first - low + TOLERANCE, first - low + TOLERANCE + min(step, len(a) - first))
        at_a, at_b = (
            np.flatnonzero(part[inner]) + inner.start * part.strides[0] for part in (of_a, of_b)
        )
        flat_shifts = shifts @ np.array(of_a.strides)  # bytes, so positions of booleans
        n_close = (
            _n_close(at_a, of_b.ravel(), flat_shifts),
            _n_close(at_b, of_a.ravel(), flat_shifts),
        )
        counts += (len(at_a), len(at_b), *n_close)
    n_a, n_b, n_close_a, n_close_b = counts.tolist()
    if not (n_close_a and n_close_b):
        return 0.0 if n_a or n_b else math.nan
    precision, recall = n_close_b / n_b, n_close_a / n_a
    return 2 * precision * recall / (precision + recall)


def _boundary(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    found = np.zeros(labels.shape, bool)
    for axis in range(labels.ndim):
        along, marked = np.moveaxis(labels, axis, 0), np.moveaxis(found, axis, 0)
        edge = along[1:] != along[:-1]
        marked[:-1] |= edge
        marked[1:] |= edge
    found &= labels != 0
    return found


def _n_close(points: NDArray[np.intp], other: NDArray[np.bool_], shifts: NDArray[np.int64]) -> int:
    left = points
    for shift in shifts:
        left = left[~other[left + shift]]
        if not len(left):
            break
    return len(points) - len(left)
