"""Every score of two label images: drawn by hand, at the edges, and over nothing."""

import math

import numpy as np
import pytest
from test_mask_comparison import A, B

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.scores import SCORES, average_precision


def test_a_lopsided_example():
    spread = 1 / 2 + math.log2(3) / 3 + math.log2(6) / 6  # over 3, 2 and 1 of 6 pixels
    expected = {
        "n_objects_a": 2,
        "n_objects_b": 3,
        "n_matched": 1,
        "n_unmatched": 3,
        "changed": 3 / 5,
        "f1": [2 / 5] * 6 + [0] * 4,
        "precision50": 1 / 3,  # of b's three
        "precision": [1 / 3] * 6 + [0] * 4,
        "recall50": 1 / 2,  # of a's two
        "recall": [1 / 2] * 6 + [0] * 4,
        "ap50": 1 / 4,
        "ap": [1 / 4] * 6 + [0] * 4,  # IoU 3/4 reaches 0.75, not 0.8
        "mean_matched_iou": 3 / 4,
        "mean_matched_area_difference": -1,
        "dice": 2 * 3 / (6 + 6),
        "aji": 3 / 9,  # 3 of the 4 of 1 and 4 together, 2 of object 2, 3 of objects 5 and 6
        "pq": (3 / 4) / (1 + 2 / 2 + 1 / 2),
        "boundary_f1": 1,
        "vi_split": 4 / 12 * (3 / 4 * math.log2(4 / 3) + 1 / 4 * 2) + 6 / 12 * spread,
        "vi_merge": 6 / 12 * spread,
        "vi": 4 / 12 * (3 / 4 * math.log2(4 / 3) + 1 / 4 * 2) + spread,
        # Inside a's objects: 1 with 4 three times, 1 with 0 once, 2 with 0 twice.
        # 9 + 1 + 4 - 6 = 8 pairs of both; 16 + 4 - 6 = 14 of a; 9 + 9 - 6 = 12 of b
        "rand_error": 1 - 2 * 8 / (14 + 12),
    }
    found = compare_masks(A, B)
    figures = found.figures()
    for name, value in expected.items():
        assert figures[name] == pytest.approx(value), name
    assert SCORES.keys() <= expected.keys()
    assert (found.kinds["lost"], found.kinds["gained"]) == (1, 2)


def test_boundaries_within_two_pixels():
    two_apart = [[1, 1, 1, 1, 0, 0, 0, 0, 0]], [[1, 1, 0, 0, 0, 0, 0, 0, 0]]
    three_apart = [[1, 1, 1, 1, 1, 0, 0, 0, 0]], [[1, 1, 0, 0, 0, 0, 0, 0, 0]]
    only_a = [[1, 1, 1, 2, 2, 2]], [[1, 1, 1, 1, 1, 1]]  # the image's edge is no boundary
    for (a, b), f1 in ((two_apart, 1), (three_apart, 0), (only_a, 0)):
        assert compare_masks(a, b).boundary_f1 == compare_masks(b, a).boundary_f1 == f1


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([[1, 1, 1, 1]], [[3, 3, 4, 4]], 2 / 6),
        ([[3, 3, 4, 4]], [[1, 1, 1, 1]], 4 / 8),
    ],
    ids=["cut: half is taken, the other half is left over", "joined: taken twice, whole each time"],
)
def test_aggregated_jaccard_index(a, b, expected):
    """Kumar's, not Cellpose's (4.2.1.1): that one answers 1/2 to both of the first two."""
    assert compare_masks(a, b).aji == pytest.approx(expected, rel=1e-15)


def test_an_iou_at_its_threshold():
    """3/5 reaches 0.6; 1/2 is a match at 0.5, but none for panoptic quality (Kirillov 2019)."""
    assert compare_masks([[1, 1, 1, 1, 0]], [[0, 1, 1, 1, 1]]).ap.tolist() == [1] * 3 + [0] * 7
    half = compare_masks([[1, 1, 0]], [[1, 0, 0]])
    assert (half.n_matched, half.ap50, half.pq) == (1, 1, 0)


NOTHING = [[0, 0, 0, 0]]
ONE_OBJECT = [[0, 5, 5, 0]]


@pytest.mark.parametrize("shape", [(3, 3), (0, 4), (2, 3, 3)], ids=["2-D", "no pixels", "3-D"])
def test_a_score_over_nothing(shape):
    """As declared; a 0 or 1 would be a claim."""
    nothing = np.zeros(shape, int)
    found = compare_masks(nothing, nothing)
    assert (found.verdict, found.n_differing) == ("vacuous", 0)
    assert np.isnan(average_precision(nothing, nothing)).all()
    if nothing.size:  # over no pixel, nothing is known of any
        for name, score in SCORES.items():
            assert np.all(is_declared(getattr(found, name), score.of_nothing)), name


@pytest.mark.parametrize(("a", "b"), [(ONE_OBJECT, NOTHING), (NOTHING, ONE_OBJECT)])
def test_a_score_over_one_side(a, b):
    found = compare_masks(a, b)
    for name, score in SCORES.items():
        if score.of_one_side in ("0", "1", "NaN"):
            assert np.all(is_declared(getattr(found, name), score.of_one_side)), name
    assert math.isnan(found.precision50 if b is NOTHING else found.recall50)


def is_declared(value, text):
    return np.isclose(value, float(text), equal_nan=True)


def test_how_a_score_is_worded():
    assert SCORES["vi_split"].meaning_of("A", "B") == "bits, 0 is best; grows where B cuts cells"
    assert SCORES["dice"].meaning_of("A", "B").startswith("overlap of all pixels")
