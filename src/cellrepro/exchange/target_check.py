"""What `verify` checks of each kind of target: runs, a whole store, an exported file, a bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.errors import BadInput, Damaged
from cellrepro.exchange.archive.contents import (
    MOST_SPEC_BYTES,
    Contents,
    ReceivedRepeat,
    read_contents,
)
from cellrepro.exchange.archive.entry_names import PASSPORTS_FILE
from cellrepro.exchange.archive.reading import ExportedFile
from cellrepro.exchange.bundle import Bundle, bundle_of
from cellrepro.exchange.folder_check import FilesOnDisk, Findings, check_images
from cellrepro.exchange.input_lookup import folder_of_inputs, holds_images_of
from cellrepro.exchange.kept_passports import kept_attestations, kept_path
from cellrepro.exchange.model_statement import ModelStatement, check_model_file
from cellrepro.exchange.passport_check import contradictions, wrong_masks
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.run_check import check_repeat, check_spec
from cellrepro.exchange.signed.allowed_signers import AllowedSigner
from cellrepro.exchange.signed.signature_check import check_signature
from cellrepro.exchange.store_findings import checked_store
from cellrepro.exchange.verified import VerifiedModel, VerifiedRepeat, bad_signature
from cellrepro.progress import progress
from cellrepro.spec.sent_spec import (
    refuse_strange_variables,
    strange_variables,
    variables_in_words,
)
from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store.seal import SUMS
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, SPEC, Repeat
from cellrepro.store.unsent_files import names_not_sent
from cellrepro.words import amount, some

_FEW_REPEATS = 5
"""Below so many repeats no progress is shown."""
_COPY_AGAIN = "copy the file again from where it came, or ask its sender for a new one"
_MASKS = "masks/"


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

    def add_verified(self, verified: VerifiedRepeat, *, where: str) -> None:
        """Add a passport with its receipts; each of them that is badly signed is a problem."""
        self.repeats.append(verified)
        self.problems += verified.bad_signatures(where)


def verified_passports(
    name: str,
    bundle: Bundle,
    checking: Checking,
    *,
    not_here: Sequence[str] = (),
    has_images: bool = False,
) -> Iterator[VerifiedRepeat]:
    """Check the signatures of the passports and receipts of a repeat whose files are here."""
    for passport in bundle.passports_of(name):
        yield VerifiedRepeat.of(
            passport,
            bundle.receipts_of(passport),
            checking.allowed,
            is_here=True,
            not_here=not_here,
            has_images=has_images,
        )


# -- runs of a store -------------------------------------------------------------------------------


def check_runs(repeats: Sequence[Repeat], checking: Checking) -> TargetFindings:
    """Check repeats of a store, with their specs, images and passports."""
    findings = TargetFindings(n_repeats=len(repeats))
    check = _RunsCheck(FilesOnDisk(checking.store.root), checking, findings)
    specs = dict(check.specs_of(repeats))
    for spec in specs.values():
        findings.notes += _not_computed_again(spec)
        check.check_images_of(spec)
    quiet = checking.quiet or len(repeats) < _FEW_REPEATS
    with progress(len(repeats), "repeats verified", quiet=quiet) as bar:
        for repeat in repeats:
            key = repeat.folder.parts[-3]
            if key in specs:
                check.check_repeat(repeat, specs[key])
            bar.advance()
    return findings


@dataclass(frozen=True)
class _RunsCheck:
    """A check of some repeats of a store in progress."""

    on_disk: FilesOnDisk
    checking: Checking
    findings: TargetFindings

    @property
    def store(self) -> Store:
        """The store of the repeats."""
        return self.checking.store

    def add(self, found: Findings) -> None:
        """Add the findings of one folder."""
        self.findings.n_files += found.n_files
        self.findings.problems += found.problems

    def specs_of(self, repeats: Iterable[Repeat]) -> Iterator[tuple[str, Spec]]:
        """The spec of each run by the name of its folder, without those that were changed."""
        for folder in dict.fromkeys(repeat.folder.parents[1] for repeat in repeats):
            found = check_spec(folder, self.on_disk)
            self.add(found)
            if not found.problems:
                first = next(repeat for repeat in repeats if repeat.folder.parents[1] == folder)
                yield folder.name, first.spec

    def check_images_of(self, spec: Spec) -> None:
        """Check the images of a run: those that the store keeps, that were sent, and given."""
        kept = self.store.kept(spec.images_digest, SUMS).parent
        if kept.is_dir():
            self.add(check_images(kept, self.on_disk))
        sent = folder_of_inputs(self.store, spec.data_digest)
        if sent.is_dir() and not holds_images_of(spec, sent):
            what = f"the images that came with run {spec.key} are not as they were"
            remedy = "remove this folder, and import the file with which it came again"
            problem = Problem("damaged", what, self.on_disk.where(sent), remedy)
            self.findings.problems.append(problem)
        given = self.checking.data
        if given is not None and not holds_images_of(spec, given):
            what = f"the folder that was given does not hold the images of run {spec.key}"
            remedy = (
                f"give the folder {spec.data} as it was, every file unchanged and under its name"
            )
            self.findings.problems.append(Problem("contradiction", what, str(given), remedy))

    def check_repeat(self, repeat: Repeat, spec: Spec) -> None:
        """Check the files of a repeat; if they are right, its masks, and then its passport."""
        name = "/".join(repeat.folder.parts[-3:])
        not_sent = names_not_sent(self.store.root, name)
        found = check_repeat(repeat.folder, self.on_disk, key=spec.key, not_sent=not_sent)
        self.add(found)
        if not found.is_sealed:
            self.findings.notes.append(
                f"{name} is of a version that wrote no {SUMS}: what changed in its {MANIFEST} "
                "itself could not be found"
            )
        if found.problems:
            return
        wrong = list(wrong_masks(repeat, where=self.on_disk.where(repeat.folder)))
        self.findings.problems += wrong
        if wrong:
            return
        if repeat.manifest.vacuous:
            self.findings.vacuous[name] = tuple(repeat.manifest.vacuous)
        not_here = [*what_is_missing(found.not_here)]
        not_here += _images_not_here(spec, self.checking)
        self._check_kept_passport(repeat, not_here)

    def _check_kept_passport(self, repeat: Repeat, not_here: Sequence[str]) -> None:
        """Check the passport that a store keeps of a repeat, or else one that is made anew."""
        store = self.store
        where = str(kept_path(store, repeat.name).relative_to(store.root))
        try:
            kept = kept_attestations(store, repeat.name)
        except BadInput as error:
            remedy = "remove it, and import the file with which it came again"
            self.findings.problems.append(Problem("damaged", str(error), where, remedy))
            return
        if not kept:
            kept = (passport_of(repeat, run=store.run(repeat.spec.key)).attestation,)
        bundle = bundle_of(kept, where=where)
        for passport in bundle.passports:
            self.findings.problems += contradictions(passport, repeat, where=where)
        for verified in verified_passports(repeat.name, bundle, self.checking, not_here=not_here):
            self.findings.add_verified(verified, where=where)


def what_is_missing(names: Iterable[str]) -> Iterator[str]:
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


def _not_computed_again(spec: Spec) -> Iterator[str]:
    """Note a run whose profile sets variables that can run commands: it may come from anybody."""
    strange = strange_variables(spec)
    if strange:
        yield (
            f"the profile of run {spec.key} sets {variables_in_words(strange)}, which can run "
            "commands: it is not computed again unless they have the same values in the shell"
        )


# -- a whole store ---------------------------------------------------------------------------------


def check_whole_store(store: Store, checking: Checking) -> TargetFindings:
    """Check every file of a store, and every passport that it keeps."""
    check = checked_store(store.root, checking.allowed)
    findings = TargetFindings(
        problems=check.problems,
        notes=[*check.notes()],
        n_files=check.n_files,
        n_repeats=check.n_repeats,
    )
    for run in store.runs():
        findings.notes += _not_computed_again(run.spec)
        for repeat in run.repeats:
            _add_repeat_of_store(repeat, checking, findings)
    return findings


def _add_repeat_of_store(repeat: Repeat, checking: Checking, findings: TargetFindings) -> None:
    """Add a repeat and its passports, whose problems the check of the store has found already."""
    name = "/".join(repeat.folder.parts[-3:])
    try:
        vacuous = repeat.outcome.vacuous
        kept = kept_attestations(checking.store, name)
    except BadInput:
        return
    if vacuous:
        findings.vacuous[name] = tuple(vacuous)
    if kept:
        findings.repeats += verified_passports(name, bundle_of(kept), checking)


# -- an exported file ------------------------------------------------------------------------------


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
        not_here.append(f"the folder of images {sent.spec.data}")
    for verified in verified_passports(
        sent.name, bundle, checking, not_here=not_here, has_images=has_images
    ):
        findings.add_verified(verified, where=where)


# -- a bundle --------------------------------------------------------------------------------------


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
