"""Messages between a caller and its child process: task, events, answer.

Task and answer are pickles in a private scratch folder. An event is one line of JSON on the
child's standard output, where others may print, too.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from cellrepro.errors import CellreproError
from cellrepro.process.child import Child, Event
from cellrepro.process.setup import Setup

T = TypeVar("T")

Task = Callable[[Child], T]
"""A task for a child: a function of a module, or a `functools.partial` of one with the rest of its
arguments; all of it can be pickled."""

TASK_FILE = "task"
"""File of the scratch folder that the child reads."""

ANSWER_FILE = "answer"
"""File of the scratch folder that the child writes."""

_EVENT_MARK = "\x1e"
"""Before each event, as in RFC 7464 (JSON text sequences): what a ``sitecustomize`` prints before
the child has its standard output for itself is no event."""


@dataclass(frozen=True)
class Answer:
    """The end of a task: exactly one field is set, or the value is None."""

    value: Any = None
    """The return value of the task."""
    refusal: CellreproError | None = None
    """The `CellreproError` that it raised."""
    unforeseen: str | None = None
    """Repr of any other error that it raised."""


def write_task(folder: Path, task: Task[T], setup: Setup | None) -> None:
    """Write a task for a child."""
    (folder / TASK_FILE).write_bytes(pickle.dumps((task, setup)))


def read_task(folder: Path) -> tuple[Task[Any], Setup | None]:
    """Read a task and its setup."""
    task, setup = pickle.loads((folder / TASK_FILE).read_bytes())
    return task, setup


def write_answer(folder: Path, answer: Answer) -> None:
    """Write a child's answer, by an atomic rename."""
    try:
        content = pickle.dumps(answer)
    except Exception as error:  # of pickling nearly any
        content = pickle.dumps(Answer(unforeseen=f"its answer cannot be sent: {error!r}"))
    part = folder / f"{ANSWER_FILE}.part"
    part.write_bytes(content)
    part.replace(folder / ANSWER_FILE)


def read_answer(folder: Path) -> Answer | None:
    """Read a child's answer; one that cannot be read says so, and None where there is none."""
    path = folder / ANSWER_FILE
    if not path.exists():
        return None
    try:
        answer: Answer = pickle.loads(path.read_bytes())
    except Exception as error:  # of unpickling nearly any
        return Answer(unforeseen=f"its answer cannot be read: {error!r}")
    return answer


def line_of(event: Event) -> str:
    """Serialize an event as one line."""
    return f"{_EVENT_MARK}{json.dumps(asdict(event))}\n"


def event_in(line: str) -> Event | None:
    """Parse a line of a child's output; None where it is no event but something printed."""
    _, mark, text = line.rpartition(_EVENT_MARK)
    if not mark or not line.endswith("\n"):  # it was killed while it wrote
        return None
    try:
        return Event(**json.loads(text))
    except (ValueError, TypeError):  # another program's separator
        return None


def not_written(content: str, folder: Path, error: OSError) -> str:
    """Say that ``its task`` or ``its answer`` cannot be written to the scratch folder."""
    return f"{content} cannot be written to {folder}, which TMPDIR may name otherwise: {error}"
