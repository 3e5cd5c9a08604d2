"""Work in a process of its own, with the profile's environment: both ends of the line.

`in_child` starts a process that calls `serve`, and reads one JSON event a line from its standard
output, where others may print, too. The work and its answer travel as pickles in a private scratch
folder. The child's standard input stays open: when it closes, the caller is gone, and the child
ends.
"""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from cellrepro.errors import CellreproError
from cellrepro.process.child import Child, Event
from cellrepro.process.endings import RunError, ended_with, leave_ending
from cellrepro.process.setup import Setup, interpreter_for
from cellrepro.progress import Progress, progress

T = TypeVar("T")

Task = Callable[[Child], T]
"""Work for a child: a function of a module, or a `functools.partial` of one with the rest of its
arguments; all of it can be pickled."""

# Not run as a script, whose classes would be others.
_SERVE = "from cellrepro.process.calling import serve; serve()"

_EVENT_MARK = "\x1e"
"""Before each event, as in RFC 7464 (JSON text sequences): what a ``sitecustomize`` prints before
this process has its standard output for itself is no event."""


class Children:
    """The processes that one piece of work has started, for whoever has to end them all.

    Other work of the same process has others: to end a grid ends none of another grid's.
    """

    def __init__(self) -> None:
        self.ended = False  # what is started from now on ends at once
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def end(self) -> None:
        """End those that are at work, and all that would come after them."""
        with self._lock:
            self.ended = True
            for process in self._running:
                process.kill()

    @contextmanager
    def having(self, process: subprocess.Popen[str]) -> Iterator[None]:
        """Count a process among them for one block."""
        with self._lock:
            self._running.add(process)
            if self.ended:
                process.kill()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(process)


@dataclass(frozen=True)
class _Answer:
    """What a child leaves at its end."""

    value: Any = None  # what the work returned
    refusal: CellreproError | None = None  # that it raised
    unforeseen: str | None = None  # another error that it raised, as it is written


@dataclass(frozen=True)
class _ProcessEnd:
    """How a child's process ended."""

    code: int  # below 0: the signal that ended it
    unanswered: str | None = None  # why it could leave no answer


# -- the caller's end ----------------------------------------------------------------------


def in_child(
    task: Task[T],
    setup: Setup | None,
    *,
    label: str,
    steps: int | None = None,
    quiet: bool = False,
    on_event: Callable[[Event], None] | None = None,
    variables: Mapping[str, str] | None = None,
    here: bool = False,
    minutes: float | None = None,
    children: Children | None = None,
) -> T:
    """Have work done in a process of its own, and return what it returns.

    Parameters
    ----------
    task : callable
        A function of a module that takes a `Child`; a ``functools.partial`` of it with the rest of
        its arguments.
    setup : Setup or None
        Decides interpreter and variables of the process; without one they are the caller's.
    label : str
        Names the work in messages, and above its progress.
    steps : int, optional
        How many events it will send. They are then shown as progress, a step for each.
    quiet : bool
        Show no progress all the same.
    on_event : callable, optional
        Called with each event; not together with ``steps``.
    variables : mapping of str to str, optional
        Further variables of the process.
    here : bool
        Do the work in this process, which was started for it alone.
    minutes : float, optional
        Time after which the process is ended; by default it has no limit.
    children : Children, optional
        To which the process is added, so that the caller can end all of them at any moment.

    Returns
    -------
    T
        What the work returned.

    Raises
    ------
    CellreproError
        The one that the work raised.
    RunError
        If the process ended in any other way: by another error, a signal, or the time allowed.
    """
    if steps is not None:
        with progress(steps, label, quiet=quiet) as bar:
            return in_child(
                task,
                setup,
                label=label,
                on_event=counting(bar),
                variables=variables,
                here=here,
                minutes=minutes,
                children=children,
            )
    listener = on_event or _hear_nothing
    try:
        if here:
            return _done_here(task, Child(setup, listener), label)
        return _done_in_process(
            task,
            setup,
            label=label,
            on_event=listener,
            variables=variables or {},
            minutes=minutes,
            children=children or Children(),
        )
    except CellreproError as error:
        leave_ending(error)
        raise


def counting(bar: Progress) -> Callable[[Event], None]:
    """A listener for which each event is a step of a bar."""
    return lambda event: bar.advance(event.text)


def _hear_nothing(event: Event) -> None:
    pass


def _done_here(task: Task[T], child: Child, label: str) -> T:
    printed = io.StringIO()  # whatever libraries print is no result of a notebook's
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            return task(child)
    except CellreproError:
        raise
    except Exception as error:
        raise ended_with(repr(error), label=label, log=printed.getvalue()) from error


