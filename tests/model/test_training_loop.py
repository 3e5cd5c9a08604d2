"""Training as ``cellpose.train.train_seg`` trains, bit for bit, and may be watched."""

import copy
import json
import random
from dataclasses import replace
from unittest.mock import MagicMock

import cellpose.train
import numpy as np
import pytest
import torch
from cellpose import models, transforms
from cellpose.dynamics import labels_to_flows
from cellpose.utils import diameters
from cellpose.vit import BaseModel

from cellrepro.images.folder import read_folder
from cellrepro.model.augmentation import upcoming_crops
from cellrepro.model.epoch_schedule import learning_rates, trains_nothing
from cellrepro.model.prepared_images import trainable, training_labels, with_flows
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.model.watches import Watch, Watches
from cellrepro.progress import progress
from cellrepro.progress_log import FILE_VARIABLE
from cellrepro.spec.training_fields import Hyperparameters
from samebits.errors import BadInput
from samebits.generator_digests import generator_digests
from samebits.modes import mode_in_force
from samebits.seeds import seed_everything
from samebits.tensor_digests import tensor_digest
from small_training import IMAGES, begun, left_by, tiny

pytestmark = [
    pytest.mark.usefixtures("one_thread", "generators_free"),
    # Cellpose's own loop asks for autocast to float32, which PyTorch answers with a warning.
    pytest.mark.filterwarnings("ignore:In CPU autocast"),
]


def weights(network):
    """Digests of every parameter and buffer, by name."""
    return {name: tensor_digest(tensor) for name, tensor in network.state_dict().items()}


@pytest.fixture(scope="module")
def images(small_data):
    folder = read_folder(small_data)
    return folder.train, folder.test


def train(network, train_images, test_images, **options):
    """The lab's training, from its first step to its last."""
    return TrainingLoop(network, train_images, test_images, **options).run()


