"""Check of a whole store against its digests: ``fsck``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.exchange.folder_check import FilesOnDisk
from cellrepro.exchange.problem import LostContent, Problem, problem_lines
from cellrepro.exchange.signed.allowed_signers import read_allowed_signers
from cellrepro.exchange.store_findings import checked_store
from cellrepro.spec import defaults
from cellrepro.store.removal import remove_file
from cellrepro.store.store import Store, StoreOrFolder
from cellrepro.store.whole_files import link_or_copy, replace_file, scratch_beside
from samebits.digests import file_digest
from samebits.results import Result, Row
from samebits.words import amount


@dataclass(frozen=True)
class Repair:
    """One repair that was made."""

    what: str
    """What was done, in a sentence."""
    where: str
    """The file, by its path in the store."""


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
        Whether to bring back the content of damaged and missing files where another file of the
        store has it.

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

    Bring back what is damaged or missing from equal files of the store

    ``cellrepro fsck --repair``
    """
    root = store.root if isinstance(store, Store) else Path(store)
    allowed = read_allowed_signers()
    check = checked_store(root, allowed)
    repaired: list[Repair] = []
    if repair:
        lost = [problem.lost for problem in check.problems if problem.lost is not None]
        repaired = _brought_back(lost, check.on_disk)
    if repaired:
        check = checked_store(root, allowed)
    return StoreCheck(
        store=root,
        repeats=check.n_repeats,
        files=check.n_files,
        problems=check.problems,
        repaired=repaired,
        notes=[*check.notes()],
    )


@dataclass(frozen=True)
class _FoundCopy:
    """A scratch file with the right content beside the wrong file."""

    target: Path
    scratch: Path
    source: Path


def _brought_back(lost: Iterable[LostContent], on_disk: FilesOnDisk) -> list[Repair]:
    """Restore files from others with their content.

    All copies are made before the first is renamed into place: if two files were exchanged, each is
    the only source of the other.
    """
    copies = [_found_copy(one, on_disk) for one in lost if _stays_in(on_disk.root, one)]
    repairs = []
    for copy in copies:
        if copy is not None:
            copy.scratch.chmod(0o444)
            replace_file(copy.scratch, copy.target)
            what = f"it has its content again, from {on_disk.where(copy.source)}"
            repairs.append(Repair(what, on_disk.where(copy.target)))
    return repairs


def _stays_in(root: Path, lost: LostContent) -> bool:
    """Whether a file lies in the store, with symbolic links resolved."""
    return lost.path.parent.resolve().is_relative_to(root.resolve())


def _found_copy(lost: LostContent, on_disk: FilesOnDisk) -> _FoundCopy | None:
    """Copy the right content beside a damaged or missing file; None if no file has it."""
    for source in on_disk.files_with(lost.digest):
        with contextlib.suppress(OSError):
            scratch = scratch_beside(lost.path)
            scratch.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, scratch)
            if file_digest(scratch) == lost.digest:
                return _FoundCopy(lost.path, scratch, source)
            remove_file(scratch)
    return None
