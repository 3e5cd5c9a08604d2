"""Label images side by side: the same objects or not, how many pixels differ, and every score.

``a`` and ``b`` stand where neither side is the truth; where one is, it is ``a``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cellrepro.compare.boundaries import boundary_f1
from cellrepro.compare.labels import label_images
from cellrepro.compare.matching import Overlap, matches, overlap, partners, runs
from cellrepro.compare.object_changes import ObjectChange, ObjectKind, object_changes
from cellrepro.compare.verdicts import Verdict
from cellrepro.errors import BadInput

# Written out: arange(0.5, 1, 0.05) holds 0.6000000000000001, which an IoU of 3/5 fails.
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)

_FIGURES = (
    *("verdict", "shape", "n_pixels", "n_agree", "n_only_a", "n_only_b", "n_other_object"),
    *("n_differing", "ppm", "n_objects_a", "n_objects_b", "n_renumbered", "n_matched"),
    *("n_unmatched", "changed", "ap", "precision", "recall", "f1", "ap50", "precision50"),
    *("recall50", "mean_matched_iou", "mean_matched_area_difference", "dice", "aji", "pq"),
    *("boundary_f1", "vi", "vi_split", "vi_merge", "rand_error"),
)

Scores = NDArray[np.float64]


class Category(IntEnum):
    """What a pixel is in two label images; the values of a ``categories`` map."""

    BACKGROUND = 0  # in both
    AGREE = 1  # the same object in both
    ONLY_A = 2  # an object in a, background in b
    ONLY_B = 3
    OTHER_OBJECT = 4  # an object in both, but the two are not partners


@dataclass(frozen=True, eq=False)
class MaskComparison:
    """How two label images of equal shape differ; every score is computed when it is read.

    Two objects are *partners* if the one-to-one assignment with the largest total overlap pairs
    them; pixels are counted by it. Two objects *match* if their intersection over union (IoU) is
    at least a threshold; scores are counted by that, and where no threshold is named it is 0.5. An
    IoU above 0.5 implies partners. ``objects`` says in words what became of each.

    A score over nothing is NaN.
    """

    table: Overlap
    """Which objects overlap, and by how much."""
    boundary_f1: float
    """F1 of the boundary pixels within 2 pixels of the other side's; 0 if one side has none."""

    def figures(self) -> dict[str, Any]:
        """Every count and score by name, for JSON; what became of each object is in ``objects``."""
        return {
            **{name: getattr(self, name) for name in _FIGURES},
            "n_background": self.table.n_background,
            "thresholds": THRESHOLDS,
            **{f"n_{kind}": self.kinds[kind] for kind in ObjectKind},
        }

    @cached_property
    def verdict(self) -> Verdict:
        """``identical`` (same values), ``same-objects``, ``different``, or ``vacuous`` when neither
        image holds an object. Never ``within-spread``, which takes more than two images to know.
        """
        if self.table.n_a == self.table.n_b == 0:
            return Verdict.VACUOUS
        if self.table.equal_labels:
            return Verdict.IDENTICAL
        return Verdict.DIFFERENT if self.n_differing else Verdict.SAME_OBJECTS

    # Pixels

    @property
    def shape(self) -> tuple[int, ...]:
        """(Y, X) or (Z, Y, X), pixels."""
        return self.table.shape

    @property
    def n_pixels(self) -> int:
        """The sum of the five counts by `Category`."""
        return math.prod(self.table.shape)

    @cached_property
    def n_agree(self) -> int:
        """The same object in both."""
        return int(self.table.pixels[partners(self.table)].sum())

    @property
    def n_only_a(self) -> int:
        """An object in a, background in b."""
        return int(self.table.areas_a.sum() - self.table.pixels.sum())

    @property
    def n_only_b(self) -> int:
        """Background in a, an object in b."""
        return int(self.table.areas_b.sum() - self.table.pixels.sum())

    @property
    def n_other_object(self) -> int:
        """An object in both, but the two are not partners."""
        return int(self.table.pixels.sum()) - self.n_agree

    @property
    def n_differing(self) -> int:
        """Pixels of the last three together; 0 exactly if the objects are the same."""
        return self.n_only_a + self.n_only_b + self.n_other_object

    @property
    def ppm(self) -> float:
        """Differing pixels per million."""
        return 1e6 * _ratio(self.n_differing, self.n_pixels)

    @property
    def dice(self) -> float:
        """Twice the pixels that are cell in both over those that are cell in each (Dice 1945)."""
        both = 2 * int(self.table.pixels.sum())
        return _ratio(both, both + self.n_only_a + self.n_only_b)

    # Objects

    @property
    def n_objects_a(self) -> int:
        """Objects of a."""
        return self.table.n_a

    @property
    def n_objects_b(self) -> int:
        """Objects of b."""
        return self.table.n_b

    @property
    def _n_objects(self) -> int:
        return self.table.n_a + self.table.n_b

    @cached_property
    def objects(self) -> tuple[ObjectChange, ...]:
        """What became of every object, each in exactly one change."""
        return object_changes(self.table)

    @cached_property
    def kinds(self) -> Counter[str]:
        """How many objects were kept, moved, lost, gained, split and merged."""
        return Counter(change.kind for change in self.objects)

    @property
    def n_renumbered(self) -> int:
        """Kept and moved objects whose number differs."""
        return sum(change.renumbered for change in self.objects)

    # Matches

    @cached_property
    def _matched(self) -> NDArray[np.intp]:
        return matches(self.table, 0.5)

    @cached_property
    def _n_at_each(self) -> Scores:
        return np.array([len(matches(self.table, limit)) for limit in THRESHOLDS], np.float64)

    @property
    def n_matched(self) -> int:
        """Objects of a with a match in b, one to one."""
        return len(self._matched)

    @property
    def n_unmatched(self) -> int:
        """Objects of either side without a match."""
        return self._n_objects - 2 * self.n_matched

    @property
    def changed(self) -> float:
        """Share of the objects of both sides that have no match, 1 - F1."""
        return _ratio(self.n_unmatched, self._n_objects)

    @property
    def ap(self) -> Scores:
        """Matches over all objects of either at each of `THRESHOLDS`; see `average_precision`."""
        return _ratios(self._n_at_each, self._n_objects - self._n_at_each)

    @property
    def precision(self) -> Scores:
        """Matches over the objects of b at each of `THRESHOLDS`."""
        return _ratios(self._n_at_each, self.table.n_b)

    @property
    def recall(self) -> Scores:
        """Matches over the objects of a at each of `THRESHOLDS`."""
        return _ratios(self._n_at_each, self.table.n_a)

    @property
    def f1(self) -> Scores:
        """Twice the matches over the objects of both at each of `THRESHOLDS`."""
        return _ratios(2 * self._n_at_each, self._n_objects)

    @property
    def ap50(self) -> float:
        """At IoU 0.5."""
        return _ratio(self.n_matched, self._n_objects - self.n_matched)

    @property
    def precision50(self) -> float:
        """At IoU 0.5."""
        return _ratio(self.n_matched, self.table.n_b)

    @property
    def recall50(self) -> float:
        """At IoU 0.5."""
        return _ratio(self.n_matched, self.table.n_a)

    @property
    def mean_matched_iou(self) -> float:
        """Mean IoU of the matches."""
        return _mean(self.table.iou[self._matched])

    @property
    def aji(self) -> float:
        """Aggregated Jaccard index with a as the truth (Kumar et al., IEEE TMI 2017).

        For each object of a the object of b with the largest IoU; their intersections over their
        unions and all that is left over. Not the measure that
        ``cellpose.metrics.aggregated_jaccard_index`` (4.2.1.1) returns under that name.
        """
        table = self.table
        best_first = np.lexsort((table.columns, -table.pixels, -table.iou, table.rows))
        best = best_first[np.unique(table.rows[best_first], return_index=True)[1]]
        rows, columns, shared = table.rows[best], table.columns[best], table.pixels[best]
        unions = table.areas_a[rows] + table.areas_b[columns] - shared
        alone = np.delete(table.areas_a, rows).sum()
        never_taken = np.delete(table.areas_b, np.unique(columns)).sum()
        return _ratio(shared.sum(), unions.sum() + alone + never_taken)

    @property
    def pq(self) -> float:
        """Panoptic quality (Kirillov et al., CVPR 2019): mean IoU times F1, above an IoU of 0.5."""
        return _ratio(2 * self.table.iou[self.table.iou > 0.5].sum(), self._n_objects)

    @property
    def mean_matched_area_difference(self) -> float:
        """Mean over the matches of area in b minus area in a, pixels."""
        rows, columns = self.table.rows[self._matched], self.table.columns[self._matched]
        return _mean(self.table.areas_b[columns] - self.table.areas_a[rows])

    # Information and pairs of pixels

    @cached_property
    def _whole_table(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Row, column and pixels of every pair that shares any, background included as 0."""
        t = self.table
        alone_a = t.areas_a - np.bincount(t.rows, t.pixels, t.n_a).astype(np.int64)
        alone_b = t.areas_b - np.bincount(t.columns, t.pixels, t.n_b).astype(np.int64)
        rows = np.concatenate([t.rows + 1, np.arange(t.n_a) + 1, np.zeros(t.n_b + 1, np.int64)])
        columns = np.concatenate(
            [t.columns + 1, np.zeros(t.n_a, np.int64), np.arange(t.n_b) + 1, [0]]
        )
        pixels = np.concatenate([t.pixels, alone_a, alone_b, [t.n_background]])
        held = pixels > 0
        return rows[held], columns[held], pixels[held]

    @property
    def vi_split(self) -> float:
        """H(b | a) in bits, background counting as one more object: grows where b cuts objects."""
        in_a, _, shared = self._whole_table
        return _conditional_entropy(in_a, shared)

    @property
    def vi_merge(self) -> float:
        """H(a | b) in bits, background counting as one more object: grows where b joins objects."""
        _, in_b, shared = self._whole_table
        return _conditional_entropy(in_b, shared)

    @property
    def vi(self) -> float:
        """Variation of information in bits (Meilă 2003): the sum of the two."""
        return self.vi_split + self.vi_merge

    @property
    def rand_error(self) -> float:
        """Adapted Rand error (SNEMI3D), a being the truth, over the pixels of a's objects.

        1 - F1 over the ordered pairs of pixels that one object joins.
        """
        in_a, in_b, shared = (part[self._whole_table[0] > 0] for part in self._whole_table)
        shared = shared.astype(np.float64)
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
    image_a, image_b = label_images(("a", a), ("b", b))
    return MaskComparison(overlap(image_a, image_b), boundary_f1(image_a, image_b))


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
        4 another object. Objects are the same if they are partners. Where several assignments
        overlap equally, as for an object cut into exact halves, the map shows one of them, chosen
        by outlines and never by numbers; the counts are equal for all.

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
        kind[same] = Category.AGREE
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


def _conditional_entropy(given: NDArray[np.int64], shared: NDArray[np.int64]) -> float:
    if not len(shared):
        return math.nan
    # Logarithms of ratios of whole numbers: an object that is not cut adds exactly 0.
    bits = np.log2(shared / np.bincount(given, shared)[given])
    return abs(float(np.sum(shared / shared.sum() * bits)))  # never -0


def _ratios(part: Scores, whole: Scores | int) -> Scores:
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        return part / whole


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else math.nan


def _mean(values: NDArray) -> float:
    return float(values.mean()) if len(values) else math.nan
