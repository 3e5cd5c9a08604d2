"""The scores of two label images: each declared, with its source, and computed.

A new score is a field of `MaskScores` and its line in `scores_of`. Everything else follows from
these: its place in the JSON, in the tables of notebooks, in docs/scores.md and docs/json.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.boundary_score import boundary_f1
from cellrepro.comparison.label_pair import ReadPair, read_pair
from cellrepro.comparison.object_matching import Integers, Overlap, matches
from cellrepro.images.label_image import label_images
from samebits.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Written out: arange(0.5, 1, 0.05) holds 0.6000000000000001, which an IoU of 3/5 fails.
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)

Scores = NDArray[np.float64]

ScoreGroup = Literal["pixels", "matches", "outlines", "information"]
"""The sections of docs/scores.md."""


@dataclass(frozen=True)
class Score:
    """A score as tables and pages show it; its definition is the docstring of its field."""

    group: ScoreGroup
    label: str = ""
    """Its name in tables; a score without one stands in the JSON alone."""
    meaning: str = ""
    """A line for those who read tables; ``{a}`` and ``{b}`` stand for the two sides."""
    range: str = "0 to 1"
    unit: str = ""
    best: int | None = 1
    """None where neither more nor less is better."""
    source: str = ""
    """Where it is defined; empty where that follows from another score."""
    checked_with: str = "examples computed by hand"
    """The programs or examples with which the tests compare it."""
    of_nothing: str = "NaN"
    """Its value where neither side has an object."""
    of_one_side: str = "0"
    """Its value where only one side has an object."""
    number: Callable[[Any], float] = float
    """Makes the one number of a table from its value, where that is a list."""

    def meaning_of(self, a: str, b: str) -> str:
        """Say what it says of two sides, and which number is best where that is 0."""
        meaning = self.meaning.format(a=a, b=b)
        if self.best != 0:
            return meaning
        best = ", ".join(filter(None, [self.unit, "0 is best"]))
        return f"{best}; {meaning}"


_CELLPOSE_AND_STARDIST = "Cellpose 4.2.1.1 and StarDist 0.9.2"
_STARDIST = "StarDist 0.9.2"
_SCIKIT_IMAGE = "scikit-image 0.26.0"
_MEILA = "Meilă, *Comparing clusterings by the variation of information*, COLT 2003"
_DIVIDED = "0; NaN where divided by nothing"
_VARIATION = Score(
    "information",
    range="0 or more",
    unit="bits",
    best=0,
    of_nothing="0",
    of_one_side="as for any labels",
)


@dataclass(frozen=True, eq=False, repr=False)
class MaskScores:
    """Every score of two label images; one over nothing is NaN, never 0 or 1.

    TP are the true positives: the most one-to-one pairs of objects whose intersection over union
    (IoU) is at least a threshold; FP are the objects of b that remain, FN those of a.
    """

    n_matched: int
    """TP at 0.5: objects of a with a match in b, one to one."""
    n_unmatched: int
    """FP + FN at 0.5: objects of either side without a match."""
    changed: Annotated[float, Score("matches", best=0, of_one_side="1")]
    """Share of both sides' objects without a match at 0.5, which is 1 - F1."""
    ap50: Annotated[
        float,
        Score(
            "matches",
            "AP at IoU 0.5",
            "average precision at IoU 0.5, as Cellpose gives it: 1 where every cell has its match",
        ),
    ]
    """``ap`` at 0.5."""
    ap: Annotated[
        Scores,
        Score(
            "matches",
            "AP, 0.5 to 0.95",
            "the same, averaged over ten demands on the overlap",
            source="Cellpose, `cellpose.metrics.average_precision`",
            checked_with=_CELLPOSE_AND_STARDIST,
            number=np.mean,
        ),
    ]
    """Average precision at each of ``thresholds``, ``TP / (TP + FP + FN)``. Cellpose and StarDist
    count it so; it is not the area under a curve, for which COCO uses the same name."""
    f1: Annotated[
        Scores,
        Score(
            "matches",
            "F1",
            "share of the cells with a match at IoU 0.5",
            source="usual",
            checked_with=_STARDIST,
            number=lambda values: float(values[0]),
        ),
    ]
    """Twice the matches over the objects of both, ``2 · TP / (2 · TP + FP + FN)``."""
    precision50: Annotated[
        float,
        Score(
            "matches",
            "precision",
            "share of the cells of {b} that {a} has as well",
            of_one_side=_DIVIDED,
        ),
    ]
    """``precision`` at 0.5."""
    precision: Annotated[
        Scores, Score("matches", source="usual", checked_with=_STARDIST, of_one_side=_DIVIDED)
    ]
    """Matches over the objects of b, ``TP / (TP + FP)``."""
    recall50: Annotated[
        float,
        Score(
            "matches",
            "recall",
            "share of the cells of {a} that {b} has as well",
            of_one_side=_DIVIDED,
        ),
    ]
    """``recall`` at 0.5."""
    recall: Annotated[
        Scores, Score("matches", source="usual", checked_with=_STARDIST, of_one_side=_DIVIDED)
    ]
    """Matches over the objects of a, ``TP / (TP + FN)``."""
    mean_matched_iou: Annotated[
        float,
        Score(
            "matches",
            "IoU of matches",
            "mean intersection over union of the matching cells",
            range="0.5 to 1",
            source="usual",
            checked_with=_STARDIST,
            of_one_side="NaN",
        ),
    ]
    """Mean IoU of the matches at 0.5."""
    pq: Annotated[
        float,
        Score(
            "matches",
            "panoptic quality",
            "share of matching cells times their mean overlap",
            source="Kirillov et al., *Panoptic segmentation*, CVPR 2019",
            checked_with=_STARDIST,
        ),
    ]
    """Panoptic quality: the sum of the IoU of all pairs with an IoU above 0.5, divided by
    ``TP + FP / 2 + FN / 2``; that is mean IoU times F1."""
    aji: Annotated[
        float,
        Score(
            "outlines",
            "AJI",
            "overlap cell by cell; what only one side has counts against it",
            source="Kumar et al., *IEEE Transactions on Medical Imaging* 2017",
        ),
    ]
    """Aggregated Jaccard index with a as the truth: each object of a takes the object of b with the
    highest IoU. The sum of the shared pixels, divided by the sum of the joint pixels plus all
    pixels of objects that no pair has. An object of b may be taken twice."""
    dice: Annotated[
        float,
        Score(
            "pixels",
            "Dice",
            "overlap of all pixels that are cell, whichever cell",
            source="Dice, *Ecology* 1945",
        ),
    ]
    """Pixels that are cell in both, twice, over those that are cell in each: ``2 · |A ∩ B| / (|A| +
    |B|)`` where A and B are the pixels of all objects of a and of b."""
    boundary_f1: Annotated[
        float,
        Score(
            "outlines",
            "boundary F1",
            "outlines that agree to within 2 pixels",
            source=(
                "Csurka et al., *What is a good evaluation measure for semantic segmentation?*, "
                "BMVC 2013"
            ),
        ),
    ]
    """F1 of the boundary pixels: one counts as found if the other image has a boundary pixel within
    2 pixels. A boundary pixel is a pixel of an object that has a different label beside it; the
    edge of the image is no boundary. 0 if one side has none."""
    vi_split: Annotated[
        float,
        replace(
            _VARIATION,
            label="VI, split",
            meaning="grows where {b} cuts cells",
            source=_MEILA,
            checked_with=_SCIKIT_IMAGE,
        ),
    ]
    """Conditional entropy H(b | a), the bits of information about b that a leaves open: grows where
    b cuts objects."""
    vi_merge: Annotated[
        float,
        replace(
            _VARIATION,
            label="VI, merge",
            meaning="grows where {b} joins cells",
            source=_MEILA,
            checked_with=_SCIKIT_IMAGE,
        ),
    ]
    """Conditional entropy H(a | b), the bits of information about a that b leaves open: grows where
    b joins objects."""
    vi: Annotated[float, _VARIATION]
    """Variation of information, ``vi_split + vi_merge``."""
    rand_error: Annotated[
        float,
        Score(
            "information",
            "adapted Rand error",
            "pairs of pixels joined on one side only",
            best=0,
            source="the SNEMI3D challenge",
            checked_with=_SCIKIT_IMAGE,
            of_one_side=(
                "NaN where *a* has none; where *b* has none, background counts as one object of "
                "*b*, so a single object of *a* has error 0"
            ),
        ),
    ]
    """Adapted Rand error with a as the truth, 1 - F1 over pairs of pixels, of those that lie in
    objects of a: a pair counts where one object holds both pixels."""
    mean_matched_area_difference: Annotated[
        float,
        Score(
            "matches",
            "mean change in size of a matched cell",
            "its size in {b} less its size in {a}",
            range="",
            unit="pixels",
            best=None,
            of_one_side="NaN",
        ),
    ]
    """Mean of (pixels in b minus pixels in a) over the matches at 0.5."""


