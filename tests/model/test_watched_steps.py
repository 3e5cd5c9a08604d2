"""What the loop tells of a step is what Cellpose does in it."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from cellrepro.determinism.seeding import seed_everything
from cellrepro.images.folder import LabelledImage
from cellrepro.model.network import ModelSource, build
from cellrepro.model.training import Loop, upcoming_crops
from cellrepro.store.digests import generator_digests
from cellrepro.trace.training_steps import Watch, Watches

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


class Told(Watch):
    """Writes down what it is told, in order."""

    def __init__(self):
        self.told = []

    @contextmanager
    def step(self, step, epoch):
        self.told.append((step, epoch))
        yield
        self.told.append("end")

    def batch(self, names, crops, images, targets):
        self.told.append(("batch", names, len(crops), tuple(images.shape), tuple(targets.shape)))

    def forward(self, output):
        self.told.append(("forward", tuple(output.shape)))

    def loss(self, loss):
        self.told.append(("loss", loss.item()))

    def backward(self, network):
        assert sum(p.grad is not None for p in network.parameters()) > 20
        self.told.append("backward")

    def updated(self, network, optimizer):
        self.told.append("updated")


def test_a_loop_tells_what_it_does_in_order(monkeypatch):
    import cellpose.train

    masks = np.kron(np.arange(1, 10).reshape(3, 3), np.pad(np.ones((14, 14), int), 3))
    image = ((masks > 0) * 100 + np.arange(60)).astype(np.uint8)
    images = [LabelledImage(n, image, masks.astype(np.int32), n, None) for n in ("a", "b")]
    told, drawn = Told(), []
    get_batch = cellpose.train._get_batch

    def spy(indices, **rest):
        drawn.append([images[index].name for index in indices])
        return get_batch(indices, **rest)

    monkeypatch.setattr(cellpose.train, "_get_batch", spy)
    source, device = ModelSource("tiny", "tiny"), torch.device("cpu")
    network = build(source, seed=1, device=device, dtype="float32")
    seed_everything(3)
    watch = Watches([told, Watch()])
    loop = Loop(network, images, (), n_epochs=2, learning_rate=0.01, batch_size=2, watch=watch)
    losses = [loop.step() for _ in range(2)]
    assert told.told == [
        one
        for index in range(2)
        for one in (
            (index, index),
            ("batch", drawn[index], 2, (2, 3, 256, 256), (2, 3, 256, 256)),
            *(("forward", (2, 3, 256, 256)), ("loss", losses[index])),
            *("backward", "updated", "end"),
        )
    ]


def test_the_crops_are_those_that_cellpose_takes(monkeypatch):
    from cellpose import transforms

    taken = []
    matrix = transforms.F._get_inverse_affine_matrix
    flip = transforms.F_t.hflip
    flips = []

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
        assert crop["degrees"] == pytest.approx(angle, rel=1e-6)
        assert crop["scale"] == pytest.approx(scale, rel=1e-6)
        assert (crop["y"], crop["x"]) == pytest.approx((y, x), rel=1e-5, abs=1e-5)
        assert crop["flipped"] is flipped
