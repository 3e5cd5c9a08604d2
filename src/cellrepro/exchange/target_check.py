"""Stored runs and bundles of passports, held to their digests and to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import Bundle, bundle_of
from cellrepro.exchange.folder_check import Look, check_images, check_repeat, check_spec
from cellrepro.exchange.image_folders import folder_of_inputs, holds_images_of
from cellrepro.exchange.kept_passports import kept_attestations, kept_path
from cellrepro.exchange.model_statement import ModelStatement, check_model_file
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.passport_check import contradictions, wrong_masks
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.problem import Contents, Problem
from cellrepro.exchange.signed.envelope import check_signature
from cellrepro.exchange.signed.keys import AllowedSigner
from cellrepro.exchange.store_check import check_store
from cellrepro.exchange.verified import VerifiedModel, VerifiedRepeat
from cellrepro.progress import progress
from cellrepro.spec.sent_spec import (
    refuse_strange_variables,
    strange_variables,
    variables_in_words,
)
from cellrepro.spec.spec import Spec
from cellrepro.store.manifest import Manifest
from cellrepro.store.not_sent import names_not_sent
from cellrepro.store.seal import SUMS
from cellrepro.store.store import MANIFEST, Repeat, Run, Store
from cellrepro.words import amount, some

_FEW_REPEATS = 5
"""Below which nobody needs to see how far a check has come."""


@dataclass(frozen=True)
class Checking:
    """Against what a target is checked."""

    store: Store
    """In which runs are looked up."""
    allowed: Sequence[AllowedSigner]
    """Whom the reader believes."""
    data: Path | None = None
    """The folder of images, where the reader has it."""
    quiet: bool = False
    """Show no progress."""


@dataclass
class TargetFindings:
    """What was found of a target."""

    repeats: list[VerifiedRepeat] = field(default_factory=list)
    vacuous: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Why repeats prove nothing, by their names."""
    models: list[VerifiedModel] = field(default_factory=list)
    """Files with networks."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_files: int = 0
    """That were held to a digest."""
    n_repeats: int = 0
    """That it holds."""

    def add_passports(
        self,
        name: str,
        bundle: Bundle,
        checking: Checking,
        *,
        where: str,
        not_here: Sequence[str] = (),
        has_images: bool = False,
    ) -> None:
        """Check who signed the passports of a repeat whose files are here, and its receipts."""
        passports = [passport for passport in bundle.passports if passport.name == name]
        receipts = [each for passport in passports for each in bundle.receipts_of(passport)]
        verified = VerifiedRepeat.of(
            passports[0],
            receipts,
            checking.allowed,
            is_here=True,
            not_here=not_here,
            has_images=has_images,
        )
        self.repeats.append(verified)
        self.problems += verified.bad_signatures(where)


# -- runs of a store -----------------------------------------------------------------------


def check_runs(repeats: Sequence[Repeat], checking: Checking) -> TargetFindings:
    """Check repeats of a store, with their specs, images and passports."""
    findings = TargetFindings(n_repeats=len(repeats))
    look = Look(checking.store.root, Contents())
    specs = dict(_specs(repeats, look, findings))
    for spec in specs.values():
        findings.notes += _not_computed_again(spec)
        _check_images_of(spec, look, checking, findings)
    quiet = checking.quiet or len(repeats) < _FEW_REPEATS
    with progress(len(repeats), "repeats verified", quiet=quiet) as bar:
        for repeat in repeats:
            key = repeat.folder.parts[-3]
            if key in specs:
                _check_one(repeat, specs[key], look, checking, findings)
            bar.advance()
    return findings


def _specs(
    repeats: Iterable[Repeat], look: Look, findings: TargetFindings
) -> Iterator[tuple[str, Spec]]:
    """The spec of each run by the name of its folder, as far as it is as it was."""
    for folder in dict.fromkeys(repeat.folder.parents[1] for repeat in repeats):
        found = check_spec(folder, look)
        findings.n_files += found.n_files
        findings.problems += found.problems
        if not found.problems:
            first = next(repeat for repeat in repeats if repeat.folder.parents[1] == folder)
            yield folder.name, first.spec


def _check_images_of(spec: Spec, look: Look, checking: Checking, findings: TargetFindings) -> None:
    """Check what is here of the images of a run: those kept, sent, and given."""
    kept = checking.store.kept(spec.images_digest, SUMS).parent
    if kept.is_dir():
        found = check_images(kept, look)
        findings.n_files += found.n_files
        findings.problems += found.problems
    sent = folder_of_inputs(checking.store, spec.data_digest)
    if sent.is_dir() and not holds_images_of(spec, sent):
        what = f"the images that came with run {spec.key} are not as they were"
        remedy = "remove this folder, and import the file with which it came again"
        findings.problems.append(Problem("damaged", what, look.where(sent), remedy))
    given = checking.data
    if given is not None and not holds_images_of(spec, given):
        what = f"the folder that was given does not hold the images of run {spec.key}"
        remedy = f"give the folder {spec.data} as it was, every file unchanged and under its name"
        findings.problems.append(Problem("contradiction", what, str(given), remedy))


def _check_one(
    repeat: Repeat, spec: Spec, look: Look, checking: Checking, findings: TargetFindings
) -> None:
    store = checking.store
    name = "/".join(repeat.folder.parts[-3:])
    not_sent = names_not_sent(store.root, name)
    found = check_repeat(repeat.folder, look, key=spec.key, not_sent=not_sent)
    findings.n_files += found.n_files
    findings.problems += found.problems
    if not found.is_sealed:
        findings.notes.append(
            f"{name} is of a version that wrote no {SUMS}: what changed in its {MANIFEST} itself "
            "could not be found; `cellrepro fsck --repair` adds it"
        )
    if found.problems:
        return
    where = look.where(repeat.folder)
    wrong = list(wrong_masks(repeat, where=where))
    findings.problems += wrong
    if wrong:
        return
    if repeat.manifest.vacuous:
        findings.vacuous[name] = tuple(repeat.manifest.vacuous)
    not_here = [*what_is_missing(repeat.manifest, found.not_here)]
    not_here += _images_not_here(spec, checking)
    _check_kept_passport(repeat, not_here, checking, findings)


def what_is_missing(manifest: Manifest, names: Iterable[str]) -> Iterator[str]:
    """Say what did not come with a repeat: weights, checkpoints, other files."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("/")[0], []).append(name)
    for top, files in groups.items():
        yield top if files == [top] else f"{top} ({amount(len(files), 'file')})"


