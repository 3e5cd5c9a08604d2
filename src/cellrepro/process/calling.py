"""Work in a process of its own, with the profile's environment: both ends of the line.

`call` starts a process that calls `serve`, and reads one JSON event a line from its standard
output, where others may print, too; what is given and answered travels as pickles in a private
scratch folder. The child's standard input stays open: when it closes, the caller is gone, and the
child ends.
"""

from __future__ import annotations

import functools
import gc
import importlib
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
from contextlib import (
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from cellrepro.determinism.known_operations import PHRASES
from cellrepro.determinism.profiles import Profile, require_at_startup, startup_variables
from cellrepro.determinism.seeds import seed_everything
from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.process.cellpose_versions import is_installed, python_of
from cellrepro.store import this_machine
from cellrepro.store.manifest import MachineRecord

if TYPE_CHECKING:
    import torch

    from cellrepro.asked.spec import Spec

# Not run as a script, whose classes would be others.
_SERVE = "from cellrepro.process.calling import serve; serve()"

Event = dict[str, str]

_EVENT_MARK = "\x1e"
"""Before each event, as in RFC 7464 (JSON text sequences): what a ``sitecustomize`` prints before
this process has its standard output for itself is no event."""
_UNANSWERED = "unanswered"
"""The event of a child that cannot leave its answer; its name says why."""

HOLD_VARIABLE = "CELLREPRO_HOLD"
"""Names a folder in which to leave the finished repeat instead of storing it; the grid sets it,
adds the notebook it executed, and stores both together. A process that has it was started with
the profile's environment."""
HELD_REPEAT_VARIABLE = "CELLREPRO_HELD_REPEAT"
"""Names the repeat that the grid holds so, ``KEY/INDEX``; all else that its notebook runs is stored
as any run is."""
FURTHER_RUNS = "further_runs.txt"
"""Beside that folder: the names of those others, a line each."""


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


class RunFailed(CellreproError):
    """A child ended without finishing, for no reason of the user's."""

    exit_code = 1


class ProcessLost(NotPossibleHere):
    """A process was killed from outside, usually because memory ran out."""


class TimeIsUp(CellreproError):
    """A child took longer than it may."""

    exit_code = 1


@dataclass(frozen=True)
class Setup:
    """What decides how a process computes: profile, mode, seed, and the operation left loose."""

    profile: Profile
    mode: str = "fast"
    seed: int | None = 0
    loose: str | None = None
    cellpose: str | None = None  # the version, if not the installed one: in its own environment

    @classmethod
    def of(cls, spec: Spec, device: str | None = None) -> Setup:
        """That of a spec, on ``device`` where there are several of its kind."""
        settings = spec.profile_settings | ({} if device is None else {"device": device})
        version = None if is_installed(spec.cellpose) else spec.cellpose
        return cls(Profile(**settings), spec.mode, spec.seed, spec.loose, version)

    def seed_all(self) -> None:
        """Seed every generator; none in mode ``off``."""
        if self.seed is not None:
            seed_everything(self.seed, quiet=True)

    def variables(self) -> dict[str, str]:
        """The variables that mode and seed need, beside those of the profile."""
        return startup_variables(self.seed, mode=self.mode)


class Child:
    """What work in a child is given first: its setup, and a line to the caller."""

    def __init__(self, setup: Any, send: Callable[[Event], None]) -> None:
        self.setup: Setup = setup  # as given to `call`; work that is called without one asks none
        self._send = send

    def tell(self, event: str, name: str) -> None:
        """Send one event at once."""
        self._send({"event": event, "name": name})

    def phase(self, name: str) -> None:
        """Say what begins now."""
        self.tell("phase", name)

    def enter(self) -> torch.device:
        """Import Cellpose and be what the profile says; no mode is in force yet."""
        from cellrepro.model.network import import_cellpose

        self.phase("import")
        gc.disable()  # to search what is imported for garbage takes a tenth of a short run's time
        import_cellpose()
        gc.freeze()
        gc.enable()
        return self.setup.profile.enter()

    @contextmanager
    def prepared(self) -> Iterator[torch.device]:
        """`enter`, and put the mode in force for one block; `loosened` is the caller's to add."""
        from cellrepro.determinism.modes import mode_in_force
        from cellrepro.determinism.substitutes import SUBSTITUTES

        device, setup = self.enter(), self.setup
        left_out = [op for item in SUBSTITUTES for op in item.replaces if op == setup.loose]
        profile = setup.profile
        precision: dict[str, Any] = {"tf32": profile.tf32, "chosen": profile.switches}
        with mode_in_force(setup.mode, loose=left_out, device=profile.kind, **precision):
            yield device

    def loosened(self) -> Any:
        """A block in which the loose operation, if any, is left as PyTorch has it."""
        from cellrepro.determinism.modes import left_loose

        return left_loose(self.setup.loose) if self.setup.loose else nullcontext()


# -- the caller's end ----------------------------------------------------------------------


def call(
    work: str,
    setup: Setup | None,
    *,
    label: str,
    on_event: Callable[[Event], None] = lambda event: None,
    variables: Mapping[str, str] | None = None,
    here: bool = False,
    minutes: float | None = None,
    children: Children | None = None,
    **given: Any,
) -> Any:
    """Have a function called in a process of its own, and return what it returns.

    ``work`` is ``MODULE:FUNCTION``; it takes a `Child` and what is ``given``, whatever can be
    pickled. ``setup`` decides the variables of the process (none: the caller's), ``label`` names it
    in messages. ``here`` calls the function in this process, started for this work alone.
    A process that takes more than ``minutes`` is ended, and `TimeIsUp` raised; whoever has the
    ``children`` among which it counts can end it at any moment.
    """
    if here:
        printed = io.StringIO()  # whatever libraries print is no result of a notebook's
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                return _function(work)(Child(setup, on_event), **given)
        except CellreproError:
            raise
        except Exception as error:
            raise explained(repr(error), 1, printed.getvalue(), label) from error
    environment = setup.profile.child_environment(setup.variables()) if setup else dict(os.environ)
    python = sys.executable
    if setup is not None and setup.cellpose is not None:
        python, found = python_of(setup.cellpose)
        environment |= found
    command = [python, "-P", "-c", _SERVE, work]
    # -P: a user's own cellpose.py or random.py in the current folder is not ours to import
    with _scratch(label) as (scratch, log):
        try:
            (scratch / "given").write_bytes(pickle.dumps((setup, given)))
        except OSError as error:
            why = _not_written("what it is given", scratch, error)
            raise explained(why, 0, "", label) from error
        try:
            process = subprocess.Popen(
                [*command, str(scratch)],
                env={**environment, **(variables or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise explained(f"no process can be started: {error}", 0, "", label) from error
        with (children or Children()).having(process):
            ended = _followed(process, on_event, label, minutes)
        answer = _read_answer(scratch / "answer", ended)
        if isinstance(answer, RunFailed):
            log.seek(0)
            last_words = log.read().decode("utf-8", errors="replace")
            raise explained(str(answer), ended.code, last_words, label)
    if isinstance(answer, CellreproError):
        raise answer
    return answer


@contextmanager
def _scratch(label: str) -> Iterator[tuple[Path, BinaryIO]]:
    """A private folder for one child, gone after the block, and a file in it for what it prints."""
    with ExitStack() as stack:
        try:
            made = tempfile.TemporaryDirectory(prefix="cellrepro-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
            log = stack.enter_context((folder / "log").open("w+b"))
        except OSError as error:
            why = f"no folder for temporary files can be made: {error}"
            raise explained(why, 0, "", label) from error
        yield folder, log


def _not_written(what: str, folder: Path, error: OSError) -> str:
    return f"{what} cannot be written to {folder}, which TMPDIR may name otherwise: {error}"


@dataclass(frozen=True)
class _Ended:
    """How a child's process ended."""

    code: int  # below 0: the signal that killed it
    unanswered: str = ""  # why it could leave no answer


def _read_answer(path: Path, ended: _Ended) -> Any:
    """What a child answered, an error perhaps; `RunFailed` says why there is none."""
    if ended.unanswered:
        return RunFailed(ended.unanswered)
    if ended.code < 0 or not path.exists():
        return RunFailed(f"exit code {ended.code} and no answer")
    try:
        return pickle.loads(path.read_bytes())
    except Exception as error:  # of unpickling nearly any
        return RunFailed(f"its answer cannot be read: {error!r}")


def _followed(
    process: subprocess.Popen[str],
    on_event: Callable[[Event], None],
    label: str,
    minutes: float | None,
) -> _Ended:
    """Pass a child's events on until it ends, and end it if this is left early (Ctrl-C)."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    unanswered = ""
    limit = threading.Timer(60 * (minutes or 0), end)
    with process.stdin, process.stdout:
        try:
            if minutes is not None:
                limit.start()
            for line in process.stdout:
                event = _event_in(line)
                if event is None:
                    continue
                if event["event"] == _UNANSWERED:
                    unanswered = event["name"]
                else:
                    on_event(event)
            code = process.wait()
        finally:
            limit.cancel()
            process.kill()
            process.wait()
    if late.is_set():
        raise TimeIsUp(
            f"{label} took more than {minutes:g} minutes; allow it more: what it has done so far "
            "is kept where it makes checkpoints, and it goes on from there"
        )
    return _Ended(code, unanswered)


def _event_in(line: str) -> Event | None:
    """The event that a line of a child's output holds; none in what others print."""
    _, mark, text = line.rpartition(_EVENT_MARK)
    if not mark or not line.endswith("\n"):  # it was killed while it wrote
        return None
    try:
        return json.loads(text)
    except ValueError:  # another program's separator
        return None


_SIGNS = {
    "memory is short; take a smaller --batch-size or smaller images, or another profile": (
        "MemoryError",  # OutOfMemoryError among them
        "not enough memory",
        "Cannot allocate memory",
        "bad_alloc",
    ),
    "no space is left on the disk; free some, or name another folder with --store": (
        "No space left on device",
        "Disk quota exceeded",
    ),
    "mode strict needs a deterministic implementation of every operation, and neither PyTorch nor "
    "this lab has one for one of them on this device; run with --mode warn to see which": PHRASES,
}
"""What the message of an error means that is this machine's and not the user's."""
_ENDINGS = dict(zip(("out-of-memory", "disk-full"), _SIGNS, strict=False))


def explained(why: str, code: int, log: str, label: str) -> CellreproError:
    """What a child's end means that gave no answer and refused nothing."""
    for meaning, signs in _SIGNS.items():
        if any(sign in why for sign in signs):
            return NotPossibleHere(f"{label}: {meaning} ({why})")
    if code == -9:
        return ProcessLost(
            f"{label}: the system killed the process (signal 9), usually because memory ran out; "
            "take a smaller --batch-size or smaller images"
        )
    tail = "\n".join(log.splitlines()[-12:])
    last_words = f"; its last words:\n{tail}" if tail else ""
    kind = RunFailed if code >= 0 else ProcessLost
    return kind(f"{label} failed: {why}{last_words}")


def as_refusal(error: Exception, label: str) -> CellreproError:
    """An error as one that is told to the user: itself, or what one that nobody foresaw means."""
    return error if isinstance(error, CellreproError) else explained(repr(error), 0, "", label)


def how_it_ended(error: CellreproError) -> str:
    """``time-limit``, ``out-of-memory``, ``disk-full``, or ``failed`` for all else; by its words,
    since an error in a notebook comes as text."""
    if isinstance(error, TimeIsUp):
        return "time-limit"
    found = (state for state, meaning in _ENDINGS.items() if meaning in str(error))
    return next(found, "failed")


# -- this machine, as it computes under a profile ------------------------------------------


def machine_here(
    profile: Profile, gpu: str | None = None, cellpose: str | None = None
) -> MachineRecord:
    """The machine on which this computer would carry out a repeat under a profile now, on one of
    its GPUs (its UUID) or on the first that it has, and with a version of Cellpose or its own."""
    settings = profile.model_dump_json(exclude={"description"})
    given_name = os.environ.get(this_machine.MACHINE_VARIABLE)
    inside = HOLD_VARIABLE in os.environ and cellpose is None and _was_started_for(profile)
    return _seen(settings, given_name, inside, gpu, cellpose)


def _was_started_for(profile: Profile) -> bool:
    """Whether this process has a profile's variables; a grid's notebook may ask for another one."""
    try:
        require_at_startup(profile.variables())
    except BadInput:
        return False
    return True


def only(gpu: str | None) -> dict[str, str]:
    """The variable by which a process sees one GPU alone; nothing without one."""
    return {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}


@functools.cache
def _seen(
    settings: str, named: str | None, inside: bool, gpu: str | None, cellpose: str | None
) -> MachineRecord:
    profile = Profile.model_validate_json(settings)
    label = f"looking at this machine under profile {profile.name!r}"
    place: dict[str, Any] = {"here": inside, "variables": only(gpu)}
    setup = Setup(profile, cellpose=cellpose)
    return call("cellrepro.process.calling:look", setup, label=label, **place)


def look(child: Child) -> MachineRecord:
    """What this process computes with; Cellpose, which takes seconds to import, is not needed."""
    profile = child.setup.profile
    device = profile.enter()
    return this_machine.machine(device, numeric_class(profile, device)["name"])


def numeric_class(profile: Profile, device: Any) -> dict[str, Any]:
    """That of a profile, whatever mode is in force."""
    from cellrepro.determinism.modes import mode_in_force

    with mode_in_force("fast", tf32=profile.tf32, device=profile.kind):
        return this_machine.numeric_class(str(device))


# -- the child's end -----------------------------------------------------------------------


def _function(work: str) -> Callable[..., Any]:
    module, _, name = work.partition(":")
    return getattr(importlib.import_module(module), name)


def serve() -> None:
    """Do the work named on the command line, and leave the answer, or the error."""
    end_with_caller()
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print goes to the log, not between the events

    def send(event: Event) -> None:
        events.write(f"{_EVENT_MARK}{json.dumps(event)}\n")
        events.flush()

    work, scratch = sys.argv[1:]
    answer: Any
    try:
        setup, given = pickle.loads(Path(scratch, "given").read_bytes())
        answer = _function(work)(Child(setup, send), **given)
    except CellreproError as error:
        answer = error
    except Exception as error:
        with suppress(OSError):  # the log may lie on a full disk
            traceback.print_exc()
        answer = RunFailed(repr(error))
    _leave(answer, Path(scratch, "answer"), send)
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # all is written; to take PyTorch apart first takes one to two seconds


def _leave(answer: Any, path: Path, send: Callable[[Event], None]) -> None:
    """Write the answer, which appears whole or not at all; or tell the caller why it cannot be."""
    try:
        content = pickle.dumps(answer)
    except Exception as error:  # of pickling nearly any
        content = pickle.dumps(RunFailed(f"its answer cannot be sent: {error!r}"))
    scratch = path.with_suffix(".part")
    try:
        scratch.write_bytes(content)
        scratch.replace(path)
    except OSError as error:
        send({"event": _UNANSWERED, "name": _not_written("its answer", path.parent, error)})


def end_with_caller() -> None:
    """End this process as soon as the caller's end of standard input is closed."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
