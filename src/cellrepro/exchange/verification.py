"""The ``verify`` command: is a run, passport, exported file or store still as it was made?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from cellrepro.errors import no_such_file
from cellrepro.exchange.archive.entry_names import EXPORT_ENDING
from cellrepro.exchange.archive.reading import opened_export
from cellrepro.exchange.bundle import BUNDLE_ENDING, read_bundle
from cellrepro.exchange.replay_request import ReplayRequest
from cellrepro.exchange.selection import select_repeats
from cellrepro.exchange.sent_check import check_bundle, check_export
from cellrepro.exchange.signed.allowed_signers import read_allowed_signers
from cellrepro.exchange.signed.signer import find_signer
from cellrepro.exchange.stored_check import check_runs, check_whole_store, images_in_words
from cellrepro.exchange.target_findings import Checking, TargetFindings
from cellrepro.exchange.verification_result import TargetKind, Verification
from cellrepro.exchange.verified import VerifiedRepeat
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command
from cellrepro.spec.spec import Spec
from cellrepro.store.store import Store
from cellrepro.terminal import FileName, Quiet
from samebits.errors import BadInput

_AN_EXPORT = f"an exported file, NAME{EXPORT_ENDING}"
_A_PASSPORT = f"a passport, NAME{BUNDLE_ENDING}"


def verify(
    target: FileName,
    /,
    *command: str,
    replay: bool = False,
    run: str | None = None,
    data: FileName | None = None,
    model: str | None = None,
    profile: str | None = None,
    receipt: FileName | None = None,
    sign: FileName | None = None,
    allowed_signers: FileName | None = None,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Verification:
    """Check a run, a passport, an exported file or a store without trust.

    Each file is held to its digest. With a replay the run is computed again here, as one more
    repeat of the store, and compared with what was sent: that alone shows that it can be computed
    so.

    Parameters
    ----------
    target : str or Path
        ``KEY``, ``KEY/MACHINE``, ``KEY/REPEAT`` or ``KEY/MACHINE/REPEAT`` of the store, a passport
        ``NAME.intoto.jsonl``, an exported file ``NAME.zip``, or the folder of a store.
    *command : str
        With a replay, after ``--``: the words of the program that was wrapped, or the function;
        nothing that was sent is executed.
    replay : bool
        Compute one repeat of it again. An exported file is imported into the store for that.
    run : str, optional
        Which repeat of the target is computed again, ``KEY/MACHINE/REPEAT`` or its first letters;
        needed where it holds several runs. By default the first repeat.
    data : str or Path, optional
        The folder of images, which is held to the digest of the runs'; by default the replay looks
        where it was, and among what came with the run.
    model : str, optional
        The network from which the replay starts, where it is not found: a name of Cellpose or of
        this lab, a weights file, or ``KEY/REPEAT`` of a stored run.
    profile : str, optional
        For the replay, instead of the one that was asked for: how far does a different numeric
        environment take it?
    receipt : str or Path, optional
        A bundle ``NAME.intoto.jsonl`` to which what the replay gave is added.
    sign : str or Path, optional
        ``KEY.pub``, an Ed25519 key of OpenSSH, with which the receipt is signed.
    allowed_signers : str or Path, optional
        Whom you believe, as ``ssh-keygen -Y verify`` reads it; by default the file that
        ``CELLREPRO_ALLOWED_SIGNERS`` names, else ``~/.ssh/allowed_signers``.
    store : str or Path
        Folder of finished runs, in which the runs of a passport are looked up, too.
    quiet : bool
        Show neither progress nor notices.

    Returns
    -------
    Verification
        Its ``str`` is the verdict in a sentence; in a notebook it shows passports and problems.

    Raises
    ------
    BadInput
        If there is no such target, or it is no run, passport or export as cellrepro writes it; if
        images, network or program of a replay are not to be found as they were.
    NotPossibleHere
        If this machine or version cannot compute the replay.

    Examples
    --------
    Is every file of a run that was sent as its sender made it?

    ``cellrepro verify basel.cellrepro.zip``

    Compute it again here, and add what came of it to the passport

    ``cellrepro verify basel.cellrepro.zip --replay --receipt us.intoto.jsonl``
    """
    kind = kind_of(target)
    request = ReplayRequest(
        data=None if data is None else Path(data),
        model=model,
        profile=profile,
        command=command,
        run=run,
        receipt=None if receipt is None else Path(receipt),
        signs=sign is not None,
    )
    request.refuse_idle(replay=replay, is_store=kind == "store")
    signer = find_signer(sign)
    checking = Checking(
        store=Store(store),
        allowed=read_allowed_signers(allowed_signers),
        data=request.data,
        quiet=quiet,
    )
    findings = _check_target(target, kind, checking)
    verification = Verification(
        target=str(target),
        kind=kind,
        problems=tuple(findings.problems),
        repeats=tuple(findings.repeats),
        models=tuple(findings.models),
        files=findings.n_files,
        vacuous=findings.vacuous,
        notes=tuple(dict.fromkeys([*findings.notes, *(model.note for model in findings.models)])),
        _n_repeats=findings.n_repeats,
    )
    if not replay:
        return verification
    if verification.problems:
        note = "it was not computed again, since it is not as it was made"
        return dataclasses.replace(verification, notes=(*verification.notes, note))
    from cellrepro.exchange.target_replay import replay_target  # which needs PyTorch

    replayed, notes = replay_target(
        verification.repeats,
        request,
        signer=signer,
        checking=checking,
        file=Path(target) if kind == "file" else None,
    )
    return dataclasses.replace(
        verification,
        replay=replayed,
        repeats=tuple(_with_images_seen(verification.repeats, replayed.passport.spec)),
        notes=(*verification.notes, *notes),
    )


def _with_images_seen(
    repeats: Iterable[VerifiedRepeat], replayed: Spec
) -> Iterator[VerifiedRepeat]:
    """A replay has held the images of its run to their digest: they are no longer missing."""
    for repeat in repeats:
        spec = repeat.original.spec
        is_seen = (spec.task, spec.data_digest) == (replayed.task, replayed.data_digest)
        not_here = [
            each
            for each in repeat.not_here
            if not (is_seen and each.startswith(images_in_words(spec)))
        ]
        yield dataclasses.replace(repeat, not_here=tuple(not_here))


def _check_target(target: str | Path, kind: TargetKind, checking: Checking) -> TargetFindings:
    match kind:
        case "passport":
            return check_bundle(read_bundle(target), checking, where=str(target))
        case "file":
            with opened_export(Path(target)) as archive:
                return check_export(archive, checking)
        case "store":
            store = Store(target)
            return check_whole_store(store, dataclasses.replace(checking, store=store))
        case "run":
            return check_runs(select_repeats(checking.store, [str(target)]).repeats, checking)


def kind_of(target: str | Path) -> TargetKind:
    """Whether a target is a passport, a file, a store or a run, by its name and what is there."""
    path = Path(target)
    if not str(target):  # Path("") is the working directory
        raise BadInput(
            f"nothing was named; expected KEY/REPEAT, {_AN_EXPORT}, {_A_PASSPORT}, or the folder "
            "of a store"
        )
    if path.name.endswith(BUNDLE_ENDING):
        return "passport"
    if path.suffix.lower() == EXPORT_ENDING:
        return "file"
    if path.is_dir():
        if not (path / "runs").is_dir():
            raise BadInput(
                f"{target} is a folder without runs/; expected a store, the folder that was given "
                f"as --store, {_AN_EXPORT}, {_A_PASSPORT}, or KEY/REPEAT"
            )
        return "store"
    if path.is_file():
        command = lab_command("describe", target, store=None)
        raise BadInput(
            f"{target} is a file of another kind; expected {_AN_EXPORT}, or {_A_PASSPORT}: "
            f"`{command}` says what it is"
        )
    if path.suffix and path.parent.is_dir():  # a machine's name may have a dot in it, too
        raise no_such_file(
            target, expected=f"an exported file, NAME{EXPORT_ENDING}, or NAME{BUNDLE_ENDING}"
        )
    return "run"
