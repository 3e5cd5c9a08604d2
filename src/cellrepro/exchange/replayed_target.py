"""One run of what was verified, computed again, with its receipt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import read_bundle
from cellrepro.exchange.given import WantedReplay
from cellrepro.exchange.importing import import_runs
from cellrepro.exchange.kept_passports import keep_attestations
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.plan_again import Recorded, images_for, refuse_at_once
from cellrepro.exchange.receipt_writing import add_receipt
from cellrepro.exchange.replay import Replay, replay
from cellrepro.exchange.signed.signer import Signer
from cellrepro.exchange.target_check import Checking
from cellrepro.exchange.verified import VerifiedRepeat
from cellrepro.store.store import Store
from cellrepro.words import amount, some


def replay_one(
    repeats: Sequence[VerifiedRepeat],
    wanted: WantedReplay,
    *,
    signer: Signer | None,
    checking: Checking,
    file: Path | None,
) -> tuple[Replay, list[str]]:
    """Compute one of some verified repeats again."""
    store = checking.store
    if wanted.receipt is not None and wanted.receipt.exists():
        read_bundle(wanted.receipt)  # what is no bundle is refused before the replay
    original, notes = chosen(repeats, wanted.run)
    if file is not None:
        _refuse_before_import(original, repeats, wanted, store)
        notes.append(str(import_runs(file, store=store.root, quiet=checking.quiet)))
    stored = store.repeat(original.key, original.machine, original.repeat)
    found = replay(original, wanted.given, stored=stored, store=store, quiet=checking.quiet)
    if wanted.receipt is not None:
        add_receipt(found, wanted.receipt, signer=signer, store=store)
        notes.append(f"the receipt was added to {wanted.receipt}")
    if found.verdict != Verdict.IDENTICAL:
        notes += _offered_environment(found, store)
    return found, notes


def _refuse_before_import(
    original: Passport, repeats: Sequence[VerifiedRepeat], wanted: WantedReplay, store: Store
) -> None:
    """Refuse what cannot be computed again before anything is written."""
    recorded = Recorded(original.name, original.spec)
    refuse_at_once(recorded, wanted.given)
    came_with_it = any(one.name == original.name and one.has_images for one in repeats)
    if wanted.given.data is not None or not came_with_it:
        images_for(recorded, wanted.given, store)


def chosen(repeats: Sequence[VerifiedRepeat], run: str | None) -> tuple[Passport, list[str]]:
    """Which of several repeats is computed again."""
    passports = {one.name: one.original for one in repeats if _is_meant(one.name, run or "")}
    names = sorted(passports)
    if not names:
        known = some(sorted(one.name for one in repeats), 8)
        meant = f"--run is {run!r}; expected one of {known}" if run else "there is no run in it"
        raise BadInput(f"nothing can be computed again: {meant}")
    keys = {passport.key for passport in passports.values()}
    if len(keys) > 1:
        raise BadInput(
            f"it holds {len(keys)} runs, and one is computed again at a time: choose with --run "
            f"KEY one of {some(names, 8)}"
        )
    notes = []
    if len(names) > 1:
        notes.append(f"of {amount(len(names), 'repeat')} {names[0]} was computed again")
    return passports[names[0]], notes


def _is_meant(name: str, reference: str) -> bool:
    """Whether ``KEY``, ``KEY/REPEAT`` or ``KEY/MACHINE/REPEAT`` means a repeat."""
    key, machine, index = name.split("/")
    named_key, *rest = reference.split("/")
    if not key.startswith(named_key):
        return False
    if rest and rest[-1].isdecimal() and rest.pop() != index:
        return False
    return not rest or (len(rest) == 1 and machine.startswith(rest[0]))


def _offered_environment(found: Replay, store: Store) -> Iterator[str]:
    """How to get the versions of the passport, where these are not installed here."""
    differing = {
        name.removeprefix("versions."): values
        for name, values in found.environment.items()
        if name.startswith("versions.") and name != "versions.cellrepro"
    }
    if not differing:
        return
    passport = keep_attestations(store, found.original, [found.passport.attestation])
    versions = [f"{name} {values.theirs}, not {values.here}" for name, values in differing.items()]
    yield (
        f"the original was computed with other versions ({some(versions, 4)}): `cellrepro setup "
        f"FOLDER --like {passport}` makes an environment with them, to compute it again there"
    )
