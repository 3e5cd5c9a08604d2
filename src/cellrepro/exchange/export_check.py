"""Check of an exported file: its bytes against digests, its parts against each other."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cellrepro.errors import Damaged
from cellrepro.exchange.archive.contents import (
    MOST_SPEC_BYTES,
    Contents,
    ReceivedRepeat,
    read_contents,
)
from cellrepro.exchange.archive.entry_names import PASSPORTS_FILE
from cellrepro.exchange.archive.reading import ExportedFile
from cellrepro.exchange.passport_check import contradictions, wrong_masks
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.target_check import what_is_missing
from cellrepro.exchange.target_findings import Checking, TargetFindings, verified_passports
from cellrepro.progress import progress
from cellrepro.spec.spec import KEY_LENGTH
from cellrepro.store.seal import SUMS
from cellrepro.store.stored_run import MANIFEST, SPEC, Repeat

_COPY_AGAIN = "copy the file again from where it came, or ask its sender for a new one"
_MASKS = "masks/"


def check_export(archive: ExportedFile, checking: Checking) -> TargetFindings:
    """Check every byte of an exported file, then what its parts say of each other."""
    findings = TargetFindings()
    _check_bytes(archive, checking, findings)
    if findings.problems:
        findings.n_repeats = len({name for name in archive.digests if name.endswith(MANIFEST)})
        return findings
    contents = read_contents(archive)
    findings.n_repeats = len(contents.repeats)
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as scratch:
        for repeat in contents.repeats.values():
            unpacked = _unpacked(archive, repeat, Path(scratch))
            _check_one(repeat, unpacked, contents, checking, findings, where=str(archive.path))
    return findings


def _check_bytes(archive: ExportedFile, checking: Checking, findings: TargetFindings) -> None:
    """Read every file; a problem for each whose content is not the exported one."""
    names = list(archive.digests)
    findings.n_files = len(names)
    quiet = checking.quiet or archive.n_bytes < 2**26
    with progress(len(names), "files verified", quiet=quiet, even=False) as bar:
        for name in names:
            try:
                for _ in archive.blocks(name):
                    pass
            except Damaged:
                what = "its content is not what was exported"
                findings.problems.append(Problem("damaged", what, name, _COPY_AGAIN))
            bar.advance()


def _unpacked(archive: ExportedFile, repeat: ReceivedRepeat, scratch: Path) -> Repeat:
    """Unpack a repeat as in a store, without weights and ledgers."""
    folder = scratch / "runs" / repeat.name
    run = folder.parents[1]
    (folder / _MASKS).mkdir(parents=True)
    key = repeat.spec.key
    (run / SPEC).write_bytes(archive.content(f"runs/{key}/{SPEC}", most_bytes=MOST_SPEC_BYTES))
    for name in repeat.digests:
        if name in (MANIFEST, SUMS) or name.startswith(_MASKS):
            with (folder / name).open("wb") as stream:
                stream.writelines(archive.blocks(repeat.inside(name)))
    return Repeat(folder)


def _check_one(
    sent: ReceivedRepeat,
    unpacked: Repeat,
    contents: Contents,
    checking: Checking,
    findings: TargetFindings,
    *,
    where: str,
) -> None:
    wrong = list(wrong_masks(unpacked, where=f"runs/{sent.name}"))
    findings.problems += wrong
    for mask in (unpacked.folder / _MASKS).iterdir():  # scratch holds one repeat at a time
        mask.unlink()
    if sent.manifest.vacuous:
        findings.vacuous[sent.name] = tuple(sent.manifest.vacuous)
    bundle = contents.passports
    for passport in bundle.passports_of(sent.name):
        findings.problems += contradictions(passport, unpacked, where=PASSPORTS_FILE)
    not_here = [*what_is_missing(sent.missing)]
    has_images = sent.spec.data_digest[:KEY_LENGTH] in contents.image_folders
    if not has_images:
        not_here.append(f"the folder of images {sent.spec.data}")
    for verified in verified_passports(
        sent.name, bundle, checking, not_here=not_here, has_images=has_images
    ):
        findings.add_verified(verified, where=where)
