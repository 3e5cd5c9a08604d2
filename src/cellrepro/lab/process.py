"""Work in a process of its own, with the profile's environment: both ends of the line.

The caller starts ``python -m MODULE REQUEST``, reads one JSON event a line from the child's
standard output and keeps its standard input open: when that closes, the caller is gone and the
child ends, whatever it is doing.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere

_TAIL_LINES = 12


class RunFailed(CellreproError):
    """A child ended without finishing, for no reason of the user's."""

    exit_code = 1


# -- the caller's end ----------------------------------------------------------------------


def call(
    module: str,
    request: str,
    *,
    environment: dict[str, str],
    label: str,
    on_event: Callable[[dict[str, Any]], None] = lambda event: None,
) -> Any:
    """Start a child, follow its events to its end, and return its answer.

    Parameters
    ----------
    module : str
        Run as ``python -m MODULE FILE``; its ``main`` is `serve`.
    request : str
        Written to that file.
    environment : dict of str to str
        All of the child's variables.
    label : str
        Names the work in messages.
    on_event : callable
        Called with every event but the last.

    Returns
    -------
    object
        What the child's work returned, as JSON carries it.

    Raises
    ------
    BadInput
        If the child found the request wrong.
    NotPossibleHere
        If this machine cannot do it.
    RunFailed
        If the child ended otherwise; with its last words.
    """
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as log:
        file = Path(scratch, "request.json")
        file.write_text(request, encoding="utf-8")
        process = subprocess.Popen(
            # -P: a user's own cellpose.py or random.py in the current folder is not ours to import
            [sys.executable, "-P", "-m", module, str(file)],
            env=environment,
            stdin=subprocess.PIPE,  # held open: the child ends when this process does
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        with _ended(process):
            last = _follow(process, on_event)
        log.seek(0)
        tail = "".join(log.readlines()[-_TAIL_LINES:])
    check_end(process.returncode, last, tail, label)
    assert last is not None  # `check_end` raises where there is no answer
    return last["answer"]


def work_here(
    work: Callable[[Events], Any],
    *,
    label: str,
    on_event: Callable[[dict[str, Any]], None] = lambda event: None,
) -> None:
    """Do in this process what `call` has a child do, with the same messages if it fails.

    For a process that was started for this one piece of work, with the variables it needs.

    Raises
    ------
    BadInput, NotPossibleHere, RunFailed
        As `call`; a process that is killed cannot say so.
    """

    class Heard(Events):
        def tell(self, event: str, **fields: Any) -> None:
            on_event({"event": event, **fields})

    log = io.StringIO()  # whatever libraries print is no result of a notebook's
    try:
        with redirect_stdout(log), redirect_stderr(log):
            work(Heard(log))
    except CellreproError:
        raise
    except Exception as error:
        crashed = {"event": "crashed", "message": f"{type(error).__name__}: {error}"}
        tail = "".join(log.getvalue().splitlines(keepends=True)[-_TAIL_LINES:])
        check_end(1, crashed, tail, label)


def _follow(
    process: subprocess.Popen[str], on_event: Callable[[dict[str, Any]], None]
) -> dict[str, Any] | None:
    """Pass a child's events on; returns the one with which it ended, if any."""
    assert process.stdout is not None
    last = None
    for line in process.stdout:
        try:
            event = json.loads(line)
        except ValueError:  # killed, or out of disk, while it wrote
            last = {"event": "cut off", "message": cut_off(line)}
            continue
        if event["event"] in ("refused", "crashed", "done"):
            last = event
        else:
            on_event(event)
    return last


def cut_off(line: str) -> str:
    """What is said of a last line that is no whole one."""
    return f"its answer was cut off after {len(line)} characters ({line[-40:]!r})"


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


def check_end(code: int, last: dict[str, Any] | None, tail: str, label: str) -> None:
    """Raise what a child's end means, unless it means that all is well."""
    from cellrepro.determinism.known_operations import alert_in

    if code == 0 and last is not None and last["event"] == "done":
        return
    if last is not None and last["event"] == "refused":
        kinds = {"BadInput": BadInput, "NotPossibleHere": NotPossibleHere}
        raise kinds.get(last["kind"], BadInput)(last["message"])
    why = last["message"] if last is not None and "message" in last else None
    if why is not None and _out_of_memory(why):
        raise NotPossibleHere(
            f"{label}: memory is short ({why}); take a smaller --batch-size or "
            "smaller images, or another profile"
        )
    if why is not None and _disk_full(why):
        raise NotPossibleHere(
            f"{label}: no space is left on the disk ({why}); free some, or name "
            "another folder with --store"
        )
    if why is not None and alert_in(why) is not None:
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
    what = why if why is not None else f"exit code {code} and no answer"
    raise RunFailed(f"{label} failed: {what}; its last words:\n{tail}")


def _out_of_memory(message: str) -> bool:
    return message.startswith(("OutOfMemoryError", "MemoryError", "torch.OutOfMemoryError")) or any(
        sign in message
        for sign in (
            "not enough memory",
            "Cannot allocate memory",
            "bad_alloc",
            "failed to map segment",  # a library that found no room when it was loaded
        )
    )


def _disk_full(message: str) -> bool:
    return "No space left on device" in message or "Disk quota exceeded" in message


# -- the child's end -----------------------------------------------------------------------


class Events:
    """Tells the caller what is going on, one JSON object a line."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def tell(self, event: str, **fields: Any) -> None:
        """Send one event at once."""
        self._stream.write(json.dumps({"event": event, **fields}) + "\n")
        self._stream.flush()


def serve(work: Callable[[str, Events], Any]) -> int:
    """Carry out the request named on the command line; the exit code of the process.

    Parameters
    ----------
    work : callable
        Takes the request's text and the events; what it returns is the answer, plain values.
    """
    end_with_caller()
    events = Events(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # whatever libraries print goes to the log, not between the events
    try:
        answer = work(Path(sys.argv[1]).read_text(encoding="utf-8"), events)
    except CellreproError as error:
        events.tell("refused", kind=type(error).__name__, message=str(error))
        return error.exit_code
    except Exception as error:
        events.tell("crashed", message=f"{type(error).__name__}: {error}")
        raise
    events.tell("done", answer=answer)
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
