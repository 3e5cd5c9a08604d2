"""A table of how grids stand, as text, in a terminal and in a notebook."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cellrepro.grid.grid_runs import BAD_ENDINGS
from cellrepro.grid.status import GridStatus, JobRow
from cellrepro.loss_lines import loss_in_letters
from cellrepro.store.stored_run import NOTEBOOK
from cellrepro.words import minutes
from samebits.words import amount

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

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


def no_grid(store: str | Path) -> str:
    """Say that there is nothing to show."""
    return f"no grid is being carried out in {store}"


def headline(status: GridStatus) -> str:
    """Count the specs of a grid by how they stand, and say how long it may still take."""
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
class Cells:
    """The row of a spec, after its status."""

    spec: str
    machine: str
    repeat: str
    now: str
    loss: str
    left: str

    @classmethod
    def of(cls, row: JobRow, status: GridStatus) -> Cells:
        """Fill the row."""
        repeat = row.repeat
        now = ""
        loss = ""
        left = ""
        if row.status == "running":
            repeat = min(row.repeat + 1, row.n_repeats)
            now = row.text
            loss = loss_in_letters(row.losses)
            if row.n_made:
                left = minutes((status.updated - row.started) / row.n_made * row.n_left)
        elif row.status in BAD_ENDINGS:
            now = row.reason
        repeats = "" if row.status == "waiting" else f"{repeat} of {row.n_repeats}"
        return cls(
            spec=row.label, machine=row.machine, repeat=repeats, now=now, loss=loss, left=left
        )

    def in_order(self) -> tuple[str, ...]:
        """Give the cells from left to right."""
        loss = f"loss {self.loss}" if self.loss else ""
        return self.spec, self.machine, self.repeat, self.now, loss, self.left


# -- drawn ---------------------------------------------------------------------------------


def tables(statuses: Sequence[GridStatus], store: Path, *, link: Link) -> Group:
    """Draw the table of each grid, under its headline."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Table | Text] = [] if statuses else [Text(no_grid(store))]
    for status in statuses:
        parts.append(Text(headline(status), style="bold"))
        parts.append(_table(status, store, link=link))
        parts.append(Text())
    return Group(*parts)


def _table(status: GridStatus, store: Path, *, link: Link) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("", "spec", "machine", "repeat", "now", "loss", "left", box=None)
    rows = sorted(status.rows, key=lambda row: _FIRST.index(row.status))
    for row in rows[:_MOST_ROWS]:
        cells = Cells.of(row, status)
        colour = _COLOURS.get(row.status, _FAILED)
        table.add_row(
            Text(row.status, style=f"bold {colour}"),
            _linked(cells.spec, _target(row, store), link),
            Text(cells.machine),
            Text(cells.repeat),
            Text(cells.now),
            Text(cells.loss, no_wrap=True),
            Text(cells.left),
        )
    if len(rows) > _MOST_ROWS:
        table.caption = f"and {len(rows) - _MOST_ROWS} more"
    return table


def _target(row: JobRow, store: Path) -> Path | None:
    """The notebook that a row opens: as it is written, of a finished run, or of a failure."""
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


def file_address(path: Path) -> str:
    """Give the address of a file for a terminal."""
    return path.as_uri()


def _address_in_jupyter(path: Path) -> str:
    """Relative to the notebook, since JupyterLab opens no other files."""
    try:
        relative = os.path.relpath(path, Path.cwd())
    except ValueError:  # it lies on another drive
        return file_address(path)
    return quote(relative.replace(os.sep, "/"))


def page(statuses: Sequence[GridStatus], store: Path) -> str:
    """Draw the tables as HTML for a notebook."""
    from rich.console import Console

    # It writes nowhere and records what it would have written; inside Jupyter it would show it.
    console = Console(record=True, file=io.StringIO(), width=_NOTEBOOK_LETTERS, force_jupyter=False)
    console.print(tables(statuses, store, link=_address_in_jupyter))
    return console.export_html(inline_styles=True, code_format=_PAGE)
