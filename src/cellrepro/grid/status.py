"""How the grids of a store stand, in a file that whoever watches them reads.

``STORE/.grids/NAME.json`` is written by the command that carries the grid out, and goes when all
of it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from cellrepro.bits.digests import value_digest
from cellrepro.grid.point import BADLY, Job, Listener, Status
from cellrepro.progress import Progress
from cellrepro.store import locks
from cellrepro.store.store import Store
from cellrepro.store.whole_files import write_whole

_FOLDER = ".grids"
_REFRESH_SECONDS = 0.5
_TRIES = 10
"""To hold the lock of the file, which who looks on holds for a moment; another command that carries
the same grid out holds it to its end."""


class Row(BaseModel):
    """One job of a grid as it stands."""

    key: str
    label: str
    n_repeats: int
    machine: str = ""
    status: Status = "waiting"
    repeat: int = 0  # repeats that are stored
    started: float = 0.0  # seconds, as `time.time` counts them
    done: int = 0  # parts of the present repeat: epochs and images
    total: int = 0  # of these
    text: str = ""  # the last of them: epoch, loss, learning rate
    notebook: str = ""  # as papermill writes it
    folder: str = ""  # of what was finished or kept of a failure
    reason: str = ""

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        return (self.repeat + (self.done / self.total if self.total else 0)) / self.n_repeats


class GridStatus(BaseModel):
    """A grid as it stands."""

    name: str  # of its file
    started: float  # seconds, as `time.time` counts them
    updated: float
    dashboard: str = ""  # Dask's, where there is one
    ended: bool = False
    lost: bool = False  # its command was killed
    rows: list[Row]

    def n(self, *statuses: str) -> int:
        """How many rows have one of some statuses."""
        return sum(row.status in statuses for row in self.rows)

    @property
    def seconds_left(self) -> float | None:
        """How long still, if the rest goes as what was done since the start; none at first."""
        shares = [row.share for row in self.rows if row.status in ("running", "done")]
        waiting = self.n("waiting") + sum(1 - share for share in shares)
        gone = sum(shares)
        return (self.updated - self.started) / gone * waiting if gone else None


class Board(Listener):
    """The rows of a grid while it is carried out: kept in a file, counted by a progress bar."""

    def __init__(self, jobs: Sequence[Job], bar: Progress, dashboard: str) -> None:
        super().__init__()
        now, grid = time.time(), jobs[0].grid
        rows = [Row(key=job.key, label=job.label, n_repeats=grid.repeats) for job in jobs]
        self.status = GridStatus(
            name=grid.name, started=now, updated=now, dashboard=dashboard, rows=rows
        )
        self.stopped, self._bar, self._lock = False, bar, threading.Lock()
        self.at_work = False  # something is really being made
        self._counted = [0] * len(rows)

    def listener(self, index: int) -> Listener:
        """Who hears how one of the jobs goes on."""
        return _RowListener(self, index)

    def say(self, line: str) -> None:
        """One line that stays."""
        with self._lock:
            self._bar.say(line)

    def change(self, index: int, fields: Mapping[str, Any]) -> None:
        """Fields of a row have changed; threads of jobs call this."""
        with self._lock:
            self.at_work |= bool(fields.get("notebook"))
            row = self.status.rows[index] = self.status.rows[index].model_copy(update=dict(fields))
            n_over = row.n_repeats if row.status in ("present", *BADLY) else row.repeat
            for _ in range(self._counted[index], n_over):
                self._bar.advance(f"{row.key} {row.label}")
            self._counted[index] = max(self._counted[index], n_over)

    def write(self, path: Path, *, ended: bool = False) -> None:
        """Bring the file up to date; none remains of a grid that ended well."""
        for index, row in enumerate(self.status.rows):
            if ended and row.status == "running":
                self.change(index, {"status": "interrupted"})
        with self._lock:
            now = self.status.model_copy(update={"updated": time.time(), "ended": ended})
            text = now.model_dump_json(indent=1)
        if ended and not now.n("waiting", *BADLY):
            path.unlink(missing_ok=True)
        else:
            write_whole(path, text)


class _RowListener(Listener):
    def __init__(self, board: Board, index: int) -> None:
        super().__init__()
        self.children = board.children
        self.board = board
        self.index = index

    @property
    def stopped(self) -> bool:  # type: ignore[override]
        return self.board.stopped

    def changed(self, **fields: Any) -> None:
        self.board.change(self.index, fields)

    def say(self, line: str) -> None:
        self.board.say(line)


@contextmanager
def board(jobs: Sequence[Job], bar: Progress, *, dashboard: str = "") -> Iterator[Board]:
    """The board of a grid for one block, in the course of which its file follows it."""
    made, over = Board(jobs, bar, dashboard), threading.Event()
    grid = jobs[0].grid
    area = grid.store.root / _FOLDER
    name = value_digest([grid.name, *(job.key for job in jobs)])[:8]
    path = area / f"{grid.name}-{name}.json"

    def follow() -> None:
        while not (made.at_work or over.wait(_REFRESH_SECONDS)):
            pass
        with suppress(OSError):  # a store that cannot be written is for the jobs to report
            # The file of an earlier attempt stands for this one, also where nothing is left to do.
            is_well = not made.status.n("waiting", "running", *BADLY)
            is_shown = made.at_work or (is_well and path.exists())
            for _ in range(_TRIES if is_shown else 0):
                with locks.locked(path) as mine:  # while it is held, this command is alive
                    if mine:
                        made.write(path)
                        while not over.wait(_REFRESH_SECONDS):
                            with suppress(OSError):  # the disk may be full for a while
                                made.write(path)
                        made.write(path, ended=True)
                        return
                time.sleep(0.05)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        over.set()
        thread.join()


def standing(store: Store) -> list[GridStatus]:
    """The grids of a store that are being carried out, or ended otherwise than well."""
    return list(standing_by_file(store).values())


def standing_by_file(store: Store) -> dict[Path, GridStatus]:
    """The same, by the file of each: a grid that is carried out once more has the same file."""
    found = {}
    for path in sorted((store.root / _FOLDER).glob("*.json")):
        try:
            status = GridStatus.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):  # it has just ended
            continue
        status.lost = not status.ended and not locks.is_locked(path)
        found[path] = status
    return found
