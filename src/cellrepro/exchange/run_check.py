"""Check of a stored run: spec and repeats by seal and folder, masks by what the manifest says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cellrepro.comparison.label_numbers import canonical
from cellrepro.exchange.archive.file_checks import check_masks, possible_digests
from cellrepro.exchange.folder_check import FilesOnDisk, Findings, FolderFiles, FolderSeal
from cellrepro.exchange.problem import ASK_THE_SENDER, Problem
from cellrepro.images.decoding import decode_labels, read_bytes
from cellrepro.store.manifest import Manifest, MaskRecord
from cellrepro.store.seal import FIRST_SEALED_FORMAT, SUMS, seal_text
from cellrepro.store.stored_run import MANIFEST, SPEC, Repeat, read_record, read_spec
from samebits.errors import BadInput, without_number
from samebits.words import amount

_RESTORE_RUN = "copy it again from where it came, or remove this run's folder and run it again"
_RESTORE_REPEAT = (
    "copy it again from where it came, or remove this repeat's folder and run it again"
)
_UNFIT_SEAL = f"{SUMS} does not say what the other files say"


# -- the spec --------------------------------------------------------------------------------------


@dataclass
class SpecFindings(Findings):
    """The outcome of checking the spec of a run."""

    key: str = ""
    """Key of the run, by which its folder is or should be named."""


def check_spec(folder: Path, on_disk: FilesOnDisk) -> SpecFindings:
    """Compare the ``spec.json`` of a run with its seal, and its key with the folder's name."""
    path = folder / SPEC
    where = on_disk.where(path)
    seal = FolderSeal.of(folder)
    findings = SpecFindings(n_files=1, key=folder.name, is_sealed=seal.is_there)
    try:
        text = seal_text({SPEC: on_disk.digest(path)})
        key = read_record(path, read_spec).key
    except FileNotFoundError:
        problem = Problem("missing", f"the run has no {SPEC}", where, _RESTORE_RUN)
        findings.problems.append(problem)
        return findings
    except (OSError, BadInput) as error:
        findings.problems.append(Problem("damaged", without_number(error), where, _RESTORE_RUN))
        return findings
    if seal.is_there and seal.text != text:
        if key != folder.name:
            what = f"its content has changed: it now asks for a run of the key {key}"
        elif SPEC in seal.digests:
            what = f"{SPEC} and its line in {SUMS} do not fit: one of the two has changed"
        else:
            what = seal.why_not_read or _UNFIT_SEAL
            where = on_disk.where(folder / SUMS)
        findings.problems.append(Problem("damaged", what, where, _RESTORE_RUN))
    elif key != folder.name:
        findings.key = key
        what = f"the folder holds the run {key}"
        remedy = f"rename it to {key}, or copy the store again"
        findings.problems.append(Problem("misplaced", what, on_disk.where(folder), remedy))
    return findings


# -- a repeat --------------------------------------------------------------------------------------


def check_repeat(
    folder: Path, on_disk: FilesOnDisk, *, key: str, not_sent: frozenset[str] = frozenset()
) -> Findings:
    """Compare every file of a repeat with its digest, and its folder's name with its manifest."""
    files = FolderFiles.of(folder, on_disk, remedy=_RESTORE_REPEAT)
    findings = Findings([*files.strange], n_files=len(files.digests))
    seal = FolderSeal.of(folder)
    manifest = _read_manifest(files, seal, findings)
    files.compare(_expected(files, seal, manifest), findings, not_sent=not_sent)
    if manifest is not None:
        _check_seal(files, seal, manifest, findings)
        findings.problems += _wrong_folder(folder, manifest, key, on_disk)
        findings.problems += _without_a_digest(files, manifest)
    return findings


def _read_manifest(files: FolderFiles, seal: FolderSeal, findings: Findings) -> Manifest | None:
    """Read the manifest; None if that fails, which is added to the findings."""
    expected = seal.digests.get(MANIFEST)
    digest = files.digests.get(MANIFEST)
    if digest is None:
        what = f"the repeat has no {MANIFEST}"
        findings.problems.append(files.problem("missing", MANIFEST, what, lost_digest=expected))
        return None
    is_changed = expected is not None and expected != digest
    if is_changed:
        findings.problems.append(files.changed(MANIFEST, seal.digests[MANIFEST]))
    try:
        return read_record(files.folder / MANIFEST, Manifest.model_validate_json)
    except BadInput as error:
        if not is_changed:
            findings.problems.append(files.problem("damaged", MANIFEST, str(error)))
        return None


def _expected(files: FolderFiles, seal: FolderSeal, manifest: Manifest | None) -> Mapping[str, str]:
    """The digest of each file but the manifest: by that if it is whole, or by the seal."""
    is_whole = seal.vouches_for(MANIFEST, files.digests.get(MANIFEST))
    if manifest is not None and (is_whole or MANIFEST not in seal.digests):
        return manifest.files
    return {name: digest for name, digest in seal.digests.items() if name != MANIFEST}


def _check_seal(
    files: FolderFiles, seal: FolderSeal, manifest: Manifest, findings: Findings
) -> None:
    """Add a problem for a seal that is missing or was changed."""
    digest = files.digests[MANIFEST]
    if not seal.is_there:
        findings.is_sealed = manifest.format >= FIRST_SEALED_FORMAT
        if findings.is_sealed:
            what = f"the repeat has no {SUMS}, which is written with each"
            findings.problems.append(files.problem("missing", SUMS, what))
    elif seal.vouches_for(MANIFEST, digest):
        if seal.text != seal_text({**manifest.files, MANIFEST: digest}):
            what = seal.why_not_read or _UNFIT_SEAL
            findings.problems.append(files.problem("damaged", SUMS, what))
    elif MANIFEST not in seal.digests:
        what = seal.why_not_read or f"{SUMS} does not name {MANIFEST}"
        findings.problems.append(files.problem("damaged", SUMS, what))


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
    run = folder.parents[2] / manifest.key
    target = run / manifest.machine.name / str(manifest.repeat)
    if _has_same_manifest(folder, target, on_disk):
        remedy = f"remove it: the same repeat is in {on_disk.where(target)}"
    else:
        remedy = f"move it to {on_disk.where(target)}, or copy the store again"
    what = f"its {MANIFEST} says that it is {'; '.join(wrong)}"
    yield Problem("misplaced", what, on_disk.where(folder), remedy)


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


# -- the masks -----------------------------------------------------------------------------------


def wrong_masks(repeat: Repeat, *, where: str) -> Iterator[Problem]:
    """Decode every mask of a repeat; a problem for each that is not the one of its manifest."""
    for image, record in repeat.manifest.masks.items():
        path = repeat.folder / record.file
        if not path.exists():
            continue
        try:
            check_masks(path, record)
            _check_outlines(path, record)
        except BadInput as error:
            why = str(error).replace(f"{repeat.folder}/", "")
            what = f"the masks of {image} are not those of which the manifest speaks: {why}"
            yield Problem("contradiction", what, f"{where}/{record.file}", ASK_THE_SENDER)


def _check_outlines(path: Path, record: MaskRecord) -> None:
    outlines = canonical(decode_labels(path, read_bytes(path)).pixels)
    if record.canonical_digest not in possible_digests(outlines):
        raise BadInput(f"{path}: the digest of its outlines is a different one in the manifest")
    n_objects = int(outlines.max(initial=0))
    if n_objects != record.n_objects:
        raise BadInput(
            f"{path}: {amount(n_objects, 'cell')}, and {record.n_objects} in the manifest"
        )
