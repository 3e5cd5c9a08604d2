"""Masks through Cellpose's own ``eval``, which looks and leaves no trace."""

import numpy as np
import pytest

from cellrepro.images.folder import LabelledImage, read_folder
from cellrepro.model.inference import segment
from cellrepro.model.network import build, find_model
from cellrepro.store.digests import array_digest, generator_digests
from cellrepro.store.store import Store

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # Cellpose 4.2.1.1 makes a sparse tensor in dynamics.py; PyTorch 2.15 would be asked to check.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


@pytest.fixture(scope="module")
def network(small_store):
    """A network that has learnt to find cells."""
    import torch

    source = find_model(small_store.key, Store(small_store.root))
    return build(source, seed=0, device=torch.device("cpu"), dtype="float32")


@pytest.fixture(scope="module")
def images(small_data):
    return read_folder(small_data).test


def test_finds_cells(network, images):
    (result,) = segment(network, images)
    assert result.name == images[0].name
    assert result.masks.dtype == np.uint32
    assert result.masks.shape == images[0].image.shape
    found = np.unique(result.masks)
    assert found.tolist() == list(range(len(found)))
    assert len(found) > 5
    assert result.seconds > 0


def test_moves_no_generator(network, images):
    before = generator_digests()
    for _ in segment(network, images):
        assert generator_digests() == before


def test_puts_the_network_into_evaluation(network, images):
    """In training the layer drop would make every look at an image another one."""
    network.train()
    a, b = (array_digest(next(segment(network, images)).masks) for _ in range(2))
    assert not network.training
    assert a == b


def test_channels_last(network, images):
    image = images[0]
    stacked = np.stack([image.image] * 3, axis=-1)
    colour = LabelledImage("colour", stacked, None, image.image_path, None)
    (result,) = segment(network, (colour,))
    assert result.masks.shape == image.image.shape


def test_nothing_to_see_gives_empty_masks(network, images):
    black = LabelledImage("black", np.zeros((64, 48), np.uint16), None, images[0].image_path, None)
    (result,) = segment(network, (black,))
    assert result.masks.shape == (64, 48)
    assert result.masks.dtype == np.uint32
    assert not result.masks.any()
