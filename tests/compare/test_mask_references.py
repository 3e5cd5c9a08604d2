"""Second opinions on the figures: Cellpose, StarDist and scikit-image, and where they are wrong.

Versions: Cellpose 4.2.1.1, StarDist 0.9.2, scikit-image 0.26.0. More on Cellpose's average
precision is in ``test_compare_masks.py``.
"""

from pathlib import Path

import numpy as np
import pytest

from cellrepro.compare.metrics import THRESHOLDS, average_precision, compare_masks
from cellrepro.images.reading import read_masks

NUCLEI = Path(__file__).parents[3] / "shared" / "data" / "nuclei"
REAL = sorted(NUCLEI.glob("test/*_masks.tif")) or [None]

SEEDS = range(6)


@pytest.fixture(scope="module")
def cellpose():
    return pytest.importorskip("cellpose.metrics")


@pytest.fixture(scope="module")
def stardist():
    return pytest.importorskip("stardist.matching")


@pytest.fixture(scope="module")
def skimage():
    return pytest.importorskip("skimage.metrics")


def ellipses(generator, n_objects, shape=(96, 128)):
    """Cells over background, the later ones over the earlier, numbered without gaps."""
    y, x = np.indices(shape)
    image = np.zeros(shape, np.int32)
    for label in range(1, n_objects + 1):
        (cy, cx), (ry, rx) = generator.uniform(0, shape), generator.uniform(3, 10, 2)
        image[((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1] = label
    return numbered(image)


def numbered(image):
    """1 to N, which Cellpose needs for speed only, and its AJI and StarDist's tables for sense."""
    labels, numbers = np.unique(image, return_inverse=True)
    assert labels[0] == 0
    return numbers.reshape(image.shape).astype(np.int32)


def perturbed(generator, image):
    """Another segmentation of the same cells: some go, fall apart, grow together or shift."""
    result = image.copy()
    labels = generator.permutation(np.unique(image[image > 0]))
    share = max(len(labels) // 8, 1)
    result[np.isin(result, labels[:share])] = 0
    for label in labels[share : 2 * share]:
        x = np.nonzero(result == label)[1]
        result[(result == label) & (np.arange(image.shape[1]) > x.mean())] = result.max() + 1
    for label in labels[2 * share : 3 * share]:
        y, x = np.nonzero(result == label)
        beside = result[y, np.minimum(x + 3, image.shape[1] - 1)]
        others = beside[(beside > 0) & (beside != label)]
        if len(others):
            result[result == others[0]] = label
    for label in labels[3 * share : 5 * share]:
        y, x = np.nonzero(result == label)
        result[result == label] = 0
        y, x = np.array([y, x]) + generator.integers(-3, 4, (2, 1))
        inside = (y >= 0) & (x >= 0) & (y < image.shape[0]) & (x < image.shape[1])
        result[y[inside], x[inside]] = label
    return numbered(result)


def made_up(seed):
    generator = np.random.default_rng(seed)
    a = ellipses(generator, 40)
    return a, perturbed(generator, a) if seed % 3 else ellipses(generator, 30)


def real(path):
    if path is None:
        pytest.skip("the nuclei that this compares are not here")
    a = numbered(read_masks(path))
    return a, perturbed(np.random.default_rng(0), a)


PAIRS = [
    *(pytest.param(made_up, seed, id=f"made up {seed}") for seed in SEEDS),
    *(pytest.param(real, path, id=path.stem if path else "real") for path in REAL),
]


PAIRS_OF_IMAGES = pytest.mark.parametrize(("make", "of"), PAIRS)


# Agreement


@PAIRS_OF_IMAGES
def test_average_precision_agrees_with_cellpose(cellpose, make, of):
    a, b = make(of)
    actual = compare_masks(a, b)
    in_float32, *_ = cellpose.average_precision(a, b, list(THRESHOLDS))
    np.testing.assert_allclose(actual.ap, in_float32, rtol=1e-6, atol=1e-6)
    # What it holds before it is rounded to float32
    iou = cellpose._intersection_over_union(a, b)[1:, 1:]
    matched = np.array([cellpose._true_positive(iou, limit) for limit in THRESHOLDS])
    expected = matched / (sum(iou.shape) - matched)
    np.testing.assert_allclose(actual.ap, expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(average_precision(a, b, THRESHOLDS), actual.ap)
    if make is real or of % 3:
        assert actual.ap[0] > actual.ap[-1] > 0, "little matched, so agreement proves little"


@PAIRS_OF_IMAGES
def test_figures_per_object_agree_with_stardist(stardist, make, of):
    a, b = make(of)
    actual = compare_masks(a, b)
    expected = stardist.matching(a, b, thresh=THRESHOLDS)
    for ours, theirs in [("ap", "accuracy"), *((x, x) for x in ("precision", "recall", "f1"))]:
        figures = [getattr(each, theirs) for each in expected]
        np.testing.assert_allclose(getattr(actual, ours), figures, rtol=0, atol=1e-12)
    at_half = expected[0]
    assert (at_half.n_true, at_half.n_pred) == (actual.n_objects_a, actual.n_objects_b)
    assert at_half.tp == actual.n_matched
    assert at_half.fp + at_half.fn == actual.n_unmatched
    # These two add IoUs, which it keeps in float32; without a match it says 0
    mean = actual.mean_matched_iou if actual.n_matched else 0
    assert at_half.mean_matched_score == pytest.approx(mean, rel=1e-6)
    above_half = stardist.matching(a, b, thresh=0.5 + 1e-6)
    assert above_half.panoptic_quality == pytest.approx(actual.pq, rel=1e-6)


@PAIRS_OF_IMAGES
def test_figures_per_pixel_agree_with_scikit_image(skimage, make, of):
    a, b = make(of)
    actual = compare_masks(a, b)
    expected = skimage.variation_of_information(a, b)
    np.testing.assert_allclose((actual.vi_split, actual.vi_merge), expected, rtol=0, atol=1e-12)
    # The order that it returns, not the one that it documents
    error, recall, precision = skimage.adapted_rand_error(a, b)
    figures = (actual.rand_error, actual.rand_precision, actual.rand_recall)
    np.testing.assert_allclose(figures, (error, precision, recall), rtol=0, atol=1e-12)
    assert abs(precision - recall) > 1e-3, "too alike to tell which is which"


def test_three_dimensions_agree_with_all(cellpose, stardist, skimage):
    generator = np.random.default_rng(1)
    planes = [ellipses(generator, 8, (24, 32)) for _ in range(3)]
    a = numbered(np.stack(planes).repeat(2, axis=0))
    b = np.roll(a, 1, axis=2)
    b[0] = 0
    b = numbered(b)
    actual = compare_masks(a, b)
    np.testing.assert_allclose(actual.ap, cellpose.average_precision(a, b, [*THRESHOLDS])[0], 1e-6)
    flat_a, flat_b = (x.reshape(len(x), -1) for x in (a, b))  # compiled for two axes already
    assert stardist.matching(flat_a, flat_b).f1 == pytest.approx(actual.f1[0])
    expected = skimage.variation_of_information(a, b)
    assert (actual.vi_split, actual.vi_merge) == pytest.approx(tuple(expected))
    assert actual.rand_error == pytest.approx(skimage.adapted_rand_error(a, b)[0])
    assert 0 < actual.n_matched < actual.n_objects_a


# Where Cellpose is wrong

HALVES = np.array([[0, 1, 1, 1, 1]], np.int32), np.array([[0, 1, 1, 2, 2]], np.int32)


def test_cellposes_aggregated_jaccard_index_is_not_kumars(cellpose):
    """What it leaves unmatched inside the truth costs nothing.

    Kumar et al. (2017): one half is taken, 2 of 4 pixels, and the other adds its 2 to the union.
    Cellpose divides by the foreground of both, 4, and takes pairs one to one.
    """
    assert cellpose.aggregated_jaccard_index([HALVES[0]], [HALVES[1]]) == [2 / 4]
    assert compare_masks(*HALVES).aji == 2 / 6
    # The other way round, Kumar's takes the whole twice: (2 + 2) / (4 + 4).
    assert cellpose.aggregated_jaccard_index([HALVES[1]], [HALVES[0]]) == [2 / 4]
    assert compare_masks(*HALVES[::-1]).aji == 4 / 8


def test_cellposes_aggregated_jaccard_index_takes_rows_for_images(cellpose):
    """Its docstring allows an array, of which it scores every row as an image of its own."""
    a = np.array([[0, 1, 1], [0, 1, 1]], np.int32)
    assert cellpose.aggregated_jaccard_index(a, a).shape == (2,)
    assert compare_masks(a, a).aji == 1


def test_cellposes_average_precision_is_rounded_to_float32(cellpose):
    a = np.array([[0, 1, 2, 3]], np.int32)
    b = np.array([[0, 1, 0, 0]], np.int32)
    theirs = float(cellpose.average_precision(a, b, [0.5])[0][0])
    assert theirs == float(np.float32(1 / 3)) != 1 / 3
    assert compare_masks(a, b).ap50 == 1 / 3


def test_cellposes_average_precision_divides_by_zero_where_numbers_are_missing(cellpose):
    """Missing numbers have no union; the 0/0 is put right afterwards, and the score is sound."""
    gap = np.array([[0, 1, 1, 3, 3]], np.int32)
    with pytest.warns(RuntimeWarning, match="invalid value"):
        ap, *_ = cellpose.average_precision(gap, gap, [0.5])
    assert ap == compare_masks(gap, gap).ap50 == 1


def test_cellposes_table_grows_with_the_square_of_the_largest_number(cellpose):
    """Ten thousand numbers, two of them in use: a table of 10,001 x 10,001."""
    far = np.array([[0, 1, 10_000]], np.int32)
    with np.errstate(invalid="ignore"):
        assert cellpose._intersection_over_union(far[:, :2], far[:, 1:]).shape == (2, 10_001)
    assert compare_masks(far, far).ap50 == 1


# Where StarDist is wrong, or means something else


@pytest.mark.parametrize("side", ["both", "truth", "prediction"])
def test_stardist_scores_nothing_with_zero(stardist, side):
    """0 of 0 objects is no score; and with one side empty, one of the two shares is none."""
    nothing, one = np.zeros((1, 3), np.int32), np.array([[0, 4, 4]], np.int32)
    a = nothing if side != "prediction" else one
    b = nothing if side != "truth" else one
    theirs, ours = stardist.matching(a, b), compare_masks(a, b)
    names = ("precision", "recall", "f1", "accuracy", "panoptic_quality", "mean_matched_score")
    assert [getattr(theirs, name) for name in names] == [0] * 6
    assert np.isnan(ours.precision).all() == (side != "truth")
    assert np.isnan(ours.recall).all() == (side != "prediction")
    assert np.isnan([ours.f1[0], ours.ap[0], ours.pq]).all() == (side == "both")
    assert np.isnan(ours.mean_matched_iou)


def test_stardists_panoptic_quality_takes_an_iou_of_one_half(stardist):
    """Kirillov et al. (2019), its source: a match has an IoU strictly above one half."""
    a, b = np.array([[0, 1, 1]], np.int32), np.array([[0, 0, 1]], np.int32)
    assert stardist.matching(a, b).panoptic_quality == 0.5
    actual = compare_masks(a, b)
    assert (actual.pq, actual.n_matched, actual.ap50) == (0, 1, 1)


def test_stardists_panoptic_quality_follows_the_threshold(stardist):
    """A third of an object is none of Kirillov's matches either."""
    a, b = np.array([[0, 1, 1, 1]], np.int32), np.array([[0, 0, 0, 1]], np.int32)
    assert stardist.matching(a, b, thresh=0.3).panoptic_quality == pytest.approx(1 / 3)
    assert compare_masks(a, b, thresholds=(0.3,)).pq == 0


def test_stardists_ious_are_rounded_to_float32(stardist):
    a, b = np.array([[0, 1, 1, 1]], np.int32), np.array([[0, 0, 1, 1]], np.int32)
    score = float(stardist.matching(a, b).mean_matched_score)
    assert score == float(np.float32(2 / 3)) != 2 / 3
    assert compare_masks(a, b).mean_matched_iou == 2 / 3
    # so is the threshold, as NumPy 2 compares the two: 7 of 10 reaches 0.7 and what float32 takes
    # for it
    a, b = np.array([[0, *[1] * 10]], np.int32), np.array([[0, 0, 0, 0, *[1] * 7]], np.int32)
    beyond = 0.7 + 1e-9
    assert stardist.matching(a, b, thresh=beyond).tp == 1
    assert compare_masks(a, b, thresholds=(0.7, beyond)).ap.tolist() == [1, 0]


def test_stardist_reports_pairs_that_do_not_match(stardist):
    """Two objects apart are among its matched pairs, with a score of 0."""
    a, b = np.array([[0, 1, 1, 0, 0]], np.int32), np.array([[0, 0, 0, 7, 7]], np.int32)
    theirs = stardist.matching(a, b, report_matches=True)
    assert (theirs.matched_pairs, theirs.matched_scores, theirs.matched_tps) == (
        ((1, 7),),
        (0,),
        (),
    )
    assert [change.kind for change in compare_masks(a, b).objects] == ["lost", "gained"]


def test_stardist_takes_any_numbers_but_its_table_does_not(stardist):
    """``matching`` renumbers for itself; ``label_overlap``, which it uses, refuses gaps."""
    gap = np.array([[0, 2, 2, 9]], np.int32)
    assert stardist.matching(gap, gap).tp == 2
    with pytest.raises(ValueError, match="sequential"):
        stardist.label_overlap(gap, gap)
    full = gap[:, 1:].copy()
    assert stardist.matching(full, full).f1 == compare_masks(full, full).f1[0] == 1


def test_stardist_cannot_score_an_image_without_pixels(stardist):
    none = np.zeros((0, 3), np.int32)
    with pytest.raises(ValueError, match="zero-size array"):
        stardist.matching(none, none)
    assert np.isnan(compare_masks(none, none).f1).all()


# Where scikit-image is wrong


def test_scikit_images_precision_and_recall_change_places(skimage):
    """Its docstring: precision is, of the pairs of pixels that the test image joins, the share that
    the true image joins. Here the test image joins all 6 pairs and the truth 2 of them.
    """
    truth, test = np.array([[1, 1, 2, 2]]), np.array([[1, 1, 1, 1]])
    _, called_precision, called_recall = skimage.adapted_rand_error(truth, test)
    assert (called_precision, called_recall) == pytest.approx((1, 1 / 3))
    actual = compare_masks(truth, test)
    assert (actual.rand_precision, actual.rand_recall) == pytest.approx((1 / 3, 1))


@pytest.mark.parametrize(
    "truth", [[[0, 0, 0]], [[0, 5, 0]]], ids=["no object", "an object of one pixel"]
)
def test_scikit_image_divides_by_zero_where_nothing_is_joined(skimage, truth):
    a, b = np.array(truth), np.array([[1, 1, 1]])
    with pytest.warns(RuntimeWarning, match="divide|invalid value"):
        error, *_ = skimage.adapted_rand_error(a, b)
    actual = compare_masks(a, b)
    assert np.isnan([error, actual.rand_error, actual.rand_precision, actual.rand_recall]).all()


def test_scikit_image_agrees_on_images_without_objects(skimage):
    nothing = np.zeros((2, 2), int)
    assert skimage.variation_of_information(nothing, nothing).tolist() == [0, 0]
    actual = compare_masks(nothing, nothing)
    assert (actual.vi_split, actual.vi_merge) == (0, 0)
