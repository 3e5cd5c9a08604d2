"""One training on several devices: data parallel ranks, of which the worker itself is the first.

Every rank has the same network and goes through the same order of images. Of each batch it takes
its share, augments it and drops layers with generators of its own; the gradients of all are summed
in the order of the ranks. So a number of ranks repeats itself bit for bit, and another one does
not: the sums are taken in another order, and each rank draws for itself.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.bits.digests import tensors_digest
from cellrepro.determinism import seeds
from cellrepro.errors import CellreproError, NotPossibleHere
from cellrepro.process.calling import Children, in_child
from cellrepro.process.child import Child
from cellrepro.process.endings import RunError, reworded
from cellrepro.process.setup import Setup
from cellrepro.run.inputs import read_images, training_loop
from cellrepro.run.plan import Request
from cellrepro.store import checkpoints

if TYPE_CHECKING:
    import torch

SECONDS_VARIABLE = "CELLREPRO_RANK_SECONDS"
"""How long the first rank waits for another one to end its part of a step; else `_SECONDS`."""
_SECONDS = 1800.0
_FOR_EVER = timedelta(days=20)  # a rank that dies is noticed at once
_LOOK_SECONDS = 0.2
_BUCKET = 8_000_000  # parameters whose gradients are exchanged at once: 32 MB a rank


@contextmanager
def team_of(child: Child, request: Request, device: torch.device) -> Iterator[Team]:
    """Start the other ranks of a training, each a process of its own, and lead them."""
    n_ranks = request.spec.ranks
    _refuse_too_few(device, n_ranks)
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(n_ranks - 1) as threads,  # each only waits for its process
        _ended_with_the_block() as children,
    ):
        place, ready = Path(scratch, "meeting"), set()
        others = {
            rank: threads.submit(
                in_child,
                partial(follow, request=request, rank=rank, place=place),
                Setup.of(request.spec, device=_device(device, rank)),
                label=f"rank {rank}",
                on_event=lambda event: ready.add(event.text),
                children=children,
            )
            for rank in range(1, n_ranks)
        }
        while len(ready & {f"rank {rank}" for rank in others}) < len(others):
            for future in others.values():
                if future.done():
                    future.result()  # why it ended before it began
            child.phase("the other ranks begin")
            threading.Event().wait(_LOOK_SECONDS)
        with _group(place, 0, n_ranks, device, others) as groups:
            yield Team(0, n_ranks, *groups, others=others)


def follow(child: Child, *, request: Request, rank: int, place: Path) -> None:
    """The life of every rank but the first: the same training, of which it keeps nothing."""
    from cellrepro.model.network import build

    spec, setup = request.spec, child.setup
    with child.prepared() as device, child.loosened():
        folder = read_images(request)
        network = build(request.model, seed=spec.seed, device=device, dtype=setup.profile.dtype)
        if setup.seed is not None:
            own = seeds.rank_seed(setup.seed, rank, spec.ranks)
            seeds.seed_everything(own, quiet=True)
        child.phase(f"rank {rank}")
        with _group(place, rank, spec.ranks, device) as groups:
            team = Team(rank, spec.ranks, *groups)
            loop = training_loop(spec, network, folder, team=team)
            team.begin(network, loop, seeded=spec.seed is not None)
            while not loop.finished:
                loop.step()


def _refuse_too_few(device: torch.device, n_ranks: int) -> None:
    import torch

    if device.type == "cuda" and torch.cuda.device_count() < n_ranks:
        raise NotPossibleHere(
            f"ranks is {n_ranks}, and PyTorch finds {torch.cuda.device_count()} GPUs: each rank "
            "needs one of its own"
        )


def _device(device: torch.device, rank: int) -> str:
    return f"cuda:{rank}" if device.type == "cuda" else device.type


@contextmanager
def _ended_with_the_block() -> Iterator[Children]:
    """The other ranks of one training, none of which is at work after the block."""
    children = Children()
    try:
        yield children
    finally:
        children.end()


@contextmanager
def _group(
    place: Path,
    rank: int,
    n_ranks: int,
    device: torch.device,
    others: Mapping[int, Future[Any]] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """The ranks in touch with each other: a group for what is said, one for gradients.

    ``others`` are the first rank's, and end their meeting when one of them has ended.
    """
    import torch.distributed as dist

    def meet() -> tuple[Any, Any]:
        dist.init_process_group(
            "gloo", init_method=f"file://{place}", rank=rank, world_size=n_ranks
        )
        words = dist.new_group(backend="gloo", timeout=_FOR_EVER)
        gradients = words
        if device.type == "cuda":
            gradients = dist.new_group(backend="nccl", timeout=_FOR_EVER)
        return words, gradients

    loopback = "lo0" if sys.platform == "darwin" else "lo"
    before = dict(os.environ)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    try:
        groups = _met(meet, others or {})
        try:
            yield groups
        finally:
            dist.destroy_process_group()
    finally:
        if "GLOO_SOCKET_IFNAME" not in before:
            os.environ.pop("GLOO_SOCKET_IFNAME", None)


def _met(meet: Callable[[], tuple[Any, Any]], others: Mapping[int, Future[Any]]) -> tuple[Any, Any]:
    """What the meeting of all ranks gives; an error as soon as one of the others has ended.

    PyTorch would wait half an hour for it, and cannot be interrupted: the thread that waits is
    left to itself, and ends with this process.
    """
    meeting: Future[tuple[Any, Any]] = Future()

    def wait_for_all() -> None:
        try:
            meeting.set_result(meet())
        except BaseException as error:
            meeting.set_exception(error)

    threading.Thread(target=wait_for_all, daemon=True).start()
    while True:
        with suppress(TimeoutError):
            return meeting.result(timeout=_LOOK_SECONDS)
        for rank, future in others.items():
            if future.done():
                future.result()  # why it ended before it began
                raise RunError("failed", f"rank {rank} ended before the ranks had met")


@dataclass
class Team:
    """What a training asks of its ranks; see `cellrepro.model.training_loop.Team`."""

    rank: int
    n_ranks: int
    words: Any  # group of gloo
    gradients: Any  # group of gloo, or of NCCL between GPUs
    others: dict[int, Future[Any]] = field(default_factory=dict)  # of the first rank
    generators: list[dict[str, Any]] = field(default_factory=list)  # of each rank, after an epoch

    def begin(
        self, network: Any, loop: Any, *, seeded: bool, checkpoint: Path | None = None
    ) -> None:
        """Stand where the first rank stands: at the start, or at the checkpoint it goes on from."""
        checkpoint = self._told(checkpoint)[0]
        if checkpoint is not None and self.rank:
            found = checkpoints.read_plain(checkpoint)
            weights, optimizer = found.tensors()
            network.load_state_dict(weights)
            loop.restore({"loop": found.loop, "optimizer": optimizer})
            seeds.restore(found.loop["ranks"][self.rank])
        elif checkpoint is None and not seeded:
            self._copy_from_first(network)
        self.compare(network)

    def compare(self, network: Any) -> None:
        """Raise unless all ranks have the same weights; note where their generators stand."""
        told = self._told((tensors_digest(network.state_dict()), seeds.capture()))
        wrong = [str(rank) for rank, (digest, _) in enumerate(told) if digest != told[0][0]]
        if wrong:
            raise RunError(
                "failed",
                f"rank {', '.join(wrong)} has other weights than rank 0, though all were given the "
                "same gradients: its device or memory is faulty, or something trained beside the "
                "loop; nothing of this repeat is kept",
            )
        self.generators = [state for _, state in told]

    def share(self, network: Any, loss: float, n_images: int) -> tuple[float, int]:
        """Give every rank the gradients of the whole batch; returns its loss and images.

        They are weighted by images and summed in the order of the ranks, in float32.
        """
        import torch
        import torch.distributed as dist

        parameters = list(network.parameters())
        told = self._told((loss, n_images, [one.grad is not None for one in parameters]))
        n_all = sum(n for _, n, _ in told)
        having = zip(*(flags for _, _, flags in told), strict=True)
        live = [one for one, flags in zip(parameters, having, strict=True) if any(flags)]
        for bucket in _buckets(live):
            own = [torch.zeros_like(one) if one.grad is None else one.grad for one in bucket]
            flat = torch.cat([one.flatten() for one in own])
            parts = [torch.empty_like(flat) for _ in told]
            with self._named():
                dist.all_gather(parts, flat, group=self.gradients)
            mean = torch.zeros_like(flat)
            for part, (_, n, _) in zip(parts, told, strict=True):
                mean += part * (n / n_all)
            pieces = mean.split([one.numel() for one in bucket])
            for one, piece in zip(bucket, pieces, strict=True):
                one.grad = piece.view_as(one)
        return sum(value * n for value, n, _ in told) / n_all, n_all

    def _told(self, word: Any) -> list[Any]:
        """What each rank says, in their order; the first waits only so long for the others."""
        import torch.distributed as dist

        seconds = float(os.environ.get(SECONDS_VARIABLE, _SECONDS))
        limit = _FOR_EVER if self.rank else timedelta(seconds=seconds)
        told: list[Any] = [None] * self.n_ranks
        with self._named():
            dist.monitored_barrier(self.words, timeout=limit, wait_all_ranks=self.rank == 0)
            dist.all_gather_object(told, word, group=self.words)
        return told

    def _copy_from_first(self, network: Any) -> None:
        import torch.distributed as dist

        for tensor in network.state_dict().values():
            with self._named():
                dist.broadcast(tensor, 0, group=self.gradients)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say of an exchange that failed which rank it was."""
        try:
            yield
        except RuntimeError as error:
            with suppress(TimeoutError):  # who has died is about to be known
                next(as_completed(self.others.values(), timeout=3), None)
            for rank, future in self.others.items():
                if future.done() and (why := future.exception()):
                    sentence = f"rank {rank} ended the training: {why}"
                    if isinstance(why, CellreproError):
                        raise reworded(why, sentence) from error
                    raise RunError("failed", sentence) from error
            late = re.search(r"Ranks? ([\d, ]+) failed to pass", str(error))
            who = f"rank {late[1].strip()} did not answer" if late else f"a rank was lost: {error}"
            raise RunError(
                "failed",
                f"{who}; where a step takes longer than half an hour set {SECONDS_VARIABLE}",
            ) from error


def _buckets(parameters: list[Any]) -> Iterator[list[Any]]:
    """Parameters in their order, about `_BUCKET` numbers at a time."""
    bucket: list[Any] = []
    for one in parameters:
        bucket.append(one)
        if sum(each.numel() for each in bucket) >= _BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
