"""Training as ``cellpose.train.train_seg`` trains, step by step and with a data seed.

The loop is the project's own because Cellpose's can neither be watched nor be given a seed for
order and augmentation; its parts are Cellpose's. With ``data_seed="cellpose"`` it gives the same
bits as ``train_seg`` of Cellpose 4.2.1.1, which a test holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cellrepro.determinism.generator_states import generators_kept
from cellrepro.errors import whole
from cellrepro.images.folder import LabelledImage
from cellrepro.model.augmentation import (
    Crop,
    augment,
    middle_crops,
    pass_over_crop,
    upcoming_crops,
)
from cellrepro.model.cellpose_generation import refuse_training
from cellrepro.model.epoch_schedule import (
    TEST_SEED,
    DataSeed,
    epoch_seed,
    learning_rates,
    looks_at_test_images,
    spread_seed,
)
from cellrepro.model.gradient_sum import GradientSum
from cellrepro.model.prepared_images import USUAL, CellposeImages, PreparedImages
from cellrepro.spec.training_fields import Hyperparameters
from cellrepro.store.checkpoints import LoopState

if TYPE_CHECKING:
    import torch

    from cellrepro.model.encoders import CellposeNetwork
    from cellrepro.trace.watches import Watch


@dataclass(frozen=True)
class Epoch:
    """One epoch as it ended."""

    index: int
    """From 0."""
    learning_rate: float
    train_loss: float
    """Mean over the images drawn."""
    test_loss: float | None
    """None where Cellpose's schedule evaluates no test images."""


@dataclass
class Training:
    """What a training has done so far."""

    epochs: list[Epoch] = field(default_factory=list)
    """The epochs that have ended."""
    n_steps: int = 0
    n_removed: int = 0
    """Training images that were left out, as they have too few masks."""


class Team(Protocol):
    """The ranks of a data parallel training, as seen by one of them."""

    rank: int
    n_ranks: int
    generators: list[dict[str, Any]]

    def share(self, network: Any, loss: float, n_images: int) -> tuple[float, int]:
        """Turn this rank's gradients into those of the batch; gives the batch's loss and size."""

    def add(self, gradients: GradientSum, loss: float | None) -> list[float]:
        """Add each rank's gradients of one image, in the order of the ranks.

        A rank without an image gives None as its loss; the losses of the others are returned.
        """

    def compare(self, network: Any) -> None:
        """After an epoch: raise unless all ranks have the same weights."""


@dataclass
class _EpochInProgress:
    """How far the current epoch is; before the first, and between two, at position 0."""

    order: np.ndarray
    """Int, shape (n_draws,): indices of images in the order in which they are shown."""
    position: int = 0
    """How many have been shown."""
    total_loss: float = 0.0
    """Sum over these."""


@dataclass(frozen=True)
class _Batch:
    """Some prepared images, before they are augmented."""

    pixels: list[np.ndarray]
    flows: list[np.ndarray]
    sizes: np.ndarray | None
    """Divisor by which augmentation first scales each image."""

    def only(self, position: int) -> _Batch:
        """The batch of one of its images."""
        part = slice(position, position + 1)
        sizes = None if self.sizes is None else self.sizes[part]
        return _Batch(self.pixels[part], self.flows[part], sizes)


@dataclass(frozen=True)
class _Shown:
    """The crops of some images that the network is shown."""

    inputs: torch.Tensor
    """Pixels."""
    targets: torch.Tensor
    """Flows."""

    @classmethod
    def joined(cls, images: Sequence[_Shown]) -> _Shown:
        """Concatenate several."""
        import torch

        inputs = torch.cat([image.inputs for image in images])
        return cls(inputs, torch.cat([image.targets for image in images]))


@dataclass(frozen=True)
class _BatchLoss:
    """The mean loss of a batch."""

    mean: torch.Tensor | float
    """A number where ranks share the batch."""
    n_images: int

    def as_number(self) -> float:
        """Read the loss, which synchronises with a GPU: best after the update."""
        return self.mean if isinstance(self.mean, float) else self.mean.item()


def _nothing_after(epoch: Epoch) -> None:
    """The default callback."""


