"""Check of a bundle: passports, receipts, and statements about files with networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cellrepro.exchange.bundle import Bundle
from cellrepro.exchange.model_statement import ModelStatement, check_model_file
from cellrepro.exchange.passport_check import contradictions
from cellrepro.exchange.signed.signature_check import check_signature
from cellrepro.exchange.target_check import check_runs
from cellrepro.exchange.target_findings import Checking, TargetFindings
from cellrepro.exchange.verified import VerifiedModel, VerifiedRepeat, bad_signature
from cellrepro.spec.sent_spec import refuse_strange_variables
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import amount, some


def check_bundle(bundle: Bundle, checking: Checking, *, where: str) -> TargetFindings:
    """Check passports and receipts, and their runs as far as the store holds them."""
    stored = _stored_repeats(bundle, checking.store)
    findings = check_runs(list(stored.values()), checking)
    findings.n_repeats = len({passport.name for passport in bundle.passports})
    findings.repeats.clear()  # the passports of the bundle count, not those in the store
    for passport in bundle.passports:
        repeat = stored.get(passport.name)
        verified = VerifiedRepeat.of(
            passport, bundle.receipts_of(passport), checking.allowed, is_here=repeat is not None
        )
        findings.add_verified(verified, where=where)
        if passport.vacuous:
            findings.vacuous[passport.name] = passport.vacuous
        if repeat is not None:
            findings.problems += contradictions(passport, repeat, where=where)
    for model in bundle.models:
        _check_model(model, checking, findings, where)
    absent = [one.name for one in bundle.passports if one.name not in stored]
    findings.notes += _notes_of_bundle(bundle, absent, checking.store, where=where)
    return findings


def _stored_repeats(bundle: Bundle, store: Store) -> dict[str, Repeat]:
    """The repeats of which a bundle has passports, as far as a store holds them, by name."""
    stored = {}
    for passport in bundle.passports:
        refuse_strange_variables(passport.spec, whose=passport.name)
        repeat = store.repeat(passport.key, passport.machine, passport.repeat)
        if repeat is not None:
            stored[passport.name] = repeat
    return stored


def _notes_of_bundle(
    bundle: Bundle, absent: Sequence[str], store: Store, *, where: str
) -> Iterator[str]:
    """Say of what in a bundle nothing, or not all, could be checked."""
    if absent:
        yield (
            f"not in the store {store.root}: {some(list(dict.fromkeys(absent)), 3)}; of these only "
            "what the passport says could be checked, not the files"
        )
    if bundle.receipts_without_passport:
        lost = amount(len(bundle.receipts_without_passport), "receipt")
        yield f"{lost} of passports that are not in {where}, so of no use here"
    if bundle.n_passed_over:
        others = amount(bundle.n_passed_over, "statement")
        yield f"{others} of other programs in {where} passed over"


def _check_model(
    model: ModelStatement, checking: Checking, findings: TargetFindings, where: str
) -> None:
    """Check a statement about a network's file, and the file if it lies beside the bundle."""
    problems = list(check_model_file(model, beside=Path(where)))
    is_meant = not problems
    is_here = Path(where).with_name(model.file).is_file()
    signature = check_signature(model.attestation, checking.allowed)
    problems += bad_signature(f"what is attested of {model.file}", signature, where)
    findings.n_files += is_here
    findings.problems += problems
    findings.models.append(
        VerifiedModel.of(model, signature, is_here=is_here, is_meant=is_here and is_meant)
    )
