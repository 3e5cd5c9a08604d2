"""Verbs about what came from elsewhere, or may have changed since it was stored."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import Reply, code_for, verb
from cellrepro.cli.shared_options import StoreOption
from cellrepro.show.answers.imported import imported_answer
from cellrepro.show.answers.store_check import store_check_answer


@verb("import")
def import_file(
    file: Annotated[str, Argument(help="NAME.cellrepro.zip, as `cellrepro export` wrote it")],
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Check a file that was exported, and merge its runs into a store; nothing is overwritten."""
    return Reply(imported_answer(cellrepro.import_runs(file, store=store)))


@verb()
def fsck(
    repair: Annotated[
        bool, Option("--repair", help="put right what can be, from equal content in the store")
    ] = False,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Hold every file of the store to its digest: damaged, missing, extra, left over."""
    check = cellrepro.check_store(store, repair=repair)
    return Reply(store_check_answer(check), code_for(bool(check.problems)))
