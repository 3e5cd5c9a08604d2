"""The end of a child process without an answer: a status, whose text is made where it is shown."""

from __future__ import annotations

from typing import Literal

from cellrepro.errors import CellreproError
from samebits.errors import NotPossibleHere, without_number
from samebits.torch_alerts import PHRASES

Status = Literal[
    "out-of-memory",
    "disk-full",
    "not-deterministic",
    "killed",
    "crashed",
    "time-limit",
    "interrupted",
    "failed",
]
"""``not-deterministic``: mode strict stopped at an operation that has no deterministic
implementation; ``killed``: by signal 9, as the system does when memory is short; ``crashed``: by
another signal; ``interrupted``: by us, at Ctrl-C; ``failed``: any other error."""

LOST: tuple[Status, ...] = ("killed", "crashed")
"""The process was ended from outside, so a second try may succeed."""

_MEANINGS: dict[Status, str] = {
    "out-of-memory": (
        "memory is short; take a smaller batch_size or smaller images, or a different profile"
    ),
    "disk-full": "no space is left on the disk; free some, or name a store on another disk",
    "not-deterministic": (
        "mode strict needs a deterministic implementation of every operation, and neither PyTorch "
        "nor this lab has one for one of them on this device; run in mode warn to see which"
    ),
}
"""Advice on an ending that the machine caused."""

_SIGNS: dict[Status, tuple[str, ...]] = {
    "out-of-memory": (
        "MemoryError",  # OutOfMemoryError among them
        "not enough memory",
        "Cannot allocate memory",
        "bad_alloc",
    ),
    "disk-full": ("No space left on device", "Disk quota exceeded"),
    "not-deterministic": PHRASES,
}
"""Parts of the messages of Python, PyTorch and the system; PyTorch has no types for most."""

_N_LAST_LINES = 12


class RunError(CellreproError):
    """A child process ended before its work was finished."""

    def __init__(
        self, status: Status, what: str, *, label: str | None = None, log: str = ""
    ) -> None:
        super().__init__(status, what, label, log)
        self.status = status
        self.what = what
        self.label = label
        self.log = log
        if status in ("failed", "time-limit", "interrupted"):
            self.exit_code = 1
        else:
            self.exit_code = NotPossibleHere.exit_code  # the machine's doing, not the work's

    def __reduce__(self) -> tuple[object, ...]:
        return _run_error, (self.status, self.what, self.label, self.log)

    def __str__(self) -> str:
        what = without_number(self.what)
        if self.label is None:
            return what
        if self.status in _MEANINGS:
            return f"{self.label}: {_MEANINGS[self.status]} ({what})"
        if self.status == "killed":
            return (
                f"{self.label}: the system killed the process (signal 9), usually because memory "
                "ran out; take a smaller batch_size or smaller images"
            )
        if self.status == "time-limit":
            return (
                f"{self.label} took more than {self.what}; allow it more: what it has done so far "
                "is kept where it makes checkpoints, and it goes on from there"
            )
        if self.status == "interrupted":
            return f"{self.label}: interrupted; the same command goes on from what is stored"
        last_words = f"; its last words:\n{self.log}" if self.log else ""
        return f"{self.label} failed: {what}{last_words}"


def _run_error(status: Status, what: str, label: str | None, log: str) -> RunError:
    return RunError(status, what, label=label, log=log)


def ended_with(what: str, *, label: str, code: int = 0, log: str = "") -> RunError:
    """Classify the end of a process that gave no answer, by its message and its exit code."""
    status = _status_by_signs(what)
    if status is None and code < 0:
        status = "killed" if code == -9 else "crashed"
    return RunError(status or "failed", what, label=label, log=last_lines(log))


def last_lines(log: str) -> str:
    """Cut what a process wrote to its last lines, as messages quote it."""
    return "\n".join(log.splitlines()[-_N_LAST_LINES:])


def _status_by_signs(what: str) -> Status | None:
    for status, signs in _SIGNS.items():
        if any(sign in what for sign in signs):
            return status
    return None


def as_refusal(error: BaseException, label: str) -> CellreproError:
    """Turn any error into one for the user: itself, or a `RunError` that classifies it."""
    if isinstance(error, CellreproError):
        return error
    return ended_with(repr(error), label=label)


def reworded(error: CellreproError, sentence: str) -> CellreproError:
    """Copy an error with another sentence.

    A class that makes its own sentence is left for the nearest one above it that takes a text.
    """
    if isinstance(error, RunError):
        return RunError(error.status, sentence, log=error.log)
    kind = next(kind for kind in type(error).__mro__ if "__init__" not in vars(kind))
    copy: CellreproError = kind(sentence)
    vars(copy).update(vars(error))  # such as the modules that are missing
    return copy
