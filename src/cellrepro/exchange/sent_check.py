"""What `verify` checks of what was sent: an exported file, or a bundle of passports."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cellrepro.errors import Damaged
from cellrepro.exchange.archive.contents import (
    MOST_SPEC_BYTES,
    Contents,
    ReceivedRepeat,
    read_contents,
)
from cellrepro.exchange.archive.entry_names import PASSPORTS_FILE
from cellrepro.exchange.archive.reading import ExportedFile
from cellrepro.exchange.bundle import Bundle
from cellrepro.exchange.model_statement import ModelStatement, check_model_file
from cellrepro.exchange.passport_check import contradictions
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.run_check import wrong_masks
from cellrepro.exchange.signed.signature_check import check_signature
from cellrepro.exchange.stored_check import check_runs, images_in_words, what_is_missing
from cellrepro.exchange.target_findings import Checking, TargetFindings, verified_passports
from cellrepro.exchange.verified import VerifiedModel, VerifiedRepeat, bad_signature
from cellrepro.progress import progress
from cellrepro.spec.sent_spec import (
    refuse_strange_variables,
)
from cellrepro.spec.spec import KEY_LENGTH
from cellrepro.store.seal import SUMS
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, SPEC, Repeat
from samebits.words import amount, some

_COPY_AGAIN = "copy the file again from where it came, or ask its sender for a new one"
_MASKS = "masks/"


def check_export(archive: ExportedFile, checking: Checking) -> TargetFindings:
    """Check every byte of an exported file, then what its parts say of each other."""
    findings = TargetFindings()
    _check_bytes(archive, checking, findings)
    if findings.problems:
        findings.n_repeats = len({name for name in archive.digests if name.endswith(MANIFEST)})
        return findings
    contents = read_contents(archive)
    findings.n_repeats = len(contents.repeats)
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as scratch:
        for repeat in contents.repeats.values():
            unpacked = _unpacked(archive, repeat, Path(scratch))
            _check_one(repeat, unpacked, contents, checking, findings, where=str(archive.path))
    return findings


def _check_bytes(archive: ExportedFile, checking: Checking, findings: TargetFindings) -> None:
    """Read every file; a problem for each whose content is not the exported one."""
    names = list(archive.digests)
    findings.n_files = len(names)
    quiet = checking.quiet or archive.n_bytes < 2**26
    with progress(len(names), "files verified", quiet=quiet, even=False) as bar:
        for name in names:
            try:
                for _ in archive.blocks(name):
                    pass
            except Damaged:
                what = "its content is not what was exported"
                findings.problems.append(Problem("damaged", what, name, _COPY_AGAIN))
            bar.advance()


def _unpacked(archive: ExportedFile, repeat: ReceivedRepeat, scratch: Path) -> Repeat:
    """Unpack a repeat as in a store, without weights and ledgers."""
    scratch_repeat = scratch / "runs" / repeat.name
    scratch_run = scratch_repeat.parents[1]
    (scratch_repeat / _MASKS).mkdir(parents=True)
    key = repeat.spec.key
    spec = archive.content(f"runs/{key}/{SPEC}", most_bytes=MOST_SPEC_BYTES)
    (scratch_run / SPEC).write_bytes(spec)
    for name in repeat.digests:
        if name in (MANIFEST, SUMS) or name.startswith(_MASKS):
            with (scratch_repeat / name).open("wb") as stream:
                stream.writelines(archive.blocks(repeat.inside(name)))
    return Repeat(scratch_repeat)


def _check_one(
    sent: ReceivedRepeat,
    unpacked: Repeat,
    contents: Contents,
    checking: Checking,
    findings: TargetFindings,
    *,
    where: str,
) -> None:
    wrong = list(wrong_masks(unpacked, where=f"runs/{sent.name}"))
    findings.problems += wrong
    for mask in (unpacked.folder / _MASKS).iterdir():  # scratch holds one repeat at a time
        mask.unlink()
    if sent.manifest.vacuous:
        findings.vacuous[sent.name] = tuple(sent.manifest.vacuous)
    bundle = contents.passports
    for passport in bundle.passports_of(sent.name):
        findings.problems += contradictions(passport, unpacked, where=PASSPORTS_FILE)
    not_here = [*what_is_missing(sent.missing)]
    has_images = sent.spec.data_digest[:KEY_LENGTH] in contents.image_folders
    if not has_images:
        not_here.append(images_in_words(sent.spec))
    for verified in verified_passports(
        sent.name, bundle, checking, not_here=not_here, has_images=has_images
    ):
        findings.add_verified(verified, where=where)


# -- a bundle -------------------------------------------------------------------------------------


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
