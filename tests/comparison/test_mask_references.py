"""Second opinions on the scores: Cellpose 4.2.1.1, StarDist 0.9.2 and scikit-image 0.26.0."""

import numpy as np
import pytest

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.scores import THRESHOLDS, average_precision


def numbered(image):
    """1 to N, which Cellpose needs for speed only, and StarDist's tables for sense."""
    return np.unique(image, return_inverse=True)[1].reshape(image.shape).astype(np.int32)


def ellipses(generator, n_objects, shape=(96, 128)):
    """Cells over background, the later ones over the earlier."""
    y, x = np.indices(shape)
    image = np.zeros(shape, np.int32)
    for label in range(1, n_objects + 1):
        (cy, cx), (ry, rx) = generator.uniform(0, shape), generator.uniform(3, 10, 2)
        image[((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1] = label
    return numbered(image)


def perturbed(generator, image):
    """Another segmentation of the same cells: some go, fall apart or shift."""
    result = image.copy()
    labels = generator.permutation(np.unique(image[image > 0]))
    share = max(len(labels) // 5, 1)
    result[np.isin(result, labels[:share])] = 0
    for label in labels[share : 2 * share]:
        x = np.nonzero(result == label)[1]
        result[(result == label) & (np.arange(image.shape[1]) > x.mean())] = result.max() + 1
    for label in labels[2 * share : 4 * share]:
        moved = np.roll(result == label, generator.integers(-3, 4, 2), axis=(0, 1))
        result[result == label] = 0
        result[moved] = label
    return numbered(result)


def made_up():
    generator = np.random.default_rng(1)
    a = ellipses(generator, 40)
    return a, perturbed(generator, a)


def in_three_dimensions():
    generator = np.random.default_rng(1)
    planes = [ellipses(generator, 8, (24, 32)) for _ in range(3)]
    objects = [np.where(plane, plane + 8 * z, 0) for z, plane in enumerate(planes)]
    a = numbered(np.stack(objects).repeat(2, axis=0))
    b = np.roll(a, 1, axis=2)
    b[0] = 0
    return a, numbered(b)


PAIRS = pytest.mark.parametrize("make", [made_up, in_three_dimensions])


@PAIRS
def test_average_precision_agrees_with_cellpose(make):
    cellpose = pytest.importorskip("cellpose.metrics")
    a, b = make()
    found = compare_masks(a, b)
    expected, *_ = cellpose.average_precision(a, b, list(THRESHOLDS))
    np.testing.assert_allclose(found.ap, expected, rtol=1e-6, atol=1e-6)  # of float32
    np.testing.assert_array_equal(average_precision(a, b, THRESHOLDS), found.ap)
    low = cellpose.average_precision(a, b, [0.3])[0]
    np.testing.assert_allclose(average_precision(a, b, [0.3]), low, rtol=1e-6)


@PAIRS
def test_scores_of_objects_agree_with_stardist(make):
    stardist = pytest.importorskip("stardist.matching")
    a, b = make()
    found = compare_masks(a, b)
    flat = [x.reshape(len(x), -1) for x in (a, b)]  # compiled for two axes
    expected = stardist.matching(*flat, thresh=THRESHOLDS)
    for ours, theirs in [("ap", "accuracy"), *((x, x) for x in ("precision", "recall", "f1"))]:
        figures = [getattr(each, theirs) for each in expected]
        np.testing.assert_allclose(getattr(found, ours), figures, rtol=0, atol=1e-12)
    at_half = expected[0]
    assert (at_half.tp, at_half.fp + at_half.fn) == (found.n_matched, found.n_unmatched)
    # It keeps IoUs in float32, and takes one of exactly a half for panoptic quality.
    mean = found.mean_matched_iou if found.n_matched else 0
    assert at_half.mean_matched_score == pytest.approx(mean, rel=1e-6)
    above_half = stardist.matching(*flat, thresh=0.5 + 1e-6)
    assert above_half.panoptic_quality == pytest.approx(found.pq, rel=1e-6)


@PAIRS
def test_scores_of_pixels_agree_with_scikit_image(make):
    skimage = pytest.importorskip("skimage.metrics")
    a, b = make()
    found = compare_masks(a, b)
    expected = skimage.variation_of_information(a, b)
    np.testing.assert_allclose((found.vi_split, found.vi_merge), expected, rtol=0, atol=1e-12)
    error = skimage.adapted_rand_error(a, b)[0]
    assert found.rand_error == pytest.approx(error, abs=1e-12)
