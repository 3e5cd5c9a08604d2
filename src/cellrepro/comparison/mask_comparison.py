"""Label images side by side: the same objects or not, how many pixels differ, and every score.

``a`` and ``b`` stand where neither side is the truth; where one is, it is ``a``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.comparison.labels import label_images
from cellrepro.comparison.labels_as_compared import ReadPair, read_pair
from cellrepro.comparison.mask_totals import totals_over
from cellrepro.comparison.object_changes import ObjectChange, cell_rows, not_kept, object_changes
from cellrepro.comparison.object_matching import matches, overlap, partners, runs
from cellrepro.comparison.published_scores import (
    Scores,
    adapted_rand_error,
    aggregated_jaccard_index,
    boundary_f1,
    conditional_entropy,
    mean,
    ratio,
    ratios,
    shared_pixels,
)
from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import BadInput
from cellrepro.results import Result, Row, derived, json_names

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from cellrepro.comparison.planes import Numbering

# Written out: arange(0.5, 1, 0.05) holds 0.6000000000000001, which an IoU of 3/5 fails.
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True, eq=False, repr=False)
class MaskComparison(Result):
    """How two label images of equal shape differ, as `compare_masks` returns it.

    Two objects are *partners* if the one-to-one assignment with the largest total overlap pairs
    them; pixels are counted by it. Two objects *match* if their intersection over union (IoU) is
    at least a threshold; scores are counted by that, and where no threshold is named it is 0.5. An
    IoU above 0.5 implies partners. A score over nothing is NaN.
    """

    shape: tuple[int, ...]
    """(Y, X) or (Z, Y, X), pixels."""
    n_pixels: int
    """All pixels; the next five numbers add up to this."""
    n_background: int
    """Pixels that are background on both sides."""
    n_agree: int
    """Pixels that are of partners on both sides."""
    n_only_a: int
    """Pixels of an object in a, and background in b."""
    n_only_b: int
    """Pixels of an object in b, and background in a."""
    n_other_object: int
    """Pixels of objects on both sides that are no partners."""
    n_differing: int
    """Pixels of the last three kinds together."""
    ppm: float
    """Differing pixels per million."""
    verdict: Verdict
    """Never ``within-spread``, which takes more than two images to know."""
    same_numbering: bool
    """Whether what is one number on one side is one number on the other; else the verdict is
    ``different``, even where all outlines are equal."""
    by_plane: bool
    """Whether every plane was compared by itself, as numbers of one side begin anew in each."""
    numbering_a: Numbering
    """How the numbers of each side run through planes: none is in two, objects keep theirs, or they
    begin anew."""
    numbering_b: Numbering
    """How the numbers of each side run through planes: none is in two, objects keep theirs, or they
    begin anew."""
    n_shared_a: int
    """Numbers of each side that name several objects which do not touch. These count by
    themselves."""
    n_shared_b: int
    """Numbers of each side that name several objects which do not touch. These count by
    themselves."""
    objects: tuple[ObjectChange, ...] = field(repr=False)
    """What became of every object; each is in exactly one change."""
    kinds: Counter[str] = field(repr=False)
    """How many changes of each `ObjectKind` there are."""
    n_objects_a: int
    """Objects of a."""
    n_objects_b: int
    """Objects of b."""
    n_renumbered: int
    """Objects that have different numbers on the two sides."""
    n_matched: int
    """Objects of a with a match in b, one to one."""
    n_unmatched: int
    """Objects of either side without a match."""
    changed: float
    """Share of both sides' objects without a match, which is 1 - F1."""
    ap: Scores
    """Average precision at each of ``thresholds``."""
    precision: Scores
    """Matches over the objects of b."""
    recall: Scores
    """Matches over the objects of a."""
    f1: Scores
    """Twice the matches over the objects of both."""
    ap50: float
    """`ap` at 0.5."""
    precision50: float
    """`precision` at 0.5."""
    recall50: float
    """`recall` at 0.5."""
    mean_matched_iou: float
    """Mean IoU of the matches."""
    mean_matched_area_difference: float
    """Mean number of pixels by which the matches are larger in b than in a."""
    pq: float
    """Panoptic quality (Kirillov et al., CVPR 2019): mean IoU times F1, above an IoU of 0.5."""
    aji: float
    """Aggregated Jaccard index with a as the truth (Kumar et al., IEEE TMI 2017)."""
    dice: float
    """Pixels that are cell in both, twice, over those that are cell in each (Dice 1945)."""
    boundary_f1: float
    """F1 of boundaries, give or take 2 pixels (Csurka et al., BMVC 2013); 0 if one has none."""
    vi_split: float
    """Bits of information about b that a leaves open, H(b | a): grows where b cuts objects."""
    vi_merge: float
    """Bits of information about a that b leaves open, H(a | b): grows where b joins objects."""
    vi: float
    """Variation of information in bits (Meilă 2003): the sum of these two."""
    rand_error: float
    """Adapted Rand error with a as the truth (SNEMI3D), 0 is best."""

    @derived
    def n_kept(self) -> int:
        """How many changes are of this kind; the parts of a split or a merge count once."""
        return self.kinds["kept"]

    @derived
    def n_moved(self) -> int:
        """How many changes are of this kind; the parts of a split or a merge count once."""
        return self.kinds["moved"]

    @derived
    def n_lost(self) -> int:
        """How many changes are of this kind; the parts of a split or a merge count once."""
        return self.kinds["lost"]

    @derived
    def n_gained(self) -> int:
        """How many changes are of this kind; the parts of a split or a merge count once."""
        return self.kinds["gained"]

    @derived
    def n_split(self) -> int:
        """How many changes are of this kind; the parts of a split or a merge count once."""
        return self.kinds["split"]

    @derived
    def n_merged(self) -> int:
        """How many changes are of this kind; the parts of a split or a merge count once."""
        return self.kinds["merged"]

    @derived
    def thresholds(self) -> tuple[float, ...]:
        """The IoU at which ``ap``, ``precision``, ``recall`` and ``f1`` are given."""
        return THRESHOLDS

    def sentence(self) -> str:
        """How many cells each side has, what became of them, and how many pixels differ."""
        return totals_over([self]).sentence()

    def rows(self) -> Sequence[Row]:
        """A row for every object that is not kept."""
        return cell_rows(not_kept({"": self}), a="A", b="B")

    def figures(self) -> dict[str, Any]:
        """Every count and score by name, as JSON has them."""
        return {name: getattr(self, name) for name in json_names(type(self))}


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

    Raises
    ------
    BadInput
        If one is no label image, or their shapes differ.

    Examples
    --------
    >>> result = compare_masks([[1, 1, 0, 2]], [[1, 1, 0, 0]])
    >>> result.verdict.value, result.n_differing, result.recall50
    ('different', 1, 0.5)
    >>> [(change.kind.value, change.labels_a, change.position) for change in result.objects]
    [('kept', (1,), (0.0, 0.5)), ('lost', (2,), (0.0, 3.0))]
    """
    pair = read_pair(*label_images(("a", a), ("b", b)))
    table = pair.table
    n_objects = table.n_a + table.n_b

    # Pixels.
    n_shared = int(table.pixels.sum())
    n_agree = int(table.pixels[partners(table)].sum())
    n_only_a = int(table.areas_a.sum()) - n_shared
    n_only_b = int(table.areas_b.sum()) - n_shared
    n_other_object = n_shared - n_agree
    n_differing = n_only_a + n_only_b + n_other_object

    # Objects, and which of them match.
    objects = object_changes(table)
    matched = matches(table, 0.5)
    n_unmatched = n_objects - 2 * len(matched)
    areas_of_matched_a = table.areas_a[table.rows[matched]]
    areas_of_matched_b = table.areas_b[table.columns[matched]]

    # Scores.
    n_matched = np.array([len(matches(table, limit)) for limit in THRESHOLDS], np.float64)
    ap = ratios(n_matched, n_objects - n_matched)
    precision = ratios(n_matched, table.n_b)
    recall = ratios(n_matched, table.n_a)
    shared = shared_pixels(table)
    vi_split = conditional_entropy(shared.in_a, shared.pixels)
    vi_merge = conditional_entropy(shared.in_b, shared.pixels)

    return MaskComparison(
        shape=pair.a.image.shape,
        n_pixels=pair.a.image.size,
        n_background=table.n_background,
        n_agree=n_agree,
        n_only_a=n_only_a,
        n_only_b=n_only_b,
        n_other_object=n_other_object,
        n_differing=n_differing,
        ppm=1e6 * ratio(n_differing, pair.a.image.size),
        verdict=_verdict(pair, n_differing),
        same_numbering=pair.numbers_mean_the_same,
        by_plane=pair.by_plane,
        numbering_a=pair.a.numbering,
        numbering_b=pair.b.numbering,
        n_shared_a=pair.a.n_shared,
        n_shared_b=pair.b.n_shared,
        objects=objects,
        kinds=Counter(change.kind for change in objects),
        n_objects_a=table.n_a,
        n_objects_b=table.n_b,
        n_renumbered=sum(change.renumbered for change in objects),
        n_matched=len(matched),
        n_unmatched=n_unmatched,
        changed=ratio(n_unmatched, n_objects),
        ap=ap,
        precision=precision,
        recall=recall,
        f1=ratios(2 * n_matched, n_objects),
        ap50=float(ap[0]),
        precision50=float(precision[0]),
        recall50=float(recall[0]),
        mean_matched_iou=mean(table.iou[matched]),
        mean_matched_area_difference=mean(areas_of_matched_b - areas_of_matched_a),
        pq=ratio(2 * table.iou[table.iou > 0.5].sum(), n_objects),
        aji=aggregated_jaccard_index(table),
        dice=ratio(2 * n_shared, 2 * n_shared + n_only_a + n_only_b),
        boundary_f1=boundary_f1(pair.a.image, pair.b.image),
        vi_split=vi_split,
        vi_merge=vi_merge,
        vi=vi_split + vi_merge,
        rand_error=adapted_rand_error(shared),
    )


def _verdict(pair: ReadPair, n_differing: int) -> Verdict:
    if pair.table.equal_labels:
        return Verdict.IDENTICAL if pair.table.n_a else Verdict.VACUOUS
    differs = n_differing or not pair.numbers_mean_the_same
    return Verdict.DIFFERENT if differs else Verdict.SAME_OBJECTS


def categories(a: ArrayLike, b: ArrayLike) -> NDArray[np.uint8]:
    """Get a map of where two label images agree and how they differ where they do not.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object.

    Returns
    -------
    ndarray of uint8, same shape
        0 background in both, 1 the same object, 2 only in a, 3 only in b, 4 a different object.
        Objects are the same if they are partners. Where several assignments overlap equally, as
        for an object cut into exact halves, the map shows one of them, chosen by outlines and
        never by numbers; the counts are equal for all.

    Examples
    --------
    >>> categories([[1, 1, 1, 0]], [[4, 4, 9, 9]]).tolist()
    [[1, 1, 4, 3]]
    """
    return category_map(read_pair(*label_images(("a", a), ("b", b))))


def category_map(pair: ReadPair) -> NDArray[np.uint8]:
    """Get the map of `categories` of two label images that are read."""
    image_a = pair.a.image
    image_b = pair.b.image
    table = pair.table
    if pair.a.given is not None or pair.b.given is not None:
        table = overlap(image_a, image_b)  # with the numbers of these two
    chosen = partners(table)
    labels = table.labels_a[table.rows[chosen]]
    order = np.argsort(labels)
    # Sorted labels of a, and the partner of each; -1 stands behind the last.
    with_partner = np.append(labels[order], -1)
    partner = np.append(table.labels_b[table.columns[chosen]][order], -1)
    result = np.empty(image_a.size, np.uint8)
    for block in runs(image_a, image_b):
        of_a = block.labels_a.astype(np.int64)
        of_b = block.labels_b.astype(np.int64)
        index = np.searchsorted(with_partner[:-1], of_a)
        same_object = (with_partner[index] == of_a) & (partner[index] == of_b)
        category = np.where((of_a > 0) & (of_b > 0), 4, 2 * (of_a > 0) + 3 * (of_b > 0))
        category[same_object] = 1
        start = block.starts[0]
        result[start : start + block.lengths.sum()] = np.repeat(category, block.lengths)
    return result.reshape(image_a.shape)


def average_precision(
    truth: ArrayLike, predicted: ArrayLike, thresholds: Iterable[float] = (0.5,)
) -> Scores:
    """Get TP / (TP + FP + FN) of two label images at each IoU threshold.

    NaN if neither image holds an object, 0 if only one does.

    TP is the largest number of one-to-one pairs of objects whose IoU is at least the threshold, FP
    the predicted and FN the true objects left over. ``cellpose.metrics.average_precision``
    (4.2.1.1) computes the same in float32, but also for unequal shapes, and wrongly without
    background.

    >>> truth = [[1, 1, 0, 2], [1, 1, 0, 2]]
    >>> average_precision(truth, [[3, 3, 0, 0], [3, 0, 0, 0]], (0.5, 0.75, 0.8)).tolist()
    [0.5, 0.5, 0.0]
    """
    limits = list(thresholds)
    if not all(0 < limit <= 1 for limit in limits):
        raise BadInput(f"IoU thresholds {limits} are not all above 0 and at most 1; 0.5 is usual")
    table = read_pair(*label_images(("truth", truth), ("predicted", predicted))).table
    n_matched = np.array([len(matches(table, limit)) for limit in limits], np.float64)
    return ratios(n_matched, table.n_a + table.n_b - n_matched)
