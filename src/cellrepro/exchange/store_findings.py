"""The whole store held to its digests: runs, images, passports, what was sent, what is left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.errors import no_such_file
from cellrepro.exchange.bundle import BUNDLE_ENDING
from cellrepro.exchange.folder_check import (
    NOT_OURS,
    FilesOnDisk,
    Findings,
    check_images,
    entries_of,
    leftover,
    stray,
    with_repair,
)
from cellrepro.exchange.input_lookup import INPUTS, NETWORKS
from cellrepro.exchange.kept_passports import PASSPORTS_FOLDER, kept_bundle, names_of_kept
from cellrepro.exchange.passport_check import contradictions
from cellrepro.exchange.problem import LostContent, Problem
from cellrepro.exchange.run_check import check_repeat, check_spec
from cellrepro.exchange.signed.allowed_signers import AllowedSigner
from cellrepro.exchange.verified import VerifiedRepeat
from cellrepro.images.folder import folder_digest
from cellrepro.progress import progress
from cellrepro.spec.spec import KEY_LENGTH
from cellrepro.store import locks
from cellrepro.store.manifest import ResultSummary
from cellrepro.store.seal import FIRST_SEALED_FORMAT, SUMS
from cellrepro.store.store import Store
from cellrepro.store.store_paths import OWN_FOLDERS
from cellrepro.store.stored_run import MANIFEST, SPEC, Repeat, read_record
from cellrepro.store.unsent_files import NOTE_ENDING, RECEIVED, names_not_sent
from cellrepro.store.whole_files import Owner, is_being_written
from cellrepro.words import short_digest
from samebits.errors import BadInput, without_number
from samebits.words import amount, joined

_IMAGES = re.compile(r"[0-9a-f]{16}")
_NETWORK = re.compile(r"[0-9a-f]{64}\.safetensors")
_FEW_FOLDERS = 10
"""Below so many folders of runs and images no progress is shown."""


@dataclass
class StoreFindings:
    """A check in progress."""

    on_disk: FilesOnDisk
    problems: list[Problem] = field(default_factory=list)
    n_repeats: int = 0
    n_files: int = 0
    n_unsealed: int = 0
    not_here: list[str] = field(default_factory=list)

    def add(self, findings: Findings) -> None:
        """Add the findings of one folder."""
        self.problems += findings.problems
        self.n_files += findings.n_files

    def notes(self) -> Iterator[str]:
        """What a user should know though it is no fault."""
        if self.n_unsealed:
            yield (
                f"{amount(self.n_unsealed, 'repeat')} of an earlier version without {SUMS}: what "
                f"changed in {MANIFEST} itself cannot be found"
            )
        if self.not_here:
            kinds = sorted({name.partition("/")[0] for name in self.not_here})
            n_files = amount(len(self.not_here), "file")
            yield f"{n_files} did not come with runs that were sent: {joined(kinds)}"


def checked_store(root: Path, allowed: Sequence[AllowedSigner]) -> StoreFindings:
    """Check every folder of a store; ``allowed`` are the signers whom the user believes."""
    if not root.is_dir():
        raise no_such_file(root, expected="that of a store", noun="folder")
    check = StoreFindings(FilesOnDisk(root))
    runs = entries_of(root / "runs")
    # A `data/` of a project has other folders, too, which no digest names.
    images = [entry for entry in entries_of(root / "data") if _IMAGES.fullmatch(entry.name)]
    total = len(runs) + len(images)
    is_quick = total < _FEW_FOLDERS
    with progress(total, "files held to their digests", quiet=is_quick, even=False) as bar:
        for run in runs:
            _check_run(run, check)
            bar.advance()
        for folder in images:
            _check_image_folder(folder, check)
            bar.advance()
    check.problems += _wrong_passports(check, allowed)
    check.problems += _wrong_inputs(check.on_disk)
    check.problems += _linked_folders(check.on_disk)
    check.problems += _strays(check.on_disk)
    check.problems += _leftovers(check.on_disk)
    check.problems = [with_repair(problem, check.on_disk) for problem in check.problems]
    return check


# -- runs and images -------------------------------------------------------------------------------


def _check_run(folder: Path, check: StoreFindings) -> None:
    """Add the findings of the folder of a run: its spec, its repeats, and what else lies in it."""
    on_disk = check.on_disk
    if not folder.is_dir() or folder.is_symlink():
        check.problems.append(stray(folder, on_disk))
        return
    machines = [entry for entry in entries_of(folder) if entry.is_dir() and not entry.is_symlink()]
    if not any(entries_of(machine) for machine in machines) and not (folder / SPEC).exists():
        check.problems.append(_empty(folder, on_disk))
        return
    spec = check_spec(folder, on_disk)
    check.add(spec)
    check.problems += [
        stray(entry, on_disk)
        for entry in entries_of(folder)
        if entry not in machines and entry.name not in (SPEC, SUMS)
    ]
    repeats = [*_repeats_of(machines, check)]
    for repeat in repeats:
        _check_one_repeat(repeat, spec.key, check)
    if not spec.is_sealed and repeats and all(_is_sealed_format(repeat) for repeat in repeats):
        where = on_disk.where(folder / SUMS)
        remedy = f"write it again in that folder: `sha256sum {SPEC} > {SUMS}`"
        check.problems.append(Problem("missing", f"the run has no {SUMS}", where, remedy))


def _repeats_of(machines: Iterable[Path], check: StoreFindings) -> Iterator[Path]:
    for machine in machines:
        entries = entries_of(machine)
        if not entries:
            check.problems.append(_empty(machine, check.on_disk))
        for entry in entries:
            is_folder = entry.is_dir() and not entry.is_symlink()
            if is_folder and not entries_of(entry):
                check.problems.append(_empty(entry, check.on_disk))
            elif is_folder and (entry.name.isdecimal() or (entry / MANIFEST).exists()):
                yield entry
            else:
                check.problems.append(stray(entry, check.on_disk))


def _check_one_repeat(folder: Path, key: str, check: StoreFindings) -> None:
    machine, index = folder.parts[-2:]
    name = f"{key}/{machine}/{index}"
    not_sent = names_not_sent(check.on_disk.root, name)
    findings = check_repeat(folder, check.on_disk, key=key, not_sent=not_sent)
    check.add(findings)
    check.n_repeats += 1
    check.not_here += findings.not_here
    if not findings.is_sealed:
        check.n_unsealed += 1


def _is_sealed_format(repeat: Path) -> bool:
    try:
        summary = read_record(repeat / MANIFEST, ResultSummary.model_validate_json)
    except BadInput:
        return False
    return summary.format >= FIRST_SEALED_FORMAT


def _check_image_folder(folder: Path, check: StoreFindings) -> None:
    """Add the findings of a folder of kept images."""
    if folder.is_dir() and not folder.is_symlink():
        check.add(check_images(folder, check.on_disk))
    else:
        where = check.on_disk.where(folder)
        what = "the lab keeps images in folders, and this is none, though a digest is its name"
        check.problems.append(Problem("extra", what, where, NOT_OURS))


def _empty(path: Path, on_disk: FilesOnDisk) -> Problem:
    return leftover(path, on_disk, "there is no run in this folder")


# -- beside the runs -------------------------------------------------------------------------------


def _wrong_passports(check: StoreFindings, allowed: Sequence[AllowedSigner]) -> Iterator[Problem]:
    """Kept passports that cannot be read, are badly signed, or contradict their repeat."""
    root = check.on_disk.root
    store = Store(root)
    damaged = {problem.where for problem in check.problems}
    damaged_repeats = {"/".join(where.split("/")[:4]) for where in damaged}
    for name in names_of_kept(store):
        where = f"{PASSPORTS_FOLDER}/{name}{BUNDLE_ENDING}"
        try:
            bundle = kept_bundle(store, name)
        except BadInput as error:
            remedy = "remove it, and export or import the run again"
            yield Problem("damaged", str(error), where, remedy)
            continue
        check.n_files += 1
        for passport in bundle.passports:
            receipts = bundle.receipts_of(passport)
            verified = VerifiedRepeat.of(passport, receipts, allowed, is_here=True)
            yield from verified.bad_signatures(where)
        folder = root / "runs" / name
        is_whole = f"runs/{name}" not in damaged_repeats
        if folder.is_dir() and is_whole and f"runs/{folder.parents[1].name}/{SPEC}" not in damaged:
            for passport in bundle.passports:
                yield from contradictions(passport, Repeat(folder), where=where)


def _wrong_inputs(on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Images and networks that came with runs, whose content does not fit their name."""
    root = on_disk.root
    remedy = "remove it, and import the file with which it came again"
    for folder in entries_of(root / INPUTS):
        try:
            digest = folder_digest(folder, to_train=False)
        except BadInput as error:
            yield Problem("damaged", str(error), on_disk.where(folder), remedy)
            continue
        if not digest.startswith(folder.name) or len(folder.name) < KEY_LENGTH:
            what = "a file of it has changed, is missing or was added: its digest is another one"
            yield Problem("damaged", what, on_disk.where(folder), remedy)
    for path in entries_of(root / NETWORKS):
        if _NETWORK.fullmatch(path.name) is None:
            yield stray(path, on_disk)
            continue
        try:
            digest = on_disk.digest(path) if path.is_file() else ""
        except OSError as error:
            what = f"it cannot be read ({without_number(error)})"
            yield Problem("damaged", what, on_disk.where(path), remedy)
            continue
        if path.name != f"{digest}.safetensors":
            what = f"it has changed: its SHA-256 is {short_digest(digest)}"
            lost = LostContent(path, path.stem)
            yield Problem("damaged", what, on_disk.where(path), remedy, lost)


