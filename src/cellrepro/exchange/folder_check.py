"""Checks of one stored folder against its digests: a repeat, the spec of a run, kept images."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.digests.digests import file_digest
from cellrepro.errors import BadInput
from cellrepro.exchange.problem import Mending, Move, Problem, PutAside, Remove, Restore, Write
from cellrepro.store.manifest import Manifest
from cellrepro.store.scratch_files import is_being_written, is_scratch
from cellrepro.store.seal import FIRST_SEALED_FORMAT, MOST_SUMS_BYTES, SUMS, read_seal, seal_text
from cellrepro.store.store_paths import regular_bytes
from cellrepro.store.stored_run import MANIFEST, MOST_RECORD_BYTES, SPEC, read_record, read_spec
from cellrepro.words import short_digest

RESTORE_REPEAT = "copy it again from where it came, or remove this repeat's folder and run it again"
RESTORE_RUN = "copy it again from where it came, or remove this run's folder and run it again"
RESTORE_IMAGES = (
    "copy it again from where it came, or remove this folder of images and run one of its runs "
    "into a new store, which keeps them again"
)
_BY_ITS_KEY = f"{SPEC} asks for the run that its folder is named by"
_RECORDS = (MANIFEST, SPEC, SUMS)
NOT_OURS = "the lab has not put it there: move it out of the store"


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


class FilesOnDisk:
    """The files of a store with the digests that they have now; hard links are read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digest_of: dict[tuple[int, int] | Path, str] = {}
        self._paths: dict[str, list[Path]] = {}

    def digest(self, path: Path) -> str:
        """The SHA-256 of a file."""
        status = path.stat()
        if path.name in _RECORDS and status.st_size > MOST_RECORD_BYTES:
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


@dataclass(frozen=True)
class _Files:
    """The files of a folder as they are now."""

    digests: dict[str, str]
    """By name relative to the folder."""
    strange: list[Problem]
    """Links, devices, and files that cannot be read."""


def check_repeat(
    folder: Path, on_disk: FilesOnDisk, *, key: str, not_sent: frozenset[str] = frozenset()
) -> Findings:
    """Compare every file of a repeat with its digest, and its folder's name with its manifest."""
    files = _files_in(folder, on_disk)
    findings = Findings([*files.strange], n_files=len(files.digests))
    seal = _Seal.of(folder)
    manifest = _manifest(folder, files, seal, on_disk, findings)
    expected = _expected(manifest, files, seal)
    _compare(folder, expected, files, on_disk, findings, not_sent=not_sent)
    if manifest is not None:
        _check_seal(folder, manifest, files, seal, on_disk, findings)
        findings.problems += _wrong_folder(folder, manifest, key, on_disk)
        findings.problems += _without_a_digest(folder, manifest, on_disk)
    return findings


@dataclass
class SpecFindings(Findings):
    """The outcome of checking the spec of a run."""

    key: str = ""
    """Key of the run, by which its folder is or should be named."""


def check_spec(folder: Path, on_disk: FilesOnDisk) -> SpecFindings:
    """Compare the ``spec.json`` of a run with its seal, and its key with the folder's name."""
    findings = SpecFindings(n_files=1, key=folder.name)
    path = folder / SPEC
    seal = _Seal.of(folder)
    findings.is_sealed = seal.is_there
    try:
        digest = on_disk.digest(path)
        spec = read_record(path, read_spec)
    except FileNotFoundError:
        findings.problems.append(
            Problem("missing", f"the run has no {SPEC}", on_disk.where(path), RESTORE_RUN)
        )
        return findings
    except (OSError, BadInput) as error:
        findings.problems.append(Problem("damaged", str(error), on_disk.where(path), RESTORE_RUN))
        return findings
    text = seal_text({SPEC: digest})
    if not seal.is_there and spec.key == folder.name:
        findings.later_seal = Write(folder / SUMS, text, remark=_BY_ITS_KEY)
    if seal.is_there and seal.text != text:
        if spec.key == folder.name and SPEC in seal.digests:
            what = f"{SPEC} and its line in {SUMS} do not fit: one of the two has changed"
            findings.problems.append(Problem("damaged", what, on_disk.where(path), RESTORE_RUN))
        elif spec.key == folder.name:
            write = Write(folder / SUMS, text, remark=_BY_ITS_KEY)
            findings.problems.append(_damaged_seal(folder, on_disk, write))
        else:
            what = f"its content has changed: it now asks for a run of the key {spec.key}"
            findings.problems.append(Problem("damaged", what, on_disk.where(path), RESTORE_RUN))
    elif spec.key != folder.name:
        findings.key = spec.key
        what = f"the folder holds the run {spec.key}"
        remedy = f"rename it to {spec.key}, or copy the store again"
        target = folder.with_name(spec.key)
        mending = None if target.exists() else Move(folder, target)
        findings.problems.append(Problem("misplaced", what, on_disk.where(folder), remedy, mending))
    return findings


