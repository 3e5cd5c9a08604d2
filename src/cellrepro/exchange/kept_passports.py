"""The passports and receipts that a store keeps, and which of them are handed on.

They are in ``passports/KEY/MACHINE/REPEAT.intoto.jsonl``, a file that only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cellrepro.exchange.bundle import BUNDLE_ENDING, Bundle, bundle_of, grown_bundle, read_bundle
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.signed.signer import Signer
from cellrepro.exchange.statement import Attestation
from cellrepro.store import locks
from cellrepro.store.store import Store
from cellrepro.store.store_paths import inside
from cellrepro.store.stored_run import MANIFEST, Repeat, Run
from cellrepro.store.whole_files import whole_file
from samebits.errors import BadInput

PASSPORTS_FOLDER = "passports"
"""Folder of a store with kept passports."""


def kept_path(store: Store, name: str) -> Path:
    """The file for the passports of a repeat, which need not exist."""
    return inside(store.root / PASSPORTS_FOLDER, f"{name}{BUNDLE_ENDING}")


def kept_bundle(store: Store, name: str) -> Bundle:
    """The passports and receipts that a store keeps of a repeat; empty without any."""
    path = kept_path(store, name)
    if not path.exists():
        return Bundle((), ())
    try:
        bundle = read_bundle(path)
    except BadInput as error:
        raise BadInput(
            f"{error}. That file is kept in the store itself: put it back from a copy, or move it "
            "away, and its receipts with it"
        ) from error
    for passport in bundle.passports:
        if passport.name != name:
            raise BadInput(
                f"{path} holds the passport of {passport.name}; expected that of {name}: move the "
                "file away"
            )
    return bundle


def names_of_kept(store: Store) -> list[str]:
    """Names of the repeats of which a store keeps passports."""
    folder = store.root / PASSPORTS_FOLDER
    files = sorted(folder.glob(f"*/*/[!.]*{BUNDLE_ENDING}"))
    return [file.relative_to(folder).as_posix().removesuffix(BUNDLE_ENDING) for file in files]


def keep_attestations(store: Store, name: str, attestations: Iterable[Attestation]) -> Path:
    """Add passports and receipts to those that a store keeps of a repeat."""
    path = kept_path(store, name)
    claim = store.root / ".claims" / f"{PASSPORTS_FOLDER}-{name.replace('/', '-')}"
    with store.writing(), locks.locked(claim, wait=True):
        grown = _grown(store, name, attestations)
        if grown != (path.read_bytes() if path.exists() else b""):
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path, replace=True) as scratch:
                scratch.write_bytes(grown)
    return path


def _grown(store: Store, name: str, attestations: Iterable[Attestation]) -> bytes:
    kept_bundle(store, name)  # refuses passports of another repeat
    return grown_bundle(kept_path(store, name), attestations)


def refuse_to_keep_too_much(store: Store, names: Iterable[str], bundle: Bundle) -> None:
    """Refuse passports and receipts that the kept ones of these repeats leave no place for."""
    for name in names:
        _grown(store, name, bundle.attestations_of(name))


def keep_passports(store: Store, bundle: Bundle) -> None:
    """Keep all passports of a bundle with their receipts, or none."""
    names = list(dict.fromkeys(passport.name for passport in bundle.passports))
    refuse_to_keep_too_much(store, names, bundle)
    for name in names:
        keep_attestations(store, name, bundle.attestations_of(name))


# -- handed on -------------------------------------------------------------------------------------


def attestations_of(
    store: Store, repeat: Repeat, *, signer: Signer | None = None, run: Run | None = None
) -> tuple[Attestation, ...]:
    """The passport of a stored repeat with all receipts, as they are handed on.

    First the current passport: the kept one, or a new one if the store has got more repeats of the
    run since. Then older passports that have receipts, then all receipts. Nothing is kept by this.
    """
    kept = kept_bundle(store, repeat.name)
    run = run or store.run(repeat.manifest.key)
    current = _current_passport(repeat, kept, run=run)
    attestation = current.attestation
    older = [
        passport.attestation
        for passport in kept.passports
        if passport.digest != current.digest and kept.receipts_of(passport)
    ]
    return (
        attestation if signer is None else attestation.signed_by(signer),
        *older,
        *(receipt.attestation for receipt in kept.receipts),
    )


def _current_passport(repeat: Repeat, kept: Bundle, *, run: Run | None) -> Passport:
    made = passport_of(repeat, run=run)
    of_these_files = [
        passport
        for passport in kept.passports
        if passport.files.get(MANIFEST) == made.files[MANIFEST]
    ]
    return current_of([*of_these_files, made])


def current_of(passports: Iterable[Passport]) -> Passport:
    """Choose the passport of one repeat that knows of most repeats, the first of equal ones.

    In a bundle the order of the lines means nothing, and a store keeps the oldest first.
    """
    return max(passports, key=lambda passport: passport.n_repeats)


def passports_of(
    repeats: Sequence[Repeat], *, store: Store, signer: Signer | None = None
) -> Bundle:
    """The passports of several repeats with their receipts, as they are handed on."""
    runs = {key: store.run(key) for key in {repeat.manifest.key for repeat in repeats}}
    attestations = [
        attestation
        for repeat in repeats
        for attestation in attestations_of(
            store, repeat, signer=signer, run=runs[repeat.manifest.key]
        )
    ]
    return bundle_of(attestations, where=f"the passports of {store.root}")
