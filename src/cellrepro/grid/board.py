"""The board of a running grid: the rows of its jobs, counted by a progress bar."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from cellrepro.errors import BadInput
from cellrepro.grid.grid_runs import BAD_ENDINGS, GridRun
from cellrepro.grid.job import Job, Listener
from cellrepro.grid.status import GridStatus, JobProgress, JobRow
from cellrepro.process.children import Children
from cellrepro.progress_count import Progress


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
