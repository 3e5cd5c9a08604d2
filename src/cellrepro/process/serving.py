"""The child's end of a call: runs the task that lies in a folder, and leaves the answer there."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cellrepro.errors import CellreproError
from cellrepro.extras import missing_module, needs
from cellrepro.process.child import Child, Event
from cellrepro.process.interrupts import leave_interrupts_to_caller
from cellrepro.process.messages import Answer, line_of, not_written, read_task, write_answer


def serve() -> None:
    """Run the task in the folder that the command line names, and leave the answer there."""
    end_with_caller()
    leave_interrupts_to_caller()
    scratch = Path(sys.argv[-1])
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print goes to the log, not between the events

    def send(event: Event) -> None:
        events.write(line_of(event))
        events.flush()

    answer = _do_task(scratch, send)
    try:
        write_answer(scratch, answer)
    except OSError as error:
        send(Event("unanswered", not_written("its answer", scratch, error)))
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # all is written; a normal exit of PyTorch takes one to two seconds


def _do_task(scratch: Path, send: Callable[[Event], None]) -> Answer:
    """Run the task that lies in a folder."""
    try:
        task, setup = read_task(scratch)
        return Answer(value=task(Child(setup, send)))
    except CellreproError as error:
        return Answer(refusal=error)
    except ModuleNotFoundError as error:
        module = missing_module(error)
        if module is None:
            return _unforeseen(error)
        return Answer(refusal=needs([module], what="what was asked for"))
    except Exception as error:
        return _unforeseen(error)


def _unforeseen(error: Exception) -> Answer:
    """The answer for an error that is being handled and is not one of the lab's own."""
    with suppress(OSError):  # the log may lie on a full disk
        traceback.print_exc()
    return Answer(unforeseen=repr(error))


def end_with_caller() -> None:
    """End this process as soon as the caller's end of standard input is closed."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
