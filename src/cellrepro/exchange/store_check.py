"""Check of a whole store against its digests: ``fsck``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cellrepro.errors import BadInput, no_such_file
from cellrepro.exchange.bundle import BUNDLE_ENDING
from cellrepro.exchange.folder_check import (
    NOT_OURS,
    FilesOnDisk,
    Findings,
    check_images,
    check_repeat,
    check_spec,
    leftover,
    stray,
)
from cellrepro.exchange.input_lookup import INPUTS, NETWORKS
from cellrepro.exchange.kept_passports import PASSPORTS_FOLDER, kept_bundle, names_of_kept
from cellrepro.exchange.passport_check import contradictions
from cellrepro.exchange.problem import Move, Problem, PutAside, Restore, Write, problem_lines
from cellrepro.exchange.signed.allowed_signers import read_allowed_signers
from cellrepro.exchange.store_repair import ASIDE, Repair, carry_out
from cellrepro.exchange.verified import VerifiedRepeat
from cellrepro.images.folder import folder_digest
from cellrepro.progress import progress
from cellrepro.results import Result, Row
from cellrepro.spec import defaults
from cellrepro.spec.spec import KEY_LENGTH
from cellrepro.store import locks
from cellrepro.store.manifest import ResultSummary
from cellrepro.store.seal import FIRST_SEALED_FORMAT, SUMS
from cellrepro.store.store import MANIFEST, SPEC, Repeat, Store, StoreOrFolder
from cellrepro.store.stored_run import read_record
from cellrepro.store.unchanged import NOTE_ENDING, RECEIVED, names_not_sent
from cellrepro.store.whole_files import OWN_FOLDERS, Owner, is_being_written
from cellrepro.words import amount, joined, short_digest

_IMAGES = re.compile(r"[0-9a-f]{16}")
_NETWORK = re.compile(r"[0-9a-f]{64}\.safetensors")
_FEW_FOLDERS = 10
"""Below so many folders of runs and images no progress is shown."""
_MOST_ROUNDS = 4
"""Limit of checking and mending: what was moved into place may need a mending there."""


@dataclass(frozen=True, repr=False)
class StoreCheck(Result):
    """Whether every file of a store is as it was stored, and what was repaired."""

    store: Path
    """Folder of the store."""
    repeats: int
    """Number of repeats that were read."""
    files: int
    """Number of files that were compared with a digest."""
    problems: Sequence[Problem]
    """Problems that remain."""
    repaired: Sequence[Repair] = ()
    """Repairs that were made."""
    notes: Sequence[str] = ()
    """What a user should know though it is no fault, a sentence each."""

    @property
    def differs(self) -> bool:
        """Whether something is wrong now."""
        return bool(self.problems)

    def sentence(self) -> str:
        """Say whether the store is whole."""
        over = f"{amount(self.files, 'file')} of {amount(self.repeats, 'repeat')}"
        mended = f"; {amount(len(self.repaired), 'repair')} made" if self.repaired else ""
        if not self.problems:
            they_are = "is as it was" if self.files == 1 else "are as they were"
            return f"{self.store} is whole: {over} {they_are} stored{mended}"
        problems = amount(len(self.problems), "problem")
        return f"{self.store} has {problems} among {over}{mended}"

    def rows(self) -> Sequence[Row]:
        """Give the problems."""
        return [
            {"kind": one.kind, "where": one.where, "what": one.what, "remedy": one.remedy}
            for one in self.problems
        ]

    def lines(self) -> Sequence[str]:
        """Give every repair and every problem, each problem with its remedy below it."""
        repairs = [f"  repaired {repair.where}: {repair.what}" for repair in self.repaired]
        notes = [f"  {note}" for note in self.notes]
        return [self.sentence(), *repairs, *problem_lines(self.problems), *notes]


def check_store(store: StoreOrFolder = defaults.STORE, *, repair: bool = False) -> StoreCheck:
    """Hold every file of a store to its digest: damaged, missing, extra, left over.

    Parameters
    ----------
    store : Store, str or Path
        Folder of finished runs.
    repair : bool
        Whether to put right what can be: a damaged or missing file whose content lies elsewhere in
        the store comes from there, leftovers are removed, a renamed folder gets its name back, and
        what the lab has not put there is moved to ``aside/``.

    Returns
    -------
    StoreCheck
        Its ``str`` is the finding in a sentence; in a notebook it shows the problems.

    Raises
    ------
    BadInput
        If there is no store there.

    Examples
    --------
    Is every file of the store as it was stored?

    ``cellrepro fsck``

    Put right what can be: from equal files, without leftovers

    ``cellrepro fsck --repair``
    """
    root = store.root if isinstance(store, Store) else Path(store)
    if not root.is_dir():
        raise no_such_file(root, expected="the folder of a store")
    check = _check_all(root)
    repaired: list[Repair] = []
    for _ in range(_MOST_ROUNDS if repair else 0):
        mended = carry_out([*check.problems, *check.seals_to_add], check.on_disk)
        if not mended:
            break
        repaired += mended
        check = _check_all(root)
    return StoreCheck(
        store=root,
        repeats=check.n_repeats,
        files=check.n_files,
        problems=check.problems,
        repaired=repaired,
        notes=[*check.notes()],
    )


@dataclass
class _Check:
    """A check in progress."""

    on_disk: FilesOnDisk
    problems: list[Problem] = field(default_factory=list)
    seals_to_add: list[Problem] = field(default_factory=list)
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
                f"changed in {MANIFEST} itself cannot be found; --repair adds it, for what changes "
                "from then on"
            )
        if self.not_here:
            kinds = sorted({name.partition("/")[0] for name in self.not_here})
            n_files = amount(len(self.not_here), "file")
            yield f"{n_files} did not come with runs that were sent: {joined(kinds)}"


def _check_all(root: Path) -> _Check:
    check = _Check(FilesOnDisk(root))
    runs = _entries(root / "runs")
    # A store may be in a project with a data/ of its own: only folders named by a digest count.
    images = [entry for entry in _entries(root / "data") if _IMAGES.fullmatch(entry.name)]
    total = len(runs) + len(images)
    is_quick = total < _FEW_FOLDERS
    with progress(total, "files held to their digests", quiet=is_quick, even=False) as bar:
        for run in runs:
            _check_run(run, check)
            bar.advance()
        for folder in images:
            _check_kept_images(folder, check)
            bar.advance()
    check.problems += _wrong_passports(root, check)
    check.problems += _wrong_inputs(root, check.on_disk)
    check.problems += _links(root, check.on_disk)
    check.problems += _strays_beside_runs(root, check.on_disk)
    check.problems += _leftovers(root, check.on_disk)
    check.problems = [_with_way_out(problem, check.on_disk) for problem in check.problems]
    return check


def _with_way_out(problem: Problem, on_disk: FilesOnDisk) -> Problem:
    """The same problem with what `--repair` would do as its remedy, if it can do anything."""
    match problem.mending:
        case Restore(digest=digest) if on_disk.files_with(digest):
            source = on_disk.where(on_disk.files_with(digest)[0])
            what = f"brings its content back from {source}"
        case Write():
            what = "writes it, as all else is right"
        case Move(target=target):
            what = f"renames it to {on_disk.where(target)}"
        case PutAside():
            what = f"moves it to {ASIDE}/"
        case _:
            return problem
    return replace(problem, remedy=f"`cellrepro fsck --repair` {what}")


def _check_run(folder: Path, check: _Check) -> None:
    on_disk = check.on_disk
    if not folder.is_dir() or folder.is_symlink():
        check.problems.append(stray(folder, on_disk))
        return
    machines = [entry for entry in _entries(folder) if entry.is_dir() and not entry.is_symlink()]
    if not any(_entries(machine) for machine in machines) and not (folder / SPEC).exists():
        check.problems.append(_empty(folder, on_disk))
        return
    spec = check_spec(folder, on_disk)
    check.add(spec)
    check.problems += [
        stray(entry, on_disk)
        for entry in _entries(folder)
        if entry not in machines and entry.name not in (SPEC, SUMS)
    ]
    repeats = [*_repeats_of(machines, check)]
    for repeat in repeats:
        _check_one_repeat(repeat, spec.key, check)
    if spec.later_seal is not None:
        _note_unsealed_run(spec.later_seal, repeats, check)


def _repeats_of(machines: Iterable[Path], check: _Check) -> Iterator[Path]:
    for machine in machines:
        entries = _entries(machine)
        if not entries:
            check.problems.append(_empty(machine, check.on_disk))
        for entry in entries:
            is_folder = entry.is_dir() and not entry.is_symlink()
            if is_folder and not _entries(entry):
                check.problems.append(_empty(entry, check.on_disk))
            elif is_folder and (entry.name.isdecimal() or (entry / MANIFEST).exists()):
                yield entry
            else:
                check.problems.append(stray(entry, check.on_disk))


def _check_one_repeat(folder: Path, key: str, check: _Check) -> None:
    machine, index = folder.parts[-2:]
    name = f"{key}/{machine}/{index}"
    not_sent = names_not_sent(check.on_disk.root, name)
    findings = check_repeat(folder, check.on_disk, key=key, not_sent=not_sent)
    check.add(findings)
    check.n_repeats += 1
    check.not_here += findings.not_here
    if not findings.is_sealed:
        check.n_unsealed += 1
    if findings.later_seal is not None:
        check.seals_to_add.append(_unsealed(findings.later_seal, check.on_disk))


def _note_unsealed_run(seal: Write, repeats: Sequence[Path], check: _Check) -> None:
    """Note a spec without a seal, a problem if the run was made by a version that seals."""
    problem = _unsealed(seal, check.on_disk)
    if repeats and all(_is_sealed_format(repeat) for repeat in repeats):
        check.problems.append(problem)
    else:
        check.seals_to_add.append(problem)


def _is_sealed_format(repeat: Path) -> bool:
    try:
        summary = read_record(repeat / MANIFEST, ResultSummary.model_validate_json)
    except BadInput:
        return False
    return summary.format >= FIRST_SEALED_FORMAT


def _unsealed(seal: Write, on_disk: FilesOnDisk) -> Problem:
    what = f"there is no {SUMS}"
    remedy = "`cellrepro fsck --repair` writes it once all else is right"
    return Problem("missing", what, on_disk.where(seal.path), remedy, seal)


def _check_kept_images(folder: Path, check: _Check) -> None:
    if folder.is_dir() and not folder.is_symlink():
        check.add(check_images(folder, check.on_disk))
    else:
        where = check.on_disk.where(folder)
        what = "the lab keeps images in folders, and this is none, though a digest is its name"
        check.problems.append(Problem("extra", what, where, NOT_OURS))


def _wrong_passports(root: Path, check: _Check) -> Iterator[Problem]:
    """Kept passports that cannot be read, are badly signed, or contradict their repeat."""
    store = Store(root)
    damaged = {problem.where for problem in check.problems}
    damaged_repeats = {"/".join(where.split("/")[:4]) for where in damaged}
    allowed = read_allowed_signers()
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
            yield from VerifiedRepeat.of(passport, receipts, allowed, is_here=True).bad_signatures(
                where
            )
        folder = root / "runs" / name
        is_whole = f"runs/{name}" not in damaged_repeats
        if folder.is_dir() and is_whole and f"runs/{folder.parents[1].name}/{SPEC}" not in damaged:
            for passport in bundle.passports:
                yield from contradictions(passport, Repeat(folder), where=where)


def _wrong_inputs(root: Path, on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Images and networks that came with runs, whose content does not fit their name."""
    remedy = "remove it, and import the file with which it came again"
    for folder in _entries(root / INPUTS):
        try:
            digest = folder_digest(folder, to_train=False)
        except BadInput as error:
            yield Problem("damaged", str(error), on_disk.where(folder), remedy)
            continue
        if not digest.startswith(folder.name) or len(folder.name) < KEY_LENGTH:
            what = "a file of it has changed, is missing or was added: its digest is another one"
            yield Problem("damaged", what, on_disk.where(folder), remedy)
    for path in _entries(root / NETWORKS):
        if _NETWORK.fullmatch(path.name) is None:
            yield stray(path, on_disk)
            continue
        digest = on_disk.digest(path) if path.is_file() else ""
        if path.name != f"{digest}.safetensors":
            what = f"it has changed: its SHA-256 is {short_digest(digest)}"
            mending = Restore(path, path.stem)
            yield Problem("damaged", what, on_disk.where(path), remedy, mending)


def _empty(path: Path, on_disk: FilesOnDisk) -> Problem:
    return leftover(path, on_disk, "there is no run in this folder")


def _links(root: Path, on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Folders of the store that are symbolic links, so that repairs would be made elsewhere."""
    for name in OWN_FOLDERS:
        if (root / name).is_symlink():
            what = "it is a link, which the lab never makes: what it puts here would lie elsewhere"
            remedy = "remove the link, or put the folder itself there"
            yield Problem("extra", what, on_disk.where(root / name), remedy)


def _strays_beside_runs(root: Path, on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Strange files among kept passports and among notes of what was not sent."""
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


def _leftovers(root: Path, on_disk: FilesOnDisk) -> Iterator[Problem]:
    """What stopped processes have left, except unfinished trainings, which can be resumed."""
    here = Owner.here()
    staging = root / ".staging"
    for entry in [] if staging.is_symlink() else _entries(staging):
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


def _entries(folder: Path) -> list[Path]:
    """The content of a folder, except what a process is just writing."""
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if not is_being_written(entry.name))
