"""Training as ``cellpose.train.train_seg`` trains, step by step and with a data seed.

The loop is the project's own because Cellpose's can neither be watched nor be given a seed for
order and augmentation; its parts are Cellpose's. With ``data_seed="cellpose"`` it gives the same
bits as ``train_seg`` of Cellpose 4.2.1.1, which a test holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from cellrepro.asked.spec import Hyperparameters
from cellrepro.determinism.seeds import generators_kept
from cellrepro.errors import BadInput, whole
from cellrepro.images.folder import LabelledImage

if TYPE_CHECKING:
    from cellrepro.trace.watches import Watch

USUAL = Hyperparameters()
_CROP = 256  # pixels; fixed for CPSAM
_TEST_SEED = 42


@dataclass(frozen=True)
class Epoch:
    """One epoch as it ended."""

    index: int
    learning_rate: float
    train_loss: float  # mean over the images drawn
    test_loss: float | None  # none where Cellpose's schedule evaluates nothing


@dataclass
class Training:
    """What training did: its epochs, its steps, and how many images it had to leave out."""

    epochs: list[Epoch] = field(default_factory=list)
    n_steps: int = 0
    n_removed: int = 0


def learning_rates(n_epochs: int, learning_rate: float) -> np.ndarray:
    """The learning rate of every epoch, by the schedule of ``cellpose.train.train_seg``.

    It rises from 0 over ten epochs, so a single epoch changes nothing; from 100 epochs on the
    last 50 (from 301 on the last 100) are halved in ten stages.

    >>> learning_rates(3, 0.9)
    array([0. , 0.1, 0.2])
    """
    rates = np.linspace(0, learning_rate, 10)
    rates = np.append(rates, learning_rate * np.ones(max(0, n_epochs - 10)))
    if n_epochs < 100:
        return rates[:n_epochs]
    length = 10 if n_epochs > 300 else 5
    rates[-10 * length :] /= 2.0 ** np.repeat(np.arange(1, 11), length)
    return rates


def trains_nothing(n_epochs: int, learning_rate: float) -> str | None:
    """Why a training would leave every weight as it is, or none if it would not."""
    if learning_rates(n_epochs, learning_rate).any():
        return None
    if learning_rate == 0:
        return "a learning rate of 0 trains nothing"
    return (
        f"{n_epochs} epoch trains nothing: Cellpose's learning rate rises from 0 at the first "
        "epoch, so the weights stay as they were; ask for 2 epochs or more (10 reach the full rate)"
    )


def train(
    network: Any,
    train_images: Sequence[LabelledImage],
    test_images: Sequence[LabelledImage],
    **options: Any,
) -> Training:
    """Train a network in place; the parameters are those of `TrainingLoop`."""
    loop = TrainingLoop(network, train_images, test_images, **options)
    while not loop.finished:
        loop.step()
    return loop.training


class Team(Protocol):
    """The ranks of a data parallel training, as one of them sees them."""

    rank: int
    n_ranks: int
    generators: list[dict[str, Any]]

    def share(self, network: Any, loss: float, n_images: int) -> tuple[float, int]:
        """Turn the gradients of this rank's images into those of the batch; its loss and images."""

    def compare(self, network: Any) -> None:
        """After an epoch: raise unless all ranks have the same weights."""


