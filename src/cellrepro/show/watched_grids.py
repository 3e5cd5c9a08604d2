"""How the grids of a store stand, read again and again, and shown in a terminal or a notebook."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.grid.grid_runs import BAD_ENDINGS
from cellrepro.grid.status import GridStatus, standing, standing_by_file
from cellrepro.show.grid_table import Cells, file_address, headline, no_grid, page, tables
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.terminal import FileName
from samebits.results import Result

if TYPE_CHECKING:
    from rich.console import Group

REFRESH_SECONDS = 1.0


@dataclass(frozen=True, repr=False)
class Standing(Result):
    """How the grids of a store stand."""

    grids: Sequence[GridStatus]
    """Those that are being carried out, and those that did not end well."""
    _store: Path

    def sentence(self) -> str:
        """Say it for a log: a grid a line, and a line for each spec that runs or failed."""
        lines = []
        for status in self.grids:
            lines.append(headline(status))
            for row in status.rows:
                if row.status in ("running", *BAD_ENDINGS):
                    cells = Cells.of(row, status)
                    lines.append("  ".join(filter(None, (row.status, *cells.in_order()))))
        return "\n".join(lines) or no_grid(self._store)


def is_over(statuses: Sequence[GridStatus]) -> bool:
    """Whether no grid is being carried out."""
    return all(status.ended or status.lost for status in statuses)


def states(root: Path) -> Iterator[list[GridStatus]]:
    """Read how the grids stand, again and again; one that was seen at work stays to its end."""
    seen: dict[Path, GridStatus] = {}
    while True:
        by_file = standing_by_file(Store(root))
        for path in seen.keys() - by_file.keys():
            last = seen[path]
            if last.lost or (last.ended and last.n(*BAD_ENDINGS)):
                del seen[path]  # a failure that has been made good, or removed
            else:
                seen[path] = _ended_well(last)
        seen |= by_file
        yield list(seen.values())
        time.sleep(REFRESH_SECONDS)


def _ended_well(status: GridStatus) -> GridStatus:
    """Count as done what a grid had still to do when its file went: it ended well."""
    rows = [
        row.model_copy(update={"status": "done", "text": ""})
        if row.status in ("running", "waiting")
        else row
        for row in status.rows
    ]
    return status.model_copy(update={"rows": rows, "ended": True})


# -- in a terminal -------------------------------------------------------------------------


def follow(*, store: FileName = defaults.STORE) -> Standing:
    """Show how far the grids of a store are; in a terminal until they end.

    Parameters
    ----------
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    Standing
        At their end if a person looks on in a terminal, else now.

    Examples
    --------
    How far are the grids of this store?

    ``cellrepro watch --store outputs``
    """
    root = Store(store).root
    if not sys.stderr.isatty():
        return Standing(standing(Store(root)), root)
    with live_table(root):
        over = next(statuses for statuses in states(root) if is_over(statuses))
    return Standing(over, root)


@contextmanager
def live_table(store: str | Path) -> Iterator[bool]:
    """Show the table in a terminal for one block."""
    if not sys.stderr.isatty():
        yield False
        return
    from rich.console import Console
    from rich.live import Live

    root = Path(store)

    def drawn() -> Group:
        return tables(standing(Store(root)), root, link=file_address)

    with Live(
        get_renderable=drawn, console=Console(stderr=True), transient=True, refresh_per_second=2
    ):
        yield True


# -- in a notebook -------------------------------------------------------------------------


class Watching(Result):
    """A table in a notebook that is kept up to date until its grids have ended."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether the table stays as it is."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Keep the table as it is from now on."""
        self._stopped.set()

    @property
    def json_record(self) -> Mapping[str, object]:
        """What JSON says of it."""
        return {"is_stopped": self.is_stopped}

    def sentence(self) -> str:
        """Say whether the table is kept up to date."""
        state = "ended" if self.is_stopped else "goes on"
        return f"the table of the grids {state}"

    def _ipython_display_(self) -> None:
        """Show nothing: the table is on the page already."""


_watching: dict[Path, Watching] = {}
"""The last table of each store; a cell that is run again has a new one."""


def watch(store: str | Path = defaults.STORE) -> Watching:
    """Show how the grids of a store stand, kept up to date; in a notebook beside other work.

    It reads what the command that carries a grid out writes, so any process that may read the
    store can watch it. It goes on until these grids have ended, or the store is watched once more.

    Parameters
    ----------
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    Watching
        Its ``stop()`` ends it earlier.
    """
    from IPython.display import HTML, display

    root = Store(store).root
    current = states(root)
    first = next(current)
    handle = display(HTML(page(first, root)), display_id=True)
    watching = Watching()
    before = _watching.pop(root, None)
    if before is not None:
        before.stop()
    if handle is None or is_over(first):  # outside of IPython nothing can be kept up to date
        watching.stop()
        return watching
    _watching[root] = watching

    def keep_up() -> None:
        shown = ""
        for statuses in current:
            now = page(statuses, root)
            if watching.is_stopped:
                return
            if now != shown:
                handle.update(HTML(now))
                shown = now
            if is_over(statuses):
                break
        watching.stop()

    threading.Thread(target=keep_up, name="cellrepro watch", daemon=True).start()
    return watching