def _declared() -> Iterable[tuple[str, Score]]:
    for name, annotation in get_type_hints(MaskScores, include_extras=True).items():
        for declared in getattr(annotation, "__metadata__", ()):
            yield name, declared


SCORES: Mapping[str, Score] = dict(_declared())
"""What is declared of each score, by its field."""


def scores_of(pair: ReadPair) -> MaskScores:
    """Compute every score of two label images."""
    table = pair.table
    n_objects = table.n_a + table.n_b
    matched = matches(table, 0.5)
    n_unmatched = n_objects - 2 * len(matched)
    areas_of_matched_a = table.areas_a[table.rows[matched]]
    areas_of_matched_b = table.areas_b[table.columns[matched]]
    n_matched = np.array([len(matches(table, limit)) for limit in THRESHOLDS], np.float64)
    ap = ratios(n_matched, n_objects - n_matched)
    precision = ratios(n_matched, table.n_b)
    recall = ratios(n_matched, table.n_a)
    shared = shared_pixels(table)
    vi_split = conditional_entropy(shared.in_a, shared.pixels)
    vi_merge = conditional_entropy(shared.in_b, shared.pixels)
    return MaskScores(
        n_matched=len(matched),
        n_unmatched=n_unmatched,
        changed=ratio(n_unmatched, n_objects),
        ap50=float(ap[0]),
        ap=ap,
        f1=ratios(2 * n_matched, n_objects),
        precision50=float(precision[0]),
        precision=precision,
        recall50=float(recall[0]),
        recall=recall,
        mean_matched_iou=mean(table.iou[matched]),
        pq=ratio(2 * table.iou[table.iou > 0.5].sum(), n_objects),
        aji=aggregated_jaccard_index(table),
        dice=ratio(2 * table.pixels.sum(), table.areas_a.sum() + table.areas_b.sum()),
        boundary_f1=boundary_f1(pair.a.image, pair.b.image),
        vi_split=vi_split,
        vi_merge=vi_merge,
        vi=vi_split + vi_merge,
        rand_error=adapted_rand_error(shared),
        mean_matched_area_difference=mean(areas_of_matched_b - areas_of_matched_a),
    )


