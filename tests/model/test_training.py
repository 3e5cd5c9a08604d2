"""Training as ``cellpose.train.train_seg`` trains, bit for bit, and may be watched."""

import copy
import random
from dataclasses import replace

import numpy as np
import pytest

from cellrepro.determinism.modes import mode_in_force
from cellrepro.determinism.seeding import seed_everything
from cellrepro.errors import BadInput
from cellrepro.images.folder import LabelledImage, read_folder
from cellrepro.model.network import ModelSource, build
from cellrepro.model.training import learning_rates, train, trainable, trains_nothing

pytestmark = [
    pytest.mark.usefixtures("one_thread", "generators_free"),
    # Cellpose's own loop asks for autocast to float32, which PyTorch answers with a warning.
    pytest.mark.filterwarnings("ignore:In CPU autocast"),
]


def tiny(seed=0):
    import torch

    return build(
        ModelSource("tiny", "tiny"), seed=seed, device=torch.device("cpu"), dtype="float32"
    )


def weights(network):
    """The bytes of every parameter and buffer, by name."""
    return {name: tensor.numpy().tobytes() for name, tensor in network.state_dict().items()}


@pytest.fixture(scope="module")
def images(small_data):
    folder = read_folder(small_data)
    return folder.train, folder.test


def in_colour(images):
    """The same images in three channels that differ, channels last."""
    return [
        replace(one, image=np.stack([one.image, one.image[::-1], one.image // 2], axis=-1))
        for one in images
    ]


# -- the same bits as Cellpose -------------------------------------------------------------


def by_cellpose(network, images, folder, **options):
    """Cellpose's own training; it saves its network into a folder."""
    from cellpose.train import train_seg

    return train_seg(
        network,
        [image.image for image in images],
        [image.masks.copy() for image in images],
        learning_rate=0.01,
        save_path=folder,
        **options,
    )


@pytest.mark.parametrize(
    ("colour", "options"),
    [
        (False, {}),
        (False, {"images_per_epoch": 3, "batch_size": 2}),
        (True, {"images_per_epoch": 4}),
    ],
    ids=["every image once", "drawn, in batches", "RGB, drawn"],
)
def test_the_same_bits_as_train_seg(images, tmp_path, colour, options):
    train_images, test_images = map(in_colour, images) if colour else images
    test_images = [*test_images, *train_images]  # enough that a layer would be dropped by mistake
    expected, actual = tiny(1), tiny(1)
    start = weights(expected)
    assert weights(actual) == start
    assert expected.rdrop == 0.4
    seed_everything(4)
    _, train_losses, test_losses = by_cellpose(
        expected,
        train_images,
        tmp_path,
        test_data=[image.image for image in test_images],
        test_labels=[image.masks.copy() for image in test_images],
        channel_axis=-1 if colour else None,
        batch_size=options.get("batch_size", 1),
        n_epochs=3,
        weight_decay=0.1,
        min_train_masks=5,
        nimg_per_epoch=options.get("images_per_epoch"),
    )
    seed_everything(4)
    training = train(actual, train_images, test_images, n_epochs=3, learning_rate=0.01, **options)

    assert weights(actual) == weights(expected)
    assert [epoch.train_loss for epoch in training.epochs] == train_losses.tolist()
    assert training.epochs[0].test_loss == test_losses[0] > 0
    assert [epoch.test_loss for epoch in training.epochs[1:]] == [None, None]
    moved = {name for name, content in weights(actual).items() if content != start[name]}
    assert len(moved) > 20  # two equal networks that never trained would prove nothing
    assert {"out.weight", "encoder.blocks.1.attn.qkv.weight", "diam_labels"} <= moved


def test_the_same_bits_on_two_threads_in_mode_strict(images, tmp_path):
    import torch

    expected, actual = tiny(1), tiny(1)
    torch.set_num_threads(2)
    with mode_in_force("strict"):
        seed_everything(3)
        by_cellpose(expected, images[0], tmp_path, n_epochs=2, nimg_per_epoch=2)
        seed_everything(3)
        train(actual, images[0], (), n_epochs=2, learning_rate=0.01, images_per_epoch=2)
    assert weights(actual) == weights(expected)


def test_a_bfloat16_network_is_trained_in_float32(images, tmp_path):
    """And left in it: Cellpose saves before it goes back to bfloat16, and so does the worker."""
    import torch

    expected, actual = tiny(1), tiny(1)
    expected.dtype = actual.dtype = torch.bfloat16
    seed_everything(3)
    saved, *_ = by_cellpose(expected, images[0], tmp_path, n_epochs=2)
    expected.dtype = torch.float32
    expected.load_state_dict(torch.load(saved, weights_only=True))
    seed_everything(3)
    train(actual, images[0], (), n_epochs=2, learning_rate=0.01)
    assert actual.dtype == torch.float32
    assert weights(actual) == weights(expected)


@pytest.fixture
def toy():
    """A network of one layer that Cellpose trains in no time."""
    import torch
    from cellpose.vit import BaseModel

    class Toy(BaseModel):
        backbone = "toy"

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.layer(x), None

    torch.manual_seed(0)
    return Toy()


@pytest.mark.parametrize("n_epochs", [11, 99, 100, 301])
def test_the_learning_rates_are_those_that_train_seg_sets(
    toy, images, tmp_path, monkeypatch, n_epochs
):
    import torch

    used = []
    step = torch.optim.AdamW.step

    def spy(optimizer, *arguments):
        (group,) = optimizer.param_groups
        used.append(group["lr"])
        assert group["weight_decay"] == 0.1
        return step(optimizer, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    small = replace(images[0][0], image=images[0][0].image[:64, :64])
    small = replace(small, masks=images[0][0].masks[:64, :64])
    options = {"n_epochs": n_epochs, "min_train_masks": 1, "bsize": 16}
    by_cellpose(toy, [small], tmp_path, **options)
    assert learning_rates(n_epochs, 0.01).tolist() == used


# -- seeds ---------------------------------------------------------------------------------


def trained(images, *, seed=3, rdrop=0.4, n_epochs=2, **options):
    """The weights after a short training from one and the same start."""
    network = tiny(1)
    network.rdrop = rdrop
    seed_everything(seed)
    train_images, test_images = images
    options = {"images_per_epoch": 3, **options}
    train(network, train_images, test_images, n_epochs=n_epochs, learning_rate=0.01, **options)
    return weights(network)


def test_the_seed_drops_layers_and_the_data_seed_orders_the_data(images):
    """Cellpose's own data seed ignores the seed: without layer drop two seeds train alike."""
    start = trained(images, seed=3)
    assert trained(images, seed=4) != start
    cellpose, other, one, again, two = (
        trained(images, seed=seed, rdrop=0, data_seed=data_seed)
        for seed, data_seed in [(3, "cellpose"), (4, "cellpose"), (3, 1), (4, 1), (3, 2)]
    )
    assert (cellpose, one) == (other, again)
    assert len({str(sorted(each.items())) for each in (cellpose, one, two)}) == 3


# -- watching changes nothing --------------------------------------------------------------


def meddle(_):
    """An observer that draws from every generator."""
    import torch

    random.random()
    np.random.rand(5)
    np.random.seed(1)
    torch.rand(5)


def test_a_watched_training_is_the_same(images):
    """Also where Cellpose evaluates, which draws too."""
    assert trained(images, on_epoch=meddle) == trained((images[0], ()))


def test_epochs_are_told_as_they_end(images):
    network, told = tiny(), []

    def listen(epoch):
        told.append((epoch.index, epoch.learning_rate, weights(network)))

    train(network, *images, n_epochs=3, learning_rate=0.9, images_per_epoch=1, on_epoch=listen)
    indices, rates, after = zip(*told, strict=True)
    assert (indices, rates) == ((0, 1, 2), pytest.approx((0, 0.1, 0.2)))
    assert after[0] != after[1] != after[2]


def test_the_schedule_of_test_losses(toy, images, monkeypatch):
    """Cellpose evaluates after epochs 0, 5, 10, 20, …"""
    monkeypatch.setattr("cellrepro.model.training._CROP", 16)
    training = train(toy, *images, n_epochs=22, learning_rate=0.01, images_per_epoch=1)
    evaluated = [epoch.index for epoch in training.epochs if epoch.test_loss is not None]
    assert evaluated == [0, 5, 10, 20]


def test_the_images_and_masks_given_are_left_as_they_are(toy, images, monkeypatch):
    """Cellpose renumbers masks in place (4.2.1.1): the store would keep another ground truth."""
    monkeypatch.setattr("cellrepro.model.training._CROP", 16)
    from cellpose import models

    gaps = [replace(one, masks=one.masks * 3) for part in images for one in part]

    before, defaults = copy.deepcopy(gaps), copy.deepcopy(models.normalize_default)
    train(toy, gaps[:3], gaps[3:], n_epochs=1, learning_rate=0.01)
    assert models.normalize_default == defaults
    for now, then in zip(gaps, before, strict=True):
        assert np.array_equal(now.masks, then.masks)
        assert np.array_equal(now.image, then.image)


# -- trainings that train nothing, or cannot -----------------------------------------------


@pytest.mark.parametrize(
    ("n_epochs", "rate", "expected"),
    [
        (1, 0.01, "1 epoch trains nothing: Cellpose's learning rate rises from 0"),
        (0, 0.01, "0 epochs train nothing"),
        (12, 0.0, "a learning rate of 0 trains nothing"),
        (2, 0.01, None),
    ],
)
def test_trains_nothing(n_epochs, rate, expected):
    reason = trains_nothing(n_epochs, rate)
    assert reason == expected or reason.startswith(expected)


def test_what_is_said_to_train_nothing_does(images):
    network = tiny(1)
    start = weights(network)
    train(network, *images, n_epochs=1, learning_rate=0.01, images_per_epoch=2)
    after = weights(network)
    assert {name for name in start if start[name] != after[name]} == {"diam_labels"}


def with_masks(image, n):
    return replace(image, masks=np.where(image.masks <= n, image.masks, 0))


def test_images_with_too_few_masks_are_left_out_and_counted(toy, images, monkeypatch):
    monkeypatch.setattr("cellrepro.model.training._CROP", 16)
    few = [with_masks(images[0][0], 4), with_masks(images[0][1], 5), images[0][2]]
    training = train(toy, few, (), n_epochs=1, learning_rate=0.01)
    assert (training.n_removed, training.n_steps) == (1, 2)


def without_background(n):
    """``n`` labels and no background: Cellpose leaves the lowest out of its count."""
    masks = np.repeat(np.arange(1, n + 1, dtype=np.int32), 12)[:, None] * np.ones(40, np.int32)
    return LabelledImage("full", masks.astype(np.uint8), masks, None, None)


@pytest.mark.parametrize("n", [4, 5, 6])
@pytest.mark.parametrize("background", [True, False], ids=["background", "no background"])
def test_masks_are_counted_as_cellpose_counts_them(n, background):
    from cellpose.dynamics import labels_to_flows
    from cellpose.utils import diameters

    image = without_background(n)
    if background:
        image.masks[:, 0] = 0
    expected = len(diameters(image.masks)[1]) >= 5
    assert trainable(image) is expected is (n >= (5 if background else 6))
    (planes,) = labels_to_flows([image.masks.copy()])
    assert trainable(replace(image, masks=planes)) is expected


def test_no_image_with_enough_masks(images):
    few = [*(with_masks(image, 4) for image in images[0]), without_background(5)]
    network = tiny()
    start = weights(network)
    with pytest.raises(BadInput, match=r"none of the 4 training images has 5 masks or more"):
        train(network, few, (), n_epochs=1, learning_rate=0.01)
    assert weights(network) == start
