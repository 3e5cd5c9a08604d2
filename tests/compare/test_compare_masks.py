"""Label images side by side: hand-drawn cases, properties, and Cellpose as a second opinion."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linear_sum_assignment

from cellrepro.compare.metrics import (
    Category,
    average_precision,
    canonical,
    categories,
    compare_masks,
    same_objects,
)
from cellrepro.compare.verdicts import Verdict
from cellrepro.errors import BadInput

# derandomize: the same examples everywhere and no example database left behind
PROPERTY = settings(derandomize=True, deadline=None, max_examples=150)
HUGE = 2**32 - 1
LABELS = [0, 1, 2, 3, 7, HUGE]
PIXEL_COUNTS = ("n_background", "n_agree", "n_only_a", "n_only_b", "n_other_object")


@st.composite
def image_pairs(draw):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=5))
    images = hnp.arrays(np.int64, shape, elements=st.sampled_from(LABELS))
    a = draw(images)
    if draw(st.booleans()):
        return a, draw(images)
    # a few pixels changed: the case in which matches and partners abound
    b = a.copy()
    for pixel in draw(st.lists(st.integers(0, a.size - 1), max_size=3)):
        b.flat[pixel] = draw(st.sampled_from(LABELS))
    return a, b


def renumbered(masks, order):
    """The image with the objects' labels permuted; 0 stays."""
    table = dict(zip(LABELS[1:], order, strict=True)) | {0: 0}
    return np.vectorize(table.__getitem__, otypes=[np.int64])(masks)


def dense_overlap(a, b):
    labels_a, labels_b = (np.unique(x[x > 0]) for x in (a, b))
    pixels = [[np.sum((a == i) & (b == j)) for j in labels_b] for i in labels_a]
    overlap = np.array(pixels, float).reshape(len(labels_a), len(labels_b))
    areas_a = np.array([[np.sum(a == i)] for i in labels_a]).reshape(-1, 1)
    areas_b = np.array([np.sum(b == j) for j in labels_b]).reshape(1, -1)
    return overlap, overlap / (areas_a + areas_b - overlap)


# Hand-drawn cases

SQUARE = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]]


@pytest.mark.parametrize(
    ("b", "verdict", "counts", "objects", "lost", "gained"),
    [
        (SQUARE, "identical", (8, 8, 0, 0, 0), (2, 2), (), ()),
        (
            [[9, 9, 0, 0], [9, 9, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]],
            "same-objects",
            (8, 8, 0, 0, 0),
            (2, 2),
            (),
            (),
        ),
        (
            [[1, 1, 0, 0], [3, 1, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]],
            "different",
            (8, 7, 0, 0, 1),
            (2, 1),
            (),
            (),
        ),
        (
            [[1, 1, 0, 0], [3, 3, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]],
            "different",
            (8, 6, 0, 0, 2),
            (2, 1),
            (),
            (),
        ),
        (
            [[7, 7, 0, 0], [7, 7, 0, 0], [0, 0, 7, 7], [0, 0, 7, 7]],
            "different",
            (8, 4, 0, 0, 4),
            (1, 0),
            (),
            (),
        ),
        (
            [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
            "different",
            (8, 4, 4, 0, 0),
            (1, 1),
            (2,),
            (),
        ),
        (
            [[1, 1, 0, 5], [1, 1, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]],
            "different",
            (7, 8, 0, 1, 0),
            (2, 2),
            (),
            (5,),
        ),
        (
            [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 2, 2], [0, 0, 2, 2]],
            "different",
            (6, 6, 2, 2, 0),
            (1, 1),
            (),
            (),
        ),
        (np.zeros((4, 4), int), "different", (8, 0, 8, 0, 0), (0, 0), (1, 2), ()),
    ],
    ids=[
        "identical",
        "renumbered",
        "a corner split off",
        "split in exact halves matches once",
        "merged in equal parts",
        "lost",
        "gained",
        "moved by one pixel",
        "nothing found",
    ],
)
def test_compare_masks(b, verdict, counts, objects, lost, gained):
    actual = compare_masks(SQUARE, b)
    assert actual.verdict == verdict
    assert tuple(getattr(actual, name) for name in PIXEL_COUNTS) == counts
    assert (actual.n_matched, actual.n_kept) == objects
    assert (actual.lost, actual.gained) == (lost, gained)
    assert actual.n_pixels == 16
    assert actual.n_differing == sum(counts[2:])
    assert actual.ppm == sum(counts[2:]) * 62500


