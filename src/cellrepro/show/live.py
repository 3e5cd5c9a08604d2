"""How grids stand, live: a table in a terminal and in a notebook, from the files in the store."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from cyclopts import Parameter

from cellrepro.grid.cost_estimate import with_estimates
from cellrepro.grid.grid import planned, refuse_wrong_limits, run_grid
from cellrepro.grid.grid_runs import BAD_ENDINGS, GridRuns
from cellrepro.grid.points import read_grid
from cellrepro.grid.status import GridStatus, JobRow, standing, standing_by_file
from cellrepro.progress import minutes
from cellrepro.results import Result
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.store.store import NOTEBOOK, Store
from cellrepro.terminal import FileName
from cellrepro.terminal_values import Overrides
from cellrepro.words import amount

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

REFRESH_SECONDS = 1.0
_MOST_ROWS = 20
_NOTEBOOK_LETTERS = 120
"""Width of the table in a notebook."""
_PAGE = "<pre style='white-space:pre; overflow-x:auto; line-height:normal'>{code}</pre>"
_FIRST = ("running", *BAD_ENDINGS, "waiting", "done", "present")
"""The order of rows: what happens, what went wrong, the rest."""
_COLOURS = {"running": "#0072b2", "done": "#009e73", "present": "#009e73", "waiting": "#666666"}
_FAILED = "#d55e00"

Link = Callable[[Path], str]
"""Writes the address by which a file is opened."""


class Watching(Result):
    """A table in a notebook that is kept up to date until its grids have ended."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Keep the table as it is from now on."""
        self._stopped.set()

    def sentence(self) -> str:
        """Say whether the table is kept up to date."""
        state = "ended" if self._stopped.is_set() else "goes on"
        return f"the table of the grids {state}"

    def _ipython_display_(self) -> None:
        """Nothing: the table is shown already."""


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
    handle = display(HTML(_page(first, root)), display_id=True)
    watching = Watching()
    before = _watching.pop(root, None)
    if before is not None:
        before.stop()
    if handle is None or _is_over(first):  # outside of IPython nothing can be kept up to date
        return watching
    _watching[root] = watching

    def keep_up() -> None:
        shown = ""
        for statuses in current:
            page = _page(statuses, root)
            if watching._stopped.is_set():
                return
            if page != shown:
                handle.update(HTML(page))
                shown = page
            if _is_over(statuses):
                return

    threading.Thread(target=keep_up, name="cellrepro watch", daemon=True).start()
    return watching


@dataclass(frozen=True, repr=False)
class Standing(Result):
    """How the grids of a store stand."""

    grids: Sequence[GridStatus]
    """Those that are being carried out, and those that did not end well."""
    _store: Path
    """Which store."""

    def sentence(self) -> str:
        """Say it for a log: a grid a line, and a line for each spec that runs or failed."""
        lines = []
        for status in self.grids:
            lines.append(_headline(status))
            for row in status.rows:
                if row.status in ("running", *BAD_ENDINGS):
                    cells = _Cells.of(row, status)
                    lines.append("  ".join(filter(None, (row.status, *cells.in_order()))))
        return "\n".join(lines) or _nothing(self._store)


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
        over = next(statuses for statuses in states(root) if _is_over(statuses))
    return Standing(over, root)


def grid(
    file: FileName,
    /,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    slurm: FileName | None = None,
    time_limit: float | None = None,
    dry_run: bool = False,
    overrides: Annotated[Overrides | None, Parameter(name="--set")] = None,
    repeats: int | None = None,
    store: FileName = defaults.STORE,
) -> GridRuns:
    """Run every combination of a grid file as a notebook; what is finished is not run again.

    Parameters
    ----------
    file : str or Path
        A grid file, YAML.
    workers : int, optional
        Runs at once on this machine; by default one for each GPU, or as the cores allow.
    scheduler : str, optional
        Address of a Dask scheduler: ``tcp://HOST:PORT``.
    slurm : str or Path, optional
        YAML file with the options of Slurm jobs.
    time_limit : float, optional
        Minutes that a repeat may take.
    dry_run : bool
        Say what would run, and how long it would take.
    overrides : mapping, optional
        ``NAME=VALUE`` in place of what the file has, or ``NAME=[A, B]`` in place of an axis.
    repeats : int, optional
        Of every combination; by default as in the file.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    GridRuns
        Its ``str`` counts how the points ended; a repeat that failed raises nothing.

    Raises
    ------
    BadInput
        If the file cannot be read or names what a run does not take, or limits exclude each other.
    NotPossibleHere
        If this machine lacks what a profile asks for.

    Examples
    --------
    What would run, and how long would it take?

    ``cellrepro grid grids/demo.yaml --dry-run``

    Run it with the random seeds 2 and 3, two processes at once

    ``cellrepro grid grids/demo.yaml --set "seed=[2, 3]" --workers 2``
    """
    refuse_wrong_limits(workers=workers, minutes=time_limit)
    if dry_run:
        refuse_idle(("scheduler", "slurm"), "with --dry-run, which asks no other machine")
    checked = read_grid(file, store=store, overrides=overrides or {}, repeats=repeats)
    if dry_run:
        return with_estimates(checked, planned(checked))
    with live_table(store) as is_shown:
        return run_grid(
            checked,
            minutes=time_limit,
            quiet=is_shown,
            workers=workers,
            scheduler=scheduler,
            slurm=slurm,
        )


