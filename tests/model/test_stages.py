"""What Cellpose passes on from stage to stage, seen without changing it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cellpose import core, dynamics, models, transforms

from cellrepro.images.folder import read_folder
from cellrepro.model.inference import segment
from cellrepro.model.stages import PASSED, Stages
from small_training import tiny

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


@pytest.fixture(scope="module")
def network(small_store):
    return tiny(path=small_store.weights)


@pytest.fixture(scope="module")
def image(small_data):
    """Of several tiles."""
    image = read_folder(small_data).test[0]
    return replace(image, image=np.tile(image.image, (2, 2))[:280, :180])


def watched(network, image, **settings):
    stages = Stages(keep=True)
    with stages.watching():
        (result,) = segment(network, (image,), **settings)
    return result, stages


@pytest.fixture(scope="module")
def usual(network, image):
    """As Cellpose has it, on one thread as everything else here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield watched(network, image)
    torch.set_num_threads(threads)


def test_watching_changes_no_bit_and_ends(network, image, usual):
    own = (transforms.make_tiles, models.CellposeModel._run_net, dynamics.compute_masks)
    (unwatched,) = segment(network, (image,))
    for actual, expected in zip(
        (usual[0].masks, *usual[0].flows.values()),
        (unwatched.masks, *unwatched.flows.values()),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)
    with pytest.raises(TypeError), Stages().watching():
        list(segment(network, (image,), no_such="setting"))
    assert own == (transforms.make_tiles, models.CellposeModel._run_net, dynamics.compute_masks)


def test_stages_are_what_the_functions_give(network, image, usual):
    """Each from the one before it, by a direct call."""
    result, stages = usual
    seen = stages.arrays
    assert seen.keys() == PASSED.keys()
    channels = transforms.convert_image(image.image[..., None], channel_axis=2)
    np.testing.assert_array_equal(seen["channels"][0], channels)
    normalised = transforms.normalize_img(channels[None].astype(np.float32))
    np.testing.assert_array_equal(seen["normalised"][0], normalised)
    tiles = np.stack(seen["tiles"])
    np.testing.assert_array_equal(core._forward(network, tiles)[0], np.stack(seen["network"]))
    flows, probability = result.flows.values()
    device = torch.device("cpu")
    inds = np.nonzero(probability > 0)
    ends = dynamics.follow_flows(flows * (probability > 0) / 5.0, inds, niter=200, device=device)
    np.testing.assert_array_equal(seen["dynamics"][0][:, *inds], np.asarray(ends))
    outside = np.nonzero(probability <= 0)
    np.testing.assert_array_equal(seen["dynamics"][0][:, *outside], outside)


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"normalize": {"percentile": (5.0, 95.0)}}, "normalised"),
        ({"diameter": 24.0}, "resized"),
        ({"tile_overlap": 0.4}, "tiles"),
        ({"augment": True}, "tiles"),
        ({"cellprob_threshold": 1.0}, "dynamics"),
        ({"niter": 20}, "dynamics"),
        ({"flow_threshold": 0.05}, "masks"),
        ({"max_size_fraction": 0.002}, "masks"),
        ({"min_size": 150}, None),  # only what `eval` returns differs
        ({"batch_size": 2}, None),
    ],
)
def test_a_setting_shows_first_at_its_stage(network, image, usual, settings, first):
    (expected, before), (actual, after) = usual, watched(network, image, **settings)
    differ = [stage for stage in PASSED if before.digests[stage] != after.digests[stage]]
    assert (differ[:1] or [None]) == [first]
    equal = np.array_equal(actual.masks, expected.masks)
    assert equal == (settings == {"batch_size": 2})


def test_pixels_and_precision_show_first_where_they_enter(network, image, usual, small_store):
    brighter = image.image.copy()
    brighter[3, 4] += 1
    half = tiny(path=small_store.weights, dtype="bfloat16")
    for given, expected in [
        ((network, replace(image, image=brighter)), "channels"),
        ((half, image), "network"),
    ]:
        _, stages = watched(*given)
        digests = usual[1].digests
        assert next(s for s in PASSED if digests[s] != stages.digests[s]) == expected