def test_compare_masks_figures_of_a_lopsided_case():
    """Object 1 loses one of four pixels, object 2 is lost, and b finds two more."""
    a = [[1, 1, 0, 2, 0, 0], [1, 1, 0, 2, 0, 0]]
    b = [[4, 4, 0, 0, 0, 5], [4, 0, 0, 0, 6, 5]]
    actual = compare_masks(a, b)
    assert (actual.n_objects_a, actual.n_objects_b, actual.n_matched) == (2, 3, 1)
    assert actual.precision50 == pytest.approx(1 / 3)  # of b's objects
    assert actual.recall50 == pytest.approx(1 / 2)  # of a's objects
    assert actual.ap50 == pytest.approx(1 / 4)  # 1 / (1 + 2 + 1)
    assert actual.mean_matched_iou == pytest.approx(3 / 4)
    assert (actual.mean_area_a, actual.mean_area_b) == (3, 2)
    assert actual.mean_area_difference == -1
    assert actual.mean_matched_area_difference == -1
    assert actual.ap.tolist() == [1 / 4] * 6 + [0] * 4  # IoU 3/4 reaches 0.75, not 0.8
    assert (actual.lost, actual.gained) == ((2,), (5, 6))


def test_compare_masks_no_background():
    a = [[1, 1], [2, 2]]
    actual = compare_masks(a, [[2, 2], [1, 1]])
    assert actual.verdict is Verdict.SAME_OBJECTS
    assert (actual.n_objects_a, actual.ap50) == (2, 1)


@pytest.mark.parametrize("shape", [(3, 3), (0, 4), (2, 3, 3)], ids=["2-D", "no pixels", "3-D"])
def test_compare_masks_without_objects_is_vacuous(shape):
    actual = compare_masks(np.zeros(shape, int), np.zeros(shape, int))
    assert actual.verdict is Verdict.VACUOUS
    figures = ("ap50", "precision50", "recall50", "mean_matched_iou", "mean_area_difference")
    assert all(math.isnan(getattr(actual, name)) for name in figures)
    assert np.isnan(actual.ap).all()
    assert actual.n_differing == 0
    assert same_objects(np.zeros(shape, int), np.zeros(shape, int))


def test_compare_masks_says_that_the_dtype_differs():
    a = np.array(SQUARE, np.uint16)
    actual = compare_masks(a, a.astype(np.int64))
    assert actual.verdict is Verdict.IDENTICAL
    assert (actual.dtype_a, actual.dtype_b, actual.same_dtype) == ("uint16", "int64", False)


def test_compare_masks_3d():
    a = np.zeros((3, 4, 4), np.uint8)
    a[1:, 1:3, 1:3] = 5
    b = a.copy()
    b[0, 1:3, 1:3] = 5
    actual = compare_masks(a, b)
    assert (actual.shape, actual.n_only_b, actual.n_agree) == ((3, 4, 4), 4, 8)
    assert actual.mean_matched_iou == pytest.approx(2 / 3)


@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.uint64])
def test_labels_up_to_the_largest(dtype):
    a = np.array([[0, HUGE, HUGE], [3, 3, 0]], dtype)
    assert canonical(a).tolist() == [[0, 1, 1], [2, 2, 0]]
    actual = compare_masks(a, np.where(a == HUGE, 0, a))
    assert actual.lost == (HUGE,)
    assert actual.n_only_a == 2


def test_a_partition_of_the_pixels_beats_the_largest_single_overlap():
    """Taking the largest overlap first (3) would agree on 3 pixels; the best assignment on 4."""
    a = [[1, 1, 1, 1, 1, 2, 2]]
    b = [[3, 3, 4, 4, 4, 4, 4]]
    counts = np.bincount(categories(a, b).ravel(), minlength=5)
    assert counts[Category.AGREE] == compare_masks(a, b).n_agree == 4


def test_an_iou_of_three_fifths_reaches_its_threshold():
    a, b = [[1, 1, 1, 1, 0]], [[0, 1, 1, 1, 1]]
    assert compare_masks(a, b).ap.tolist() == [1, 1, 1] + [0] * 7


