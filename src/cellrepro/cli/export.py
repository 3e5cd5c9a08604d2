"""The verb that hands runs to someone else: passports, whole runs, networks."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import Reply, refuse_idle, verb
from cellrepro.cli.shared_options import StoreOption, overrides
from cellrepro.errors import BadInput
from cellrepro.exchange.endings import PASSPORTS
from cellrepro.show.answers.exported import exported_passports_answer, exported_runs_answer

_RUNS = ".zip"


@verb()
def export(
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        Argument(help="KEY, KEY/MACHINE, KEY/REPEAT, KEY/MACHINE/REPEAT, or a grid file"),
    ] = None,
    *,
    file: Annotated[
        str, Argument(help="a new file: NAME.cellrepro.zip holds runs, NAME.intoto.jsonl passports")
    ],
    where: Annotated[list[str] | None, Option(help="NAME=VALUE: only runs that have it")] = None,
    weights: Annotated[bool, Option("--weights", help="with the trained networks")] = False,
    images: Annotated[bool, Option("--images", help="with the images")] = False,
    passport: Annotated[
        bool, Option("--passport", help="only what lets others check and replay a run")
    ] = False,
    sign: Annotated[
        str | None, Option(help="KEY.pub of OpenSSH: by ssh-agent, else the key file beside it")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Put runs into one file for someone else, who needs nothing of yours to check it."""
    references = runs or []
    wanted = overrides(where, "--where")
    if passport or file.endswith(PASSPORTS):
        refuse_idle(context, ("weights", "images"), "in a file that holds passports alone")
        passports = cellrepro.export_passports(
            references, file, where=wanted, sign=sign, store=store
        )
        return Reply(exported_passports_answer(passports))
    if file.endswith(_RUNS):
        exported = cellrepro.export_runs(
            references,
            file,
            where=wanted,
            weights=weights,
            images=images,
            sign=sign,
            store=store,
        )
        return Reply(exported_runs_answer(exported))
    raise BadInput(
        f"{file} has no ending that says what it is to hold; expected NAME.cellrepro{_RUNS} for "
        f"runs, NAME{PASSPORTS} for passports"
    )