def check_images(folder: Path, on_disk: FilesOnDisk) -> Findings:
    """Compare kept images with their seal."""
    files = _files_in(folder, on_disk)
    findings = Findings([*files.strange], n_files=len(files.digests))
    seal = _Seal.of(folder)
    if not seal.is_there:
        what = f"the images have no {SUMS}, so nothing says what they were"
        findings.problems.append(
            Problem("missing", what, on_disk.where(folder / SUMS), RESTORE_IMAGES)
        )
        return findings
    if seal.why_not_read:
        findings.problems.append(
            Problem("damaged", seal.why_not_read, on_disk.where(folder / SUMS), RESTORE_IMAGES)
        )
        return findings
    _compare(folder, seal.digests, files, on_disk, findings, remedy=RESTORE_IMAGES)
    return findings


@dataclass(frozen=True)
class _Seal:
    """The seal of a folder, if it has one and it can be read."""

    text: str | None
    """None without a seal."""
    digests: dict[str, str] = field(default_factory=dict)
    """Empty if the seal cannot be read."""
    why_not_read: str = ""
    """Empty if it can be read."""

    @classmethod
    def of(cls, folder: Path) -> _Seal:
        """Read the seal of a folder."""
        try:
            text = regular_bytes(folder / SUMS, most_bytes=MOST_SUMS_BYTES).decode()
        except FileNotFoundError:
            return cls(None)
        except (OSError, ValueError) as error:
            return cls("", why_not_read=f"it cannot be read ({error})")
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


def _files_in(folder: Path, on_disk: FilesOnDisk) -> _Files:
    files = _Files({}, [])
    for parent, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(parent, name)
            if path.is_symlink() or not path.is_file():
                what = "it is a link or a device, which the lab never stores"
                files.strange.append(stray(path, on_disk, what))
                continue
            if is_being_written(name):
                continue
            try:
                files.digests[path.relative_to(folder).as_posix()] = on_disk.digest(path)
            except OSError as error:
                what = f"it cannot be read ({error.strerror})"
                files.strange.append(Problem("damaged", what, on_disk.where(path), RESTORE_REPEAT))
    return files


def _manifest(
    folder: Path, files: _Files, seal: _Seal, on_disk: FilesOnDisk, findings: Findings
) -> Manifest | None:
    """Read the manifest; None if that fails, which is added to the findings."""
    path = folder / MANIFEST
    digest = files.digests.get(MANIFEST)
    if digest is None:
        expected = seal.digests.get(MANIFEST)
        mending = None if expected is None else Restore(path, expected)
        what = f"the repeat has no {MANIFEST}"
        findings.problems.append(
            Problem("missing", what, on_disk.where(path), RESTORE_REPEAT, mending)
        )
        return None
    changed = seal.digests.get(MANIFEST, digest) != digest
    if changed:
        findings.problems.append(_changed(path, seal.digests[MANIFEST], digest, on_disk))
    try:
        return read_record(path, Manifest.model_validate_json)
    except BadInput as error:
        if not changed:
            findings.problems.append(
                Problem("damaged", str(error), on_disk.where(path), RESTORE_REPEAT)
            )
        return None


def _expected(manifest: Manifest | None, files: _Files, seal: _Seal) -> Mapping[str, str]:
    """The digest of each file but the manifest: by the manifest if it is whole, or by the seal."""
    manifest_is_whole = seal.vouches_for(MANIFEST, files.digests.get(MANIFEST))
    if manifest is not None and (manifest_is_whole or MANIFEST not in seal.digests):
        return manifest.files
    return {name: digest for name, digest in seal.digests.items() if name != MANIFEST}


def _compare(
    folder: Path,
    expected: Mapping[str, str],
    files: _Files,
    on_disk: FilesOnDisk,
    findings: Findings,
    *,
    remedy: str = RESTORE_REPEAT,
    not_sent: frozenset[str] = frozenset(),
) -> None:
    """Add a problem for every file that is missing, was changed, or is unknown."""
    for name, digest in expected.items():
        path = folder / name
        actual = files.digests.get(name)
        if actual is None and name in not_sent:
            findings.not_here.append(name)
        elif actual is None:
            what = f"a file of SHA-256 {short_digest(digest)} was stored here, and is not there"
            mending = Restore(path, digest)
            findings.problems.append(Problem("missing", what, on_disk.where(path), remedy, mending))
        elif actual != digest:
            findings.problems.append(_changed(path, digest, actual, on_disk, remedy=remedy))
    for name in sorted(files.digests.keys() - expected.keys() - {MANIFEST, SUMS}):
        findings.problems.append(stray(folder / name, on_disk))


