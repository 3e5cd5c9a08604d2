"""Checks of what `verify` is given, but for exported files: runs, bundles, a whole store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import Bundle, bundle_of
from cellrepro.exchange.folder_check import FilesOnDisk, check_images, check_repeat, check_spec
from cellrepro.exchange.input_lookup import folder_of_inputs, holds_images_of
from cellrepro.exchange.kept_passports import kept_attestations, kept_path
from cellrepro.exchange.model_statement import ModelStatement, check_model_file
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.passport_check import contradictions, wrong_masks
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.signed.allowed_signers import AllowedSigner
from cellrepro.exchange.signed.signature_check import check_signature
from cellrepro.exchange.store_check import check_store
from cellrepro.exchange.verified import VerifiedModel, VerifiedRepeat
from cellrepro.progress import progress
from cellrepro.spec.sent_spec import refuse_strange_variables, strange_variables, variables_in_words
from cellrepro.spec.spec import Spec
from cellrepro.store.manifest import Manifest
from cellrepro.store.seal import SUMS
from cellrepro.store.store import MANIFEST, Repeat, Run, Store
from cellrepro.store.unchanged import names_not_sent
from cellrepro.words import amount, some

_FEW_REPEATS = 5
"""Below so many repeats no progress is shown."""


@dataclass(frozen=True)
class Checking:
    """The options of a check."""

    store: Store
    """The store in which runs are looked up."""
    allowed: Sequence[AllowedSigner]
    """Whom the user believes."""
    data: Path | None = None
    """The folder of images, if the user has it."""
    quiet: bool = False
    """Show no progress."""


@dataclass
class TargetFindings:
    """The outcome of checking a target."""

    repeats: list[VerifiedRepeat] = field(default_factory=list)
    vacuous: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Why repeats prove nothing, by their names."""
    models: list[VerifiedModel] = field(default_factory=list)
    """Files with networks."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_files: int = 0
    """Files that were compared with a digest."""
    n_repeats: int = 0
    """Repeats in the target."""

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
        """Check the signatures of the passports and receipts of a repeat whose files are here."""
        for passport in bundle.passports_of(name):
            verified = VerifiedRepeat.of(
                passport,
                bundle.receipts_of(passport),
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
    on_disk = FilesOnDisk(checking.store.root)
    specs = dict(_specs(repeats, on_disk, findings))
    for spec in specs.values():
        findings.notes += _not_computed_again(spec)
        _check_images_of(spec, on_disk, checking, findings)
    quiet = checking.quiet or len(repeats) < _FEW_REPEATS
    with progress(len(repeats), "repeats verified", quiet=quiet) as bar:
        for repeat in repeats:
            key = repeat.folder.parts[-3]
            if key in specs:
                _check_one(repeat, specs[key], on_disk, checking, findings)
            bar.advance()
    return findings


def _specs(
    repeats: Iterable[Repeat], on_disk: FilesOnDisk, findings: TargetFindings
) -> Iterator[tuple[str, Spec]]:
    """The spec of each run by the name of its folder, without those that were changed."""
    for folder in dict.fromkeys(repeat.folder.parents[1] for repeat in repeats):
        found = check_spec(folder, on_disk)
        findings.n_files += found.n_files
        findings.problems += found.problems
        if not found.problems:
            first = next(repeat for repeat in repeats if repeat.folder.parents[1] == folder)
            yield folder.name, first.spec


def _check_images_of(
    spec: Spec, on_disk: FilesOnDisk, checking: Checking, findings: TargetFindings
) -> None:
    """Check the images of a run: those that the store keeps, that were sent, that the user has."""
    kept = checking.store.kept(spec.images_digest, SUMS).parent
    if kept.is_dir():
        found = check_images(kept, on_disk)
        findings.n_files += found.n_files
        findings.problems += found.problems
    sent = folder_of_inputs(checking.store, spec.data_digest)
    if sent.is_dir() and not holds_images_of(spec, sent):
        what = f"the images that came with run {spec.key} are not as they were"
        remedy = "remove this folder, and import the file with which it came again"
        findings.problems.append(Problem("damaged", what, on_disk.where(sent), remedy))
    given = checking.data
    if given is not None and not holds_images_of(spec, given):
        what = f"the folder that was given does not hold the images of run {spec.key}"
        remedy = f"give the folder {spec.data} as it was, every file unchanged and under its name"
        findings.problems.append(Problem("contradiction", what, str(given), remedy))


def _check_one(
    repeat: Repeat, spec: Spec, on_disk: FilesOnDisk, checking: Checking, findings: TargetFindings
) -> None:
    store = checking.store
    name = "/".join(repeat.folder.parts[-3:])
    not_sent = names_not_sent(store.root, name)
    found = check_repeat(repeat.folder, on_disk, key=spec.key, not_sent=not_sent)
    findings.n_files += found.n_files
    findings.problems += found.problems
    if not found.is_sealed:
        findings.notes.append(
            f"{name} is of a version that wrote no {SUMS}: what changed in its {MANIFEST} itself "
            "could not be found; `cellrepro fsck --repair` adds it"
        )
    if found.problems:
        return
    where = on_disk.where(repeat.folder)
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
    """Sum up the files that did not come with a repeat by weights, checkpoints and so on."""
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
    """Check the passport that a store keeps of a repeat; without one, make it anew, unsigned."""
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
    """Check passports and receipts, and their runs as far as the store holds them."""
    store = checking.store
    stored = {}
    for passport in bundle.passports:
        refuse_strange_variables(passport.spec, whose=passport.name)
        repeat = store.repeat(passport.key, passport.machine, passport.repeat)
        if repeat is not None:
            stored[passport.name] = repeat
    findings = check_runs(list(stored.values()), checking)
    findings.n_repeats = len({passport.name for passport in bundle.passports})
    findings.repeats.clear()  # the passports of the bundle count, not those in the store
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
    """Check a statement about a network's file, and the file if it lies beside the bundle."""
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
    """Note a run whose profile sets variables that can run commands: it may come from anybody."""
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
