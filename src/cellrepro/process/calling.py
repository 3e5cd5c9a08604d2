"""Work in a process of its own, with the profile's environment.

`in_child` starts a process that calls `cellrepro.process.child.serve`, and listens to its events
until it ends. The child's standard input stays open: when it closes, the caller is gone, and the
child ends.
"""

from __future__ import annotations

import functools
import io
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from cellrepro.errors import CellreproError
from cellrepro.process.child import (
    Answer,
    Child,
    Event,
    T,
    Task,
    event_in,
    not_written,
    read_answer,
    write_task,
)
from cellrepro.process.grid_handover import leave_ending
from cellrepro.process.process_ends import RunError, ended_with
from cellrepro.process.setup import Setup, interpreter_for
from cellrepro.progress import progress
from cellrepro.progress_count import Progress

# Not run as a script, where pickled classes would belong to __main__. The current folder, where a
# user may have a cellpose.py or random.py, leaves the path; Python's option -P came with 3.11.
_SERVE = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "
    "from cellrepro.process.child import serve; serve()"
)


class Children:
    """The child processes of one piece of work, so that all of them can be ended together.

    Each grid has its own: to end one grid ends no process of another one.
    """

    def __init__(self) -> None:
        self.ended = False  # once true, a process that is started ends at once
        self._running: set[subprocess.Popen[Any]] = set()
        self._lock = threading.Lock()

    def end(self) -> None:
        """Kill all that run, and all that are started later."""
        with self._lock:
            self.ended = True
            for process in self._running:
                process.kill()

    @contextmanager
    def having(self, process: subprocess.Popen[Any]) -> Iterator[None]:
        """Register a process for one block."""
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
class _ProcessEnd:
    """The end of a child's process."""

    code: int
    """Exit code; below 0, the signal that ended it."""
    unanswered: str | None = None
    """Why it could leave no answer."""


def in_child(
    task: Task[T],
    setup: Setup | None,
    *,
    label: str,
    steps: int | None = None,
    counted: str = "",
    quiet: bool = False,
    on_event: Callable[[Event], None] | None = None,
    variables: Mapping[str, str] | None = None,
    minutes: float | None = None,
    children: Children | None = None,
) -> T:
    """Run a task in a child process, and return what it returns.

    Of so many ``steps`` a bar is shown, which advances when one is done, beside ``on_event``;
    it says what is ``counted``, or has the label.
    """
    if steps is not None:
        with progress(steps, counted or label, quiet=quiet) as bar:
            return in_child(
                task,
                setup,
                label=label,
                on_event=counting(bar, then=on_event),
                variables=variables,
                minutes=minutes,
                children=children,
            )
    try:
        return _done_in_process(
            task,
            setup,
            label=label,
            on_event=on_event or _hear_nothing,
            variables=variables or {},
            minutes=minutes,
            children=children or Children(),
        )
    except CellreproError as error:
        leave_ending(error)
        raise


def counting(
    bar: Progress, *, then: Callable[[Event], None] | None = None
) -> Callable[[Event], None]:
    """Make a listener that advances a bar when a part is done, and passes every event on."""

    def listener(event: Event) -> None:
        if event.kind == "done":
            bar.advance(event.text)
        else:
            bar.note(event.text)
        if then is not None:
            then(event)

    return listener


def _hear_nothing(event: Event) -> None:
    pass


def in_this_process(
    task: Task[T],
    setup: Setup | None,
    *,
    label: str,
    on_event: Callable[[Event], None] | None = None,
) -> T:
    """Run a task as `in_child` does, in this process, which was started for it alone."""
    printed = io.StringIO()  # whatever libraries print is no result of a notebook's
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            return task(Child(setup, on_event or _hear_nothing))
    except CellreproError as error:
        leave_ending(error)
        raise
    except Exception as error:
        ending = ended_with(repr(error), label=label, log=printed.getvalue())
        leave_ending(ending)
        raise ending from error


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
            write_task(scratch, task, setup)
        except OSError as error:
            raise ended_with(not_written("its task", scratch, error), label=label) from error
        # The name of the task is for people who list processes.
        command = [interpreter.python, "-c", _SERVE, _name_of(task), str(scratch)]
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
        if children.ended and end.code < 0:
            raise RunError("interrupted", "", label=label)
        answer = _answer_after(scratch, end)
        if answer.refusal is None and answer.unforeseen is None:
            value: T = answer.value
            return value
        log.seek(0)
        printed = log.read().decode("utf-8", errors="replace")
        raise _refusal_of(answer, label=label, code=end.code, log=printed)


def _name_of(task: Task[Any]) -> str:
    """``MODULE:FUNCTION`` of a task."""
    function: Any = task.func if isinstance(task, functools.partial) else task
    return f"{function.__module__}:{function.__qualname__}"


def _refusal_of(answer: Answer, *, label: str, code: int, log: str) -> CellreproError:
    """The error that an answer without a value stands for."""
    refusal = answer.refusal
    if refusal is None:
        return ended_with(str(answer.unforeseen), label=label, code=code, log=log)
    if isinstance(refusal, RunError) and refusal.status == "failed":
        return ended_with(str(refusal), label=label, log=log)  # of a part of this work
    return refusal


@contextmanager
def _scratch_folder(label: str) -> Iterator[tuple[Path, BinaryIO]]:
    """A private folder for one child, removed after the block, and a file in it for its output."""
    with ExitStack() as stack:
        try:
            temporary = tempfile.TemporaryDirectory(prefix="cellrepro-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
            log = stack.enter_context((folder / "log").open("w+b"))
        except OSError as error:
            what = f"no folder for temporary files can be made: {error}"
            raise ended_with(what, label=label) from error
        yield folder, log


def _answer_after(scratch: Path, end: _ProcessEnd) -> Answer:
    """Read a child's answer, or say why there is none."""
    if end.unanswered is not None:
        return Answer(unforeseen=end.unanswered)
    answer = read_answer(scratch) if end.code >= 0 else None
    return answer or Answer(unforeseen=f"exit code {end.code} and no answer")


def _followed(
    process: subprocess.Popen[str],
    on_event: Callable[[Event], None],
    label: str,
    minutes: float | None,
) -> _ProcessEnd:
    """Pass a child's events on until it ends, and kill it if this is left early (Ctrl-C)."""
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
                event = event_in(line)
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
