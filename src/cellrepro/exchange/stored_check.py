"""What `verify` checks of runs in a store, or of a whole store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cellrepro.exchange.bundle import bundle_of
from cellrepro.exchange.folder_check import FilesOnDisk, Findings, check_images, with_repair
from cellrepro.exchange.input_lookup import folder_of_inputs, holds_images_of
from cellrepro.exchange.kept_passports import kept_bundle, kept_path
from cellrepro.exchange.passport_check import contradictions
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.run_check import check_repeat, check_spec, wrong_masks
from cellrepro.exchange.store_findings import checked_store
from cellrepro.exchange.target_findings import Checking, TargetFindings, verified_passports
from cellrepro.progress import progress
from cellrepro.spec.sent_spec import strange_variables, variables_in_words
from cellrepro.spec.spec import Spec
from cellrepro.store.seal import SUMS
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, Repeat
from cellrepro.store.unsent_files import names_not_sent
from samebits.errors import BadInput
from samebits.words import amount

_FEW_REPEATS = 5
"""Below so many repeats no progress is shown."""


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
    findings.problems = [with_repair(problem, check.on_disk) for problem in findings.problems]
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
            bundle = kept_bundle(store, repeat.name)
        except BadInput as error:
            remedy = "remove it, and import the file with which it came again"
            self.findings.problems.append(Problem("damaged", str(error), where, remedy))
            return
        if not bundle.passports:
            made = passport_of(repeat, run=store.run(repeat.spec.key))
            bundle = bundle_of([made.attestation], where=where)
        for passport in bundle.passports:
            self.findings.problems += contradictions(passport, repeat, where=where)
        for verified in verified_passports(repeat.name, bundle, self.checking, not_here=not_here):
            self.findings.add_verified(verified, where=where)


def images_in_words(spec: Spec) -> str:
    """The folder of images that a run took; a store may have those that it was tested on."""
    used = "training and test images" if spec.task == "train" else "images"
    return f"the folder {spec.data} with the {used}"


def _images_not_here(spec: Spec, checking: Checking) -> Iterator[str]:
    if checking.data is not None:
        return
    if not folder_of_inputs(checking.store, spec.data_digest).is_dir():
        yield f"{images_in_words(spec)} (--data FOLDER checks it)"


# -- a whole store --------------------------------------------------------------------------------


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
        kept = kept_bundle(checking.store, name)
    except BadInput:
        return
    if vacuous:
        findings.vacuous[name] = tuple(vacuous)
    findings.repeats += verified_passports(name, kept, checking)


# -- in words -------------------------------------------------------------------------------------


def what_is_missing(names: Iterable[str]) -> Iterator[str]:
    """Sum up the files that did not come with a repeat by weights, checkpoints and so on."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("/")[0], []).append(name)
    for top, files in groups.items():
        yield top if files == [top] else f"{top} ({amount(len(files), 'file')})"


def _not_computed_again(spec: Spec) -> Iterator[str]:
    """Note a run whose profile sets variables that can run commands: it may come from anybody."""
    strange = strange_variables(spec)
    if strange:
        yield (
            f"the profile of run {spec.key} sets {variables_in_words(strange)}, which can run "
            "commands: it is not computed again unless they have the same values in the shell"
        )
