"""The pieces of a portable segmentation, each held to the library that it stands for."""

import cv2
import mpmath
import numpy as np
import pytest
import scipy.ndimage
from cellpose import dynamics, plot, transforms

from cellrepro.model import portable_dynamics
from cellrepro.model.portable_cellpose import dx_to_circ, taper_mask
from cellrepro.model.portable_dynamics import follow_flows
from cellrepro.model.portable_flows import flow_error, masks_to_flows
from cellrepro.model.portable_normalisation import (
    exponentials,
    gaussian_filter,
    gaussian_filter1d,
    percentile,
    smooth_sharpen_img,
)
from cellrepro.model.portable_resizing import resize
from samebits.errors import BadInput, NotPossibleHere

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


@pytest.fixture
def random():
    return np.random.default_rng(1)


# -- numbers ---------------------------------------------------------------------------------


def test_exponentials_are_rounded_correctly():
    exponents = [-800.0, -745.1, -708.4, -20.3, -1e-300, 0.0, 0.1, 1.0, 709.7]
    with mpmath.workdps(60):
        expected = [float(mpmath.exp(exponent)) for exponent in exponents]
    assert exponentials(exponents).tolist() == expected


@pytest.mark.parametrize("size", [(224, 224), (256, 256), (100, 81), (384, 384)])
def test_weights_of_tiles(size):
    expected = transforms._taper_mask(*size)
    np.testing.assert_allclose(taper_mask(*size), expected, rtol=1e-13)


@pytest.mark.parametrize("percent", [0, 1.0, 37.3, 50, 99.0, 100])
def test_percentiles(random, percent):
    numbers = random.normal(size=(3, 40, 51, 2)).astype(np.float32)
    for axis in (None, (-3, -2)):
        actual = percentile(numbers, percent, axis=axis)
        expected = np.percentile(numbers.astype(np.float64), percent, axis=axis)
        np.testing.assert_array_equal(actual, expected.astype(np.float32))
        assert actual.dtype == np.float32


def test_a_percentile_of_few_numbers_and_of_none():
    assert percentile(np.array([3.0], np.float32), 99.0) == 3
    with_nan = np.array([[1.0, np.nan, 2.0], [1.0, 3.0, 2.0]])
    np.testing.assert_array_equal(percentile(with_nan, 50.0, axis=(1,)), [np.nan, 2.0])


# -- images ----------------------------------------------------------------------------------

SIZES = [
    ((57, 83, 3), (120, 91)),
    ((57, 83), (40, 30)),
    ((64, 64, 4), (32, 32)),
    ((5, 6, 1), (7, 9)),
    ((1, 5), (3, 3)),
    ((300, 201), (77, 1000)),
]


@pytest.mark.parametrize(("shape", "size"), SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "uint16", "int16"])
def test_images_are_resized_as_by_opencv(random, shape, size, dtype):
    """Within roundings, grey levels with few exceptions; the nearest pixel is the same one."""
    image = (random.random(shape) * 255).astype(dtype)
    expected = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    actual = resize(image, size)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    most = 255 * 2e-7 if image.dtype.kind == "f" else 1
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    assert difference.max() <= most
    if image.dtype.kind != "f":
        assert (difference > 0).sum() <= max(3, 0.005 * difference.size)
    nearest = cv2.resize(image, size, interpolation=cv2.INTER_NEAREST)
    np.testing.assert_array_equal(resize(image, size, cv2.INTER_NEAREST), nearest)


def test_what_opencv_cannot_resize_is_refused():
    with pytest.raises(BadInput, match=r"int32.*float32, float64"):
        resize(np.zeros((4, 4), np.int32), (2, 2))
    with pytest.raises(NotPossibleHere, match="interpolation 2"):
        resize(np.zeros((4, 4), np.float32), (2, 2), cv2.INTER_CUBIC)


@pytest.mark.parametrize("sigma", [0.7, 1, 2.5, 9])
def test_gaussian_filters(random, sigma):
    """Also where the weights reach farther than the image."""
    numbers = random.normal(size=(3, 9, 20)).astype(np.float32)
    for axis in range(3):
        expected = scipy.ndimage.gaussian_filter1d(numbers, sigma, axis=axis)
        actual = gaussian_filter1d(numbers, sigma, axis)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=3e-7)
    expected = scipy.ndimage.gaussian_filter(numbers, [0, sigma, 1])
    np.testing.assert_allclose(gaussian_filter(numbers, [0, sigma, 1]), expected, rtol=0, atol=3e-7)


@pytest.mark.parametrize("shape", [(61, 80, 2), (2, 40, 33, 1)], ids=str)
@pytest.mark.parametrize(("smooth", "sharpen"), [(2.0, 0), (0, 6.0), (1.5, 6.0)])
def test_smoothing_and_sharpening(random, shape, smooth, sharpen):
    """Within a few roundings of the pixels, as Cellpose's Fourier transform in float32."""
    image = (random.random(shape) * 30 + 1000).astype(np.float32)
    expected = transforms.smooth_sharpen_img(image, smooth, sharpen)
    actual = smooth_sharpen_img(image, smooth, sharpen)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6 * 1030)


