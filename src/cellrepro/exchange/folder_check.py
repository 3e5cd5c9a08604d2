"""The files of a stored folder held to their digests: a repeat, a run's spec, a set of images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.problem import (
    Contents,
    Mending,
    Move,
    Problem,
    PutAside,
    Remove,
    Restore,
    Write,
)
from cellrepro.store.manifest import Manifest
from cellrepro.store.seal import FIRST_SEALED_FORMAT, SUMS, read_seal, seal_text
from cellrepro.store.stored_run import MANIFEST, SPEC, read_record, read_spec
from cellrepro.store.whole_files import is_being_written, is_scratch, regular_bytes
from cellrepro.words import short_digest

RESTORE_REPEAT = "copy it again from where it came, or remove this repeat's folder and run it again"
RESTORE_RUN = "copy it again from where it came, or remove this run's folder and run it again"
RESTORE_IMAGES = (
    "copy it again from where it came, or remove this folder of images and run one of its runs "
    "into a new store, which keeps them again"
)
_BY_ITS_KEY = f"{SPEC} asks for the run that its folder is named by"
_NO_SUCH_NAME = "the lab stores nothing of this name here"
_MOST_SUMS_BYTES = 2**27
NOT_OURS = "the lab has not put it there: move it out of the store"


@dataclass
class Findings:
    """What was found in one folder."""

    problems: list[Problem] = field(default_factory=list)
    not_here: list[str] = field(default_factory=list)
    """Files that were not sent."""
    n_files: int = 0
    """That were read."""
    is_sealed: bool = True
    """Whether it has a seal, so that nothing in it can change unseen."""
    later_seal: Write | None = None
    """The seal that would be added to a folder without one, in which all else is right."""


@dataclass(frozen=True)
class Look:
    """What a check of a store has at hand."""

    root: Path
    """The store, from which places are said."""
    contents: Contents

    def where(self, path: Path) -> str:
        """A path as problems say it."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)


@dataclass(frozen=True)
class _Files:
    """The files of a folder as they are."""

    digests: dict[str, str]
    """By name relative to the folder."""
    strange: list[Problem]
    """What is no file, or cannot be read."""


def check_repeat(
    folder: Path, look: Look, *, key: str, not_sent: frozenset[str] = frozenset()
) -> Findings:
    """Hold every file of a repeat to its digest, and the repeat to the name of its folder."""
    files = _files_in(folder, look)
    findings = Findings([*files.strange], n_files=len(files.digests))
    seal = _Seal.of(folder)
    manifest = _manifest(folder, files, seal, look, findings)
    expected = _expected(manifest, files, seal)
    _hold(folder, expected, files, look, findings, not_sent=not_sent)
    if manifest is not None:
        _check_seal(folder, manifest, files, seal, look, findings)
        findings.problems += _named_otherwise(folder, manifest, key, look)
        findings.problems += _without_a_digest(folder, manifest, look)
    return findings


@dataclass
class SpecFindings(Findings):
    """What was found of a run's spec."""

    key: str = ""
    """Of the run: what its folder is named, or should be."""


def check_spec(folder: Path, look: Look) -> SpecFindings:
    """Hold the ``spec.json`` of a run to its seal and to the key, which is its digest."""
    findings = SpecFindings(n_files=1, key=folder.name)
    path = folder / SPEC
    seal = _Seal.of(folder)
    findings.is_sealed = seal.is_there
    try:
        digest = look.contents.digest(path)
        spec = read_record(path, read_spec)
    except FileNotFoundError:
        findings.problems.append(
            Problem("missing", f"the run has no {SPEC}", look.where(path), RESTORE_RUN)
        )
        return findings
    except (OSError, BadInput) as error:
        findings.problems.append(Problem("damaged", str(error), look.where(path), RESTORE_RUN))
        return findings
    text = seal_text({SPEC: digest})
    if not seal.is_there and spec.key == folder.name:
        findings.later_seal = Write(folder / SUMS, text, said=_BY_ITS_KEY)
    if seal.is_there and seal.text != text:
        if spec.key == folder.name and SPEC in seal.digests:
            what = f"{SPEC} and its line in {SUMS} do not fit: one of the two has changed"
            findings.problems.append(Problem("damaged", what, look.where(path), RESTORE_RUN))
        elif spec.key == folder.name:
            write = Write(folder / SUMS, text, said=_BY_ITS_KEY)
            findings.problems.append(_damaged_seal(folder, look, write))
        else:
            what = f"its content has changed: it now asks for a run of the key {spec.key}"
            findings.problems.append(Problem("damaged", what, look.where(path), RESTORE_RUN))
    elif spec.key != folder.name:
        findings.key = spec.key
        what = f"the folder holds the run {spec.key}"
        remedy = f"rename it to {spec.key}, or copy the store again"
        target = folder.with_name(spec.key)
        mending = None if target.exists() else Move(folder, target)
        findings.problems.append(Problem("misplaced", what, look.where(folder), remedy, mending))
    return findings


