"""Verbs about what came from elsewhere, or may have changed since it was stored."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import Reply, verb
from cellrepro.cli.shared_options import MODEL_HELP, StoreOption
from cellrepro.exchange.endings import PASSPORTS


@verb()
def verify(
    target: Annotated[
        str, Argument(help="KEY, KEY/REPEAT, a passport, an exported file, or a store's folder")
    ],
    command: Annotated[
        list[str] | None, Argument(help="after --, with --replay: the program that was wrapped")
    ] = None,
    replay: Annotated[
        bool, Option("--replay", help="compute it again here, as one more repeat, and compare")
    ] = False,
    run: Annotated[
        str | None, Option(help="which repeat is computed again, where there are several")
    ] = None,
    data: Annotated[str | None, Option(help="the folder of images of the run")] = None,
    model: Annotated[
        str | None, Option(help=f"the network it started from, if not found: {MODEL_HELP}")
    ] = None,
    profile: Annotated[
        str | None, Option(help="compute it again with a different profile: how far is that?")
    ] = None,
    receipt: Annotated[
        str | None, Option(help="NAME.intoto.jsonl, to which what the replay gave is added")
    ] = None,
    sign: Annotated[
        str | None, Option(help="KEY.pub, an Ed25519 key of OpenSSH that signs the receipt")
    ] = None,
    allowed_signers: Annotated[
        str | None, Option(help="whom you believe; default ~/.ssh/allowed_signers")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Check a run, a passport or an exported file without trust; --replay computes it again."""
    verification = cellrepro.verify(
        target,
        replay=replay,
        run=run,
        data=data,
        model=model,
        profile=profile,
        command=command or (),
        receipt=receipt,
        sign=sign,
        allowed_signers=allowed_signers,
        store=store,
    )
    return Reply(verification)


@verb("import")
def import_file(
    file: Annotated[
        str, Argument(help="NAME.cellrepro.zip, or NAME.intoto.jsonl with passports and receipts")
    ],
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Check a file that was exported, and merge it into a store; nothing is overwritten."""
    if file.endswith(PASSPORTS):
        return Reply(cellrepro.import_passports(file, store=store))
    return Reply(cellrepro.import_runs(file, store=store))


@verb()
def fsck(
    repair: Annotated[
        bool, Option("--repair", help="put right what can be, from equal content in the store")
    ] = False,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Hold every file of the store to its digest: damaged, missing, extra, left over."""
    return Reply(cellrepro.check_store(store, repair=repair))
