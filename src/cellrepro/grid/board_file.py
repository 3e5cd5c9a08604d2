"""The file of the board of a running grid, kept up to date by a thread.

It is ``STORE/.grids/NAME.json``, which `cellrepro.grid.status` reads. Its lock says that a
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
from cellrepro.grid.board import Board
from cellrepro.grid.grid_runs import BAD_ENDINGS
from cellrepro.grid.job import Job
from cellrepro.grid.status import FOLDER, GridStatus
from cellrepro.progress_count import Progress
from cellrepro.store import locks
from cellrepro.store.whole_files import write_whole

_REFRESH_SECONDS = 0.5
_TRIES = 10
"""Attempts to take the lock of the file, which a reader may hold for a moment."""
_RETRY_SECONDS = 0.05


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
