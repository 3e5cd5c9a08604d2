"""Masks through Cellpose's own ``eval``, which looks and leaves no trace."""

from dataclasses import replace

import numpy as np
import pytest

from cellrepro.images.folder import read_folder
from cellrepro.model.inference import segment
from cellrepro.store.digests import array_digest, generator_digests
from small_training import tiny

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # Cellpose 4.2.1.1 makes a sparse tensor in dynamics.py; PyTorch 2.15 would be asked to check.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


@pytest.fixture(scope="module")
def network(small_store):
    """A network that has learnt to find cells."""
    return tiny(path=small_store.weights)


@pytest.fixture(scope="module")
def image(small_data):
    return read_folder(small_data).test[0]


def test_finds_cells_and_moves_no_generator(network, image):
    before = generator_digests()
    (result,) = segment(network, (image,))
    assert generator_digests() == before
    assert (result.name, result.masks.dtype) == (image.name, np.uint32)
    assert result.masks.shape == image.image.shape
    found = np.unique(result.masks)
    assert found.tolist() == list(range(len(found)))
    assert len(found) > 5
    assert result.seconds > 0


def test_puts_the_network_into_evaluation(network, image):
    """In training the layer drop would make every look at an image another one."""
    network.train()
    a, b = (array_digest(next(segment(network, (image,))).masks) for _ in range(2))
    assert not network.training
    assert a == b


@pytest.mark.parametrize(("options", "expected"), [({}, [8, 1]), ({"batch_size": 4}, [4, 4, 1])])
def test_the_batch_size_is_that_of_the_tiles(network, image, options, expected):
    """An image of three tiles by three."""
    n_tiles = []
    seen = network.register_forward_hook(lambda *given: n_tiles.append(len(given[1][0])))
    large = replace(image, image=np.tile(image.image, (2, 2)))
    with seen:
        list(segment(network, (large,), **options))
    assert n_tiles == expected


@pytest.mark.parametrize(
    ("pixels", "any_cell"),
    [(lambda image: np.stack([image] * 3, axis=-1), True), (np.zeros_like, False)],
    ids=["channels last", "nothing to see"],
)
def test_masks_of_other_images(network, image, pixels, any_cell):
    (result,) = segment(network, (replace(image, image=pixels(image.image)),))
    assert (result.masks.shape, result.masks.dtype) == (image.image.shape, np.uint32)
    assert result.masks.any() == any_cell