class TrainingLoop:
    """A training that goes on by `step`, or by `run` to its end."""

    def __init__(
        self,
        network: CellposeNetwork,
        train_images: Sequence[LabelledImage],
        test_images: Sequence[LabelledImage],
        *,
        n_epochs: int,
        learning_rate: float,
        batch_size: int = 1,
        images_per_epoch: int | None = None,
        data_seed: DataSeed = "cellpose",
        settings: Hyperparameters = USUAL,
        on_epoch: Callable[[Epoch], None] = _nothing_after,
        watch: Watch | None = None,
        team: Team | None = None,
        image_by_image: bool = False,
    ) -> None:
        import torch

        from cellrepro.trace.watches import Watch

        refuse_training()
        self._network = network
        self._batch_size = whole("batch_size", batch_size, 1)
        self._rates = learning_rates(whole("n_epochs", n_epochs, 1), learning_rate)
        self._learning_rate = learning_rate
        self._data_seed = data_seed
        self._settings = settings
        self._on_epoch = on_epoch
        self._watch = Watch() if watch is None else watch
        self._team = team
        self._image_by_image = image_by_image
        if images_per_epoch is not None:
            images_per_epoch = whole("images_per_epoch", images_per_epoch, 1)

        network.dtype = torch.float32
        self._images = CellposeImages.of(network, train_images, test_images, settings=settings)
        mean_diameter = torch.Tensor([self._images.mean_diameter])
        network.diam_labels.data = mean_diameter.to(network.device)

        n_usable = len(self._images.train)
        self._n_draws = n_usable if images_per_epoch is None else images_per_epoch
        self._n_test_draws = settings.nimg_test_per_epoch or len(self._images.test)
        self._epoch = _EpochInProgress(order=np.empty(0, int))
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=learning_rate, weight_decay=settings.weight_decay
        )
        self.training = Training(n_removed=len(train_images) - n_usable)
        self.n_steps = len(self._rates) * -(-self._n_draws // self._batch_size)

    @property
    def prepared(self) -> dict[str, np.ndarray]:
        """Each training image before augmentation, as ``NAME normalised`` and ``NAME flows``.

        Float32, the first (C, Y, X), the second (4, Y, X): labels, cell or not, flows in y and x.
        """
        arrays = {}
        train = self._images.train
        for name, pixels, flows in zip(self._images.names, train.images, train.flows, strict=True):
            arrays[f"{name} normalised"] = pixels
            arrays[f"{name} flows"] = flows
        return arrays

    # -- steps -----------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether every epoch is done."""
        return len(self.training.epochs) == len(self._rates)

    def run(self) -> Training:
        """Do all steps that are left."""
        while not self.finished:
            self.step()
        return self.training

    def step(self) -> float:
        """Do the next step, forward, backward and update, and return its loss."""
        with self._watch.step(self.training.n_steps, len(self.training.epochs)):
            if self._epoch.position == 0:
                self._start_epoch()
            loss = self._gradients(self._next_images())
            self._watch.backward(self._network)
            self.optimizer.step()
            self._watch.updated(self._network, self.optimizer)
            mean_loss = loss.as_number()
        self.training.n_steps += 1
        self._epoch.total_loss += mean_loss * loss.n_images
        self._epoch.position += self._batch_size
        if self._epoch.position >= self._n_draws:
            self._end_epoch()
        return mean_loss

    def end_here(self) -> None:
        """Make the epoch that has just ended the last one.

        Refused where a training of so many epochs would have had other learning rates, as the
        result is to be that of such a training.
        """
        n_done = len(self.training.epochs)
        rates = learning_rates(n_done, self._learning_rate)
        within_epoch = self._epoch.position > 0
        if within_epoch or n_done == 0 or not np.array_equal(rates, self._rates[:n_done]):
            raise ValueError(
                f"this training cannot end after {n_done} of {len(self._rates)} epochs: its "
                "learning rates are not those of a training of so many"
            )
        self._rates = rates
        self.n_steps = self.training.n_steps

    # -- stopping and going on -------------------------------------------------------------

    def state(self) -> LoopState:
        """Give the position, and the optimizer's tensors, into which the next step writes."""
        position = {
            "epochs": [asdict(epoch) for epoch in self.training.epochs],
            "n_steps": self.training.n_steps,
            "order": [int(index) for index in self._epoch.order],
            "position": self._epoch.position,
            "total": self._epoch.total_loss,
            "ranks": [] if self._team is None else self._team.generators,
        }
        return LoopState(position, self.optimizer.state_dict())

    def restore(self, state: LoopState) -> None:
        """Go on from where `state` was taken; the caller restores weights and generators."""
        position = state.position
        self.training.epochs = [Epoch(**epoch) for epoch in position["epochs"]]
        self.training.n_steps = position["n_steps"]
        self._epoch = _EpochInProgress(
            order=np.array(position["order"], int),
            position=position["position"],
            total_loss=position["total"],
        )
        self.optimizer.load_state_dict(state.optimizer)
        self._network.train()

    # -- epochs ----------------------------------------------------------------------------

    def _start_epoch(self) -> None:
        index = len(self.training.epochs)
        seed = epoch_seed(self._data_seed, index)
        np.random.seed(seed)
        self._epoch = _EpochInProgress(self._images.train.drawn_order(self._n_draws))
        if self._team is not None and not self._image_by_image:
            # one order for all; each augments its own share
            np.random.seed(spread_seed(seed, self._team.rank))
        for group in self.optimizer.param_groups:
            group["lr"] = self._rates[index]
        self._network.train()

    def _end_epoch(self) -> None:
        index = len(self.training.epochs)
        epoch = Epoch(
            index=index,
            learning_rate=float(self._rates[index]),
            train_loss=self._epoch.total_loss / self._n_draws,
            test_loss=self._test_loss() if self._is_tested(index) else None,
        )
        self.training.epochs.append(epoch)
        self._epoch.position = 0
        if self._team is not None:
            self._team.compare(self._network)
        with generators_kept():
            self._on_epoch(epoch)

    def _is_tested(self, epoch: int) -> bool:
        """Whether this rank computes a test loss after an epoch."""
        is_first_rank = self._team is None or self._team.rank == 0
        return is_first_rank and len(self._images.test) > 0 and looks_at_test_images(epoch)

    # -- batches ---------------------------------------------------------------------------

    def _next_images(self) -> np.ndarray:
        """Indices of the next batch, or of this rank's share of it."""
        begin = self._epoch.position
        indices = self._epoch.order[begin : begin + self._batch_size]
        if self._team is None or self._image_by_image:
            return indices
        return indices[self._team.rank :: self._team.n_ranks]

    def _gradients(self, indices: np.ndarray) -> _BatchLoss:
        """Compute a batch's gradients, which stay in the network."""
        self.optimizer.zero_grad()
        if self._image_by_image:
            return self._gradients_image_by_image(indices)
        if self._team is None:
            loss = self._loss(indices, self._images.train, is_watched=True)
            loss.backward()
            return _BatchLoss(loss, len(indices))
        own_loss = 0.0
        if len(indices) > 0:  # a rank may have no image of a small last batch
            loss = self._loss(indices, self._images.train, is_watched=True)
            loss.backward()
            own_loss = loss.item()
        mean, n_images = self._team.share(self._network, own_loss, len(indices))
        return _BatchLoss(mean, n_images)

    def _gradients_image_by_image(self, batch: np.ndarray) -> _BatchLoss:
        """Compute a batch's gradients, added in the order of its images."""
        shown = self._own_images(batch)
        gradients = GradientSum(self._network)
        losses: list[float] = []
        outputs: list[torch.Tensor] = []
        n_ranks = 1 if self._team is None else self._team.n_ranks
        for first in range(0, len(shown), n_ranks):
            own_loss = None
            for image in shown[first : first + n_ranks]:
                if image is None:
                    self._pass_over_dropping()
                    continue
                output = self._network(image.inputs)[0]
                loss = self._loss_of(image, output)
                loss.backward()
                own_loss = loss.item()
                outputs.append(output.detach())
            if self._team is not None:
                losses += self._team.add(gradients, own_loss)
            elif own_loss is not None:
                losses.append(own_loss)
                gradients.add(gradients.taken())
        gradients.leave_mean(len(batch))
        mean_loss = sum(losses) / len(batch)
        self._tell_of_outputs(outputs, mean_loss)
        return _BatchLoss(mean_loss, len(batch))

    def _own_images(self, batch: np.ndarray) -> list[_Shown | None]:
        """Augment this rank's images of a batch; None stands for another rank's.

        The crops of those are drawn, too, so that every rank's generator has the state that it
        would have in one process.
        """
        images = self._taken(batch, self._images.train)
        crops = self._upcoming_crops(images)
        rank, n_ranks = (0, 1) if self._team is None else (self._team.rank, self._team.n_ranks)
        shown: list[_Shown | None] = []
        for position in range(len(batch)):
            if position % n_ranks == rank:
                shown.append(self._shown(images.only(position)))
                continue
            shown.append(None)
            if self._settings.augmentation:
                pass_over_crop()
        own = [image for image in shown if image is not None]
        if own:
            self._tell_of_batch(batch[rank::n_ranks], crops[rank::n_ranks], _Shown.joined(own))
        return shown

    def _pass_over_dropping(self) -> None:
        """Draw for dropped layers what another rank draws for its image.

        ``CPSAM.forward`` of Cellpose 4.2.1.1 draws a number for each layer.
        """
        import torch

        if self._network.rdrop > 0:
            torch.rand((1, len(self._network.encoder.blocks)), device=self._network.device)

    def _loss(
        self, indices: np.ndarray, part: PreparedImages, *, is_watched: bool = False
    ) -> torch.Tensor:
        """Compute the mean loss of some images; the watch is told of those trained on."""
        images = self._taken(indices, part)
        crops = self._upcoming_crops(images) if is_watched else []
        shown = self._shown(images)
        if is_watched:
            self._tell_of_batch(indices, crops, shown)
        output = self._network(shown.inputs)[0]
        loss = self._loss_of(shown, output)
        if is_watched:
            self._watch.forward(output)
            self._watch.loss(loss)
        return loss

    def _loss_of(self, shown: _Shown, output: torch.Tensor) -> torch.Tensor:
        from cellpose.train import _loss_fn_seg

        return _loss_fn_seg(shown.targets, output, self._network.device)

    def _taken(self, indices: np.ndarray, part: PreparedImages) -> _Batch:
        from cellpose.train import _get_batch

        pixels, flows = _get_batch(indices, data=part.images, labels=part.flows)
        return _Batch(pixels, flows, None if part.sizes is None else part.sizes[indices])

    def _upcoming_crops(self, images: _Batch) -> list[Crop]:
        """The crops that `_shown` is about to draw; none without augmentation."""
        if not self._settings.augmentation:
            return []
        scale_range = self._settings.scale_range
        return upcoming_crops(images.pixels, sizes=images.sizes, scale_range=scale_range)

    def _shown(self, images: _Batch) -> _Shown:
        """Augment some images, or take their middle."""
        device = self._network.device
        if not self._settings.augmentation:
            inputs = middle_crops(images.pixels, device)
            return _Shown(inputs, middle_crops(images.flows, device))
        inputs, targets = augment(
            images.pixels,
            images.flows,
            device,
            sizes=images.sizes,
            scale_range=self._settings.scale_range,
        )
        return _Shown(inputs, targets)

    def _tell_of_batch(self, indices: np.ndarray, crops: Sequence[Crop], shown: _Shown) -> None:
        names = [self._images.names[index] for index in indices]
        cropped = [asdict(crop) for crop in crops]
        self._watch.batch(names, cropped, shown.inputs, shown.targets)

    def _tell_of_outputs(self, outputs: list[torch.Tensor], mean_loss: float) -> None:
        import torch

        if outputs:
            self._watch.forward(torch.cat(outputs))
        self._watch.loss(torch.tensor(mean_loss, dtype=torch.float64))

    def _test_loss(self) -> float:
        """Compute the mean loss over the test images, as Cellpose draws and crops them."""
        import torch

        total = 0.0
        test = self._images.test
        with torch.no_grad(), generators_kept():
            np.random.seed(TEST_SEED)
            self._network.eval()
            order = test.drawn_order(self._n_test_draws)
            for start in range(0, len(order), self._batch_size):
                indices = order[start : start + self._batch_size]
                total += self._loss(indices, test).item() * len(indices)
        return total / len(order)