def check_images(folder: Path, look: Look) -> Findings:
    """Hold the images that a store keeps of a data set to their seal."""
    files = _files_in(folder, look)
    findings = Findings([*files.strange], n_files=len(files.digests))
    seal = _Seal.of(folder)
    if not seal.is_there:
        what = f"the images have no {SUMS}, so nothing says what they were"
        findings.problems.append(
            Problem("missing", what, look.where(folder / SUMS), RESTORE_IMAGES)
        )
        return findings
    if seal.why_not_read:
        findings.problems.append(
            Problem("damaged", seal.why_not_read, look.where(folder / SUMS), RESTORE_IMAGES)
        )
        return findings
    _hold(folder, seal.digests, files, look, findings, remedy=RESTORE_IMAGES)
    return findings


@dataclass(frozen=True)
class _Seal:
    """What the seal of a folder says."""

    text: str | None
    """None where there is no seal."""
    digests: dict[str, str] = field(default_factory=dict)
    """Empty where it cannot be read."""
    why_not_read: str = ""
    """Empty where it can."""

    @classmethod
    def of(cls, folder: Path) -> _Seal:
        """The seal of a folder."""
        try:
            text = regular_bytes(folder / SUMS, most_bytes=_MOST_SUMS_BYTES).decode()
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
        """Whether a line of it names a file with this digest."""
        line = "" if digest is None else seal_text({name: digest})
        return bool(line) and line in (self.text or "").splitlines(keepends=True)


def _files_in(folder: Path, look: Look) -> _Files:
    files = _Files({}, [])
    for parent, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(parent, name)
            if path.is_symlink() or not path.is_file():
                what = "it is a link or a device, which the lab never stores"
                files.strange.append(stray(path, look, what))
                continue
            if is_being_written(name):
                continue
            try:
                files.digests[path.relative_to(folder).as_posix()] = look.contents.digest(path)
            except OSError as error:
                what = f"it cannot be read ({error.strerror})"
                files.strange.append(Problem("damaged", what, look.where(path), RESTORE_REPEAT))
    return files


def _manifest(
    folder: Path, files: _Files, seal: _Seal, look: Look, findings: Findings
) -> Manifest | None:
    """The manifest, or none where it cannot be read, which is noted."""
    path = folder / MANIFEST
    digest = files.digests.get(MANIFEST)
    if digest is None:
        expected = seal.digests.get(MANIFEST)
        mending = None if expected is None else Restore(path, expected)
        what = f"the repeat has no {MANIFEST}"
        findings.problems.append(
            Problem("missing", what, look.where(path), RESTORE_REPEAT, mending)
        )
        return None
    changed = seal.digests.get(MANIFEST, digest) != digest
    if changed:
        findings.problems.append(_changed(path, seal.digests[MANIFEST], digest, look))
    try:
        return read_record(path, Manifest.model_validate_json)
    except BadInput as error:
        if not changed:
            findings.problems.append(
                Problem("damaged", str(error), look.where(path), RESTORE_REPEAT)
            )
        return None


def _expected(manifest: Manifest | None, files: _Files, seal: _Seal) -> Mapping[str, str]:
    """The digest of each file but the manifest, by whichever of the two witnesses is whole."""
    manifest_is_whole = seal.vouches_for(MANIFEST, files.digests.get(MANIFEST))
    if manifest is not None and (manifest_is_whole or MANIFEST not in seal.digests):
        return manifest.files
    return {name: digest for name, digest in seal.digests.items() if name != MANIFEST}


def _hold(
    folder: Path,
    expected: Mapping[str, str],
    files: _Files,
    look: Look,
    findings: Findings,
    *,
    remedy: str = RESTORE_REPEAT,
    not_sent: frozenset[str] = frozenset(),
) -> None:
    """Note every file that is missing, was changed, or is in excess."""
    for name, digest in expected.items():
        path = folder / name
        actual = files.digests.get(name)
        if actual is None and name in not_sent:
            findings.not_here.append(name)
        elif actual is None:
            what = f"a file of SHA-256 {short_digest(digest)} was stored here, and is not there"
            mending = Restore(path, digest)
            findings.problems.append(Problem("missing", what, look.where(path), remedy, mending))
        elif actual != digest:
            findings.problems.append(_changed(path, digest, actual, look, remedy=remedy))
    for name in sorted(files.digests.keys() - expected.keys() - {MANIFEST, SUMS}):
        findings.problems.append(stray(folder / name, look))


