"""Ctrl-C as a request: long work ends with what it has; a second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from cellrepro.progress import print_note


@dataclass(frozen=True)
class EndRequest:
    """A request to end, made in one process and read in its child."""

    file: Path
    """Exists once the user has asked."""

    @property
    def is_made(self) -> bool:
        """Whether the user has asked."""
        return self.file.exists()

    def make(self) -> None:
        """Make the request."""
        self.file.touch()


@contextmanager
def end_on_request(what_follows: str, *, quiet: bool = False) -> Iterator[EndRequest]:
    """Take the first Ctrl-C of one block as a request to end; the second interrupts as ever.

    Outside of the main thread, where Python receives no signals, nobody makes the request.
    """
    with tempfile.TemporaryDirectory(prefix="cellrepro-", ignore_cleanup_errors=True) as folder:
        request = EndRequest(Path(folder, "end"))
        if threading.current_thread() is not threading.main_thread():
            yield request
            return
        earlier = signal.getsignal(signal.SIGINT)

        def ask(number: int, frame: FrameType | None) -> None:
            signal.signal(signal.SIGINT, earlier)
            request.make()
            if not quiet:
                with suppress(RuntimeError):  # the signal came while another line was printed
                    print_note(what_follows)

        signal.signal(signal.SIGINT, ask)
        try:
            yield request
        finally:
            signal.signal(signal.SIGINT, earlier)


def leave_interrupts_to_caller() -> None:
    """Ignore SIGINT in a child and in its own children: a terminal sends it to the whole group.

    The caller ends them all, and knows that it did.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