def _linked_folders(on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Folders of the store that are symbolic links, so that repairs would be made elsewhere."""
    root = on_disk.root
    for name in OWN_FOLDERS:
        if (root / name).is_symlink():
            what = "it is a link, which the lab never makes: what it puts here would lie elsewhere"
            remedy = "remove the link, or put the folder itself there"
            yield Problem("extra", what, on_disk.where(root / name), remedy)


def _strays(on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Strange files among kept passports and among notes of what was not sent."""
    root = on_disk.root
    for area, ending in ((PASSPORTS_FOLDER, BUNDLE_ENDING), (RECEIVED, NOTE_ENDING)):
        folder = root / area
        if folder.is_symlink():  # a problem by itself
            continue
        for path in sorted(folder.rglob("*")):
            if (path.is_dir() and not path.is_symlink()) or is_being_written(path.name):
                continue
            depth = len(path.relative_to(folder).parts)
            is_ours = depth == 3 and path.name.endswith(ending) and not path.name.startswith(".")
            if not is_ours or path.is_symlink():
                yield stray(path, on_disk)


def _leftovers(on_disk: FilesOnDisk) -> Iterator[Problem]:
    """What stopped processes have left, except unfinished trainings, which can be resumed."""
    root = on_disk.root
    here = Owner.here()
    staging = root / ".staging"
    for entry in [] if staging.is_symlink() else entries_of(staging):
        folder = entry.with_name(entry.name.removesuffix(".lock"))
        owner = Owner.of(folder.name)
        is_alive = owner is not None and owner.may_be_alive(here)
        if not is_alive and not locks.is_locked(folder):
            yield leftover(entry, on_disk, "it is of work that was stopped")
    real_root = root.resolve()
    claims = (root / ".claims", *sorted((root / "unfinished").glob("*/*")))
    for area in claims:
        if not area.resolve().is_relative_to(real_root):
            continue
        for lock in sorted(area.glob("*.lock")):
            if not locks.is_locked(lock.with_suffix("")):
                yield leftover(lock, on_disk, "it is the lock of a process that is no more")
