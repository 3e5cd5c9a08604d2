"""The verb that hands runs to someone else: passports, whole runs, networks."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import Reply, verb
from cellrepro.cli.shared_options import StoreOption
from cellrepro.errors import BadInput
from cellrepro.show.answers.exported import exported_passports_answer

_PASSPORTS = ".intoto.jsonl"


@verb()
def export(
    runs: Annotated[list[str], Argument(help="KEY, KEY/MACHINE, KEY/REPEAT, KEY/MACHINE/REPEAT")],
    file: Annotated[str, Argument(help="a new file: NAME.intoto.jsonl holds passports")],
    passport: Annotated[
        bool, Option("--passport", help="only what lets others check and replay a run")
    ] = False,
    sign: Annotated[
        str | None, Option(help="KEY.pub of OpenSSH: by ssh-agent, else the key file beside it")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Put runs into one file for someone else, who needs nothing of yours to check it."""
    if passport or file.endswith(_PASSPORTS):
        exported = cellrepro.export_passports(runs, file, sign=sign, store=store)
        return Reply(exported_passports_answer(exported))
    raise BadInput(f"{file} has no ending that says what it is to hold; expected {_PASSPORTS}")
