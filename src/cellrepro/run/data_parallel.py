"""Data parallel training: one process a rank, of which the worker itself is the first.

Each rank has the same network and the same order of images. Here they are started and meet; what
they exchange in each step is in `cellrepro.run.rank_exchange`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.process.calling import Children, in_child
from cellrepro.process.child import Child, Event
from cellrepro.process.process_ends import RunError
from cellrepro.run.inputs import read_images, training_loop
from cellrepro.run.plan import Request
from cellrepro.run.rank_exchange import FOR_EVER, Groups, RankTeam
from samebits import seeds
from samebits.errors import NotPossibleHere

if TYPE_CHECKING:
    import torch

_SECONDS_BETWEEN_LOOKS = 0.2


@contextmanager
def team_of(child: Child, request: Request, device: torch.device) -> Iterator[RankTeam]:
    """Start the other ranks of a training for one block, and connect to them."""
    n_ranks = request.spec.ranks
    _refuse_too_few(device, n_ranks)
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(n_ranks - 1) as threads,  # a thread only waits for its process
        _ended_with_the_block() as children,
    ):
        meeting = Path(scratch, "meeting")
        followers = _Followers(request, device, meeting)
        futures = followers.started(threads, children)
        followers.wait_until_ready(child, futures)
        with in_touch(meeting, 0, n_ranks, device, futures) as groups:
            yield RankTeam(0, n_ranks, groups, others=futures)


class _Followers:
    """All ranks but the first, as the first one sees them."""

    def __init__(self, request: Request, device: torch.device, meeting: Path) -> None:
        self._request = request
        self._device = device
        self._meeting = meeting
        self._ready: set[int] = set()

    def started(self, threads: ThreadPoolExecutor, children: Children) -> dict[int, Future[None]]:
        """Start the processes, for each of which a thread waits; gives their futures by rank."""
        return {
            rank: threads.submit(
                in_child,
                partial(follow, request=self._request, rank=rank, meeting=self._meeting),
                self._request.setup_on(_device_of(rank, self._device)),
                label=f"rank {rank}",
                on_event=partial(self._on_event, rank=rank),
                children=children,
            )
            for rank in range(1, self._request.spec.ranks)
        }

    def _on_event(self, event: Event, *, rank: int) -> None:
        if event.kind == "ready":
            self._ready.add(rank)

    def wait_until_ready(self, child: Child, futures: Mapping[int, Future[None]]) -> None:
        """Wait until each has its images and its network."""
        while not futures.keys() <= self._ready:
            for future in futures.values():
                if future.done():
                    future.result()  # raises why it ended
            child.phase("the other ranks begin")
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def follow(child: Child, *, request: Request, rank: int, meeting: Path) -> None:
    """Train as a rank that is not the first: with the same steps, and nothing is stored."""
    spec = request.spec
    with child.opened(request.model) as (network, device), child.loosened():
        folder = read_images(request)
        if spec.seed is not None:
            seeds.seed_everything(seeds.rank_seed(spec.seed, rank, spec.ranks), quiet=True)
        child.tell("ready", f"rank {rank}")
        with in_touch(meeting, rank, spec.ranks, device) as groups:
            team = RankTeam(rank, spec.ranks, groups)
            loop = training_loop(spec, network, folder, team=team)
            team.begin(
                network,
                loop,
                seeded=spec.seed is not None,
                is_portable=spec.mode == "portable",
            )
            while not loop.finished:
                loop.step()


def _refuse_too_few(device: torch.device, n_ranks: int) -> None:
    import torch

    if device.type == "cuda" and torch.cuda.device_count() < n_ranks:
        raise NotPossibleHere(
            f"ranks is {n_ranks}, and PyTorch finds {torch.cuda.device_count()} GPUs: each rank "
            "needs one of its own"
        )


def _device_of(rank: int, first: torch.device) -> str:
    return f"cuda:{rank}" if first.type == "cuda" else first.type


@contextmanager
def _ended_with_the_block() -> Iterator[Children]:
    """Children that are killed at the end of the block."""
    children = Children()
    try:
        yield children
    finally:
        children.end()


# -- the meeting ---------------------------------------------------------------------------------


@contextmanager
def in_touch(
    meeting: Path,
    rank: int,
    n_ranks: int,
    device: torch.device,
    others: Mapping[int, Future[None]] | None = None,
) -> Iterator[Groups]:
    """Connect the ranks with each other for one block."""
    import torch.distributed as dist

    def meet() -> Groups:
        # A FileStore, as the address ``file://`` has another form on Windows.
        store = dist.FileStore(str(meeting), n_ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=n_ranks)
        words = dist.new_group(backend="gloo", timeout=FOR_EVER)
        if device.type != "cuda":
            return Groups(words, words)
        return Groups(words, dist.new_group(backend="nccl", timeout=FOR_EVER))

    loopback = loopback_interface(sys.platform)
    was_set = "GLOO_SOCKET_IFNAME" in os.environ
    if loopback is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    try:
        groups = _met(meet, others or {})
        try:
            yield groups
        finally:
            dist.destroy_process_group()
    finally:
        if not was_set:
            os.environ.pop("GLOO_SOCKET_IFNAME", None)


def loopback_interface(system: str) -> str | None:
    """The loopback interface by ``sys.platform``.

    >>> loopback_interface("linux"), loopback_interface("darwin"), loopback_interface("win32")
    ('lo', 'lo0', None)
    """
    if system == "win32":  # named in the system's language; PyTorch takes the host's own
        return None
    return "lo0" if system == "darwin" else "lo"


def _met(meet: Callable[[], Groups], others: Mapping[int, Future[None]]) -> Groups:
    """Wait for the rendezvous of all ranks; raise as soon as one of the others has ended.

    PyTorch would wait half an hour for it and cannot be interrupted, so a daemon thread waits.
    """
    meeting: Future[Groups] = Future()

    def wait_for_all() -> None:
        try:
            meeting.set_result(meet())
        except BaseException as error:
            meeting.set_exception(error)

    threading.Thread(target=wait_for_all, daemon=True).start()
    while not wait([meeting], timeout=_SECONDS_BETWEEN_LOOKS).done:
        for rank, future in others.items():
            if future.done():
                future.result()  # raises why it ended before it began
                raise RunError("failed", f"rank {rank} ended before the ranks had met")
    return meeting.result()
