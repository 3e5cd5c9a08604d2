"""Training as ``cellpose.train.train_seg`` trains, step by step and with a data seed.

The loop is the project's own because Cellpose's can neither be watched nor be given a seed for
order and augmentation; its parts are Cellpose's. With ``data_seed="cellpose"`` it gives the same
bits as ``train_seg`` of Cellpose 4.2.1.1, which a test holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.images.folder import LabelledImage
from cellrepro.model.batch_gradients import BatchGradients, Team
from cellrepro.model.cellpose_generation import refuse_training
from cellrepro.model.epoch_schedule import (
    TEST_SEED,
    DataSeed,
    epoch_seed,
    learning_rates,
    looks_at_test_images,
    spread_seed,
)
from cellrepro.model.prepared_images import USUAL, CellposeImages
from cellrepro.model.training_batches import Cropping
from cellrepro.spec.training_fields import Hyperparameters
from cellrepro.store.checkpoints import LoopState
from samebits.errors import whole
from samebits.generator_states import generators_kept

if TYPE_CHECKING:
    from cellrepro.model.encoders import CellposeNetwork
    from cellrepro.model.watches import Watch


@dataclass(frozen=True)
class Epoch:
    """One epoch as it ended."""

    index: int
    """Number of the epoch, from 0."""
    learning_rate: float
    train_loss: float
    """Mean over the images drawn."""
    test_loss: float | None
    """None where Cellpose's schedule evaluates no test images."""


@dataclass
class Training:
    """The course of a training so far."""

    epochs: list[Epoch] = field(default_factory=list)
    """The epochs that have ended."""
    n_steps: int = 0
    n_removed: int = 0
    """Training images that were left out, as they have too few masks."""


@dataclass
class _EpochInProgress:
    """How far the current epoch is; before the first, and between two, at position 0."""

    order: np.ndarray
    """Int, shape (n_draws,): indices of images in the order in which they are shown."""
    position: int = 0
    """How many have been shown."""
    total_loss: float = 0.0
    """Sum over these."""


def nothing_after(epoch: Epoch) -> None:
    """Do nothing after an epoch: the default callback."""


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
        on_epoch: Callable[[Epoch], None] = nothing_after,
        watch: Watch | None = None,
        team: Team | None = None,
        image_by_image: bool = False,
    ) -> None:
        import torch

        from cellrepro.model.watches import Watch

        refuse_training()
        self._network = network
        self._batch_size = whole("batch_size", batch_size, 1)
        self._rates = learning_rates(whole("n_epochs", n_epochs, 1), learning_rate)
        self._learning_rate = learning_rate
        self._data_seed = data_seed
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
        self._gradients = BatchGradients(
            network,
            self._images,
            Cropping(settings, network.device),
            self._watch,
            team,
            image_by_image,
        )

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
            self.optimizer.zero_grad()
            begin = self._epoch.position
            batch = self._epoch.order[begin : begin + self._batch_size]
            loss = self._gradients.compute(batch)
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
                total += self._gradients.loss(indices, test).item() * len(indices)
        return total / len(order)
