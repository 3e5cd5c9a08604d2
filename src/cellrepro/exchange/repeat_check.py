"""Check of a stored repeat: every file against its digest, its seal, and where it lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.files_on_disk import FilesOnDisk
from cellrepro.exchange.folder_check import RESTORE_REPEAT, Findings, FolderFiles, damaged_seal
from cellrepro.exchange.folder_seal import FolderSeal
from cellrepro.exchange.problem import Mending, Move, Problem, PutAside, Restore, Write
from cellrepro.store.manifest import Manifest
from cellrepro.store.seal import FIRST_SEALED_FORMAT, SUMS, seal_text
from cellrepro.store.stored_run import MANIFEST, SPEC, read_record


def check_repeat(
    folder: Path, on_disk: FilesOnDisk, *, key: str, not_sent: frozenset[str] = frozenset()
) -> Findings:
    """Compare every file of a repeat with its digest, and its folder's name with its manifest."""
    files = FolderFiles.of(folder, on_disk, remedy=RESTORE_REPEAT)
    findings = Findings([*files.strange], n_files=len(files.digests))
    sealed = _SealedFiles(files, FolderSeal.of(folder))
    manifest = sealed.read_manifest(findings)
    files.compare(sealed.expected(manifest), findings, not_sent=not_sent)
    if manifest is not None:
        sealed.check_seal(manifest, findings)
        findings.problems += _wrong_folder(folder, manifest, key, on_disk)
        findings.problems += _without_a_digest(files, manifest)
    return findings


@dataclass(frozen=True)
class _SealedFiles:
    """The files of a repeat, and its seal."""

    files: FolderFiles
    seal: FolderSeal

    def read_manifest(self, findings: Findings) -> Manifest | None:
        """Read the manifest; None if that fails, which is added to the findings."""
        files = self.files
        path = files.folder / MANIFEST
        expected = self.seal.digests.get(MANIFEST)
        digest = files.digests.get(MANIFEST)
        if digest is None:
            mending = None if expected is None else Restore(path, expected)
            what = f"the repeat has no {MANIFEST}"
            findings.problems.append(files.problem("missing", MANIFEST, what, mending))
            return None
        is_changed = expected is not None and expected != digest
        if is_changed:
            findings.problems.append(files.changed(MANIFEST, self.seal.digests[MANIFEST]))
        try:
            return read_record(path, Manifest.model_validate_json)
        except BadInput as error:
            if not is_changed:
                findings.problems.append(files.problem("damaged", MANIFEST, str(error)))
            return None

    def expected(self, manifest: Manifest | None) -> Mapping[str, str]:
        """The digest of each file but the manifest: by that if it is whole, or by the seal."""
        seal = self.seal
        is_whole = seal.vouches_for(MANIFEST, self.files.digests.get(MANIFEST))
        if manifest is not None and (is_whole or MANIFEST not in seal.digests):
            return manifest.files
        return {name: digest for name, digest in seal.digests.items() if name != MANIFEST}

    def check_seal(self, manifest: Manifest, findings: Findings) -> None:
        """Add a problem for a seal that is missing or was changed."""
        seal = self.seal
        folder = self.files.folder
        on_disk = self.files.on_disk
        digest = self.files.digests[MANIFEST]
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
            remark = f"{MANIFEST} is whole, from which it follows"
            proven = Write(folder / SUMS, text, remark=remark)
            problem = damaged_seal(folder, on_disk, proven, why=seal.why_not_read)
            findings.problems.append(problem)
        elif MANIFEST not in seal.digests:
            why = seal.why_not_read or f"{SUMS} does not name {MANIFEST}"
            findings.problems.append(damaged_seal(folder, on_disk, None, why=why))


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


def _without_a_digest(files: FolderFiles, manifest: Manifest) -> Iterator[Problem]:
    """A problem for each mask in a manifest that lists no digest of its file."""
    for name in [mask.file for mask in manifest.masks.values()]:
        if name not in manifest.files:
            what = f"it speaks of {name}, and has no digest of that file"
            yield files.problem("damaged", MANIFEST, what)