def by_cellpose(network, images, folder, **options):
    """Cellpose's own training; it saves its network into a folder."""
    return cellpose.train.train_seg(
        network,
        [image.image for image in images],
        [training_labels(image) for image in images],
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
    train_images, test_images = images
    if colour:  # three channels that differ, channels last
        train_images, test_images = (
            [
                replace(one, image=np.stack([one.image, one.image[::-1], one.image // 2], axis=-1))
                for one in part
            ]
            for part in images
        )
    test_images = [*test_images, *train_images]  # enough that a layer would be dropped by mistake
    expected, actual = tiny(1), tiny(1)
    start = weights(expected)
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


def test_the_same_bits_of_a_bfloat16_network_on_two_threads_in_mode_strict(images, tmp_path):
    """Trained in float32 and left in it: Cellpose saves before it goes back to bfloat16."""
    expected, actual = tiny(1), tiny(1)
    expected.dtype = actual.dtype = torch.bfloat16
    torch.set_num_threads(2)
    with mode_in_force("strict"):
        seed_everything(3)
        saved, *_ = by_cellpose(expected, images[0], tmp_path, n_epochs=2, nimg_per_epoch=2)
        seed_everything(3)
        train(actual, images[0], (), n_epochs=2, learning_rate=0.01, images_per_epoch=2)
    expected.dtype = torch.float32
    expected.load_state_dict(torch.load(saved, weights_only=True))
    assert actual.dtype == torch.float32
    assert weights(actual) == weights(expected)


@pytest.fixture
def toy(monkeypatch):
    """A network of one layer that Cellpose and the loop train in no time, on small crops."""

    class Toy(BaseModel):
        backbone = "toy"

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.layer(x), None

    monkeypatch.setattr("cellrepro.model.augmentation.CROP_SIZE", 16)
    return Toy()


@pytest.mark.parametrize(
    "options",
    [
        {"weight_decay": 0.9},
        {"min_train_masks": 30},
        {"rescale": True},
        {"scale_range": 0.0},
        {"normalize": False},
        {"train_probs": {"synth_001": 9}, "images_per_epoch": 6},
        {"nimg_test_per_epoch": 3},
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_argument_of_train_seg(toy, images, tmp_path, monkeypatch, options):
    """The same bits as Cellpose's own loop with the same, and others than without it."""
    # Cellpose writes ``normalize=False`` into the defaults of every later call (4.2.1.1).
    monkeypatch.setattr(models, "normalize_default", dict(models.normalize_default))
    pixels = [replace(one, image=one.image.astype("float32")) for part in images for one in part]
    every = with_flows(pixels, torch.device("cpu"))
    given = {name: options[name] for name in options.keys() - {"images_per_epoch", "train_probs"}}
    if "train_probs" in options:
        given["train_probs"] = np.array([9.0 if one.name == "synth_001" else 1.0 for one in every])
    expected, results = copy.deepcopy(toy), []
    _, losses, test_losses = by_cellpose(
        *(expected, every, tmp_path),
        test_data=[one.image for one in every[:2]],
        test_labels=[training_labels(one) for one in every[:2]],
        n_epochs=3,
        bsize=16,
        nimg_per_epoch=options.get("images_per_epoch"),
        **given,
    )
    for chosen in (options, {}):
        network, n_draws = copy.deepcopy(toy), options.get("images_per_epoch")
        asked = {name: chosen[name] for name in chosen.keys() - {"images_per_epoch"}}
        training = train(
            *(network, every, every[:2]),
            n_epochs=3,
            learning_rate=0.01,
            images_per_epoch=n_draws,
            settings=Hyperparameters(**asked),
        )
        told = [epoch.train_loss for epoch in training.epochs], training.epochs[0].test_loss
        results.append((weights(network), *told))
    assert results[0] == (weights(expected), losses.tolist(), test_losses[0])
    assert results[0] != results[1]


@pytest.mark.parametrize(
    "ignored",
    [
        {"normalize": {"sharpen_radius": 3, "invert": True}},
        {"SGD": True},
        {"class_weights": np.array([9.0])},
    ],
    ids=lambda options: next(iter(options)),
)
def test_cellpose_ignores_what_a_spec_refuses(toy, images, tmp_path, ignored):
    results = []
    for options in ({}, ignored):
        network = copy.deepcopy(toy)
        by_cellpose(network, images[0], tmp_path, n_epochs=3, bsize=16, **options)
        results.append(weights(network))
    assert results[0] == results[1] != weights(toy)


def test_without_augmentation_every_image_is_shown_as_it_is(toy, images):
    """The middle of a larger one, zeros around a smaller one; flows likewise."""
    seen = []

    class Seen(Watch):
        def batch(self, names, crops, x, y):
            seen.append((names, crops, x.numpy()[0], y.numpy()[0]))

    large, small = images[0][0], images[0][1]
    masks = np.repeat([[1], [0], [2]], [4, 2, 4], axis=0) * np.ones(12, int)
    small = replace(small, image=small.image[:10, :12], masks=masks)
    asked = Hyperparameters(augmentation=False, normalize=False, min_train_masks=0)
    options = {"n_epochs": 2, "learning_rate": 0.01, "settings": asked, "watch": Seen()}
    loop = TrainingLoop(toy, [large, small], (), **options)
    loop.run()
    shown = {names[0]: (crops, x, y) for names, crops, x, y in seen}
    for names, crops, x, _ in seen:
        assert crops == [], names
        assert np.array_equal(x, shown[names[0]][1])
    assert np.array_equal(shown[large.name][1][0], large.image[120:136, 120:136])
    assert np.array_equal(shown[small.name][1][0, 3:13, 2:14], small.image)
    assert shown[small.name][1][0].sum() == small.image.sum()
    flows = loop.prepared[f"{large.name} flows"][1:, 120:136, 120:136]
    assert np.array_equal(shown[large.name][2], flows)


@pytest.mark.parametrize("n_epochs", [11, 99, 100, 301])
def test_the_learning_rates_are_those_that_train_seg_sets(
    toy, images, tmp_path, monkeypatch, n_epochs
):
    used = []
    step = torch.optim.AdamW.step

    def spy(optimizer, *arguments):
        (group,) = optimizer.param_groups
        used.append(group["lr"])
        return step(optimizer, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    image, masks = images[0][0].image[:64, :64], images[0][0].masks[:64, :64]
    small = replace(images[0][0], image=image, masks=masks)
    by_cellpose(toy, [small], tmp_path, n_epochs=n_epochs, min_train_masks=1, bsize=16)
    assert learning_rates(n_epochs, 0.01).tolist() == used


def test_whoever_looks_on_changes_no_bit(tmp_path, monkeypatch):
    """The loss of every epoch travels to a notebook or to `watch` while the training goes on."""
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "progress.json"))
    ends = []
    for looks_on in (False, True):
        with progress(3, "train", quiet=not looks_on) as bar:

            def epoch_ended(epoch, bar=bar):
                bar.advance(f"epoch {epoch.index}", epoch.train_loss)

            options = {"on_epoch": epoch_ended} if looks_on else {}
            network, loop = begun(images_per_epoch=1, **options)
            course = loop.run()
        ends.append(left_by(network, loop.optimizer))
    assert ends[0] == ends[1]
    told = json.loads((tmp_path / "progress.json").read_text(encoding="utf-8"))
    assert told["losses"] == [epoch.train_loss for epoch in course.epochs]


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
    short = {"images": (images[0], ()), "images_per_epoch": 2}
    assert trained(**short, seed=3) != trained(**short, seed=4)
    cellpose, other, one, again, two = (
        trained(**short, seed=seed, rdrop=0, data_seed=data_seed)
        for seed, data_seed in [(3, "cellpose"), (4, "cellpose"), (3, 1), (4, 1), (3, 2)]
    )
    assert (cellpose, one) == (other, again)
    assert len({str(sorted(each.items())) for each in (cellpose, one, two)}) == 3


def test_a_watched_training_is_the_same(images):
    """Also where Cellpose evaluates, which draws too, and where one who looks draws."""
    told = []

    def meddle(epoch):
        told.append((epoch.index, epoch.learning_rate))
        random.random()
        np.random.seed(1)
        torch.rand(5)

    assert trained(images, on_epoch=meddle) == trained((images[0], ()))
    assert told == [(0, 0), (1, pytest.approx(0.01 / 9))]


def test_the_schedule_of_test_losses(toy, images):
    training = train(toy, *images, n_epochs=22, learning_rate=0.01, images_per_epoch=1)
    evaluated = [epoch.index for epoch in training.epochs if epoch.test_loss is not None]
    assert evaluated == [0, 5, 10, 20]


def test_a_test_image_without_masks_leaves_the_others_in_the_test_loss(toy, images):
    """Cellpose drops all of them, and only its log says so."""
    more = (replace(images[1][0], name="unlabelled", masks=None), *images[1])
    given = {"n_epochs": 1, "learning_rate": 0.01, "images_per_epoch": 1}
    expected = train(copy.deepcopy(toy), *images, **given).epochs
    assert expected[0].test_loss is not None
    assert train(toy, images[0], more, **given).epochs == expected


@pytest.mark.parametrize("name", ["batch_size", "images_per_epoch", "n_epochs"])
def test_a_loop_of_nothing_is_refused(toy, images, name):
    given = {"n_epochs": 2, "learning_rate": 0.01, name: 0}
    with pytest.raises(BadInput, match=f"{name} must be a whole number of at least 1, got 0"):
        TrainingLoop(toy, *images, **given)


def test_the_images_and_masks_given_are_left_as_they_are(toy, images):
    """Cellpose renumbers masks in place (4.2.1.1): the store would keep another ground truth."""
    gaps = [replace(one, masks=one.masks * 3) for part in images for one in part]
    before, defaults = copy.deepcopy(gaps), copy.deepcopy(models.normalize_default)
    train(toy, gaps[:3], gaps[3:], n_epochs=1, learning_rate=0.01)
    assert models.normalize_default == defaults
    for now, then in zip(gaps, before, strict=True):
        assert np.array_equal(now.masks, then.masks)
        assert np.array_equal(now.image, then.image)


@pytest.mark.parametrize(
    ("n_epochs", "rate", "expected"),
    [
        (1, 0.01, "1 epoch trains nothing: Cellpose's learning rate rises from 0"),
        (12, 0.0, "a learning rate of 0 trains nothing"),
    ],
)
def test_trains_nothing(toy, images, n_epochs, rate, expected):
    start = weights(toy)
    assert trains_nothing(n_epochs, rate).startswith(expected)
    train(toy, *images, n_epochs=n_epochs, learning_rate=rate, images_per_epoch=2)
    after = weights(toy)
    assert {name for name in start if start[name] != after[name]} == {"diam_labels"}
    assert trains_nothing(2, 0.01) is None


def with_masks(image, n):
    return replace(image, masks=np.where(image.masks <= n, image.masks, 0))


def test_images_with_too_few_masks_are_left_out_and_counted(toy, images):
    few = [with_masks(images[0][0], 4), with_masks(images[0][1], 5), images[0][2]]
    training = train(toy, few, (), n_epochs=1, learning_rate=0.01)
    assert (training.n_removed, training.n_steps) == (1, 2)
    with pytest.raises(BadInput, match=r"none of the 1 training images has 5 masks or more"):
        train(toy, few[:1], (), n_epochs=1, learning_rate=0.01)


@pytest.mark.parametrize("n", [4, 5, 6])
@pytest.mark.parametrize("background", [True, False], ids=["background", "no background"])
def test_masks_are_counted_as_cellpose_counts_them(images, n, background):
    """Where there is no background, it leaves the lowest label out."""
    masks = np.repeat(np.arange(1, n + 1, dtype=np.int32), 12)[:, None] * np.ones(40, np.int32)
    if background:
        masks[:, 0] = 0
    image = replace(images[0][0], masks=masks)
    expected = len(diameters(masks)[1]) >= 5
    assert trainable(image) is expected is (n >= (5 if background else 6))
    (flows,) = labels_to_flows([masks.copy()])
    assert len(diameters(flows[0])[1]) == len(diameters(masks)[1]), "flows have different labels"


def test_a_loop_tells_what_it_does_in_order(monkeypatch):
    told, drawn = MagicMock(spec=Watch), []
    get_batch = cellpose.train._get_batch

    def spy(indices, **rest):
        drawn.append([IMAGES[index].name for index in indices])
        return get_batch(indices, **rest)

    monkeypatch.setattr(cellpose.train, "_get_batch", spy)
    watch = Watches([told, Watch()])
    _, loop = begun(n_epochs=2, batch_size=2, watch=lambda network: watch)
    losses = [loop.step() for _ in range(2)]
    order = ["step", "step().__enter__", "batch", "forward", "loss", "backward", "updated"]
    assert [name for name, *_ in told.mock_calls] == [*order, "step().__exit__"] * 2
    assert [each.args for each in told.step.call_args_list] == [(0, 0), (1, 1)]
    assert [each.args[0].item() for each in told.loss.call_args_list] == losses
    for each, names in zip(told.batch.call_args_list, drawn, strict=True):
        given, crops, x, y = each.args
        assert (given, len(crops), x.shape, y.shape) == (names, 2, (2, 3, 256, 256), x.shape)


def test_the_crops_are_those_that_cellpose_takes(monkeypatch):
    taken, flips = [], []
    matrix = transforms.F._get_inverse_affine_matrix
    flip = transforms.F_t.hflip

    def spy(center, angle, translate, scale, shear):
        taken.append((float(angle), list(map(float, translate)), float(scale)))
        flips.append(False)
        return matrix(center, angle, translate, scale, shear)

    def spy_flip(image):
        flips[-1] = True
        return flip(image)

    monkeypatch.setattr(transforms.F, "_get_inverse_affine_matrix", spy)
    monkeypatch.setattr(transforms.F_t, "hflip", spy_flip)
    batch = [np.zeros((3, *shape), np.float32) for shape in ((512, 260), (64, 700), (64, 64))]
    flows = [image.copy() for image in batch]
    np.random.seed(0)
    before = generator_digests()
    crops = upcoming_crops(batch)
    assert generator_digests() == before
    transforms.random_rotate_and_resize(
        batch, lbls=flows, rescale=np.ones(len(batch), "float32"), bsize=256, scale_range=0.5
    )
    assert len(crops) == len(taken)
    for crop, (angle, (y, x), scale), flipped in zip(crops, taken, flips, strict=True):
        assert crop.degrees == pytest.approx(angle, rel=1e-6)
        assert crop.scale == pytest.approx(scale, rel=1e-6)
        assert (crop.y, crop.x) == pytest.approx((y, x), rel=1e-5, abs=1e-5)
        assert crop.flipped is flipped
