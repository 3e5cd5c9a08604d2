"""A replay's receipt, added to a bundle of passports and to what the store keeps."""

from __future__ import annotations

from pathlib import Path

from cellrepro.exchange.attestation import Attestation
from cellrepro.exchange.bundle import bundle_of, bundle_text, read_bundle
from cellrepro.exchange.kept_passports import keep_attestations
from cellrepro.exchange.receipt import receipt_statement
from cellrepro.exchange.replay import Replay
from cellrepro.exchange.signed.signer import Signer
from cellrepro.store.locks import beside_of_user, locked
from cellrepro.store.store import Store
from cellrepro.store.whole_files import write_whole


def add_receipt(
    replay: Replay, file: Path | None, *, signer: Signer | None, store: Store
) -> Attestation:
    """Write the receipt of a replay."""
    statement = receipt_statement(replay.receipt(), replay.passport)
    receipt = Attestation.of(statement, signer=signer)
    both = (replay.passport.attestation, receipt)
    if file is not None:
        with locked(beside_of_user(file), wait=True):
            before = read_bundle(file).attestations if file.exists() else ()
            bundle = bundle_of([*before, *both], where=str(file))
            write_whole(file, bundle_text(bundle.attestations), replace=True)
    keep_attestations(store, replay.original, both)
    return receipt