class TrainingLoop:
    """A training that is walked step by step.

    The network (``cellpose.vit.CPSAM``) is trained in float32, whatever its dtype, and left in it.
    ``images_per_epoch`` are drawn with replacement; where it is none, or just the number of images
    that can be trained on, each is shown once, as in Cellpose. Test images without masks are left
    out of the test loss. Order, crop and
    augmentation follow ``data_seed``; "cellpose" is Cellpose's own seeding, by epoch number, which
    no seed of the user's changes. ``on_epoch`` is called with the generators kept.

    With a ``team`` it is one of its ranks. An image that ``settings.train_probs`` does not name has
    1. Without augmentation the middle of
    an image is shown as it is.
    """

    def __init__(
        self,
        network: Any,
        train_images: Sequence[LabelledImage],
        test_images: Sequence[LabelledImage],
        *,
        n_epochs: int,
        learning_rate: float,
        batch_size: int = 1,
        images_per_epoch: int | None = None,
        data_seed: int | Literal["cellpose"] = "cellpose",
        settings: Hyperparameters = USUAL,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
        watch: Watch | None = None,
        team: Team | None = None,
    ) -> None:
        import torch
        from cellpose.train import _process_train_test

        from cellrepro.trace.watches import Watch

        batch_size = whole("batch_size", batch_size, 1)
        n_epochs = whole("n_epochs", n_epochs, 1)
        if images_per_epoch is not None:
            images_per_epoch = whole("images_per_epoch", images_per_epoch, 1)
        # Of images and masks of other numbers Cellpose drops all test images, and only its log
        # says so (4.2.1.1, ``_process_train_test``).
        test_images = [image for image in test_images if image.masks is not None]
        self._names = [image.name for image in _usable(train_images, settings.min_train_masks)]
        given = dict(settings.train_probs or ())
        chances = np.array([given.get(image.name, 1.0) for image in train_images])
        network.dtype = torch.float32
        out = _process_train_test(
            train_data=[image.image for image in train_images],
            train_labels=_copies_of_masks(train_images),
            test_data=[image.image for image in test_images] or None,
            test_labels=_copies_of_masks(test_images) or None,
            train_probs=chances if given else None,
            min_train_masks=settings.min_train_masks,
            normalize_params={"normalize": settings.normalize},
            channel_axis=-1,
            device=network.device,
        )
        images, labels, _, _, chances, diameters, test, test_labels, _, _, test_chances, *rest = out
        network.diam_labels.data = torch.Tensor([diameters.mean()]).to(network.device)
        sizes: list[Any] = [None, None]
        if settings.rescale:  # the diameters of a part that is not there are None
            usual = network.diam_mean.item()
            sizes = [None if one is None else one / usual for one in (diameters, rest[0])]
        self._shown = _Images(images, labels, chances, sizes[0])
        self._test = _Images(test or [], test_labels or [], test_chances, sizes[1])
        self._settings = settings
        self._network, self._batch_size = network, batch_size
        self._n_draws = len(images) if images_per_epoch is None else images_per_epoch
        self._n_test = settings.nimg_test_per_epoch or len(self._test.images)
        self._watch = Watch() if watch is None else watch
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=learning_rate, weight_decay=settings.weight_decay
        )
        self._learning_rate = learning_rate
        self._rates = learning_rates(n_epochs, learning_rate)
        self._data_seed, self._on_epoch = data_seed, on_epoch
        self._team = team
        self._order, self._position, self._total = np.empty(0, int), 0, 0.0
        self.training = Training(n_removed=len(train_images) - len(images))
        self.n_steps = n_epochs * -(-self._n_draws // batch_size)

    @property
    def prepared(self) -> dict[str, np.ndarray]:
        """``NAME normalised``, (C, Y, X), before augmentation; ``NAME flows``, (4, Y, X): labels,
        cell or not, flows in y and x; all float32."""
        of_images = zip(self._names, self._shown.images, self._shown.labels, strict=True)
        return {
            f"{name} {what}": array
            for name, pixels, flows in of_images
            for what, array in (("normalised", pixels), ("flows", flows))
        }

    @property
    def finished(self) -> bool:
        """Whether every epoch is done."""
        return len(self.training.epochs) == len(self._rates)

    def end_here(self) -> None:
        """Make the epoch that has just ended the last one.

        The result is that of a training that was asked for so many epochs: this is refused where
        their learning rates would have been others.

        Raises
        ------
        ValueError
            If no epoch is done, or if Cellpose's schedule for so many epochs has other rates.
        """
        n_done = len(self.training.epochs)
        rates = learning_rates(n_done, self._learning_rate)
        if self._position or not n_done or not np.array_equal(rates, self._rates[:n_done]):
            raise ValueError(
                f"this training cannot end after {n_done} of {len(self._rates)} epochs: its "
                "learning rates are not those of a training of so many"
            )
        self._rates = rates
        self.n_steps = self.training.n_steps

    def step(self) -> float:
        """Do the next step, forward, backward and update, and return its loss."""
        with self._watch.step(self.training.n_steps, len(self.training.epochs)):
            if self._position == 0:
                self._start_epoch()
            indices = self._order[self._position : self._position + self._batch_size]
            if self._team is not None:
                indices = indices[self._team.rank :: self._team.n_ranks]
            loss, n = self._gradients(indices)
            self._watch.backward(self._network)
            self.optimizer.step()
            self._watch.updated(self._network, self.optimizer)
            value = loss if isinstance(loss, float) else loss.item()
        self.training.n_steps += 1
        self._total += value * n
        self._position += self._batch_size
        if self._position >= self._n_draws:
            self._end_epoch()
        return value

    def _gradients(self, indices: np.ndarray) -> tuple[Any, int]:
        """Leave the gradients of the batch; its loss and images. A rank may have no image of a
        small last batch."""
        self.optimizer.zero_grad()
        if not len(indices):
            assert self._team is not None
            return self._team.share(self._network, 0.0, 0)
        loss, n = self._loss(indices, self._shown, watched=True)
        loss.backward()
        return (loss, n) if self._team is None else self._team.share(self._network, loss.item(), n)

    def state(self) -> dict[str, Any]:
        """Where the training stands, without weights and generators; the next step writes into the
        optimizer's tensors: to come back to it, keep a copy."""
        return {
            "loop": {
                "epochs": [asdict(epoch) for epoch in self.training.epochs],
                "n_steps": self.training.n_steps,
                "order": [int(index) for index in self._order],
                "position": self._position,
                "total": self._total,
                "ranks": [] if self._team is None else self._team.generators,
            },
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state` was taken; weights and generators are restored by others."""
        loop = state["loop"]
        self.training.epochs = [Epoch(**epoch) for epoch in loop["epochs"]]
        self.training.n_steps = loop["n_steps"]
        self._order = np.array(loop["order"], int)
        self._position, self._total = loop["position"], loop["total"]
        self.optimizer.load_state_dict(state["optimizer"])
        self._network.train()

    def _start_epoch(self) -> None:
        index = len(self.training.epochs)
        seed = _epoch_seed(self._data_seed, index)
        np.random.seed(seed)
        self._order = self._shown.order(self._n_draws)
        if self._team is not None:  # one order for all; each augments its own share
            np.random.seed(_spread(seed, self._team.rank))
        for group in self.optimizer.param_groups:
            group["lr"] = self._rates[index]
        self._network.train()
        self._total = 0.0

    def _end_epoch(self) -> None:
        index = len(self.training.epochs)
        evaluated = bool(self._test.images) and (index == 5 or index % 10 == 0)
        first = self._team is None or self._team.rank == 0
        test_loss = self._test_loss() if evaluated and first else None
        train_loss = self._total / self._n_draws
        epoch = Epoch(index, float(self._rates[index]), train_loss, test_loss)
        self.training.epochs.append(epoch)
        self._position = 0
        if self._team is not None:
            self._team.compare(self._network)
        with generators_kept():
            self._on_epoch(epoch)

    def _loss(
        self, indices: np.ndarray, given: _Images, *, watched: bool = False
    ) -> tuple[Any, int]:
        from cellpose.train import _get_batch, _loss_fn_seg

        batch, flows = _get_batch(indices, data=given.images, labels=given.labels)
        crops: list[dict[str, Any]] = []
        if self._settings.augmentation:
            sizes = None if given.sizes is None else given.sizes[indices]
            look: dict[str, Any] = {"sizes": sizes, "scale_range": self._settings.scale_range}
            crops = upcoming_crops(batch, **look) if watched else []
            x, y = augment(batch, flows, self._network.device, **look)
        else:
            x, y = (_middles(arrays, self._network.device) for arrays in (batch, flows))
        if watched:
            self._watch.batch([self._names[index] for index in indices], crops, x, y)
        output = self._network(x)[0]
        loss = _loss_fn_seg(y, output, self._network.device)
        if watched:
            self._watch.forward(output)
            self._watch.loss(loss)
        return loss, len(x)

    def _test_loss(self) -> float:
        import torch

        total = 0.0
        with torch.no_grad(), generators_kept():
            np.random.seed(_TEST_SEED)
            self._network.eval()
            order = self._test.order(self._n_test)
            for start in range(0, len(order), self._batch_size):
                indices = order[start : start + self._batch_size]
                loss, n = self._loss(indices, self._test)
                total += loss.item() * n
        return total / len(order)


@dataclass(frozen=True)
class _Images:
    """The images of one part, as Cellpose prepared them."""

    images: list[np.ndarray]  # (3, Y, X), float32
    labels: list[np.ndarray]  # (4, Y, X): labels, cell or not, flows
    chances: np.ndarray | None  # of being drawn; sum 1
    sizes: np.ndarray | None  # mean diameter of the cells in that of Cellpose's network; to rescale

    def order(self, n_draws: int) -> np.ndarray:
        """Every image once, or ``n_draws`` with replacement, from NumPy's global generator."""
        if n_draws == len(self.images):
            return np.random.permutation(n_draws)
        return np.random.choice(len(self.images), size=n_draws, p=self.chances)


def augment(
    images: Sequence[np.ndarray],
    flows: Sequence[np.ndarray],
    device: Any = "cpu",
    *,
    sizes: np.ndarray | None = None,
    scale_range: float = USUAL.scale_range,
) -> tuple[Any, Any]:
    """Crops of images (C, Y, X) and flows (3, Y, X), float32, drawn anew at every call; ``sizes``
    are what each image is first divided by."""
    from cellpose.transforms import random_rotate_and_resize

    return random_rotate_and_resize(
        images,
        lbls=flows,
        rescale=np.ones(len(images), "float32") if sizes is None else sizes,
        bsize=_CROP,
        scale_range=scale_range,
        device=device,
    )[:2]


def _middles(arrays: Sequence[np.ndarray], device: Any) -> Any:
    """The middle crop of each array (C, Y, X), float32, zeros around a smaller one."""
    import torch

    shown = np.zeros((len(arrays), len(arrays[0]), _CROP, _CROP), np.float32)
    for crop, array in zip(shown, arrays, strict=True):
        n = [min(size, _CROP) for size in array.shape[-2:]]
        at, source = (
            [slice((room - m) // 2, (room - m) // 2 + m) for room, m in zip(rooms, n, strict=True)]
            for rooms in ((_CROP, _CROP), array.shape[-2:])
        )
        crop[:, at[0], at[1]] = array[:, source[0], source[1]]
    return torch.from_numpy(shown).to(device)


def upcoming_crops(
    batch: Sequence[np.ndarray],
    *,
    sizes: np.ndarray | None = None,
    scale_range: float = USUAL.scale_range,
) -> list[dict[str, Any]]:
    """What Cellpose's augmentation (4.2.1.1) is about to draw for each image from NumPy's global
    generator, without drawing it."""
    ahead = np.random.RandomState()
    ahead.set_state(np.random.get_state())
    crops = []
    for image, size in zip(batch, np.ones(len(batch)) if sizes is None else sizes, strict=True):
        scale = ((1 - scale_range / 2) + scale_range * ahead.rand()) * (1.0 / size)
        angle = 360 * ahead.rand() - 180
        flipped = bool(ahead.rand() > 0.5)
        room = [max(0.0, n * scale - _CROP) for n in image.shape[-2:]]
        y, x = (float(size * (part - 0.5)) for size, part in zip(room, ahead.rand(2), strict=True))
        crops.append({"scale": scale, "degrees": angle, "flipped": flipped, "y": y, "x": x})
    return crops


def _copies_of_masks(images: Sequence[LabelledImage]) -> list[np.ndarray]:
    """Masks for Cellpose, which renumbers them in place (4.2.1.1, ``dynamics.py``)."""
    return [image.masks.copy() for image in images if image.masks is not None]


def trainable(image: LabelledImage, least: int = USUAL.min_train_masks) -> bool:
    """Whether Cellpose trains on an image. It leaves the lowest label out as the background, also
    where there is none (4.2.1.1, ``utils.diameters``)."""
    if image.masks is None:
        return False
    labels = image.masks if image.masks.ndim == 2 else image.masks[0]  # beside its flows
    return len(np.unique(labels)) - 1 >= least


def with_flows(
    images: Sequence[LabelledImage], device: Any, *, most: int | None = None
) -> list[LabelledImage]:
    """The first `trainable` images, flows in the place of masks: none is computed again."""
    from cellpose.dynamics import labels_to_flows

    usable = _usable(images)[:most]
    flows = labels_to_flows(_copies_of_masks(usable), device=device)
    return [replace(image, masks=planes) for image, planes in zip(usable, flows, strict=True)]


def _usable(
    images: Sequence[LabelledImage], least: int = USUAL.min_train_masks
) -> list[LabelledImage]:
    """The `trainable` ones; `BadInput` if there is none."""
    usable = [image for image in images if trainable(image, least)]
    if not usable:
        raise BadInput(
            f"none of the {len(images)} training images has {least} masks or more, the "
            "least Cellpose trains on (in an image without background it does not count the "
            "lowest label); add images, or label more of their cells"
        )
    return usable


def _epoch_seed(data_seed: int | Literal["cellpose"], epoch: int) -> int:
    """Cellpose reseeds NumPy with the epoch's number; a data seed spreads over all seeds."""
    if data_seed == "cellpose":
        return epoch
    return _spread(data_seed, epoch)


def _spread(*seeds: int) -> int:
    """One seed from several, spread over all seeds."""
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])
