"""The commands of this lab that messages and pages print, as a user types them."""

from __future__ import annotations

from pathlib import Path

from cellrepro.command_lines import shell_line
from cellrepro.spec import defaults


def lab_command(*words: object, store: Path | str | None) -> str:
    """Write a command of this lab, with ``--store`` unless its runs are in the default store.

    ``store`` is None for a command that names no run.

    >>> lab_command("diverge", "0a1b/0", "0a1b/1", store="my runs")
    'cellrepro diverge 0a1b/0 0a1b/1 --store "my runs"'
    >>> lab_command("diverge", "0a1b/0", "0a1b/1", store="outputs")
    'cellrepro diverge 0a1b/0 0a1b/1'
    """
    options = [] if store is None else store_options(store)
    return shell_line(["cellrepro", *map(str, words), *options])


def store_options(store: Path | str) -> list[str]:
    """The words that name a store; none for the one that commands take without."""
    is_usual = Path(store).resolve() == Path(defaults.STORE).resolve()
    return [] if is_usual else ["--store", str(store)]