def _images_not_here(spec: Spec, checking: Checking) -> Iterator[str]:
    if checking.data is not None:
        return
    if not folder_of_inputs(checking.store, spec.data_digest).is_dir():
        yield f"the folder of images {spec.data} (--data FOLDER checks it)"


def _check_kept_passport(
    repeat: Repeat, not_here: Sequence[str], checking: Checking, findings: TargetFindings
) -> None:
    """Check the passport that a store keeps of a repeat; else make it, which is unsigned."""
    store = checking.store
    where = str(kept_path(store, repeat.name).relative_to(store.root))
    try:
        kept = kept_attestations(store, repeat.name)
    except BadInput as error:
        remedy = "remove it, and import the file with which it came again"
        findings.problems.append(Problem("damaged", str(error), where, remedy))
        return
    if not kept:
        kept = (passport_of(repeat, run=store.run(repeat.spec.key)).attestation,)
    bundle = bundle_of(kept, where=where)
    for passport in bundle.passports:
        findings.problems += contradictions(passport, repeat, where=where)
    findings.add_passports(repeat.name, bundle, checking, where=where, not_here=not_here)


# -- bundles of passports ------------------------------------------------------------------


def check_bundle(bundle: Bundle, checking: Checking, *, where: str) -> TargetFindings:
    """Check passports and receipts, and those of their runs that the store holds."""
    store = checking.store
    stored = {}
    for passport in bundle.passports:
        refuse_strange_variables(passport.spec, whose=passport.name)
        repeat = store.repeat(passport.key, passport.machine, passport.repeat)
        if repeat is not None:
            stored[passport.name] = repeat
    findings = check_runs(list(stored.values()), checking)
    findings.n_repeats = len({passport.name for passport in bundle.passports})
    findings.repeats.clear()  # what the store keeps of them is not the question
    for passport in bundle.passports:
        _check_passport(passport, bundle, stored.get(passport.name), checking, findings, where)
    absent = [one.name for one in bundle.passports if one.name not in stored]
    if absent:
        findings.notes.append(
            f"not in the store {store.root}: {some(list(dict.fromkeys(absent)), 3)}; of these only "
            "what the passport says could be checked, not the files"
        )
    for model in bundle.models:
        _check_model(model, checking, findings, where)
    if bundle.receipts_without_passport:
        lost = amount(len(bundle.receipts_without_passport), "receipt")
        findings.notes.append(f"{lost} of passports that are not in {where}, so of no use here")
    if bundle.n_passed_over:
        others = amount(bundle.n_passed_over, "statement")
        findings.notes.append(f"{others} of other programs in {where} passed over")
    return findings


