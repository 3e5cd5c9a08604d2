"""What a grid keeps of a repeat that failed: why, and its notebook. It lies outside ``runs``."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.store.stored_run import NOTEBOOK
from cellrepro.store.whole_files import (
    inside,
    regular_bytes,
    remove_empty,
    remove_if_possible,
    write_whole,
)

if TYPE_CHECKING:
    from cellrepro.spec.spec import Spec

_RECORD = "failure.json"
_MOST_BYTES = 2**24


@dataclass(frozen=True)
class KeptFailure:
    """One failed repeat."""

    folder: Path
    key: str
    """Of its spec."""
    machine: str
    repeat: int | str
    """A text where its folder has no number for a name."""
    reason: str
    spec: dict[str, Any] | None
    """What was asked for, plain values; None where it is not known."""


def read_failures(root: Path) -> list[KeptFailure]:
    """All failures of a store, in order of keys, machines and repeats."""
    return [_read(path) for path in sorted(root.glob(f"failed/*/*/*/{_RECORD}"))]


def _read(path: Path) -> KeptFailure:
    """What one file says, or, where it was cut off, what its folder's name says."""
    key, machine, repeat = path.parent.parts[-3:]
    failure = KeptFailure(
        folder=path.parent,
        key=key,
        machine=machine,
        repeat=int(repeat) if repeat.isdecimal() else repeat,
        reason=f"not known: {path} cannot be read",
        spec=None,
    )
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        record = json.loads(regular_bytes(path, most_bytes=_MOST_BYTES))
        reason = record.get("reason")
        spec = record.get("spec")
        # Key, machine and repeat are those of the folder, whatever a copied file says.
        if isinstance(reason, str) and (spec is None or isinstance(spec, dict)):
            return replace(failure, reason=reason, spec=spec)
    return failure


def folder_of(root: Path, key: str, machine: str, repeat: int) -> Path:
    """Where the failure of a repeat lies."""
    return inside(root / "failed", f"{key}/{machine}/{repeat}")


def keep_failure(
    root: Path, staged: Path, spec: Spec, *, machine: str, repeat: int, reason: str
) -> Path:
    """Keep why a repeat failed, with its notebook if one was staged; returns the folder."""
    folder = folder_of(root, spec.key, machine, repeat)
    record = {
        "key": spec.key,
        "machine": machine,
        "repeat": repeat,
        "reason": reason,
        "spec": spec.model_dump(mode="json"),
    }
    forget_failure(root, spec.key, machine=machine, repeat=repeat)
    folder.mkdir(parents=True)
    if (staged / NOTEBOOK).exists():
        shutil.copy(staged / NOTEBOOK, folder / NOTEBOOK)
    write_whole(folder / _RECORD, json.dumps(record, indent=1), replace=True)
    return folder


def forget_failure(root: Path, key: str, *, machine: str, repeat: int) -> None:
    """Remove the trace of a failure, if there is one."""
    folder = folder_of(root, key, machine, repeat)
    remove_if_possible(folder)
    remove_empty(*list(folder.parents)[:3])
