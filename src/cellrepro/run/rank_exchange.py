"""The exchange between the ranks of one training: gradients, weights, states of generators.

Of each batch every rank takes its share, augments it and drops layers with generators of its own;
the gradients of all are summed in the order of the ranks. So the same number of ranks gives the
same bits again. Another number does not, as it sums in another order and draws other numbers; in
mode ``portable`` alone, sums have no order, and it does.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cellrepro.errors import CellreproError
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.model.gradient_sum import GradientSum
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.process.process_ends import RunError, reworded
from cellrepro.store import checkpoints
from samebits import generator_states
from samebits.errors import BadInput
from samebits.tensor_digests import tensors_digest

if TYPE_CHECKING:
    import torch

FOR_EVER = timedelta(days=20)
"""The time limit of what need not end by itself: a rank that dies is noticed at once."""

SECONDS_VARIABLE = "CELLREPRO_RANK_SECONDS"
"""Seconds that the first rank waits for the others in a step; by default `_SECONDS`."""

_SECONDS = 1800.0
_SECONDS_TO_END = 3.0
_BUCKET = 8_000_000  # parameters whose gradients are exchanged at once: 32 MB a rank

T = TypeVar("T")


class Groups(NamedTuple):
    """The process groups of the ranks; PyTorch may use a number for a group."""

    words: Any
    """Group of gloo, for Python values."""
    gradients: Any
    """The same group, or one of NCCL between GPUs."""


class _Share(NamedTuple):
    """The message of a rank to the others with its part of a batch."""

    loss: float
    n_images: int
    has_gradient: list[bool]
    """Whether each parameter has a gradient."""


class _Standing(NamedTuple):
    """State of a rank after an epoch."""

    weights: str
    """Digest of the weights."""
    generators: dict[str, Any]
    """States of the generators, by `generator_states.capture`."""


@dataclass
class RankTeam:
    """One rank with its connection to the others; see `cellrepro.model.batch_gradients.Team`."""

    rank: int
    """Number of this process, from 0."""
    n_ranks: int
    groups: Groups
    others: dict[int, Future[None]] = field(default_factory=dict)
    """Processes of the other ranks, by number; only the first rank has them."""
    generators: list[dict[str, Any]] = field(default_factory=list)
    """States of the generators of each rank after the last epoch."""

    def begin(
        self,
        network: CellposeNetwork,
        loop: TrainingLoop,
        *,
        seeded: bool,
        is_portable: bool = False,
        checkpoint: Path | None = None,
    ) -> None:
        """Bring this rank to the state of the first one."""
        checkpoint_of_first = self._exchanged(checkpoint)[0]
        if checkpoint_of_first is None:
            if not seeded:
                self._copy_from_first(network)
        elif self.rank > 0:
            plain = checkpoints.read_plain(checkpoint_of_first)
            state = plain.training_state()
            network.load_state_dict(state.network)
            loop.restore(state.loop)
            if not is_portable:
                generator_states.restore(plain.loop["ranks"][self.rank])
        if is_portable:
            self._take_generators_of_first()
        self.compare(network)

    def compare(self, network: CellposeNetwork) -> None:
        """Compare the weights of all ranks, and keep the states of their generators."""
        own = _Standing(tensors_digest(network.state_dict()), generator_states.capture())
        standings = self._exchanged(own)
        first = standings[0].weights
        deviating = [str(rank) for rank, other in enumerate(standings) if other.weights != first]
        if deviating:
            raise RunError(
                "failed",
                f"rank {', '.join(deviating)} has different weights than rank 0, though all were "
                "given the same gradients: its device or memory is faulty, or something trained "
                "beside the loop; nothing of this repeat is kept",
            )
        self.generators = [standing.generators for standing in standings]

    def share(self, network: CellposeNetwork, loss: float, n_images: int) -> tuple[float, int]:
        """Average the gradients over the whole batch, for every rank.

        They are weighted by images and summed in the order of the ranks, in float32.
        """
        parameters = list(network.parameters())
        has_gradient = [parameter.grad is not None for parameter in parameters]
        shares = self._exchanged(_Share(loss, n_images, has_gradient))
        n_all = sum(share.n_images for share in shares)
        trained = [
            parameter
            for i, parameter in enumerate(parameters)
            if any(share.has_gradient[i] for share in shares)
        ]
        weights = [share.n_images / n_all for share in shares]
        for bucket in _buckets(range(len(trained)), trained):
            self._average_gradients([trained[index] for index in bucket], weights)
        return sum(share.loss * share.n_images for share in shares) / n_all, n_all

    def add(self, gradients: GradientSum, loss: float | None) -> list[float]:
        """Add the gradients of one image of each rank; gives the losses, in rank order."""
        own = gradients.taken()
        has_gradient = [gradient is not None for gradient in own]
        n_images = 0 if loss is None else 1
        shares = self._exchanged(_Share(loss or 0.0, n_images, has_gradient))
        indices = [
            index for index in range(len(own)) if any(share.has_gradient[index] for share in shares)
        ]
        for bucket in _buckets(indices, gradients.parameters):
            self._add_bucket(gradients, own, bucket, shares)
        return [share.loss for share in shares if share.n_images]

    def _add_bucket(
        self,
        gradients: GradientSum,
        own: list[torch.Tensor | None],
        bucket: list[int],
        shares: list[_Share],
    ) -> None:
        """Add the gradients of some parameters of all ranks."""
        parameters = [gradients.parameters[index] for index in bucket]
        of_ranks = self._gathered(parameters, [own[index] for index in bucket])
        for share, of_rank in zip(shares, of_ranks, strict=True):
            pieces = [
                piece.view_as(parameter) if share.has_gradient[index] else None
                for index, parameter, piece in zip(
                    bucket,
                    parameters,
                    of_rank.split([parameter.numel() for parameter in parameters]),
                    strict=True,
                )
            ]
            gradients.add(pieces, which=bucket)

    def _gathered(
        self, parameters: list[torch.nn.Parameter], gradients: list[torch.Tensor | None]
    ) -> list[torch.Tensor]:
        """All-gather gradients of some parameters, one flat tensor a rank; zeros for none."""
        import torch
        import torch.distributed as dist

        of_this_rank = torch.cat(
            [
                (torch.zeros_like(parameter) if gradient is None else gradient).flatten()
                for parameter, gradient in zip(parameters, gradients, strict=True)
            ]
        )
        of_all_ranks = [torch.empty_like(of_this_rank) for _ in range(self.n_ranks)]
        with self._naming_the_lost():
            dist.all_gather(of_all_ranks, of_this_rank, group=self.groups.gradients)
        return of_all_ranks

    def _average_gradients(
        self, parameters: list[torch.nn.Parameter], weights: list[float]
    ) -> None:
        """Replace gradients by their weighted mean over all ranks."""
        import torch

        of_all_ranks = self._gathered(parameters, [parameter.grad for parameter in parameters])
        mean = torch.zeros_like(of_all_ranks[0])
        for of_rank, weight in zip(of_all_ranks, weights, strict=True):
            mean += of_rank * weight
        pieces = mean.split([parameter.numel() for parameter in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)

    def _exchanged(self, own: T) -> list[T]:
        """All-gather a Python value; the first rank waits only so long for the others."""
        import torch.distributed as dist

        limit = FOR_EVER if self.rank else timedelta(seconds=seconds_to_wait())
        values: list[Any] = [None] * self.n_ranks  # as PyTorch fills it
        with self._naming_the_lost():
            dist.monitored_barrier(self.groups.words, timeout=limit, wait_all_ranks=self.rank == 0)
            dist.all_gather_object(values, own, group=self.groups.words)
        return values

    def _take_generators_of_first(self) -> None:
        """Set the generators of Python, NumPy and the processor to the states of rank 0."""
        states = generator_states.GeneratorStates.read()
        of_first = self._exchanged(states)[0]
        replace(of_first, cuda=states.cuda, mps=states.mps).write()

    def _copy_from_first(self, network: CellposeNetwork) -> None:
        import torch.distributed as dist

        for tensor in network.state_dict().values():
            with self._naming_the_lost():
                dist.broadcast(tensor, 0, group=self.groups.gradients)

    @contextmanager
    def _naming_the_lost(self) -> Iterator[None]:
        """Name the rank that made a collective operation fail."""
        try:
            yield
        except RuntimeError as error:
            # The future of a dead rank ends soon.
            wait(self.others.values(), timeout=_SECONDS_TO_END, return_when=FIRST_COMPLETED)
            for rank, future in self.others.items():
                reason = future.exception() if future.done() else None
                if reason is None:
                    continue
                sentence = f"rank {rank} ended the training: {reason}"
                if isinstance(reason, CellreproError):
                    raise reworded(reason, sentence) from error
                raise RunError("failed", sentence) from error
            late = re.search(r"Ranks? ([\d, ]+) failed to pass", str(error))
            lost = f"a rank was lost: {error}"
            if late is not None:
                lost = f"rank {late[1].strip()} did not answer"
            raise RunError(
                "failed",
                f"{lost}; where a step takes longer than {seconds_to_wait():g} seconds, set "
                f"{SECONDS_VARIABLE} to more",
            ) from error


def seconds_to_wait() -> float:
    """Seconds that the first rank waits for the others in a step."""
    given = os.environ.get(SECONDS_VARIABLE)
    if not given:
        return _SECONDS
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    longest = FOR_EVER.total_seconds()
    if not 0 < seconds <= longest:  # nor NaN
        raise BadInput(
            f"the environment variable {SECONDS_VARIABLE} is {given!r}; expected how many seconds "
            f"the first rank waits for the others in a step, a number above 0 and up to "
            f"{longest:.0f}; without it they are {_SECONDS:.0f}"
        )
    return seconds


def _buckets(indices: Iterable[int], parameters: list[torch.nn.Parameter]) -> Iterator[list[int]]:
    """Split indices of parameters into buckets of about `_BUCKET` scalars, in their order."""
    bucket: list[int] = []
    n_numbers = 0
    for index in indices:
        bucket.append(index)
        n_numbers += parameters[index].numel()
        if n_numbers >= _BUCKET:
            yield bucket
            bucket = []
            n_numbers = 0
    if bucket:
        yield bucket
