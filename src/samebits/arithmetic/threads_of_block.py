"""Threads, and processes, that are started in a block of portable arithmetic, or given work in it.

A dispatch mode of PyTorch belongs to the thread that entered it: in another one the same operations
would be computed plainly, and nothing would say so. Here the ways in which Python hands a function
to another thread take the block along, as long as it lasts.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import pool, process
from typing import Any, Protocol
from weakref import WeakSet

from torch.utils.data import dataloader

from samebits.replaced_functions import Replacement, SharedByBlocks, replaced


class Block(Protocol):
    """A block that other threads can compute in."""

    def in_this_thread(self) -> AbstractContextManager[None]:
        """Compute in it, in a thread that did not enter it."""

    def refuse(self, name: str, reason: str) -> None:
        """Refuse a function that no operation shows."""


_OLDER_WORKERS = (
    "has workers that were started before the block and compute outside of it (begin to iterate "
    "over the DataLoader in the block)"
)

Entered = Callable[[], AbstractContextManager[object]]
"""Makes such a block in another process; a class or a function that can be pickled."""


class _OfThread(threading.local):
    """Of the block that this thread entered last; tasks of one thread leave in any order."""

    block: Block | None = None
    entered: Entered | None = None

    def __init__(self) -> None:
        self._blocks: list[tuple[Block, Entered | None]] = []

    @contextmanager
    def within(self, block: Block, entered: Entered | None) -> Iterator[None]:
        own = (block, entered)
        self._blocks.append(own)
        self.block, self.entered = own
        try:
            yield
        finally:
            place = max(i for i, each in enumerate(self._blocks) if each is own)
            del self._blocks[place]
            self.block, self.entered = self._blocks[-1] if self._blocks else (None, None)


_here = _OfThread()


def block_of_this_thread() -> Block | None:
    """The block that this thread computes in; None outside of any."""
    return _here.block


@contextmanager
def computing_in(block: Block, entered: Entered | None = None) -> Iterator[None]:
    """Let this thread's block be this one, and hand it to what is started in it.

    ``entered`` makes one like it in another process; without it processes are not looked at.
    """
    with _here.within(block, entered or _here.entered):
        yield


def _ways_to_other_threads() -> Iterator[Replacement]:
    yield Replacement(threading.Thread, "start", _starting_thread)
    yield Replacement(process.BaseProcess, "start", _starting_process)
    yield Replacement(dataloader._BaseDataLoaderIter, "__next__", _taking_from_workers)
    yield Replacement(asyncio, "run_coroutine_threadsafe", _giving_coroutine)
    giving_to_thread = functools.partial(_giving_work, wrapped=_taking_along)
    for home, name in (
        (ThreadPoolExecutor, "submit"),
        (Future, "add_done_callback"),
        (asyncio.BaseEventLoop, "call_soon_threadsafe"),
        *((pool.ThreadPool, name) for name in _GIVING_WORK),
    ):
        yield Replacement(home, name, giving_to_thread)
    giving_to_process = functools.partial(_giving_work, wrapped=_in_process)
    for home, name in (
        (ProcessPoolExecutor, "submit"),
        *((pool.Pool, name) for name in _GIVING_WORK),
    ):
        yield Replacement(home, name, giving_to_process)


_GIVING_WORK = ("apply_async", "_map_async", "imap", "imap_unordered")
"""Methods of a pool through which all others go (Python 3.10 to 3.14)."""

WAYS_TO_OTHER_THREADS = SharedByBlocks(lambda: replaced(_ways_to_other_threads()))
"""Python's threads, pools and processes, which take blocks along."""


def _starting_thread(original: Callable[[threading.Thread], None]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(thread: threading.Thread) -> None:
        if _here.block is not None and "run" not in vars(thread):
            vars(thread)["run"] = _taking_along(thread.run)
        original(thread)

    return start


def _giving_work(
    original: Callable[..., object], *, wrapped: Callable[..., object]
) -> Callable[..., object]:
    @functools.wraps(original)
    def given(self: object, function: object, /, *args: object, **kwargs: object) -> object:
        if _here.block is not None and not isinstance(function, _InBlock | _InProcess):
            function = wrapped(function)
        return original(self, function, *args, **kwargs)

    return given


def _giving_coroutine(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def given(coroutine: object, loop: object) -> object:
        if _here.block is not None and isinstance(coroutine, Coroutine):
            coroutine = _CoroutineInBlock(coroutine, _here.block, _here.entered)
        return original(coroutine, loop)

    return given


def _taking_along(function: Callable[..., object]) -> Callable[..., object]:
    assert _here.block is not None
    return _InBlock(function, _here.block, _here.entered)


@dataclass(frozen=True)
class _InBlock:
    """A function that is called in a block, in whichever thread."""

    function: Callable[..., object]
    block: Block
    entered: Entered | None

    def __call__(self, *args: object, **kwargs: object) -> object:
        if _here.block is self.block:
            return self.function(*args, **kwargs)
        with self.block.in_this_thread(), computing_in(self.block, self.entered):
            return self.function(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class _CoroutineInBlock(Coroutine[Any, Any, Any]):
    """A coroutine that is in a block while it runs, and not while it waits."""

    coroutine: Coroutine[Any, Any, Any]
    block: Block
    entered: Entered | None

    def _stepping(self, step: Callable[..., object]) -> Callable[..., object]:
        return _InBlock(step, self.block, self.entered)

    def send(self, value: Any) -> Any:
        return self._stepping(self.coroutine.send)(value)

    def throw(self, *error: Any) -> Any:
        return self._stepping(self.coroutine.throw)(*error)

    def close(self) -> None:
        self._stepping(self.coroutine.close)()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError("a loop runs it by `send`")


def _in_process(function: Callable[..., object]) -> Callable[..., object]:
    return function if _here.entered is None else _InProcess(function, _here.entered)


@dataclass(frozen=True)
class _InProcess:
    """A function that is called in a block of another process."""

    function: Callable[..., object]
    entered: Entered

    def __call__(self, *args: object, **kwargs: object) -> object:
        is_forked_in_it = _here.block is not None
        with nullcontext() if is_forked_in_it else self.entered():
            return self.function(*args, **kwargs)


def _starting_process(original: Callable[[process.BaseProcess], None]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(child: process.BaseProcess) -> None:
        target = vars(child).get("_target")
        if _here.block is not None:
            _started_in_a_block.add(child)
        if _here.block is not None and target is not None and not _is_forked(child):
            vars(child)["_target"] = _in_process(target)
        original(child)

    return start


_started_in_a_block: WeakSet[process.BaseProcess] = WeakSet()


def _taking_from_workers(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def taken(loading: Any) -> object:
        if _here.block is not None:
            workers = getattr(loading, "_workers", ())
            if any(worker not in _started_in_a_block for worker in workers):
                _here.block.refuse(type(loading).__name__, _OLDER_WORKERS)
        return original(loading)

    return taken


def _is_forked(child: process.BaseProcess) -> bool:
    """Whether a process is a copy of this one, with the block that its thread computes in."""
    way = getattr(child, "_start_method", None) or multiprocessing.get_start_method()
    return bool(way == "fork")
