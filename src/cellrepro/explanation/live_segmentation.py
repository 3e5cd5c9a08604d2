"""One image segmented again and again as settings move, in a process of its own.

The process has the profile, mode and seed of any run, so that what it gives is what `segment` gives
with the same settings. It answers previews in one thread and exact masks in another; of several
requests of a kind that wait only the last is answered. Exact masks that are being made are given up
at the next slow step, or the next tile, once somebody asks for masks with other settings.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from cellrepro.errors import CellreproError
from cellrepro.model.no_cell import NoCell
from cellrepro.model.weight_sources import ModelSource
from cellrepro.process.calling import Children, in_child
from cellrepro.process.child import Child, Event
from cellrepro.process.setup import Setup
from cellrepro.spec.segmentation_settings import Settings

if TYPE_CHECKING:
    from cellrepro.model.live_masks import LiveMasks

Kind = Literal["preview", "exact"]
_HOME = "127.0.0.1"
_UNASKED = -1  # number of a preview that is made for what it leaves in memory


@dataclass(frozen=True)
class LiveRequest:
    """Masks that are asked for."""

    number: int
    """Counts up."""
    kind: Kind
    settings: Settings


@dataclass(frozen=True)
class LiveAnswer:
    """The answer to a request."""

    number: int
    kind: Kind
    settings: Settings
    masks: np.ndarray | None = None
    """None of a preview that needs a pass of the network, and where there is a problem."""
    seconds: float = 0.0
    """Duration of making them."""
    pass_seconds: float = 0.0
    """Duration of the last segmentation with a pass of the network."""
    problem: str = ""
    """Why there are no masks."""
    no_cell: NoCell | None = None
    """Why exact masks hold no cell, where that is known."""


class Segmenting(Protocol):
    """What answers requests, each later by a call of a function that was given to it."""

    def ask(self, request: LiveRequest) -> None:
        """Ask for masks."""

    def close(self) -> None:
        """End it."""


# -- inside the process ----------------------------------------------------------------------


class Unwanted(Exception):
    """Nobody wants the exact masks any more that are being made."""


class Inbox:
    """The last request of each kind that nobody has answered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Kind, LiveRequest] = {}
        self._last: LiveRequest | None = None
        self._exact: LiveRequest | None = None  # that was taken last
        self._is_closed = False

    def put(self, request: LiveRequest) -> None:
        """Replace the last request of its kind."""
        with self._changed:
            self._waiting[request.kind] = request
            self._last = request
            self._changed.notify_all()

    def stop_unwanted(self) -> None:
        """Raise `Unwanted` where the exact masks being made are not of the last settings."""
        with self._changed:
            if self._exact is None or self._last is None:
                return
            if self._is_closed or self._exact.settings != self._last.settings:
                raise Unwanted

    def put_if_idle(self, request: LiveRequest) -> None:
        """Put a request where none of its kind waits."""
        with self._changed:
            self._waiting.setdefault(request.kind, request)
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody asks any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def take(self, kind: Kind) -> LiveRequest | None:
        """Wait for a request of a kind; None where nobody asks any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or kind in self._waiting)
            if self._is_closed:
                return None
            request = self._waiting.pop(kind)
            if kind == "exact":
                self._exact = request
            return request


def answer_requests(
    live: LiveMasks,
    inbox: Inbox,
    receive: Callable[[], LiveRequest],
    send: Callable[[LiveAnswer], None],
) -> None:
    """Answer until nobody asks any more, which ends ``receive`` with EOFError.

    Making exact masks calls ``inbox.stop_unwanted`` now and then.
    """

    def listen() -> None:
        try:
            while True:
                inbox.put(receive())
        except (EOFError, OSError):
            inbox.close()

    def preview() -> None:
        while (request := inbox.take("preview")) is not None:
            answer = _answer(live, request)
            if request.number != _UNASKED:
                send(answer)

    threads = [threading.Thread(target=work, daemon=True) for work in (listen, preview)]
    for thread in threads:
        thread.start()
    # A mode's arithmetic may be in force in the main thread alone.
    while (request := inbox.take("exact")) is not None:
        try:
            answer = _answer(live, request)
        except Unwanted:
            continue
        send(answer)
        # The first preview of a new output follows every path: better before somebody drags.
        inbox.put_if_idle(LiveRequest(_UNASKED, "preview", request.settings))


def _answer(live: LiveMasks, request: LiveRequest) -> LiveAnswer:
    """Make the masks that are asked for."""
    make = live.preview if request.kind == "preview" else live.exact
    started = time.perf_counter()
    masks = None
    no_cell = None
    problem = ""
    try:
        masks = make(request.settings)
        if masks is not None and request.kind == "exact" and not masks.any():
            no_cell = live.why_none(request.settings)
    except Unwanted:
        raise
    except CellreproError as error:
        problem = str(error)
    except Exception as error:  # of settings that Cellpose cannot carry out nearly any
        problem = f"Cellpose cannot segment with these settings ({error!r})"
    return LiveAnswer(
        number=request.number,
        kind=request.kind,
        settings=request.settings,
        masks=masks,
        seconds=time.perf_counter() - started,
        pass_seconds=live.pass_seconds,
        problem=problem,
        no_cell=no_cell,
    )


def serve(child: Child, *, image: np.ndarray, model: ModelSource, key: bytes) -> None:
    """Runs in a child process: answer one caller, who has the key, until it hangs up."""
    with child.opened(model) as (network, _), Listener((_HOME, 0), authkey=key) as listener:
        import torch

        from cellrepro.model.evaluator import evaluator
        from cellrepro.model.live_masks import LiveMasks
        from samebits.generator_states import generators_kept

        inbox = Inbox()
        network.register_forward_pre_hook(lambda *_: inbox.stop_unwanted())  # before each tile
        live = LiveMasks(
            evaluator(network, sharing=True, before_step=inbox.stop_unwanted),
            image,
            n_threads=max(1, torch.get_num_threads()),
            before_step=inbox.stop_unwanted,
        )
        child.tell("ready", json.dumps(listener.address))
        with listener.accept() as connection, generators_kept():
            lock = threading.Lock()

            def send(answer: LiveAnswer) -> None:
                with lock:
                    connection.send(answer)

            answer_requests(live, inbox, connection.recv, send)


# -- the caller's side -----------------------------------------------------------------------


class LiveSegmentation:
    """A process that segments one image; answers come in a thread of their own."""

    def __init__(
        self,
        image: np.ndarray,
        model: ModelSource,
        setup: Setup,
        *,
        on_answer: Callable[[LiveAnswer], None],
    ) -> None:
        self._on_answer = on_answer
        self._children = Children()
        self._key = secrets.token_bytes(32)
        self._connection: Connection | None = None
        self._is_ready = threading.Event()
        self._lock = threading.Lock()
        self._is_closed = False
        self._last: LiveRequest | None = None
        self._failure = ""
        task = partial(serve, image=image, model=model, key=self._key)
        self._thread = threading.Thread(target=self._run, args=(task, setup), daemon=True)
        self._thread.start()

    def ask(self, request: LiveRequest) -> None:
        """Ask for masks; before the process is ready, the last request waits."""
        with self._lock:
            self._last = request
            if self._connection is not None:
                self._send(request)
        if self._failure:
            self._fail(request)

    def close(self) -> None:
        """End the process."""
        self._is_closed = True
        self._children.end()

    def _send(self, request: LiveRequest) -> None:
        assert self._connection is not None
        try:
            self._connection.send(request)
        except OSError:
            self._failure = self._failure or "the process that segments has ended"

    def _run(self, task: Callable[[Child], None], setup: Setup) -> None:
        try:
            in_child(task, setup, label="segmenting", on_event=self._hear, children=self._children)
        except CellreproError as error:
            self._failure = str(error)
        else:
            self._failure = "the process that segments has ended"
        if not self._is_closed and self._last is not None:
            self._fail(self._last)

    def _hear(self, event: Event) -> None:
        if event.kind != "ready":
            return
        host, port = json.loads(event.text)
        connection = Client((host, port), authkey=self._key)
        threading.Thread(target=self._receive, args=(connection,), daemon=True).start()
        with self._lock:
            self._connection = connection
            if self._last is not None:
                self._send(self._last)

    def _receive(self, connection: Connection) -> None:
        try:
            while True:
                self._on_answer(connection.recv())
        except (EOFError, OSError):
            return

    def _fail(self, request: LiveRequest) -> None:
        self._on_answer(
            LiveAnswer(request.number, request.kind, request.settings, problem=self._failure)
        )


def pass_estimate(seconds: float, now: Settings, before: Settings) -> float:
    """How long a segmentation with a pass takes: as the number of pixels that the network sees."""
    diameter = now.diameter or 30.0
    diameter_before = before.diameter or 30.0
    return seconds * (diameter_before / diameter) ** 2
