"""Check of the spec of a run: its content, its seal, and the folder that is named by its key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.files_on_disk import FilesOnDisk
from cellrepro.exchange.folder_check import Findings, damaged_seal
from cellrepro.exchange.folder_seal import FolderSeal
from cellrepro.exchange.problem import Move, Problem, Write
from cellrepro.store.seal import SUMS, seal_text
from cellrepro.store.stored_run import SPEC, read_record, read_spec

RESTORE_RUN = "copy it again from where it came, or remove this run's folder and run it again"
_BY_ITS_KEY = f"{SPEC} asks for the run that its folder is named by"


@dataclass
class SpecFindings(Findings):
    """The outcome of checking the spec of a run."""

    key: str = ""
    """Key of the run, by which its folder is or should be named."""


def check_spec(folder: Path, on_disk: FilesOnDisk) -> SpecFindings:
    """Compare the ``spec.json`` of a run with its seal, and its key with the folder's name."""
    findings = SpecFindings(n_files=1, key=folder.name)
    path = folder / SPEC
    where = on_disk.where(path)
    seal = FolderSeal.of(folder)
    findings.is_sealed = seal.is_there
    try:
        text = seal_text({SPEC: on_disk.digest(path)})
        key = read_record(path, read_spec).key
    except FileNotFoundError:
        problem = Problem("missing", f"the run has no {SPEC}", where, RESTORE_RUN)
        findings.problems.append(problem)
        return findings
    except (OSError, BadInput) as error:
        findings.problems.append(Problem("damaged", str(error), where, RESTORE_RUN))
        return findings
    own_seal = Write(folder / SUMS, text, remark=_BY_ITS_KEY)
    is_named_by_it = key == folder.name
    if seal.is_there and seal.text != text:
        if not is_named_by_it:
            what = f"its content has changed: it now asks for a run of the key {key}"
            findings.problems.append(Problem("damaged", what, where, RESTORE_RUN))
        elif SPEC in seal.digests:
            what = f"{SPEC} and its line in {SUMS} do not fit: one of the two has changed"
            findings.problems.append(Problem("damaged", what, where, RESTORE_RUN))
        else:
            findings.problems.append(damaged_seal(folder, on_disk, own_seal))
    elif not is_named_by_it:
        findings.key = key
        findings.problems.append(_misplaced(folder, key, on_disk))
    elif not seal.is_there:
        findings.later_seal = own_seal
    return findings


def _misplaced(folder: Path, key: str, on_disk: FilesOnDisk) -> Problem:
    what = f"the folder holds the run {key}"
    remedy = f"rename it to {key}, or copy the store again"
    target = folder.with_name(key)
    mending = None if target.exists() else Move(folder, target)
    return Problem("misplaced", what, on_disk.where(folder), remedy, mending)