def _changed(
    path: Path, expected: str, actual: str, on_disk: FilesOnDisk, *, remedy: str = RESTORE_REPEAT
) -> Problem:
    it = f"it, or its line in {SUMS}," if path.name == MANIFEST else "it"
    what = (
        f"{it} has changed: its SHA-256 is {short_digest(actual)}, and that of what was stored "
        f"{short_digest(expected)}"
    )
    return Problem("damaged", what, on_disk.where(path), remedy, Restore(path, expected))


def stray(
    path: Path, on_disk: FilesOnDisk, what: str = "the lab stores nothing of this name here"
) -> Problem:
    """The problem of a file or folder that no digest covers."""
    if is_scratch(path.name):
        return leftover(path, on_disk, "it was being written when the work was stopped")
    return Problem("extra", what, on_disk.where(path), NOT_OURS, PutAside(path))


def leftover(path: Path, on_disk: FilesOnDisk, what: str) -> Problem:
    """The problem of what a stopped process has left."""
    remedy = "`cellrepro fsck --repair` removes it"
    return Problem("leftover", what, on_disk.where(path), remedy, Remove(path))


def _check_seal(
    folder: Path,
    manifest: Manifest,
    files: _Files,
    seal: _Seal,
    on_disk: FilesOnDisk,
    findings: Findings,
) -> None:
    """Add a problem for a seal that is missing or was changed."""
    digest = files.digests[MANIFEST]
    text = seal_text({**manifest.files, MANIFEST: digest})
    write = Write(
        folder / SUMS,
        text,
        remark=f"what may have changed in {MANIFEST} itself before could not be found",
    )
    if not seal.is_there and manifest.format < FIRST_SEALED_FORMAT:
        findings.is_sealed = False
        findings.later_seal = None if findings.problems else write
    elif not seal.is_there:
        mending = None if findings.problems else write
        what = f"the repeat has no {SUMS}, which is written with each"
        remedy = "`cellrepro fsck --repair` writes it once all other files are right"
        where = on_disk.where(folder / SUMS)
        findings.problems.append(Problem("missing", what, where, remedy, mending))
    elif seal.vouches_for(MANIFEST, digest) and seal.text != text:
        proven = Write(folder / SUMS, text, remark=f"{MANIFEST} is whole, from which it follows")
        findings.problems.append(_damaged_seal(folder, on_disk, proven, why=seal.why_not_read))
    elif seal.is_there and MANIFEST not in seal.digests:
        why = seal.why_not_read or f"{SUMS} does not name {MANIFEST}"
        findings.problems.append(_damaged_seal(folder, on_disk, None, why=why))


def _damaged_seal(
    folder: Path, on_disk: FilesOnDisk, mending: Mending | None, *, why: str = ""
) -> Problem:
    what = why or f"{SUMS} does not say what the other files say"
    return Problem("damaged", what, on_disk.where(folder / SUMS), RESTORE_REPEAT, mending)


def _wrong_folder(
    folder: Path, manifest: Manifest, key: str, on_disk: FilesOnDisk
) -> Iterator[Problem]:
    """A problem if the folder of a repeat is not the one that its manifest names."""
    machine, index = folder.parts[-2:]
    names = {
        "run": (key, manifest.key),
        "machine": (machine, manifest.machine.name),
        "repeat": (index, str(manifest.repeat)),
    }
    wrong = [
        f"{what} {own_name}, and lies in {folder_name}"
        for what, (folder_name, own_name) in names.items()
        if folder_name != own_name
    ]
    if not wrong:
        return
    run = folder.parents[1] if manifest.key == key else folder.parents[2] / manifest.key
    target = run / manifest.machine.name / str(manifest.repeat)
    what = f"its {MANIFEST} says that it is {'; '.join(wrong)}"
    remedy = f"move it to {on_disk.where(target)}, or copy the store again"
    mending: Mending | None = None
    if not target.exists() and (run / SPEC).exists():
        mending = Move(folder, target)
    elif _has_same_manifest(folder, target, on_disk):
        remedy = f"remove it: the same repeat is in {on_disk.where(target)}"
        mending = PutAside(folder)
    yield Problem("misplaced", what, on_disk.where(folder), remedy, mending)


def _has_same_manifest(a: Path, b: Path, on_disk: FilesOnDisk) -> bool:
    try:
        return on_disk.digest(a / MANIFEST) == on_disk.digest(b / MANIFEST)
    except OSError:
        return False


def _without_a_digest(folder: Path, manifest: Manifest, on_disk: FilesOnDisk) -> Iterator[Problem]:
    """A problem for each mask in a manifest that lists no digest of its file."""
    for name in [mask.file for mask in manifest.masks.values()]:
        if name not in manifest.files:
            what = f"it speaks of {name}, and has no digest of that file"
            yield Problem("damaged", what, on_disk.where(folder / MANIFEST), RESTORE_REPEAT)