def test_below_one_half_objects_compete_for_a_match():
    """1 reaches 3 and 4, 2 only 4: both match, though 1 taking 4 would leave 2 without."""
    a, b = [[1, 1, 2, 2]], [[3, 4, 4, 0]]  # IoU 1/2, 1/3 and 1/3
    assert average_precision(a, b, (0.25, 0.4, 0.5, 0.6)).tolist() == [1, 1 / 3, 1 / 3, 0]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([[0, 1], [2, 2]], [[0, 7], [5, 5]], True),
        ([[1, 1], [2, 2]], [[2, 2], [1, 1]], True),
        ([[0, 1], [1, 1]], [[0, 1], [2, 2]], False),
        ([[0, 1], [2, 2]], [[0, 1], [1, 1]], False),
        ([[0, 1], [1, 1]], [[2, 1], [1, 1]], False),
        ([[0, 0], [0, 0]], [[1, 1], [1, 1]], False),
        ([[1]], [[1]], True),
    ],
    ids=["renumbered", "no background", "split", "merged", "gained", "inverted", "one object"],
)
def test_same_objects(a, b, expected):
    assert same_objects(np.array(a), np.array(b)) is expected


def test_categories_map():
    a = [[1, 1, 1, 0], [0, 2, 2, 2]]
    b = [[5, 5, 6, 6], [0, 0, 2, 2]]
    actual = categories(a, b)
    assert actual.dtype == np.uint8
    assert actual.tolist() == [[1, 1, 4, 3], [0, 2, 1, 1]]


def test_canonical_does_not_depend_on_memory_order():
    image = np.array([[0, 9, 9], [4, 4, 0]])
    assert canonical(np.asfortranarray(image)).tolist() == canonical(image).tolist()
    assert canonical(image).dtype == np.uint32


# What cannot be compared


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (np.ones((2, 2)), r"a has dtype float64, .* cast with .astype\('int32'\)"),
        (np.full((2, 2), np.nan), "a has dtype float64"),
        (np.ones((2, 2), bool), "a has dtype bool, .* label a foreground map first"),
        (np.array([["x"]]), "a has dtype <U1"),
        (np.array([[0, -3]]), "a holds the negative label -3, .* set what is to be ignored to 0"),
        (np.array([[0, 2**32]]), "a holds the label 4294967296, .* renumber the objects first"),
        (np.array([0, 1]), r"a has shape \(2,\), .* give the image as it is"),
        (np.zeros((1, 2, 2, 2), int), r"a has shape \(1, 2, 2, 2\), .* series one by one"),
    ],
    ids=["float", "NaN", "bool", "text", "negative", "too large", "1-D", "4-D"],
)
@pytest.mark.parametrize("function", [compare_masks, same_objects, categories])
def test_no_label_image(function, masks, message):
    with pytest.raises(BadInput, match=message):
        function(masks, np.zeros((2, 2), int))


@pytest.mark.parametrize("threshold", [0, -0.5, 1.01, math.nan, math.inf])
def test_thresholds_outside_the_range(threshold):
    with pytest.raises(BadInput, match=r"are not all in \(0, 1\]"):
        average_precision(SQUARE, SQUARE, (0.5, threshold))


# Properties


@PROPERTY
@given(image_pairs())
def test_swapping_the_sides_swaps_the_result(pair):
    a, b = pair
    there, back = compare_masks(a, b), compare_masks(b, a)
    assert there.verdict == back.verdict
    both = ("n_background", "n_agree", "n_other_object", "n_differing", "n_matched", "n_kept")
    for name in both:
        assert getattr(there, name) == getattr(back, name)
    assert (there.n_only_a, there.n_objects_a) == (back.n_only_b, back.n_objects_b)
    assert len(there.lost) == len(back.gained)
    np.testing.assert_array_equal(there.ap, back.ap)
    np.testing.assert_array_equal(there.precision50, back.recall50)


@PROPERTY
@given(image_pairs(), st.permutations(LABELS[1:]))
def test_numbers_change_nothing(pair, order):
    a, b = pair
    other = renumbered(a, order)
    assert same_objects(a, other)
    expected, actual = compare_masks(a, b), compare_masks(other, b)
    for name in (*PIXEL_COUNTS, "n_matched", "n_kept", "gained"):
        assert getattr(actual, name) == getattr(expected, name)
    table = dict(zip(LABELS[1:], order, strict=True))
    assert actual.lost == tuple(table[label] for label in expected.lost)
    np.testing.assert_array_equal(actual.ap, expected.ap)
    np.testing.assert_array_equal(categories(other, b), categories(a, b))
    assert (actual.verdict == "different") == (expected.verdict == "different")


@PROPERTY
@given(image_pairs())
def test_every_image_is_itself(pair):
    a, _ = pair
    actual = compare_masks(a, a.copy())
    assert actual.verdict == ("identical" if a.any() else "vacuous")
    assert actual.n_kept == actual.n_matched == actual.n_objects_a == len(np.unique(a[a > 0]))
    assert set(np.unique(categories(a, a))) <= {Category.BACKGROUND, Category.AGREE}


