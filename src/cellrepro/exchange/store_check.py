"""Check of a whole store against its digests: ``fsck``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.errors import no_such_file
from cellrepro.exchange.beside_runs_check import check_beside_runs
from cellrepro.exchange.files_on_disk import FilesOnDisk, entries_of
from cellrepro.exchange.problem import Move, Problem, PutAside, Restore, Write, problem_lines
from cellrepro.exchange.runs_check import (
    StoreFindings,
    check_image_folder,
    check_run,
    image_folders,
)
from cellrepro.exchange.signed.allowed_signers import AllowedSigner, read_allowed_signers
from cellrepro.exchange.store_repair import ASIDE, Repair, carry_out
from cellrepro.progress import progress
from cellrepro.results import Result, Row
from cellrepro.spec import defaults
from cellrepro.store.store import Store, StoreOrFolder
from cellrepro.words import amount

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
    allowed = read_allowed_signers()
    check = checked_store(root, allowed)
    repaired: list[Repair] = []
    for _ in range(_MOST_ROUNDS if repair else 0):
        mended = carry_out([*check.problems, *check.seals_to_add], check.on_disk)
        if not mended:
            break
        repaired += mended
        check = checked_store(root, allowed)
    return StoreCheck(
        store=root,
        repeats=check.n_repeats,
        files=check.n_files,
        problems=check.problems,
        repaired=repaired,
        notes=[*check.notes()],
    )


def checked_store(root: Path, allowed: Sequence[AllowedSigner]) -> StoreFindings:
    """Check every folder of a store; ``allowed`` are the signers whom the user believes."""
    if not root.is_dir():
        raise no_such_file(root, expected="the folder of a store")
    check = StoreFindings(FilesOnDisk(root))
    runs = entries_of(root / "runs")
    images = image_folders(root)
    total = len(runs) + len(images)
    is_quick = total < _FEW_FOLDERS
    with progress(total, "files held to their digests", quiet=is_quick, even=False) as bar:
        for run in runs:
            check_run(run, check)
            bar.advance()
        for folder in images:
            check_image_folder(folder, check)
            bar.advance()
    check_beside_runs(check, allowed)
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