def _check_passport(
    passport: Passport,
    bundle: Bundle,
    repeat: Repeat | None,
    checking: Checking,
    findings: TargetFindings,
    where: str,
) -> None:
    verified = VerifiedRepeat.of(
        passport, bundle.receipts_of(passport), checking.allowed, is_here=repeat is not None
    )
    findings.repeats.append(verified)
    findings.problems += verified.bad_signatures(where)
    if passport.vacuous:
        findings.vacuous[passport.name] = passport.vacuous
    if repeat is not None:
        findings.problems += contradictions(passport, repeat, where=where)


def _check_model(
    model: ModelStatement, checking: Checking, findings: TargetFindings, where: str
) -> None:
    """Hold a file with a network to what is attested of it, where it lies beside."""
    problems = list(check_model_file(model, beside=Path(where)))
    is_meant = not problems
    is_here = Path(where).with_name(model.file).is_file()
    signature = check_signature(model.attestation, checking.allowed)
    if signature.state == "bad":
        what = f"what is attested of {model.file} has a {signature}"
        remedy = "ask its sender for it once more, and by which key it was signed"
        problems.append(Problem("signature", what, where, remedy))
    findings.n_files += is_here
    findings.problems += problems
    findings.models.append(
        VerifiedModel.of(model, signature, is_here=is_here, is_meant=is_here and is_meant)
    )


# -- a whole store -------------------------------------------------------------------------


def check_whole_store(store: Store, checking: Checking) -> TargetFindings:
    """Check every file of a store, and every passport that it keeps."""
    check = check_store(store)
    findings = TargetFindings(
        problems=list(check.problems),
        notes=list(check.notes),
        n_files=check.files,
        n_repeats=check.repeats,
    )
    for run in store.runs():
        findings.notes += _not_computed_again(run.spec)
        for repeat in run.repeats:
            _check_repeat_of_store(repeat, run, checking, findings)
    return findings


def _not_computed_again(spec: Spec) -> Iterator[str]:
    """Say of a stored run, which anybody may have made, that it sets more than numbers."""
    strange = strange_variables(spec)
    if strange:
        yield (
            f"the profile of run {spec.key} sets {variables_in_words(strange)}, which can run "
            "commands: it is not computed again unless they have the same values in the shell"
        )


def _check_repeat_of_store(
    repeat: Repeat, run: Run, checking: Checking, findings: TargetFindings
) -> None:
    name = "/".join(repeat.folder.parts[-3:])
    try:
        vacuous = repeat.outcome.vacuous
        kept = kept_attestations(checking.store, name)
    except BadInput:  # named among the problems already
        return
    if vacuous:
        findings.vacuous[name] = tuple(vacuous)
    if kept:
        bundle = bundle_of(kept)
        where = str(kept_path(checking.store, name).relative_to(checking.store.root))
        findings.add_passports(name, bundle, checking, where=where)