def _done_in_process(
    task: Task[T],
    setup: Setup | None,
    *,
    label: str,
    on_event: Callable[[Event], None],
    variables: Mapping[str, str],
    minutes: float | None,
    children: Children,
) -> T:
    interpreter = interpreter_for(setup)
    with _scratch_folder(label) as (scratch, log):
        try:
            (scratch / "task").write_bytes(pickle.dumps((task, setup)))
        except OSError as error:
            what = _not_written("its task", scratch, error)
            raise ended_with(what, label=label) from error
        # -P: a user's own cellpose.py or random.py in the current folder is not ours to import.
        # The name of the work is for people who look at processes.
        command = [interpreter.python, "-P", "-c", _SERVE, _name_of(task), str(scratch)]
        try:
            process = subprocess.Popen(
                command,
                env={**interpreter.environment, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise ended_with(f"no process can be started: {error}", label=label) from error
        with children.having(process):
            end = _followed(process, on_event, label, minutes)
        answer = _read_answer(scratch / "answer", end)
        if answer.refusal is None and answer.unforeseen is None:
            value: T = answer.value
            return value
        log.seek(0)
        printed = log.read().decode("utf-8", errors="replace")
        raise _refusal_of(answer, label=label, code=end.code, log=printed)


def _name_of(task: Task[Any]) -> str:
    """``MODULE:FUNCTION`` of some work."""
    function: Any = task.func if isinstance(task, functools.partial) else task
    return f"{function.__module__}:{function.__qualname__}"


def _refusal_of(answer: _Answer, *, label: str, code: int, log: str) -> CellreproError:
    """The error that an answer without a value stands for."""
    refusal = answer.refusal
    if refusal is None:
        return ended_with(str(answer.unforeseen), label=label, code=code, log=log)
    if isinstance(refusal, RunError) and refusal.status == "failed":
        return ended_with(str(refusal), label=label, log=log)  # of a part of this work
    return refusal


@contextmanager
def _scratch_folder(label: str) -> Iterator[tuple[Path, BinaryIO]]:
    """A private folder for one child, gone after the block, and a file in it for what it prints."""
    with ExitStack() as stack:
        try:
            temporary = tempfile.TemporaryDirectory(prefix="cellrepro-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
            log = stack.enter_context((folder / "log").open("w+b"))
        except OSError as error:
            what = f"no folder for temporary files can be made: {error}"
            raise ended_with(what, label=label) from error
        yield folder, log


def _not_written(what: str, folder: Path, error: OSError) -> str:
    return f"{what} cannot be written to {folder}, which TMPDIR may name otherwise: {error}"


def _read_answer(path: Path, end: _ProcessEnd) -> _Answer:
    """What a child answered, or why there is no answer."""
    if end.unanswered is not None:
        return _Answer(unforeseen=end.unanswered)
    if end.code < 0 or not path.exists():
        return _Answer(unforeseen=f"exit code {end.code} and no answer")
    try:
        answer: _Answer = pickle.loads(path.read_bytes())
    except Exception as error:  # of unpickling nearly any
        return _Answer(unforeseen=f"its answer cannot be read: {error!r}")
    return answer


def _followed(
    process: subprocess.Popen[str],
    on_event: Callable[[Event], None],
    label: str,
    minutes: float | None,
) -> _ProcessEnd:
    """Pass a child's events on until it ends, and end it if this is left early (Ctrl-C)."""
    assert process.stdin is not None
    assert process.stdout is not None
    is_late = threading.Event()

    def end_late() -> None:
        is_late.set()
        process.kill()

    unanswered: str | None = None
    limit = threading.Timer(60 * (minutes or 0), end_late)
    with process.stdin, process.stdout:
        try:
            if minutes is not None:
                limit.start()
            for line in process.stdout:
                event = _event_in(line)
                if event is None:
                    continue
                if event.kind == "unanswered":
                    unanswered = event.text
                else:
                    on_event(event)
            code = process.wait()
        finally:
            limit.cancel()
            process.kill()
            process.wait()
    if is_late.is_set():
        raise RunError("time-limit", f"{minutes:g} minutes", label=label)
    return _ProcessEnd(code, unanswered)


def _event_in(line: str) -> Event | None:
    """The event that a line of a child's output holds; none in what others print."""
    _, mark, text = line.rpartition(_EVENT_MARK)
    if not mark or not line.endswith("\n"):  # it was killed while it wrote
        return None
    try:
        return Event(**json.loads(text))
    except (ValueError, TypeError):  # another program's separator
        return None


# -- the child's end -----------------------------------------------------------------------


def serve() -> None:
    """Do the work in the folder that the command line names, and leave the answer there."""
    end_with_caller()
    scratch = Path(sys.argv[-1])
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print goes to the log, not between the events

    def send(event: Event) -> None:
        content = json.dumps({"kind": event.kind, "text": event.text})
        events.write(f"{_EVENT_MARK}{content}\n")
        events.flush()

    answer = _answer_of(scratch / "task", send)
    _leave(answer, scratch / "answer", send)
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # all is written; to take PyTorch apart first takes one to two seconds


def _answer_of(task_file: Path, send: Callable[[Event], None]) -> _Answer:
    """Do the work that a file holds."""
    try:
        task, setup = pickle.loads(task_file.read_bytes())
        return _Answer(value=task(Child(setup, send)))
    except CellreproError as error:
        return _Answer(refusal=error)
    except Exception as error:
        with suppress(OSError):  # the log may lie on a full disk
            traceback.print_exc()
        return _Answer(unforeseen=repr(error))


def _leave(answer: _Answer, path: Path, send: Callable[[Event], None]) -> None:
    """Write the answer, which appears whole or not at all; or tell the caller why it cannot be."""
    try:
        content = pickle.dumps(answer)
    except Exception as error:  # of pickling nearly any
        content = pickle.dumps(_Answer(unforeseen=f"its answer cannot be sent: {error!r}"))
    scratch = path.with_suffix(".part")
    try:
        scratch.write_bytes(content)
        scratch.replace(path)
    except OSError as error:
        send(Event("unanswered", _not_written("its answer", path.parent, error)))


def end_with_caller() -> None:
    """End this process as soon as the caller's end of standard input is closed."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
