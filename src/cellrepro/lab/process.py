"""Work in a process of its own, with the profile's environment: both ends of the line.

`call` starts ``python -m cellrepro.lab.process MODULE:FUNCTION SCRATCH`` and reads one JSON event a
line from the child's standard output. What is given and what is returned travel as pickles in the
scratch folder, which only this user can read. The child's standard input stays open: when it
closes, the caller is gone, and the child ends, whatever it is doing.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.determinism.profiles import Profile, startup_variables
from cellrepro.errors import BadInput, CellreproError, NotPossibleHere

if TYPE_CHECKING:
    import torch

    from cellrepro.store.spec import Spec

_TAIL_LINES = 12
_GIVEN, _ANSWER = "given.pickle", "answer.pickle"

Event = dict[str, Any]


class RunFailed(CellreproError):
    """A child ended without finishing, for no reason of the user's."""

    exit_code = 1


@dataclass(frozen=True)
class Setup:
    """What decides how a process computes: profile, mode, seed, and the operation left loose."""

    profile: Profile
    mode: str = "fast"
    seed: int = 0
    loose: str | None = None

    @classmethod
    def of(cls, spec: Spec, *, device: str | None = None) -> Setup:
        """That of a spec, on ``device`` where there are several of its kind."""
        settings = spec.profile_settings | ({} if device is None else {"device": device})
        return cls(Profile(**settings), spec.mode, spec.seed, spec.loose)

    def variables(self) -> dict[str, str]:
        """The variables that mode and seed need, beside those of the profile."""
        return startup_variables(self.seed, mode=self.mode)

    def environment(self) -> dict[str, str]:
        """All variables of a process that computes so."""
        return self.profile.child_environment(self.variables())

    def enter(self) -> torch.device:
        """Import Cellpose and be what the profile says; no mode is in force yet."""
        from cellrepro.model.network import import_cellpose

        import_cellpose()
        return self.profile.enter()

    @contextmanager
    def prepared(self) -> Iterator[torch.device]:
        """`enter`, and put the mode in force for one block; `loosened` is the caller's to add."""
        from cellrepro.determinism.modes import mode_in_force
        from cellrepro.determinism.substitutes import SUBSTITUTES

        device = self.enter()
        left_out = [op for item in SUBSTITUTES for op in item.replaces if op == self.loose]
        tf32, kind = self.profile.tf32, self.profile.kind
        with mode_in_force(self.mode, tf32=tf32, loose=left_out, device=kind):
            yield device

    def loosened(self) -> Any:
        """A block in which the loose operation, if any, is left as PyTorch has it."""
        if self.loose is None:
            return nullcontext()
        from cellrepro.determinism.modes import left_loose

        return left_loose(self.loose)


class Child:
    """What work in a child is given first: its setup, and a line to the caller."""

    def __init__(self, setup: Setup | None, send: Callable[[Event], None]) -> None:
        self._setup, self._send = setup, send

    @property
    def setup(self) -> Setup:
        """As it was given to `call`."""
        assert self._setup is not None, "called without one"
        return self._setup

    def tell(self, event: str, **fields: Any) -> None:
        """Send one event at once, of plain values."""
        self._send({"event": event, **fields})

    def phase(self, name: str) -> None:
        """Say what begins now."""
        self.tell("phase", name=name)

    @contextmanager
    def prepared(self) -> Iterator[torch.device]:
        """`Setup.prepared`, after telling the caller that it begins with imports."""
        self.phase("import")
        with self.setup.prepared() as device:
            yield device


# -- the caller's end ----------------------------------------------------------------------


