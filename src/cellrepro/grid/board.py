"""The board of a running grid: its rows, counted by a progress bar and written to a file.

The file is ``STORE/.grids/NAME.json``, which `cellrepro.grid.status` reads. Its lock says that a
command is alive. It is held by

- the command that carries the grid out, from the first repeat that is missing to its end. A file
  without its lock and without an end is therefore of a command that was killed;
- another command that carries out the same grid, which has the same file: only the board of the
  first is written and shown;
- a reader, for a moment: so it is tried several times before another command counts as its holder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cellrepro.digests.digests import value_digest
from cellrepro.errors import BadInput
from cellrepro.grid.grid_runs import BAD_ENDINGS, GridRun
from cellrepro.grid.job import Job, Listener
from cellrepro.grid.status import FOLDER, GridStatus, JobProgress, JobRow
from cellrepro.process.children import Children
from cellrepro.progress_count import Progress
from cellrepro.store import locks
from cellrepro.store.whole_files import write_whole

_REFRESH_SECONDS = 0.5
_TRIES = 10
"""Attempts to take the lock of the file, which a reader may hold for a moment."""
_RETRY_SECONDS = 0.05


class Board:
    """The rows of a running grid, which the threads of its jobs change."""

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
        self.stopped = False
        self.is_at_work = not all(_seems_stored(job) for job in jobs)
        self._bar = bar
        self._n_counted = [0] * len(jobs)
        """Repeats that the bar has counted, by job."""
        self._n_counted_found = [0] * len(jobs)
        """Repeats among these that were stored before, by job."""
        self._lock = threading.Lock()

    def listener(self, number: int) -> Listener:
        """Make the listener of a job, by its number."""
        return _RowListener(self, number)

    def say(self, line: str) -> None:
        """Print a line above the progress bar."""
        with self._lock:
            self._bar.say(line)

    def changed(self, number: int, progress: JobProgress) -> None:
        """Show the progress of a running job."""
        with self._lock:
            self.is_at_work = self.is_at_work or bool(progress.notebook)
            row = self.status.rows[number]
            running = row.model_copy(update={"status": "running", **progress.model_dump()})
            self._show(number, running)

    def ended(self, number: int, run: GridRun) -> None:
        """Show how a job has ended."""
        ending = {
            "status": run.status,
            "machine": run.machine,
            "reason": run.reason,
            "folder": str(run.folder),
            "notebook": "",
        }
        with self._lock:
            row = self.status.rows[number]
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


class _RowListener:
    """The listener of one job, which passes everything on to the board."""

    def __init__(self, board: Board, number: int) -> None:
        self.children = board.children
        self._board = board
        self._number = number

    @property
    def stopped(self) -> bool:
        return self._board.stopped

    def changed(self, progress: JobProgress) -> None:
        self._board.changed(self._number, progress)

    def say(self, line: str) -> None:
        self._board.say(line)


# -- its file ------------------------------------------------------------------------------


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
    return grid.store.root / FOLDER / f"{grid.name}-{digest}.json"


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
