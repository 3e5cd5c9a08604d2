"""The child's side of a call: the first argument of every task, the messages, and serving.

Task and answer are pickles in a private scratch folder. An event is one line of JSON on the
child's standard output, where others may print, too.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from cellrepro.errors import CellreproError
from cellrepro.extras import missing_module, needs
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.process.interrupts import leave_interrupts_to_caller
from cellrepro.process.late_compiler import import_compiler_late
from cellrepro.process.late_pyplot import import_pyplot_late
from cellrepro.process.setup import Setup
from samebits.libraries import has_library

if TYPE_CHECKING:
    import torch

    from cellrepro.model.weight_sources import ModelSource

EventKind = Literal["phase", "done", "found", "note", "now", "ready", "unanswered"]
"""``phase``: name of the part that begins; ``done``: one part is finished; ``found``: one part was
finished before this process began; ``note``: a sentence for the user; ``now``: how far it is, until
the next; ``ready``: a rank can begin; ``unanswered``: why no answer can be written.
"""

NeedOfCellpose = Literal["needed", "welcome", "unused"]
"""``welcome``: a wrapped function may use it, and an installation that is broken raises nothing."""


@dataclass(frozen=True)
class Event:
    """A message of a child to its caller, while it works."""

    kind: EventKind
    text: str
    loss: float | None = None
    """Of the epoch that is done."""


class Opened(NamedTuple):
    """A network that is ready to use, and its device."""

    network: CellposeNetwork
    device: torch.device


class LooseBlock(AbstractContextManager[object], Protocol):
    """A context in which one operation may be nondeterministic; it can be entered again."""

    n_calls: int
    """Calls of the operation in it so far."""


class _NothingLoose(nullcontext[object]):
    """A context that leaves every operation as the mode has it."""

    n_calls = 0


@contextmanager
def _importing() -> Iterator[None]:
    """Leave garbage where it is; collecting it among the imports takes a tenth of a short run."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Child:
    """A child process, as its task sees it: the setup, and the line to the caller."""

    def __init__(self, setup: Setup | None, send: Callable[[Event], None]) -> None:
        self._setup = setup
        self._send = send
        self._has_cellpose = False  # imported, and whole

    @property
    def setup(self) -> Setup:
        """The setup of the process; a task without a setup must not ask for it."""
        if self._setup is None:
            raise ValueError("this work was handed over without a setup")
        return self._setup

    def tell(self, kind: EventKind, text: str, *, loss: float | None = None) -> None:
        """Send an event to the caller."""
        self._send(Event(kind, text, loss))

    def phase(self, name: str) -> None:
        """Tell the caller which part begins."""
        self.tell("phase", name)

    def enter(self, cellpose: NeedOfCellpose = "needed") -> torch.device:
        """Import Cellpose, if it is installed, and apply the profile; no mode is in force yet."""
        self.phase("loading PyTorch and Cellpose")
        if has_library("torch"):
            import_compiler_late()
        if cellpose != "unused" and has_library("cellpose"):
            from cellrepro.model.network import import_cellpose

            with _importing():
                try:
                    import_pyplot_late()
                    import_cellpose()
                    self._has_cellpose = True
                except Exception:  # of a broken one nearly any
                    if cellpose == "needed":
                        raise
        return self.setup.profile.enter()

    @contextmanager
    def prepared(self, cellpose: NeedOfCellpose = "needed") -> Iterator[torch.device]:
        """`enter`, with the mode in force for one block; `loosened` is for the task to add."""
        from samebits.modes import mode_in_force
        from samebits.substitutes import SUBSTITUTES

        device = self.enter(cellpose)
        profile = self.setup.profile
        loose = self.setup.loose
        without_substitute = [op for item in SUBSTITUTES for op in item.replaces if op == loose]
        switches = {str(name): wanted for name, wanted in profile.switches.items()}
        in_force = mode_in_force(
            self.setup.mode,
            loose=without_substitute,
            device=profile.kind,
            tf32=profile.tf32,
            chosen=switches,
        )
        with in_force, self._arithmetic(device):
            yield device

    @contextmanager
    def _arithmetic(self, device: torch.device) -> Iterator[None]:
        """Replace PyTorch's kernels for one block, in mode ``portable``."""
        if self.setup.mode != "portable":
            yield
            return
        from samebits import proved_arithmetic

        with ExitStack() as stack:
            if self._has_cellpose:
                from cellrepro.model.portable_cellpose import portable_cellpose
                from cellrepro.model.portable_training import portable_training

                stack.enter_context(portable_cellpose())
                stack.enter_context(portable_training())
            stack.enter_context(proved_arithmetic(device))
            yield

    @contextmanager
    def opened(self, model: ModelSource, *, dtype: str | None = None) -> Iterator[Opened]:
        """`prepared`, with a network built in it."""
        from cellrepro.model.network import build

        with self.prepared() as device:
            precision = dtype or self.setup.profile.dtype
            network = build(model, seed=self.setup.seed, device=device, dtype=precision)
            yield Opened(network, device)

    def loosened(self) -> LooseBlock:
        """A context in which the operation ``loose``, if any, is left as PyTorch has it."""
        if self.setup.loose is None:
            return _NothingLoose()
        from samebits.loose_operation import LooseOperation

        return LooseOperation(self.setup.loose)


# -- messages ------------------------------------------------------------------------------

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


# -- serving -------------------------------------------------------------------------------


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
        with _importing():
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
