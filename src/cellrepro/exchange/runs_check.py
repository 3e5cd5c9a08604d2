"""Check of the runs of a store, and of the images that it keeps of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.files_on_disk import NOT_OURS, FilesOnDisk, entries_of, leftover, stray
from cellrepro.exchange.folder_check import Findings, check_images
from cellrepro.exchange.problem import Problem, Write
from cellrepro.exchange.repeat_check import check_repeat
from cellrepro.exchange.spec_check import check_spec
from cellrepro.store.manifest import ResultSummary
from cellrepro.store.seal import FIRST_SEALED_FORMAT, SUMS
from cellrepro.store.stored_run import MANIFEST, SPEC, read_record
from cellrepro.store.unsent_files import names_not_sent
from cellrepro.words import amount, joined

_IMAGES = re.compile(r"[0-9a-f]{16}")


@dataclass
class StoreFindings:
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


def check_run(folder: Path, check: StoreFindings) -> None:
    """Add the findings of the folder of a run: its spec, its repeats, and what else lies in it."""
    on_disk = check.on_disk
    if not folder.is_dir() or folder.is_symlink():
        check.problems.append(stray(folder, on_disk))
        return
    machines = [entry for entry in entries_of(folder) if entry.is_dir() and not entry.is_symlink()]
    if not any(entries_of(machine) for machine in machines) and not (folder / SPEC).exists():
        check.problems.append(_empty(folder, on_disk))
        return
    spec = check_spec(folder, on_disk)
    check.add(spec)
    check.problems += [
        stray(entry, on_disk)
        for entry in entries_of(folder)
        if entry not in machines and entry.name not in (SPEC, SUMS)
    ]
    repeats = [*_repeats_of(machines, check)]
    for repeat in repeats:
        _check_one_repeat(repeat, spec.key, check)
    if spec.later_seal is not None:
        _note_unsealed_run(spec.later_seal, repeats, check)


def _repeats_of(machines: Iterable[Path], check: StoreFindings) -> Iterator[Path]:
    for machine in machines:
        entries = entries_of(machine)
        if not entries:
            check.problems.append(_empty(machine, check.on_disk))
        for entry in entries:
            is_folder = entry.is_dir() and not entry.is_symlink()
            if is_folder and not entries_of(entry):
                check.problems.append(_empty(entry, check.on_disk))
            elif is_folder and (entry.name.isdecimal() or (entry / MANIFEST).exists()):
                yield entry
            else:
                check.problems.append(stray(entry, check.on_disk))


def _check_one_repeat(folder: Path, key: str, check: StoreFindings) -> None:
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


def _note_unsealed_run(seal: Write, repeats: Sequence[Path], check: StoreFindings) -> None:
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


def image_folders(root: Path) -> list[Path]:
    """The folders of kept images; a ``data/`` of a project has others, not named by a digest."""
    return [entry for entry in entries_of(root / "data") if _IMAGES.fullmatch(entry.name)]


def check_image_folder(folder: Path, check: StoreFindings) -> None:
    """Add the findings of a folder of kept images."""
    if folder.is_dir() and not folder.is_symlink():
        check.add(check_images(folder, check.on_disk))
    else:
        where = check.on_disk.where(folder)
        what = "the lab keeps images in folders, and this is none, though a digest is its name"
        check.problems.append(Problem("extra", what, where, NOT_OURS))


def _empty(path: Path, on_disk: FilesOnDisk) -> Problem:
    return leftover(path, on_disk, "there is no run in this folder")
