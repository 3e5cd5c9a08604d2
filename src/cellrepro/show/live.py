"""How grids stand, live: a table in a terminal and in a notebook, from the files in the store."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from cellrepro.grid.point import BADLY
from cellrepro.grid.status import GridStatus, Row, standing, standing_by_file
from cellrepro.progress import minutes
from cellrepro.store.store import NOTEBOOK, Store
from cellrepro.words import amount

_REFRESH_SECONDS = 1.0
_MOST_ROWS = 20
_COLUMNS = ("", "spec", "machine", "repeat", "now", "left")
_FIRST = ("running", *BADLY, "waiting", "done", "present")
_COLOURS = {"running": "#0072b2", "done": "#009e73", "present": "#009e73", "waiting": "#666666"}
_FAILED = "#d55e00"


def watch(store: str | Path = "outputs") -> None:
    """Show how the grids of a store stand, kept up to date; in a notebook beside other work.

    It reads what the command that carries a grid out writes, so any process that may read the
    store can watch it, and goes on until the kernel ends: a grid that is carried out later, or
    once more, is shown, too.

    Parameters
    ----------
    store : str or Path
    """
    from IPython.display import HTML, display

    root = Store(store).root
    handle = display(HTML(_page([], root)), display_id=True)

    def keep() -> None:
        shown = ""
        for statuses in _states(root):
            page = _page(statuses, root)
            if page != shown:
                handle.update(HTML(page))
                shown = page

    threading.Thread(target=keep, daemon=True).start()


def follow(store: str | Path) -> list[GridStatus]:
    """How the grids stand: at their end if a person looks on in a terminal, else now."""
    root = Store(store).root
    if not sys.stderr.isatty():
        return standing(Store(root))
    with live_table(root):
        for statuses in _states(root):
            if all(one.ended or one.lost for one in statuses):
                break
    return statuses


@contextmanager
def live_table(store: str | Path) -> Iterator[bool]:
    """Show the table in a terminal for one block; whether there is one."""
    if not sys.stderr.isatty():
        yield False
        return
    from rich.console import Console, Group
    from rich.live import Live

    def drawn() -> Any:
        return Group(*(_table(one, Path(store)) for one in standing(Store(store))))

    shown = {"console": Console(stderr=True), "transient": True, "refresh_per_second": 2}
    with Live(get_renderable=drawn, **shown):  # type: ignore[arg-type]
        yield True


def as_lines(statuses: list[GridStatus], store: str | Path) -> list[str]:
    """The same for a log: a grid a line, and a line for each that runs or failed."""
    lines = []
    for status in statuses:
        lines.append(_headline(status))
        shown = [row for row in status.rows if row.status in ("running", *BADLY)]
        lines += ["  ".join(filter(None, (row.status, *_cells(row, status)))) for row in shown]
    return lines or [f"no grid is being carried out in {store}"]


def _states(root: Path) -> Iterator[list[GridStatus]]:
    """How the grids stand, again and again; of one that was seen at work the end is kept."""
    seen: dict[Path, GridStatus] = {}
    while True:
        now = standing_by_file(Store(root))
        for path in seen.keys() - now.keys():
            last = seen[path]
            if last.lost or (last.ended and last.n(*BADLY)):
                del seen[path]  # a failure that has been made good, or removed
            else:
                seen[path] = _ended_well(last)
        seen |= now
        yield list(seen.values())
        time.sleep(_REFRESH_SECONDS)


def _ended_well(status: GridStatus) -> GridStatus:
    """A grid whose file went while it was at work: what it still had to do is done."""
    rows = [
        row.model_copy(update={"status": "done", "text": ""})
        if row.status in ("running", "waiting")
        else row
        for row in status.rows
    ]
    return status.model_copy(update={"rows": rows, "ended": True})


def _headline(status: GridStatus) -> str:
    names = {"running": "running", "waiting": "waiting", "done": "done", "present": "stored before"}
    counts = [f"{n} {word}" for name, word in names.items() if (n := status.n(name))]
    counts += [f"{n} {name}" for name in BADLY if (n := status.n(name))]
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


def _cells(row: Row, status: GridStatus) -> list[str]:
    """What stands in the row of a spec, after its status: the columns from the second on."""
    left = ""
    if row.status == "running" and row.share:
        gone = status.updated - row.started
        left = minutes(gone / row.share - gone)
    now = row.reason if row.status in BADLY else row.text if row.status == "running" else ""
    repeat = min(row.repeat + 1, row.n_repeats) if row.status == "running" else row.repeat
    of = f"{repeat} of {row.n_repeats}" if row.status != "waiting" else ""
    return [row.label, row.machine, of, now, left]


def _shown(status: GridStatus) -> tuple[list[Row], int]:
    """The rows that are shown, what happens first, and how many are not."""
    rows = sorted(status.rows, key=lambda row: _FIRST.index(row.status))
    return rows[:_MOST_ROWS], max(0, len(rows) - _MOST_ROWS)


def _target(row: Row, store: Path) -> Path | None:
    """What to open: the notebook as it is written, of a finished run or of a failure."""
    if row.notebook:
        return Path(row.notebook)
    if row.status in ("done", "present") and row.machine:
        return store / "runs" / row.key / row.machine / "0" / NOTEBOOK
    return Path(row.folder, NOTEBOOK) if row.folder and row.status in BADLY else None


def _table(status: GridStatus, store: Path) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(*_COLUMNS, title=_headline(status), title_justify="left", box=None)
    rows, n_more = _shown(status)
    for row in rows:
        label, machine, *rest = _cells(row, status)
        name, target = Text(label), _target(row, store)
        if target is not None and target.exists():
            name.stylize(f"link {target.resolve().as_uri()}")
        said = Text(row.status, style=_COLOURS.get(row.status, _FAILED))
        table.add_row(said, name, machine, *map(Text, rest))
    if n_more:
        table.caption = f"and {n_more} more"
    return table


def _page(statuses: list[GridStatus], store: Path) -> str:
    """The tables for a notebook; a link opens a file in JupyterLab."""
    parts = [] if statuses else [f"<p>no grid is being carried out in {escape(str(store))}</p>"]
    for status in statuses:
        rows, n_more = _shown(status)
        head = "".join(
            f"<th style='text-align:left;padding:0 .6em'>{name}</th>" for name in _COLUMNS
        )
        body = "".join(_row(row, status, store) for row in rows)
        more = f"<p>and {n_more} more</p>" if n_more else ""
        name = escape(_headline(status))
        parts.append(f"<p><b>{name}</b></p><table><tr>{head}</tr>{body}</table>{more}")
    return "".join(parts)


def _row(row: Row, status: GridStatus, store: Path) -> str:
    label, *cells = map(escape, _cells(row, status))
    target = _target(row, store)
    if target is not None and target.exists():
        place = escape(os.path.relpath(target.resolve(), Path.cwd()), quote=True)
        label = f"<a href='{place}' target='_blank'>{label}</a>"
    colour = _COLOURS.get(row.status, _FAILED)
    said = f"<b style='color:{colour}'>{row.status}</b>"
    spaces = {name: "normal" if name == "now" else "nowrap" for name in _COLUMNS}
    style = "text-align:left;vertical-align:top;padding:0 .6em;white-space"
    texts = (
        f"<td style='{style}:{space}'>{text}</td>"
        for space, text in zip(spaces.values(), (said, label, *cells), strict=True)
    )
    return f"<tr>{''.join(texts)}</tr>"
