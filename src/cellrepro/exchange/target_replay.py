"""The replay of a target that was verified: one run is chosen, computed again and compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bundle import grown_bundle
from cellrepro.exchange.importing import import_runs
from cellrepro.exchange.kept_passports import current_of, keep_attestations
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.plan_again import RecordedRun, images_for, plan_again, refuse_at_once
from cellrepro.exchange.receipt import receipt_statement
from cellrepro.exchange.replay import Replay
from cellrepro.exchange.replay_comparison import compared
from cellrepro.exchange.replay_request import ReplayRequest
from cellrepro.exchange.signed.signer import Signer
from cellrepro.exchange.statement import Attestation
from cellrepro.exchange.target_findings import Checking
from cellrepro.exchange.verified import VerifiedRepeat
from cellrepro.progress import print_note
from cellrepro.run.plan import Plan
from cellrepro.run.planned_child import print_notices
from cellrepro.run.repeats import RepeatMaking
from cellrepro.store.locks import beside_of_user, locked
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.store.whole_files import whole_file
from samebits.errors import BadInput
from samebits.words import amount, some


def replay_target(
    repeats: Sequence[VerifiedRepeat],
    request: ReplayRequest,
    *,
    signer: Signer | None,
    checking: Checking,
    file: Path | None,
) -> tuple[Replay, list[str]]:
    """Compute one of the verified repeats again; returns the replay with notes about it.

    ``file`` is the exported file that was verified, which is imported first.
    """
    store = checking.store
    original, notes = choose_repeat(repeats, request.run)
    if file is not None:
        _refuse_before_import(original, repeats, request, store)
        notes.append(str(import_runs(file, store=store.root, quiet=checking.quiet)))
    stored = store.repeat(original.key, original.machine, original.repeat)
    plan = plan_again(RecordedRun.of(original, stored), request, store)
    repeat = _computed(plan, quiet=checking.quiet)
    replayed = compared(original, repeat, plan, stored=stored, store=store, quiet=checking.quiet)
    if request.receipt is not None:
        _add_receipt(replayed, request.receipt, signer=signer, store=store)
        notes.append(f"the receipt was added to {request.receipt}")
    if replayed.verdict != Verdict.IDENTICAL:
        notes += _advise_environment(replayed)
    return replayed, notes


def _refuse_before_import(
    original: Passport, repeats: Sequence[VerifiedRepeat], request: ReplayRequest, store: Store
) -> None:
    """Refuse what cannot be computed again, before the import writes anything."""
    recorded = RecordedRun.of(original)
    refuse_at_once(recorded, request, store)
    came_with_it = any(one.name == original.name and one.has_images for one in repeats)
    if request.data is not None or not came_with_it:
        images_for(recorded, request, store)


def choose_repeat(repeats: Sequence[VerifiedRepeat], run: str | None) -> tuple[Passport, list[str]]:
    """Choose the repeat that is computed again; returns its passport with notes."""
    passports: dict[str, list[Passport]] = {}
    for one in sorted(repeats, key=_place):
        if _matches(one.name, run or ""):
            passports.setdefault(one.name, []).append(one.original)
    names = [*passports]
    if not names:
        known = some([*dict.fromkeys(one.name for one in sorted(repeats, key=_place))], 8)
        meant = f"--run is {run!r}; expected one of {known}" if run else "there is no run in it"
        raise BadInput(f"nothing can be computed again: {meant}")
    keys = {name.partition("/")[0] for name in names}
    if len(keys) > 1:
        raise BadInput(
            f"it holds {len(keys)} runs, and one is computed again at a time: choose with --run "
            f"KEY one of {some(names, 8)}"
        )
    notes = []
    if len(names) > 1:
        notes.append(f"of {amount(len(names), 'repeat')} {names[0]} was computed again")
    return current_of(passports[names[0]]), notes


def _place(repeat: VerifiedRepeat) -> tuple[str, str, int]:
    """Sort key: key and machine, repeat 2 before repeat 10."""
    passport = repeat.original
    return passport.key, passport.machine, passport.repeat


def _matches(name: str, reference: str) -> bool:
    """Whether a reference, as ``KEY/REPEAT`` or the first letters of its parts, fits a repeat."""
    key, machine, index = name.split("/")
    named_key, *rest = reference.split("/")
    if not key.startswith(named_key):
        return False
    if rest and rest[-1].isdecimal() and rest.pop() != index:
        return False
    return not rest or (len(rest) == 1 and machine.startswith(rest[0]))


def _computed(plan: Plan, *, quiet: bool) -> Repeat:
    """Compute one more repeat; a stored one is never taken, since it may come from elsewhere."""
    run = plan.store.run(plan.spec.key)
    taken = run.machines.get(plan.machine, {}) if run is not None else {}
    index = max(taken, default=-1) + 1
    if not quiet:
        print_note(f"computed again as {plan.spec.key}/{plan.machine}/{index}")
    print_notices(plan, quiet=quiet)
    return RepeatMaking(plan, index, label=f"{plan.spec.task} again", quiet=quiet).made()


def _add_receipt(replayed: Replay, file: Path, *, signer: Signer | None, store: Store) -> None:
    """Add the receipt of a replay to a bundle, and to what the store keeps of the original."""
    statement = receipt_statement(replayed.receipt(), replayed.passport)
    both = (replayed.passport.attestation, Attestation.of(statement, signer=signer))
    with locked(beside_of_user(file), wait=True):
        grown = grown_bundle(file, both)
        with whole_file(file, replace=True) as scratch:
            scratch.write_bytes(grown)
    keep_attestations(store, replayed.original, both)


def _advise_environment(replayed: Replay) -> Iterator[str]:
    """If versions differ from the passport, say which, and what to do."""
    differing = {
        name.removeprefix("versions."): values
        for name, values in replayed.environment.items()
        if name.startswith("versions.") and name != "versions.cellrepro"
    }
    if not differing:
        return
    versions = [f"{name} {values.theirs}, not {values.here}" for name, values in differing.items()]
    yield (
        f"the original was computed with other versions ({some(versions, 4)}): to compute it again "
        "with them, install them in an environment of its own, beside cellrepro[lab]"
    )
