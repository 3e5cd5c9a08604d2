"""The rendezvous of the ranks of one training, which connects them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cellrepro.process.process_ends import RunError

if TYPE_CHECKING:
    import torch

FOR_EVER = timedelta(days=20)
"""The time limit of what need not end by itself: a rank that dies is noticed at once."""

_SECONDS_BETWEEN_LOOKS = 0.2


class Groups(NamedTuple):
    """The process groups of the ranks; PyTorch may use a number for a group."""

    words: Any
    """Group of gloo, for Python values."""
    gradients: Any
    """The same group, or one of NCCL between GPUs."""


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
    while True:
        with suppress(TimeoutError):
            return meeting.result(timeout=_SECONDS_BETWEEN_LOOKS)
        for rank, future in others.items():
            if future.done():
                future.result()  # raises why it ended before it began
                raise RunError("failed", f"rank {rank} ended before the ranks had met")
