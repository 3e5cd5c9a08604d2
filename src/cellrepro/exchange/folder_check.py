"""The files of one stored folder held to their digests: what every check of a folder does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.exchange.files_on_disk import FilesOnDisk, stray
from cellrepro.exchange.folder_seal import FolderSeal
from cellrepro.exchange.problem import (
    Mending,
    Problem,
    ProblemKind,
    Restore,
    Write,
)
from cellrepro.store.seal import SUMS
from cellrepro.store.stored_run import MANIFEST
from cellrepro.store.whole_files import is_being_written
from cellrepro.words import short_digest

RESTORE_REPEAT = "copy it again from where it came, or remove this repeat's folder and run it again"
RESTORE_IMAGES = (
    "copy it again from where it came, or remove this folder of images and run one of its runs "
    "into a new store, which keeps them again"
)


@dataclass
class Findings:
    """The outcome of checking one folder."""

    problems: list[Problem] = field(default_factory=list)
    not_here: list[str] = field(default_factory=list)
    """Files that were never sent with the run, which is no problem."""
    n_files: int = 0
    """Files that were read."""
    is_sealed: bool = True
    """Whether it has a seal; without one, a change of the manifest goes unnoticed."""
    later_seal: Write | None = None
    """Adds the seal to a folder without one, if all else is right."""


@dataclass(frozen=True)
class FolderFiles:
    """The files of a folder as they are now."""

    folder: Path
    on_disk: FilesOnDisk
    remedy: str
    """What to do about a file that is not as it was stored."""
    digests: Mapping[str, str]
    """By name relative to the folder."""
    strange: tuple[Problem, ...]
    """Links, devices, and files that cannot be read."""

    @classmethod
    def of(cls, folder: Path, on_disk: FilesOnDisk, *, remedy: str) -> FolderFiles:
        """Read every file of a folder."""
        digests: dict[str, str] = {}
        strange: list[Problem] = []
        for path in _paths_in(folder):
            if path.is_symlink() or not path.is_file():
                what = "it is a link or a device, which the lab never stores"
                strange.append(stray(path, on_disk, what))
                continue
            if is_being_written(path.name):
                continue
            try:
                digests[path.relative_to(folder).as_posix()] = on_disk.digest(path)
            except OSError as error:
                what = f"it cannot be read ({error.strerror})"
                strange.append(Problem("damaged", what, on_disk.where(path), remedy))
        return cls(folder, on_disk, remedy, digests, tuple(strange))

    def problem(
        self, kind: ProblemKind, name: str, what: str, mending: Mending | None = None
    ) -> Problem:
        """Make a problem of one file."""
        return Problem(kind, what, self.on_disk.where(self.folder / name), self.remedy, mending)

    def changed(self, name: str, expected: str) -> Problem:
        """Make the problem of a file whose digest is a different one now."""
        it = f"it, or its line in {SUMS}," if name == MANIFEST else "it"
        what = (
            f"{it} has changed: its SHA-256 is {short_digest(self.digests[name])}, and that of "
            f"what was stored {short_digest(expected)}"
        )
        return self.problem("damaged", name, what, Restore(self.folder / name, expected))

    def compare(
        self,
        expected: Mapping[str, str],
        findings: Findings,
        *,
        not_sent: frozenset[str] = frozenset(),
    ) -> None:
        """Add a problem for every file that is missing, was changed, or is unknown."""
        for name, digest in expected.items():
            actual = self.digests.get(name)
            if actual is None and name in not_sent:
                findings.not_here.append(name)
            elif actual is None:
                what = f"a file of SHA-256 {short_digest(digest)} was stored here, and is not there"
                mending = Restore(self.folder / name, digest)
                findings.problems.append(self.problem("missing", name, what, mending))
            elif actual != digest:
                findings.problems.append(self.changed(name, digest))
        for name in sorted(self.digests.keys() - expected.keys() - {MANIFEST, SUMS}):
            findings.problems.append(stray(self.folder / name, self.on_disk))


def _paths_in(folder: Path) -> Iterator[Path]:
    """The files and the links in a folder and its folders, in order."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in sorted([*names, *links]))


def check_images(folder: Path, on_disk: FilesOnDisk) -> Findings:
    """Compare kept images with their seal."""
    files = FolderFiles.of(folder, on_disk, remedy=RESTORE_IMAGES)
    findings = Findings([*files.strange], n_files=len(files.digests))
    seal = FolderSeal.of(folder)
    if not seal.is_there:
        what = f"the images have no {SUMS}, so nothing says what they were"
        findings.problems.append(files.problem("missing", SUMS, what))
    elif seal.why_not_read:
        findings.problems.append(files.problem("damaged", SUMS, seal.why_not_read))
    else:
        files.compare(seal.digests, findings)
    return findings


def damaged_seal(
    folder: Path, on_disk: FilesOnDisk, mending: Mending | None, *, why: str = ""
) -> Problem:
    """Make the problem of a seal that does not fit what it seals."""
    what = why or f"{SUMS} does not say what the other files say"
    return Problem("damaged", what, on_disk.where(folder / SUMS), RESTORE_REPEAT, mending)