def _changed(
    path: Path, expected: str, actual: str, look: Look, *, remedy: str = RESTORE_REPEAT
) -> Problem:
    it = f"it, or its line in {SUMS}," if path.name == MANIFEST else "it"
    what = (
        f"{it} has changed: its SHA-256 is {short_digest(actual)}, and that of what was stored "
        f"{short_digest(expected)}"
    )
    return Problem("damaged", what, look.where(path), remedy, Restore(path, expected))


def stray(
    path: Path, look: Look, what: str = "the lab stores nothing of this name here"
) -> Problem:
    """The problem of a file or folder that nothing speaks of."""
    if is_scratch(path.name):
        return leftover(path, look, "it was being written when the work was stopped")
    return Problem("extra", what, look.where(path), NOT_OURS, PutAside(path))


def leftover(path: Path, look: Look, what: str) -> Problem:
    """The problem of what stopped work has left."""
    remedy = "`cellrepro fsck --repair` removes it"
    return Problem("leftover", what, look.where(path), remedy, Remove(path))


def _check_seal(
    folder: Path,
    manifest: Manifest,
    files: _Files,
    seal: _Seal,
    look: Look,
    findings: Findings,
) -> None:
    """Note a seal that is missing or was changed."""
    digest = files.digests[MANIFEST]
    text = seal_text({**manifest.files, MANIFEST: digest})
    write = Write(
        folder / SUMS,
        text,
        said=f"what may have changed in {MANIFEST} itself before could not be found",
    )
    if not seal.is_there and manifest.format < FIRST_SEALED_FORMAT:
        findings.is_sealed = False
        findings.later_seal = None if findings.problems else write
    elif not seal.is_there:
        mending = None if findings.problems else write
        what = f"the repeat has no {SUMS}, which is written with each"
        remedy = "`cellrepro fsck --repair` writes it once all other files are right"
        where = look.where(folder / SUMS)
        findings.problems.append(Problem("missing", what, where, remedy, mending))
    elif seal.vouches_for(MANIFEST, digest) and seal.text != text:
        proven = Write(folder / SUMS, text, said=f"{MANIFEST} is whole, from which it follows")
        findings.problems.append(_damaged_seal(folder, look, proven, why=seal.why_not_read))
    elif seal.is_there and MANIFEST not in seal.digests:
        why = seal.why_not_read or f"{SUMS} does not name {MANIFEST}"
        findings.problems.append(_damaged_seal(folder, look, None, why=why))


def _damaged_seal(folder: Path, look: Look, mending: Mending | None, *, why: str = "") -> Problem:
    what = why or f"{SUMS} does not say what the other files say"
    return Problem("damaged", what, look.where(folder / SUMS), RESTORE_REPEAT, mending)


def _named_otherwise(folder: Path, manifest: Manifest, key: str, look: Look) -> Iterator[Problem]:
    """A problem where the repeat's folder has not the name that its manifest says."""
    machine, index = folder.parts[-2:]
    names = {
        "run": (key, manifest.key),
        "machine": (machine, manifest.machine.name),
        "repeat": (index, str(manifest.repeat)),
    }
    wrong = [
        f"{what} {said}, and lies in {named}"
        for what, (named, said) in names.items()
        if named != said
    ]
    if not wrong:
        return
    run = folder.parents[1] if manifest.key == key else folder.parents[2] / manifest.key
    target = run / manifest.machine.name / str(manifest.repeat)
    what = f"its {MANIFEST} says that it is {'; '.join(wrong)}"
    remedy = f"move it to {look.where(target)}, or copy the store again"
    mending: Mending | None = None
    if not target.exists() and (run / SPEC).exists():
        mending = Move(folder, target)
    elif _has_same_manifest(folder, target, look):
        remedy = f"remove it: the same repeat is in {look.where(target)}"
        mending = PutAside(folder)
    yield Problem("misplaced", what, look.where(folder), remedy, mending)


def _has_same_manifest(a: Path, b: Path, look: Look) -> bool:
    try:
        return look.contents.digest(a / MANIFEST) == look.contents.digest(b / MANIFEST)
    except OSError:
        return False


def _without_a_digest(folder: Path, manifest: Manifest, look: Look) -> Iterator[Problem]:
    """A problem for what a manifest speaks of without naming its file among the others."""
    spoken_of = [mask.file for mask in manifest.masks.values()]
    for name in spoken_of:
        if name not in manifest.files:
            what = f"it speaks of {name}, and has no digest of that file"
            yield Problem("damaged", what, look.where(folder / MANIFEST), RESTORE_REPEAT)
