"""Training in portable arithmetic: equal bits whatever computes them, and Cellpose's numbers."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cellpose import transforms, utils

import portable_steps
from cellrepro.model.portable_training import diameters, portable_training, rotate_and_resize
from portable_steps import AVX2, NO_VECTORS, in_another_process, portable, stopped, taken_up
from small_training import IMAGES

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


# -- augmentation and diameters ------------------------------------------------------------


def drawn(*shape):
    """A smooth image and its labels: a disc, and flows that point away from it."""
    y, x = np.mgrid[: shape[0], : shape[1]].astype(np.float32)
    middle_y, middle_x = shape[0] / 2, shape[1] / 3
    distance = np.hypot(y - middle_y, x - middle_x)
    pixels = np.stack([np.sin(distance / 9), np.cos(x / 11), y / shape[0]]).astype(np.float32)
    away = np.stack([y - middle_y, x - middle_x]) / (distance + 1)
    is_cell = (distance < min(shape) / 4).astype(np.float32)
    return pixels, np.concatenate([is_cell[None], away]).astype(np.float32)


@pytest.mark.parametrize("shape", [(256, 256), (120, 300), (700, 520)], ids=str)
def test_crops_are_cellposes(shape):
    """The same draws, and pixels within 3e-4 of an image between -1 and 1."""
    images, labels = zip(*[drawn(*shape)] * 3, strict=True)
    given = {"rescale": np.array([0.7, 1.0, 1.6]), "scale_range": 0.5, "bsize": 256}

    np.random.seed(4)
    expected = transforms.random_rotate_and_resize(
        list(images), lbls=[label.copy() for label in labels], **given
    )
    after = np.random.rand()
    np.random.seed(4)
    actual = rotate_and_resize(images, lbls=labels, **given)

    assert np.random.rand() == after
    np.testing.assert_array_equal(actual[2], expected[2])
    for ours, cellposes in zip(actual[:2], expected[:2], strict=True):
        assert (ours - cellposes).abs().max() < 3e-4
        assert cellposes.abs().max() > 0.5


@pytest.mark.parametrize(
    "masks",
    [IMAGES[0].masks, np.zeros((4, 4), int), np.array([[0, 1, 1], [2, 2, 2]])],
    ids=["nine cells", "none", "two cells"],
)
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
def test_diameters_are_cellposes(masks):
    """Of the median cell and of all."""
    expected, expected_roots = utils.diameters(masks)
    actual, roots = diameters(masks)
    assert actual == pytest.approx(expected, rel=1e-15)
    np.testing.assert_allclose(roots, expected_roots, rtol=1e-15)


def test_cellposes_functions_are_given_back():
    """After the block."""
    before = utils.diameters, transforms.random_rotate_and_resize
    with portable_training():
        assert utils.diameters is diameters
    assert (utils.diameters, transforms.random_rotate_and_resize) == before


# -- steps ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight():
    """Four steps in one go, in this process."""
    with portable():
        network, loop = portable_steps.begun()
        loop.run()
    return as_stored(portable_steps.left(network, loop))


def as_stored(left):
    """As JSON gives it back."""
    return json.loads(json.dumps(left))


def test_steps_have_equal_bits_without_vector_instructions_and_on_two_threads(straight):
    """Weights, moments, losses, generators, normalised images and flows."""
    assert in_another_process(NO_VECTORS, n_threads=2) == straight


def test_losses_are_those_of_plain_arithmetic(straight):
    """To six digits, of training and test images."""
    network, loop = portable_steps.begun(image_by_image=False)
    plain = loop.run()
    for epoch, expected in zip(straight["training"]["epochs"], plain.epochs, strict=True):
        assert epoch["train_loss"] == pytest.approx(expected.train_loss, rel=1e-6)
    test_loss = straight["training"]["epochs"][0]["test_loss"]
    assert test_loss == pytest.approx(plain.epochs[0].test_loss, rel=1e-6)
    assert portable_steps.left(network, loop)["weights"] != straight["weights"]


def test_training_goes_on_with_equal_bits(straight):
    """Also in the middle of an epoch."""
    with portable():
        network, loop = portable_steps.begun()
        for _ in range(3):
            loop.step()
        network, loop = taken_up(stopped(network, loop))
        loop.run()
    assert as_stored(portable_steps.left(network, loop)) == straight


# -- ranks ---------------------------------------------------------------------------------


class TeamOfGradients:
    """The ranks of a training one after the other: each takes what the others left for it."""

    def __init__(self, rank, n_ranks, left_by_others):
        self.rank, self.n_ranks = rank, n_ranks
        self.generators = []
        self.left_by_others = left_by_others
        self.own = []

    def add(self, gradients, loss):
        """Add what the other ranks had of this round, in the order of the ranks."""
        self.own.append((gradients.taken(), loss))
        place = len(self.own) - 1
        of_all = [
            self.own[place] if rank == self.rank else self.left_by_others[rank][place]
            for rank in range(self.n_ranks)
        ]
        losses = []
        for taken, own_loss in of_all:
            if own_loss is not None:
                gradients.add([None if one is None else one.clone() for one in taken])
                losses.append(own_loss)
        return losses

    def compare(self, network):
        """Nothing: the test does."""


def one_step(team=None):
    """The gradients of three images that two ranks share, and where the generators stand."""
    with portable():
        network, loop = portable_steps.begun(
            n_epochs=2, images_per_epoch=3, batch_size=3, team=team
        )
        loop.step()
    gradients = [parameter.grad for parameter in network.parameters()]
    return SimpleNamespace(gradients=gradients, stands=torch.get_rng_state())


def test_gradients_do_not_depend_on_the_number_of_ranks():
    """Of two ranks that share three images, the second has none in the last round."""
    nothing = [([], None), ([], None)]
    first = TeamOfGradients(0, 2, {1: nothing})
    one_step(first)
    second = TeamOfGradients(1, 2, {0: first.own})
    of_second = one_step(second)
    alone = one_step()
    assert second.own[1][1] is None
    assert of_second.stands.equal(alone.stands)
    for ours, expected in zip(of_second.gradients, alone.gradients, strict=True):
        assert expected is None or ours.equal(expected)


# -- the wide matrix -----------------------------------------------------------------------

_ARGUMENTS = {
    "drawn": {
        "batch_size": 3,
        "images_per_epoch": 5,
        "data_seed": 8,
        "settings": {
            "rescale": True,
            "scale_range": 1.0,
            "train_probs": {"a": 0.3, "b": 0.9},
            "nimg_test_per_epoch": 3,
            "weight_decay": 0.0,
        },
    },
    "as they are": {"settings": {"augmentation": False, "normalize": False, "min_train_masks": 0}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(_ARGUMENTS))
def test_eight_steps_of_every_argument_have_equal_bits(name):
    """Over vector instructions and threads."""
    options = {"n_epochs": 4, **_ARGUMENTS[name]}
    expected = in_another_process({}, **options)
    for variables, n_threads in ((AVX2, 2), (NO_VECTORS, 1)):
        assert in_another_process(variables, n_threads=n_threads, **options) == expected
    assert len(expected["training"]["epochs"]) == 4
