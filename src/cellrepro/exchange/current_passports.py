"""The passports of stored repeats as they are handed on: the current ones, with all receipts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cellrepro.exchange.attestation import Attestation
from cellrepro.exchange.bundle import Bundle, bundle_of
from cellrepro.exchange.kept_passports import kept_bundle
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.signed.signer import Signer
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, Repeat, Run


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