# -- formulas --------------------------------------------------------------------------------


def ratio(part: float, whole: float) -> float:
    """A share of a whole; NaN of nothing.

    >>> ratio(1, 4), ratio(0, 0)
    (0.25, nan)
    """
    return float(part) / float(whole) if whole else math.nan


def ratios(parts: Scores, whole: Scores | int) -> Scores:
    """`ratio` of each part, shape (T,)."""
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        return parts / whole


def mean(values: NDArray) -> float:
    """The mean of some numbers; NaN of none."""
    return float(values.mean()) if len(values) else math.nan


def aggregated_jaccard_index(table: Overlap) -> float:
    """Aggregated Jaccard index (AJI), a being the truth.

    In [0, 1]; NaN if neither side holds an object.

    As Kumar et al. define it (IEEE TMI 2017), which
    ``cellpose.metrics.aggregated_jaccard_index`` (4.2.1.1) does not.
    """
    best_first = np.lexsort((table.columns, -table.pixels, -table.iou, table.rows))
    best = best_first[np.unique(table.rows[best_first], return_index=True)[1]]
    rows = table.rows[best]
    columns = table.columns[best]
    shared = table.pixels[best]
    unions = table.areas_a[rows] + table.areas_b[columns] - shared
    without_overlap = np.delete(table.areas_a, rows).sum()
    never_taken = np.delete(table.areas_b, np.unique(columns)).sum()
    return ratio(shared.sum(), unions.sum() + without_overlap + never_taken)


class SharedPixels(NamedTuple):
    """Every pair of an object of a and one of b that share pixels, background being one of them."""

    in_a: Integers
    """The object of a, from 1; 0 is background."""
    in_b: Integers
    """The object of b, likewise."""
    pixels: Integers
    """How many both hold, at least 1."""


def shared_pixels(table: Overlap) -> SharedPixels:
    """All pixels of two label images by the pair of objects that they belong to."""
    n_a = table.n_a
    n_b = table.n_b
    only_a = table.areas_a - np.bincount(table.rows, table.pixels, n_a).astype(np.int64)
    only_b = table.areas_b - np.bincount(table.columns, table.pixels, n_b).astype(np.int64)
    objects_a = np.arange(n_a) + 1
    objects_b = np.arange(n_b) + 1
    in_a = np.concatenate([table.rows + 1, objects_a, np.zeros(n_b + 1, np.int64)])
    in_b = np.concatenate([table.columns + 1, np.zeros(n_a, np.int64), objects_b, [0]])
    pixels = np.concatenate([table.pixels, only_a, only_b, [table.n_background]])
    any_shared = pixels > 0
    return SharedPixels(in_a[any_shared], in_b[any_shared], pixels[any_shared])


def conditional_entropy(condition: Integers, pixels: Integers) -> float:
    """How uncertain it is where a pixel lies on one side, once it is known where on the other."""
    if not len(pixels):
        return math.nan
    # Logarithms of ratios of whole numbers: an object that is not cut adds exactly 0.
    bits = np.log2(pixels / np.bincount(condition, pixels)[condition])
    return abs(float(np.sum(pixels / pixels.sum() * bits)))  # never -0


def adapted_rand_error(shared: SharedPixels) -> float:
    """Adapted Rand error (SNEMI3D), a being the truth."""
    is_cell = shared.in_a > 0
    in_a = shared.in_a[is_cell]
    in_b = shared.in_b[is_cell]
    pixels = shared.pixels[is_cell].astype(np.float64)
    n_pixels = pixels.sum()

    def joined_pairs(counts: NDArray) -> float:
        return float(np.sum(counts**2) - n_pixels)

    in_both = joined_pairs(pixels)
    in_truth = joined_pairs(np.bincount(in_a, pixels))
    in_prediction = joined_pairs(np.bincount(in_b, pixels))
    return 1 - ratio(2 * in_both, in_truth + in_prediction)


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