def _is_over(statuses: Sequence[GridStatus]) -> bool:
    """Whether no grid is being carried out."""
    return all(status.ended or status.lost for status in statuses)


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
        return _tables(standing(Store(root)), root, link=_file_address)

    with Live(
        get_renderable=drawn, console=Console(stderr=True), transient=True, refresh_per_second=2
    ):
        yield True


def states(root: Path) -> Iterator[list[GridStatus]]:
    """Give how the grids stand, again and again; of one that was seen at work the end is kept."""
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
    """A grid whose file went while it was at work: what it still had to do is done."""
    rows = [
        row.model_copy(update={"status": "done", "text": ""})
        if row.status in ("running", "waiting")
        else row
        for row in status.rows
    ]
    return status.model_copy(update={"rows": rows, "ended": True})


# -- in words ------------------------------------------------------------------------------


def _nothing(store: str | Path) -> str:
    return f"no grid is being carried out in {store}"


def _headline(status: GridStatus) -> str:
    words = {"running": "running", "waiting": "waiting", "done": "done", "present": "stored before"}
    words |= {name: name for name in BAD_ENDINGS}
    counts = [f"{status.n(name)} {word}" for name, word in words.items() if status.n(name)]
    parts = [f"grid {status.name}: {amount(len(status.rows), 'spec')}, {', '.join(counts)}"]
    if status.lost:
        parts.append("its command was killed: give the same command again")
    elif not status.ended:
        parts.append(f"since {minutes(status.updated - status.started)}")
        if status.seconds_left:
            parts.append(f"about {minutes(status.seconds_left)} left")
    if status.dashboard and not status.ended:
        parts.append(status.dashboard)
    return " · ".join(parts)


@dataclass(frozen=True)
class _Cells:
    """What stands in the row of a spec, after its status."""

    spec: str
    machine: str
    repeat: str
    now: str
    left: str

    @classmethod
    def of(cls, row: JobRow, status: GridStatus) -> _Cells:
        repeat = row.repeat
        now = ""
        left = ""
        if row.status == "running":
            repeat = min(row.repeat + 1, row.n_repeats)
            now = row.text
            if row.n_made:
                left = minutes((status.updated - row.started) / row.n_made * row.n_left)
        elif row.status in BAD_ENDINGS:
            now = row.reason
        repeats = "" if row.status == "waiting" else f"{repeat} of {row.n_repeats}"
        return cls(spec=row.label, machine=row.machine, repeat=repeats, now=now, left=left)

    def in_order(self) -> tuple[str, ...]:
        return self.spec, self.machine, self.repeat, self.now, self.left


# -- drawn ---------------------------------------------------------------------------------


def _tables(statuses: Sequence[GridStatus], store: Path, *, link: Link) -> Group:
    """The table of each grid, under its headline."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Table | Text] = [] if statuses else [Text(_nothing(store))]
    for status in statuses:
        parts.append(Text(_headline(status), style="bold"))
        parts.append(_table(status, store, link=link))
        parts.append(Text())
    return Group(*parts)


def _table(status: GridStatus, store: Path, *, link: Link) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("", "spec", "machine", "repeat", "now", "left", box=None)
    rows = sorted(status.rows, key=lambda row: _FIRST.index(row.status))
    for row in rows[:_MOST_ROWS]:
        cells = _Cells.of(row, status)
        colour = _COLOURS.get(row.status, _FAILED)
        table.add_row(
            Text(row.status, style=f"bold {colour}"),
            _linked(cells.spec, _target(row, store), link),
            Text(cells.machine),
            Text(cells.repeat),
            Text(cells.now),
            Text(cells.left),
        )
    if len(rows) > _MOST_ROWS:
        table.caption = f"and {len(rows) - _MOST_ROWS} more"
    return table


def _target(row: JobRow, store: Path) -> Path | None:
    """What to open: the notebook as it is written, of a finished run or of a failure."""
    if row.notebook:
        return Path(row.notebook)
    if row.status in ("done", "present") and row.machine:
        return store / "runs" / row.key / row.machine / "0" / NOTEBOOK
    if row.status in BAD_ENDINGS and row.folder:
        return Path(row.folder, NOTEBOOK)
    return None


def _linked(name: str, target: Path | None, link: Link) -> Text:
    """A name that opens a file, where there is the file."""
    from rich.style import Style
    from rich.text import Text

    if target is None or not target.exists():
        return Text(name)
    return Text(name, style=Style(link=link(target.resolve())))


def _file_address(path: Path) -> str:
    return path.as_uri()


def _address_in_jupyter(path: Path) -> str:
    """Relative to the notebook, since JupyterLab opens no other files."""
    try:
        relative = os.path.relpath(path, Path.cwd())
    except ValueError:  # it lies on another drive
        return _file_address(path)
    return quote(relative.replace(os.sep, "/"))


def _page(statuses: Sequence[GridStatus], store: Path) -> str:
    """The tables as HTML for a notebook."""
    from rich.console import Console

    # It writes nowhere and records what it would have written; inside Jupyter it would show it.
    console = Console(record=True, file=io.StringIO(), width=_NOTEBOOK_LETTERS, force_jupyter=False)
    console.print(_tables(statuses, store, link=_address_in_jupyter))
    return console.export_html(inline_styles=True, code_format=_PAGE)
