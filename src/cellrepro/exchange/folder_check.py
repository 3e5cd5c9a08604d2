"""The files of stored folders held to their digests: what every check of a store does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cellrepro.exchange.problem import LostContent, Problem, ProblemKind
from cellrepro.store.seal import MOST_SUMS_BYTES, SUMS, read_seal, seal_text
from cellrepro.store.store_paths import regular_bytes
from cellrepro.store.stored_run import MANIFEST, MOST_RECORD_BYTES, SPEC
from cellrepro.store.unchanged import repair_from, repair_of
from cellrepro.store.whole_files import is_being_written, is_scratch
from cellrepro.words import short_digest
from samebits.digests import file_digest
from samebits.errors import BadInput, without_number

NOT_OURS = "the lab has not put it there: move it out of the store"
_RESTORE_IMAGES = (
    "copy it again from where it came, or remove this folder of images and run one of its runs "
    "into a new store, which keeps them again"
)


class FilesOnDisk:
    """The files of a store with the digests that they have now; hard links are read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digest_of: dict[tuple[int, int] | Path, str] = {}
        self._paths: dict[str, list[Path]] = {}

    def digest(self, path: Path) -> str:
        """The SHA-256 of a file."""
        status = path.stat()
        if path.name in (MANIFEST, SPEC, SUMS) and status.st_size > MOST_RECORD_BYTES:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, which none has", str(path))
        # Some network file systems report no inode numbers.
        file = (status.st_dev, status.st_ino) if status.st_ino else path
        digest = self._digest_of.get(file)
        if digest is None:
            digest = file_digest(path)
            self._digest_of[file] = digest
        self._paths.setdefault(digest, []).append(path)
        return digest

    def files_with(self, digest: str) -> list[Path]:
        """The files with this digest among those that have been read."""
        return self._paths.get(digest, [])

    def where(self, path: Path) -> str:
        """A path relative to the store, as problems name it."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)


def entries_of(folder: Path) -> list[Path]:
    """The content of a folder, except what a process is just writing."""
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if not is_being_written(entry.name))


def stray(
    path: Path, on_disk: FilesOnDisk, what: str = "the lab stores nothing of this name here"
) -> Problem:
    """The problem of a file or folder that no digest covers."""
    if is_scratch(path.name):
        return leftover(path, on_disk, "it was being written when the work was stopped")
    return Problem("extra", what, on_disk.where(path), NOT_OURS)


def leftover(path: Path, on_disk: FilesOnDisk, what: str) -> Problem:
    """The problem of what a stopped process has left."""
    return Problem("leftover", what, on_disk.where(path), "remove it: no process works on it")


def with_repair(problem: Problem, on_disk: FilesOnDisk) -> Problem:
    """The same problem with a repair as its remedy, if the lost content lies elsewhere."""
    if problem.lost is None:
        return problem
    sources = on_disk.files_with(problem.lost.digest)
    if sources:
        remedy: str | None = repair_from(sources[0], root=on_disk.root)
    else:  # of a few runs of a store, the files of the others have not been read
        remedy = repair_of(problem.lost.path, problem.lost.digest)
    return problem if remedy is None else replace(problem, remedy=remedy)


@dataclass(frozen=True)
class FolderSeal:
    """The seal of a folder, as far as it can be read."""

    text: str | None
    """None without a seal."""
    digests: dict[str, str] = field(default_factory=dict)
    """Empty if the seal cannot be read."""
    why_not_read: str = ""
    """Empty if it can be read."""

    @classmethod
    def of(cls, folder: Path) -> FolderSeal:
        """Read the seal of a folder."""
        try:
            text = regular_bytes(folder / SUMS, most_bytes=MOST_SUMS_BYTES).decode()
        except FileNotFoundError:
            return cls(None)
        except (OSError, ValueError) as error:
            return cls("", why_not_read=f"it cannot be read ({without_number(error)})")
        try:
            return cls(text, read_seal(text))
        except BadInput as error:
            return cls(text, why_not_read=str(error))

    @property
    def is_there(self) -> bool:
        """Whether the folder has one."""
        return self.text is not None

    def vouches_for(self, name: str, digest: str | None) -> bool:
        """Whether one of its lines has this file with this digest."""
        line = "" if digest is None else seal_text({name: digest})
        return bool(line) and line in (self.text or "").splitlines(keepends=True)


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


@dataclass(frozen=True)
class FolderFiles:
    """The files of a folder as they are now."""

    folder: Path
    on_disk: FilesOnDisk
    remedy: str
    """What to do about a file that is not as it was stored."""
    digests: Mapping[str, str]
    """The SHA-256 of each file, by its name relative to the folder."""
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
        self, kind: ProblemKind, name: str, what: str, *, lost_digest: str | None = None
    ) -> Problem:
        """Make a problem of one file."""
        path = self.folder / name
        lost = None if lost_digest is None else LostContent(path, lost_digest)
        return Problem(kind, what, self.on_disk.where(path), self.remedy, lost)

    def changed(self, name: str, expected: str) -> Problem:
        """Make the problem of a file whose digest is a different one now."""
        it = f"it, or its line in {SUMS}," if name == MANIFEST else "it"
        what = (
            f"{it} has changed: its SHA-256 is {short_digest(self.digests[name])}, and that of "
            f"what was stored {short_digest(expected)}"
        )
        return self.problem("damaged", name, what, lost_digest=expected)

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
                missing = self.problem("missing", name, what, lost_digest=digest)
                findings.problems.append(missing)
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
    files = FolderFiles.of(folder, on_disk, remedy=_RESTORE_IMAGES)
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
