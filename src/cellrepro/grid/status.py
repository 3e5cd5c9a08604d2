"""How far a grid is: one JSON file of its store, which its command writes and `watch` reads.

The file is ``STORE/.grids/NAME.json``. Its lock says that a command is alive. It is held by

- the command that carries the grid out, from the first repeat that is missing to its end. A file
  without its lock and without an end is therefore of a command that was killed;
- another command that carries out the same grid, which has the same file: only the board of the
  first is written and shown;
- a reader, for a moment: so it is tried several times before another command counts as its holder.

A job reports to the `Board` of its grid, from a thread or from a worker of a cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from cellrepro.grid.grid_runs import BAD_ENDINGS, GridRun, JobStatus
from cellrepro.grid.job import Job
from cellrepro.process.calling import Children
from cellrepro.progress_count import Progress
from cellrepro.store import locks
from cellrepro.store.store import Store
from cellrepro.store.whole_files import write_whole
from samebits.digests import value_digest
from samebits.errors import BadInput

_FOLDER = ".grids"
"""Folder of a store."""
_REFRESH_SECONDS = 0.5
_TRIES = 10
"""Attempts to take the lock of the file, which a reader may hold for a moment."""
_RETRY_SECONDS = 0.05


# -- what the file holds -------------------------------------------------------------------


class JobProgress(BaseModel):
    """The progress of a job."""

    machine: str = ""
    """Name of the machine that carries it out; empty until it is known."""
    repeat: int = 0
    """Repeats that are stored; so the index of the present one."""
    n_found: int = 0
    """How many of these were stored before."""
    started: float = 0.0
    """Seconds, as `time.time` counts them."""
    done: int = 0
    """Parts of the present repeat, epochs and images, that are finished."""
    total: int = 0
    """All parts of the present repeat."""
    text: str = ""
    """Words on the last part: epoch, learning rate."""
    losses: list[float | None] = []
    """Training loss of the epochs of the present repeat, some of them if there are many; null for
    what is no finite number."""
    notebook: str = ""
    """The notebook that is being executed, as papermill writes it; empty between two repeats."""


class JobRow(JobProgress):
    """One job of a grid and its status."""

    key: str
    """Key of its spec."""
    label: str
    """The varied parameters and the machine, for people."""
    n_repeats: int
    """How many repeats it is to have."""
    status: JobStatus = "waiting"
    folder: str = ""
    """Folder of what was finished, or kept of a failure."""
    reason: str = ""
    """Why it failed, or why it is vacuous."""

    @property
    def n_made(self) -> float:
        """Repeats made since the grid was started, with the finished part of the present one."""
        of_this_repeat = self.done / self.total if self.total else 0.0
        return self.repeat - self.n_found + of_this_repeat

    @property
    def n_left(self) -> float:
        """Repeats that are missing, with the missing part of the present one."""
        return self.n_repeats - self.n_found - self.n_made


class GridStatus(BaseModel):
    """A grid and its status."""

    name: str
    """Name of its file."""
    started: float
    """Seconds, as `time.time` counts them."""
    updated: float
    """When this was written; seconds, as `time.time` counts them."""
    dashboard: str = ""
    """Address of Dask's dashboard; empty without one."""
    ended: bool = False
    """Whether its command has ended."""
    lost: bool = False
    """Whether its command was killed."""
    rows: list[JobRow]
    """The jobs in their order."""

    def n(self, *statuses: str) -> int:
        """Number of rows with one of these statuses."""
        return sum(row.status in statuses for row in self.rows)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left, at the speed since the start; None at first."""
        n_made = sum(row.n_made for row in self.rows if row.status in ("running", "done"))
        if not n_made:
            return None
        n_left = sum(row.n_left for row in self.rows if row.status in ("running", "waiting"))
        return (self.updated - self.started) / n_made * n_left


# -- read ----------------------------------------------------------------------------------


def standing(store: Store) -> list[GridStatus]:
    """List the grids of a store that are being carried out, or did not end well."""
    return list(standing_by_file(store).values())


def standing_by_file(store: Store) -> dict[Path, GridStatus]:
    """List them by file: a grid that is carried out again has the same file.

    A grid that has not ended, and whose file is not locked, is lost: its command was killed.
    Nothing is written, so a read-only store can be watched.
    """
    statuses = {}
    for path in sorted((store.root / _FOLDER).glob("*.json")):
        try:
            status = GridStatus.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):  # it has just ended
            continue
        status.lost = not status.ended and not locks.is_locked(path)
        statuses[path] = status
    return statuses


# -- reported ------------------------------------------------------------------------------


class JobReporter:
    """Reports how far one job is to the board of its grid, and knows when the grid is stopped.

    A message holds plain values alone, as the board may be in another process.
    """

    def __init__(self, send: Callable[[Mapping[str, Any]], None], children: Children) -> None:
        self.children = children
        """The child processes of the grid in this process."""
        self.progress = JobProgress()
        self._send = send

    @property
    def is_stopped(self) -> bool:
        """Whether the grid was stopped, so that a killed child is no failure."""
        return self.children.ended

    def report(self, **changes: object) -> None:
        """Change the progress, and send it."""
        self.progress = self.progress.model_copy(update=changes)
        self._send({"progress": self.progress.model_dump()})

    def say(self, line: str) -> None:
        """Have a line printed for the user."""
        self._send({"line": line})


class Board:
    """The rows of a running grid, which its jobs change, counted by a progress bar."""

    def __init__(self, jobs: Sequence[Job], bar: Progress, dashboard: str) -> None:
        grid = jobs[0].grid
        started = time.time()
        self.status = GridStatus(
            name=grid.name,
            started=started,
            updated=started,
            dashboard=dashboard,
            rows=[JobRow(key=job.key, label=job.label, n_repeats=grid.repeats) for job in jobs],
        )
        self.children = Children()
        """The child processes of the grid here."""
        self.is_at_work = not all(_seems_stored(job) for job in jobs)
        self._bar = bar
        self._n_counted = [0] * len(jobs)
        """Repeats that the bar has counted, by job."""
        self._n_counted_found = [0] * len(jobs)
        """Repeats among these that were stored before, by job."""
        self._lock = threading.Lock()

    def reporter(self, number: int) -> JobReporter:
        """Make the reporter of a job in this process, by its number."""
        return JobReporter(partial(self.hear, number), self.children)

    def hear(self, number: int, message: Mapping[str, Any]) -> None:
        """Receive a message of the reporter of a job."""
        if "line" in message:
            self.say(message["line"])
            return
        progress = JobProgress(**message["progress"])
        with self._lock:
            row = self.status.rows[number]
            if row.status in ("waiting", "running"):  # of one that has ended it comes late
                self.is_at_work = self.is_at_work or bool(progress.notebook)
                changes = {"status": "running", **progress.model_dump()}
                self._show(number, row.model_copy(update=changes))

    def say(self, line: str) -> None:
        """Print a line above the progress bar."""
        with self._lock:
            self._bar.say(line)

    def ended(self, number: int, run: GridRun) -> None:
        """Show how a job has ended."""
        ending: dict[str, object] = {
            "status": run.status,
            "machine": run.machine,
            "reason": run.reason,
            "folder": str(run.folder),
            "notebook": "",
        }
        with self._lock:
            row = self.status.rows[number]
            if run.status == "present":  # of a job that was not begun, no reporter has counted
                ending |= {"repeat": row.n_repeats, "n_found": row.n_repeats}
            self._show(number, row.model_copy(update=ending))

    def _show(self, number: int, row: JobRow) -> None:
        """Replace a row, and let the bar count the repeats that are over with it."""
        self.status.rows[number] = row
        is_over = row.status in ("present", *BAD_ENDINGS) and row.status != "interrupted"
        n_over = row.n_repeats if is_over else row.repeat
        text = f"{row.key} {row.label}"
        for _ in range(self._n_counted[number], n_over):
            if self._n_counted_found[number] < row.n_found:
                self._n_counted_found[number] += 1
                self._bar.advance_earlier(text)
            else:
                self._bar.advance(text)
        self._n_counted[number] = max(self._n_counted[number], n_over)

    def written(self, *, ended: bool = False) -> GridStatus:
        """Give the status to write; at the end no row is running."""
        with self._lock:
            rows = self.status.rows
            if ended:
                rows = [_interrupted(row) if row.status == "running" else row for row in rows]
            return self.status.model_copy(
                update={"updated": time.time(), "ended": ended, "rows": list(rows)}
            )


def _seems_stored(job: Job) -> bool:
    """Whether any machine has all repeats, as naming this machine takes seconds."""
    try:
        run = job.grid.store.run(job.key)
    except BadInput:  # damaged: the job will report it
        return False
    if run is None:
        return False
    return run.machine_with_all(job.grid.repeats) is not None


def _interrupted(row: JobRow) -> JobRow:
    return row.model_copy(update={"status": "interrupted"})


# -- written -------------------------------------------------------------------------------


@contextmanager
def board_of(jobs: Sequence[Job], bar: Progress, *, dashboard: str = "") -> Iterator[Board]:
    """Make the board of a grid for one block, and keep its file up to date."""
    board = Board(jobs, bar, dashboard)
    is_over = threading.Event()
    thread = threading.Thread(
        target=_follow, args=(board, _file_of(jobs), is_over), name="board", daemon=True
    )
    thread.start()
    try:
        yield board
    finally:
        is_over.set()
        thread.join()


def _file_of(jobs: Sequence[Job]) -> Path:
    """The file of a board; the same jobs have the same file in every process."""
    grid = jobs[0].grid
    digest = value_digest([grid.name, *(job.key for job in jobs)])[:8]
    return grid.store.root / _FOLDER / f"{grid.name}-{digest}.json"


def _follow(board: Board, path: Path, is_over: threading.Event) -> None:
    """Thread: keep the file up to date until all is over."""
    while not board.is_at_work and not is_over.wait(_REFRESH_SECONDS):
        pass
    with suppress(OSError):  # a store that cannot be written: the jobs will report it
        if not _is_to_be_written(board, path):
            return
        for _ in range(_TRIES):
            with locks.locked(path) as is_ours:
                if is_ours:
                    _write_until_over(board, path, is_over)
                    return
            time.sleep(_RETRY_SECONDS)


def _is_to_be_written(board: Board, path: Path) -> bool:
    """Whether something is made, or the file of an earlier attempt is to be removed."""
    if board.is_at_work:
        return True
    is_well = not board.status.n("waiting", "running", *BAD_ENDINGS)
    return is_well and path.exists()


def _write_until_over(board: Board, path: Path, is_over: threading.Event) -> None:
    """Write the file again and again; remove it if the grid ended well."""
    write_whole(path, _as_text(board.written()), replace=True)
    while not is_over.wait(_REFRESH_SECONDS):
        with suppress(OSError):  # the disk may be full for a while
            write_whole(path, _as_text(board.written()), replace=True)
    last = board.written(ended=True)
    if last.n("waiting", *BAD_ENDINGS):
        write_whole(path, _as_text(last), replace=True)
    else:
        path.unlink(missing_ok=True)


def _as_text(status: GridStatus) -> str:
    return status.model_dump_json(indent=1)
