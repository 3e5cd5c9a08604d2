"""Masks under settings that move: each preview is what ``eval`` gives."""

import numpy as np
import pytest
import torch
from cellpose import dynamics

from cellrepro.images.folder import read_folder
from cellrepro.model.cell_flow_errors import CellFlowErrors
from cellrepro.model.evaluator import evaluator
from cellrepro.model.followed_paths import FollowedPaths
from cellrepro.model.live_masks import LiveMasks
from cellrepro.spec.segmentation_settings import Settings
from samebits.errors import BadInput
from small_training import tiny

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]

MOVED = [
    {},
    {"cellprob_threshold": 0.5},
    {"cellprob_threshold": 0.45, "flow_threshold": 0.2},
    {"cellprob_threshold": -1.0},
    {"cellprob_threshold": -1.0, "flow_threshold": 0.0, "min_size": -1},
    {"cellprob_threshold": -0.95, "niter": 20},
    {"niter": 7, "max_size_fraction": 0.004},
    {"cellprob_threshold": 60.0},
    {"min_size": 120},
    {"diameter": 20.0, "resample": False},
    {"diameter": 20.0, "resample": False, "cellprob_threshold": 0.3},
    {"normalize.percentile": (3.0, 98.0), "flow_threshold": 0.3},
    {},
]


@pytest.fixture(scope="module")
def network(small_store):
    return tiny(path=small_store.weights)


@pytest.fixture(scope="module")
def image(small_data):
    return read_folder(small_data).test[0].image[:144, :152]


def test_previews_and_exact_masks_are_those_of_eval(network, image):
    """One after the other, so that each begins with what the last one left."""
    live = LiveMasks(evaluator(network, sharing=True), image, n_threads=2)
    assert live.preview(Settings()) is None, "there is no output of the network yet"
    found = []
    for changes in MOVED:
        settings = Settings().replaced(**changes)
        expected = evaluator(network)(image, **settings.arguments()).masks
        before = live.preview(settings)
        exact = live.exact(settings)
        after = live.preview(settings)
        for masks in (before, exact, after):
            if masks is not None:
                np.testing.assert_array_equal(masks, expected)
        assert after is not None
        found.append(int(expected.max()))
    assert len(set(found)) > 5, "the settings hardly change anything"
    assert live.pass_seconds > 0


def test_what_leaves_no_cell_is_found_by_trying(network, image):
    """Of three settings that are not as usual, one leaves none."""
    live = LiveMasks(evaluator(network, sharing=True), image)
    settings = Settings().replaced(flow_threshold=1e-6, min_size=20, cellprob_threshold=-0.1)
    assert not live.exact(settings).any()
    no_cell = live.why_none(settings)
    with_usual = live.preview(settings.replaced(flow_threshold=0.4))
    assert no_cell.with_usual == (("flow_threshold", with_usual.max()),)
    assert (no_cell.n_found > 0, no_cell.n_fitting) == (True, 0)


def test_what_is_no_plane_or_for_stacks_is_refused(network, image):
    with pytest.raises(BadInput, match=r"shape \(3, 4, 5, 1\); expected one plane"):
        LiveMasks(evaluator(network), np.zeros((3, 4, 5, 1)))
    with pytest.raises(BadInput, match="are for stacks"):
        LiveMasks(evaluator(network), image).exact(Settings(do_3D=True))


# -- made-up flows: whatever was known before, everything is as Cellpose gives it --------------


@pytest.fixture(scope="module")
def made_up():
    """Flows and probability of 96 x 80 pixels with touching cells, and noise."""
    generator = np.random.default_rng(5)
    masks = np.zeros((96, 80), np.int32)
    for number in range(20):
        y, x = 10 + 19 * (number // 4), 10 + 20 * (number % 4)
        masks[y - 9 : y + 9 + number % 3, x - 9 : x + 8 + number % 4] = number + 1
    flows, _ = dynamics.masks_to_flows_gpu(masks)
    flows = 5 * flows + 0.8 * generator.normal(size=flows.shape)
    probability = 3.0 * (masks > 0) - 1 + generator.normal(size=masks.shape)
    probability[3, 3] = np.nan
    return flows.astype(np.float32), probability.astype(np.float32)


def test_paths_are_those_of_cellpose_from_any_threshold(made_up):
    flows, probability = made_up
    paths = FollowedPaths(flows, probability)
    n_followed = []
    for threshold in (0.0, 0.1, -0.3, 1.9, 0.1, 0.1, float(probability[30, 30])):
        ends = paths.ends(threshold, 50, n_threads=2)
        pixels = np.nonzero(probability > threshold)
        field = flows * (probability > threshold) / 5.0
        expected = dynamics.follow_flows(field, inds=pixels, niter=50)
        np.testing.assert_array_equal(ends.pixels, pixels)
        assert torch.equal(ends.places, expected)
        n_followed.append(ends.n_followed / len(pixels[0]))
    assert n_followed[0] == 1
    assert n_followed[5] == 0


def test_errors_of_flows_are_those_of_cellpose_bit_for_bit(made_up):
    """Also one at the threshold, which stays, as Cellpose drops what is above it."""
    flows, probability = made_up
    errors = CellFlowErrors(flows)
    paths = FollowedPaths(flows, probability)
    for threshold in (0.0, 1.0, 0.0):
        ends = paths.ends(threshold, 200, n_threads=1)
        masks = dynamics.get_masks_torch(ends.places.int(), ends.pixels, probability.shape)
        found = errors.of(masks, n_threads=2)
        expected, _ = dynamics.flow_error(masks, flows, torch.device("cpu"))
        np.testing.assert_array_equal(found, expected)
        at_threshold = float(np.sort(found)[len(found) // 2])
        kept = dynamics.remove_bad_flow_masks(masks.copy(), flows, threshold=at_threshold)
        assert kept.max() == (found <= at_threshold).sum()
