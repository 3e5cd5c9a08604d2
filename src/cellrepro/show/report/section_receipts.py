"""The section on who else has checked the runs: passports, and receipts of replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bundle import Bundle, BundledReceipt
from cellrepro.exchange.kept_passports import kept_bundle, names_of_kept
from cellrepro.exchange.receipt import FirstDivergence, Receipt
from cellrepro.exchange.signed.allowed_signers import AllowedSigner, read_allowed_signers
from cellrepro.exchange.signed.signature_check import check_signature
from cellrepro.exchange.statement import Attestation
from cellrepro.explanation.setting_meanings import field_in_words
from cellrepro.show.pages.parts import Cell, Table, table
from cellrepro.store.store import Store
from samebits.errors import BadInput
from samebits.words import some

_MOST_DIFFERENCES = 4
_KINDS = {
    "replayed on": "value",
    "verdict": "verdict",
    "signature": "value",
    "weights": "value",
    "outlines": "value",
    "where they part": "value",
    "not the same there": "value",
    "when": "value",
}


@dataclass(frozen=True)
class ReceiptsSection:
    """Passports of the runs of a store, and receipts of those who replayed them."""

    n_passports: int
    n_receipts: int
    n_machines: int
    """How many machines replayed them."""
    verdicts: Sequence[Verdict]
    """The different verdicts of the receipts."""
    passports: Table
    receipts: Table
    unreadable: Sequence[str]
    """A sentence for each file that could not be read."""


def receipts_section(store: Store) -> ReceiptsSection | None:
    """Make the section of the passports and receipts in a store; None without any."""
    bundles: list[Bundle] = []
    unreadable: list[str] = []
    for name in names_of_kept(store):
        try:
            bundles.append(kept_bundle(store, name))
        except BadInput as error:
            unreadable.append(str(error))
    if not bundles and not unreadable:
        return None
    allowed = read_allowed_signers()
    receipts = [receipt for bundle in bundles for receipt in bundle.receipts]
    return ReceiptsSection(
        n_passports=sum(len(bundle.passports) for bundle in bundles),
        n_receipts=len(receipts),
        n_machines=len({each.receipt.machine for each in receipts}),
        verdicts=list(dict.fromkeys(each.receipt.verdict for each in receipts)),
        passports=table(
            [row for bundle in bundles for row in _passport_rows(bundle, allowed)],
            {"passport": "value", "signature": "value", "receipts": "number"},
            file="passports",
        ),
        receipts=table(
            [_receipt_row(receipt, allowed) for receipt in receipts], _KINDS, file="receipts"
        ),
        unreadable=unreadable,
    )


def _passport_rows(bundle: Bundle, allowed: Sequence[AllowedSigner]) -> Iterator[dict[str, object]]:
    for passport in bundle.passports:
        yield {
            "run": passport.name,
            "passport": Cell(passport.digest[:12], value=passport.digest),
            "signature": _signature(passport.attestation, allowed),
            "receipts": len(bundle.receipts_of(passport)),
        }


def _receipt_row(bundled: BundledReceipt, allowed: Sequence[AllowedSigner]) -> dict[str, object]:
    receipt = bundled.receipt
    return {
        "run": receipt.run,
        "replayed on": f"{receipt.machine}/{receipt.repeat}",
        "verdict": str(receipt.verdict),
        "signature": _signature(bundled.attestation, allowed),
        "weights": _weights(receipt),
        "outlines": _outlines(receipt),
        "where they part": _first_divergence(receipt.first_divergence),
        "not the same there": some(
            [field_in_words(name) for name in sorted(receipt.environment_differences)],
            _MOST_DIFFERENCES,
            between="; ",
        ),
        "when": Cell(receipt.time[:10], value=receipt.time),
    }


def _signature(attestation: Attestation, allowed: Sequence[AllowedSigner]) -> Cell:
    """Say in few words who signed it; the CSV file has all, with the key's fingerprint."""
    check = check_signature(attestation, allowed)
    by_whom = check.signer or (check.fingerprint or "")[:16]
    text = f"{check.state}: {by_whom}" if by_whom else check.state
    return Cell(text, marked=check.state == "bad", value=str(check))


def _weights(receipt: Receipt) -> str:
    if receipt.weights_equal is None:
        return "none trained"
    return "equal" if receipt.weights_equal else "different"


def _outlines(receipt: Receipt) -> str:
    if receipt.n_equal_outlines is None:
        return "not compared image by image"
    return f"equal in {receipt.n_equal_outlines} of {receipt.n_images} images"


def _first_divergence(first: FirstDivergence | None) -> str:
    """Name the stage, and the step and operation where they are known."""
    if first is None:
        return "–"
    step = None if first.step is None else f"step {first.step}"
    place = ", ".join(filter(None, [first.stage, step, first.op, first.module, first.source]))
    return f"{place}: {first.judgement}" if first.judgement else place