@PROPERTY
@given(image_pairs())
def test_the_verdict_the_count_and_the_map_say_the_same(pair):
    a, b = pair
    actual = compare_masks(a, b)
    assert (actual.n_differing == 0) == same_objects(a, b)
    counts = np.bincount(categories(a, b).ravel(), minlength=5)
    assert tuple(counts) == tuple(getattr(actual, name) for name in PIXEL_COUNTS)
    assert sum(counts) == actual.n_pixels == a.size


@PROPERTY
@given(image_pairs())
def test_canonical_outlines_the_same_and_settles(pair):
    a, _ = pair
    once = canonical(a)
    assert same_objects(a, once)
    np.testing.assert_array_equal(canonical(once), once)
    np.testing.assert_array_equal(once == 0, a == 0)
    first_seen = list(dict.fromkeys(once[once > 0].tolist()))
    assert first_seen == list(range(1, len(first_seen) + 1))


@PROPERTY
@given(image_pairs(), st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 0.6, 1.0]))
def test_sparse_pairing_is_as_good_as_a_dense_assignment(pair, threshold):
    a, b = pair
    overlap, iou = dense_overlap(a, b)
    best = linear_sum_assignment(overlap, maximize=True)
    assert compare_masks(a, b).n_agree == overlap[best].sum()
    n_matched = (iou >= threshold)[linear_sum_assignment(iou >= threshold, maximize=True)].sum()
    n_either = sum(iou.shape) - n_matched
    expected = n_matched / n_either if n_either else math.nan
    np.testing.assert_array_equal(average_precision(a, b, threshold), [expected])


# Cellpose as a second opinion


@pytest.fixture(scope="module")
def cellpose_metrics():
    return pytest.importorskip("cellpose.metrics")


def random_masks(generator, n_objects):
    """Rectangles over background, numbered without gaps."""
    image = np.zeros((40, 50), np.int32)
    for label in range(1, n_objects + 1):
        y, x = generator.integers(0, (36, 46))
        height, width = generator.integers(3, 12, 2)
        image[y : y + height, x : x + width] = label
    image[0] = 0
    return canonical(image).astype(np.int32)


@pytest.mark.parametrize("seed", range(20))
def test_average_precision_agrees_with_cellpose(cellpose_metrics, seed):
    generator = np.random.default_rng(seed)
    truth = random_masks(generator, 15)
    moved = np.roll(truth, 1, axis=1)
    predicted = random_masks(generator, 10) if seed % 2 else moved
    limits = [0.3, 0.5, 0.6, 0.75, 0.9]
    expected, tp, _, _ = cellpose_metrics.average_precision(truth, predicted, limits)
    assert seed % 2 or tp[0] > 3, "nothing matched, so agreement would prove nothing"
    np.testing.assert_allclose(average_precision(truth, predicted, limits), expected, atol=1e-6)


def test_cellpose_scores_other_shapes_of_equal_size(cellpose_metrics):
    a = np.array([[1, 1, 0], [0, 2, 2]])
    b = a.reshape(3, 2)
    assert cellpose_metrics.average_precision(a, b, [0.5])[0].tolist() == [1]
    message = r"truth has \(2, 3\), predicted has \(3, 2\); check that both belong to the same"
    with pytest.raises(BadInput, match=message):
        average_precision(a, b)
    for function in (compare_masks, same_objects, categories):
        with pytest.raises(BadInput, match=r"a has \(2, 3\), b has \(3, 2\)"):
            function(a, b)


def test_cellpose_needs_background(cellpose_metrics):
    full = np.array([[1, 1, 2], [1, 2, 2]])
    with np.errstate(all="ignore"):
        ap, _, n_false_positive, _ = cellpose_metrics.average_precision(full, full, [0.5])
    assert np.isinf(ap).all()
    assert n_false_positive.tolist() == [-1]
    assert average_precision(full, full).tolist() == [1]


def test_average_precision_over_nothing_is_nan_and_says_so_silently(cellpose_metrics):
    empty = np.zeros((3, 3), int)
    with np.errstate(all="ignore"):
        assert np.isnan(cellpose_metrics.average_precision(empty, empty, [0.5])[0]).all()
    assert np.isnan(average_precision(empty, empty)).all()
    assert compare_masks(empty, empty).verdict is Verdict.VACUOUS


def test_average_precision_of_one_side_empty_is_zero():
    empty = np.zeros((4, 4), int)
    assert average_precision(SQUARE, empty, (0.5, 0.9)).tolist() == [0, 0]
    assert average_precision(empty, SQUARE, 0.3).tolist() == [0]