def test_the_picture_of_flows(random):
    flows = random.normal(size=(2, 40, 50)).astype(np.float32)
    flows[:, :5] = 0
    expected = plot.dx_to_circ(flows)
    difference = np.abs(dx_to_circ(flows).astype(int) - expected.astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


# -- following the flows ---------------------------------------------------------------------


def smooth_flows(random, shape):
    noise = random.normal(size=(len(shape), *shape)) * 8
    return scipy.ndimage.gaussian_filter(noise, [0] + [2] * len(shape)).astype(np.float32)


@pytest.mark.parametrize("shape", [(70, 50), (9, 30, 20)], ids=["2-D", "3-D"])
@pytest.mark.parametrize("n_steps", [0, 1, 40])
def test_pixels_arrive_where_cellpose_has_them(random, shape, n_steps):
    flows = smooth_flows(random, shape)
    pixels = np.nonzero(random.random(shape) > 0.4)
    expected = np.asarray(dynamics.steps_interp(flows, pixels, n_steps))
    actual = follow_flows(flows, pixels, n_steps).numpy()
    distances = np.abs(actual - expected)
    assert np.quantile(distances, 0.99) < 1e-4 * (1 + n_steps)
    assert distances.max() < 0.5


@pytest.mark.parametrize("n_steps", [11, 24, 150])
def test_leaving_circles_out_changes_no_bit(random, monkeypatch, n_steps):
    """Nor does the size of the blocks."""
    flows = smooth_flows(random, (60, 64))
    pixels = np.nonzero(np.ones((60, 64)))
    actual = follow_flows(flows, pixels, n_steps)
    monkeypatch.setattr(portable_dynamics, "_CIRCLE", 10**9)
    monkeypatch.setattr(portable_dynamics, "_BLOCK", 1000)
    np.testing.assert_array_equal(actual, follow_flows(flows, pixels, n_steps))


def test_flows_that_are_no_number_give_a_position(random):
    flows = smooth_flows(random, (20, 20))
    flows[:, 3:5] = np.nan
    ends = follow_flows(flows, np.nonzero(np.ones((20, 20))), 30)
    assert bool(ends.isfinite().all())


def test_one_row_of_pixels_is_followed():
    ends = follow_flows(np.zeros((2, 1, 6), np.float32), (np.zeros(6, int), np.arange(6)), 5)
    np.testing.assert_allclose(ends, [[0.0] * 6, range(6)], atol=1e-6)


# -- flows of masks --------------------------------------------------------------------------

MASKS = np.zeros((40, 50), np.int32)
MASKS[2:20, 3:12] = 1
MASKS[8:30, 12:30] = 2  # touches the first
MASKS[17:20, 8:12] = 2  # and reaches into its box
MASKS[20:23, 0:12] = 3
MASKS[33:40, 41:50] = 4  # in the corner
MASKS[33, 44:50] = 0
MASKS[30, 5] = 5  # one pixel
MASKS[32:34, 10:12] = 6
MASKS[38:40, 14:16] = 6  # in two parts
MASKS[15:20, 20:25] = 0  # the second has a hole


@pytest.mark.parametrize("niter", [None, 7])
def test_flows_of_masks_are_those_of_cellpose(niter):
    expected, boxes = dynamics.masks_to_flows_gpu(MASKS, niter=niter)
    actual, own_boxes = masks_to_flows(MASKS, niter=niter)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)
    assert own_boxes == boxes


def test_a_mirrored_mask_has_mirrored_flows():
    """Bit for bit; so no flow leaves the middle, where a rounding would decide on its direction."""
    masks = np.zeros((20, 21), np.int32)
    masks[4:13, 5:16] = 1
    flows, _ = masks_to_flows(masks)
    assert flows[:, 8, 10].tolist() == [0, 0]
    masks[4, 5] = 0
    flows, _ = masks_to_flows(masks)
    mirrored, _ = masks_to_flows(np.ascontiguousarray(masks[:, ::-1]))
    np.testing.assert_array_equal(mirrored[0, :, ::-1], flows[0])
    np.testing.assert_array_equal(mirrored[1, :, ::-1], -flows[1])


def test_flows_of_no_mask():
    flows, boxes = masks_to_flows(np.zeros((4, 5), np.uint16))
    assert flows.shape == (2, 4, 5)
    assert not flows.any()
    assert boxes is None


def test_errors_of_flows_are_those_of_cellpose(random):
    masks = MASKS.astype(np.uint16)
    flows = random.normal(size=(2, *masks.shape)).astype(np.float32) * 4
    expected, of_masks = dynamics.flow_error(masks, flows)
    actual, own_of_masks = flow_error(masks, flows)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    np.testing.assert_allclose(own_of_masks, of_masks, rtol=0, atol=1e-9)