def call(
    work: str,
    setup: Setup | None,
    *,
    label: str,
    on_event: Callable[[Event], None] = lambda event: None,
    started: Callable[[subprocess.Popen[str]], None] = lambda process: None,
    variables: Mapping[str, str] | None = None,
    here: bool = False,
    **given: Any,
) -> Any:
    """Have a function called in a process of its own, and return what it returns.

    Parameters
    ----------
    work : str
        ``MODULE:FUNCTION``; the function takes a `Child` and what is given.
    setup : Setup or None
        Decides the child's variables; with none it has the caller's.
    label : str
        Names the work in messages.
    on_event : callable
        Called with every event that the child tells.
    started : callable
        Called with the process, for whoever may have to kill it.
    variables : mapping of str to str, optional
        More of them.
    here : bool
        Call it in this process, which was started with the variables, for this work alone.
    given
        Whatever can be pickled. What the function returns is read back with its classes, so an
        answer that holds tensors imports PyTorch in the caller.

    Raises
    ------
    BadInput, NotPossibleHere
        As the function raised them, or what its end means.
    RunFailed
        If the child ended otherwise; with its last words.
    """
    if here:
        return _call_here(work, Child(setup, on_event), label, given)
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as log:
        Path(scratch, _GIVEN).write_bytes(pickle.dumps((setup, given)))
        process = subprocess.Popen(
            # -P: a user's own cellpose.py or random.py in the current folder is not ours to import
            [sys.executable, "-P", "-m", "cellrepro.lab.process", work, scratch],
            env={**(os.environ if setup is None else setup.environment()), **(variables or {})},
            stdin=subprocess.PIPE,  # held open: the child ends when this process does
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        started(process)
        with _ended(process):
            last = _follow(process, on_event)
        log.seek(0)
        check_end(process.returncode, last, _tail(log.readlines()), label)
        return pickle.loads(Path(scratch, _ANSWER).read_bytes())


def _call_here(work: str, child: Child, label: str, given: dict[str, Any]) -> Any:
    log = io.StringIO()  # whatever libraries print is no result of a notebook's
    try:
        with redirect_stdout(log), redirect_stderr(log):
            return _function(work)(child, **given)
    except CellreproError:
        raise
    except Exception as error:
        check_end(1, _crash(error), _tail(log.getvalue().splitlines(keepends=True)), label)


def _tail(lines: list[str]) -> str:
    return "".join(lines[-_TAIL_LINES:])


def _crash(error: Exception) -> Event:
    return {"event": "crashed", "message": f"{type(error).__name__}: {error}"}


def _follow(process: subprocess.Popen[str], on_event: Callable[[Event], None]) -> Event | None:
    """Pass a child's events on; returns the one with which it ended, if any."""
    assert process.stdout is not None
    last = None
    for line in process.stdout:
        if not line.endswith("\n"):  # killed while it wrote
            break
        event = json.loads(line)
        if event["event"] in ("refused", "crashed", "done"):
            last = event
        else:
            on_event(event)
    return last


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Wait for a child; end it if the block is left early (Ctrl-C)."""
    try:
        yield
        process.wait()
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


_MEMORY_SHORT = (
    "OutOfMemoryError",
    "MemoryError",
    "not enough memory",
    "Cannot allocate memory",
    "bad_alloc",
    "failed to map segment",  # a library that found no room when it was loaded
)
_DISK_FULL = ("No space left on device", "Disk quota exceeded")


def check_end(code: int, last: Event | None, tail: str, label: str) -> None:
    """Raise what a child's end means, unless it means that all is well."""
    from cellrepro.determinism.known_operations import alert_in

    if code == 0 and last is not None and last["event"] == "done":
        return
    if last is not None and last["event"] == "refused":
        kinds = {"BadInput": BadInput, "NotPossibleHere": NotPossibleHere}
        raise kinds.get(last["kind"], BadInput)(last["message"])
    why = "" if last is None else last.get("message", "")
    if any(sign in why for sign in _MEMORY_SHORT):
        raise NotPossibleHere(
            f"{label}: memory is short ({why}); take a smaller --batch-size or "
            "smaller images, or another profile"
        )
    if any(sign in why for sign in _DISK_FULL):
        raise NotPossibleHere(
            f"{label}: no space is left on the disk ({why}); free some, or name "
            "another folder with --store"
        )
    if alert_in(why) is not None:
        raise NotPossibleHere(
            f"{label}: mode strict needs a deterministic implementation of every operation, and "
            f"on this device neither PyTorch nor this lab has one for one of them ({why}); run "
            "with --mode warn to see which, or on the CPU"
        )
    if code == -9:
        raise NotPossibleHere(
            f"{label}: the system killed the process (signal 9), usually because memory ran out; "
            "take a smaller --batch-size or smaller images"
        )
    what = why or f"exit code {code} and no answer"
    raise RunFailed(f"{label} failed: {what}; its last words:\n{tail}")


# -- the child's end -----------------------------------------------------------------------


def _function(work: str) -> Callable[..., Any]:
    module, _, name = work.partition(":")
    return getattr(importlib.import_module(module), name)


def serve() -> int:
    """Do the work named on the command line; the exit code of the process."""
    end_with_caller()
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print goes to the log, not between the events

    def send(event: Event) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    work, scratch = sys.argv[1:]
    try:
        setup, given = pickle.loads(Path(scratch, _GIVEN).read_bytes())
        answer = _function(work)(Child(setup, send), **given)
        Path(scratch, _ANSWER).write_bytes(pickle.dumps(answer))
    except CellreproError as error:
        send({"event": "refused", "kind": type(error).__name__, "message": str(error)})
        return error.exit_code
    except Exception as error:
        send(_crash(error))
        raise
    send({"event": "done"})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # all is told and written; to take PyTorch apart first takes one to two seconds


def end_with_caller() -> None:
    """End this process as soon as the caller's end of standard input is closed."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    sys.exit(serve())
