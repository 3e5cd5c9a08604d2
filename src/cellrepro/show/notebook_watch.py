"""How the grids of a store stand, in a table of a notebook that is kept up to date."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from cellrepro.results import Result
from cellrepro.show.grid_table import page
from cellrepro.show.watched_grids import is_over, states
from cellrepro.spec import defaults
from cellrepro.store.store import Store


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
