"""Repeats that did not come to their end: trainings that were killed, and failures in a grid.

They lie outside of ``runs``. A killed training keeps its checkpoints, from which it can go on; a
repeat that failed keeps the reason and its notebook.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.store.locks import locked
from cellrepro.store.removal import remove_empty, remove_if_possible
from cellrepro.store.store_paths import inside, regular_bytes
from cellrepro.store.stored_run import NOTEBOOK, SPEC
from cellrepro.store.whole_files import write_whole

if TYPE_CHECKING:
    from cellrepro.spec.spec import Spec

_MOST_BYTES = 2**24
"""The largest record that is read, far above what any spec takes."""


# -- killed trainings ----------------------------------------------------------------------


def read_unfinished_specs(root: Path) -> dict[str, dict[str, Any] | None]:
    """The specs of the trainings that were not finished, by ``KEY/MACHINE/REPEAT``.

    None where a spec cannot be read: a training with this key writes it anew.
    """
    area = root / "unfinished"
    return {
        path.parent.relative_to(area).as_posix(): _spec_in(path)
        for path in sorted(area.glob(f"*/*/*/{SPEC}"))
    }


def _spec_in(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        document = json.loads(regular_bytes(path, most_bytes=_MOST_BYTES))
        if isinstance(document, dict):
            return document
    return None


@contextmanager
def work_on(root: Path, spec: Spec, machine: str, repeat: int) -> Iterator[Path | None]:
    """Lock the folder of an unfinished repeat for the block; None if another process has it.

    It is made, with the spec, if it was not there. Checkpoints in it stay if the block raises, and
    are removed after a block that ends well.
    """
    folder = inside(root / "unfinished", f"{spec.key}/{machine}/{repeat}")
    with contextlib.ExitStack() as stack:
        stack.callback(remove_empty, *list(folder.parents)[1:3])
        if not stack.enter_context(locked(folder)):
            yield None
            return
        folder.mkdir(exist_ok=True)
        write_whole(folder / SPEC, spec.model_dump_json(), replace=True)
        is_done = False
        try:
            yield folder
            is_done = True
        finally:
            if is_done or not any(item.is_dir() for item in folder.iterdir()):
                remove_if_possible(folder)


# -- failures ------------------------------------------------------------------------------

_RECORD = "failure.json"


@dataclass(frozen=True)
class KeptFailure:
    """Why a repeat of a grid failed."""

    folder: Path
    key: str
    """Key of its spec."""
    machine: str
    repeat: int | str
    """Its number, from 0; a text where its folder is not named by a number."""
    reason: str
    spec: dict[str, Any] | None
    """The spec as plain values; None where it is not known."""


def read_failures(root: Path) -> list[KeptFailure]:
    """All failures of a store, in order of keys, machines and repeats."""
    return [_read(path) for path in sorted(root.glob(f"failed/*/*/*/{_RECORD}"))]


def _read(path: Path) -> KeptFailure:
    """Read one record; of a damaged one is known what the names of its folders say."""
    key, machine, repeat = path.parent.parts[-3:]
    reason, spec = _reason_and_spec(path)
    return KeptFailure(
        folder=path.parent,
        key=key,
        machine=machine,
        repeat=int(repeat) if repeat.isdecimal() else repeat,
        reason=reason,
        spec=spec,
    )


def _reason_and_spec(path: Path) -> tuple[str, dict[str, Any] | None]:
    """What a record says beside its folder, which tells its repeat, also where it was copied."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        record = json.loads(regular_bytes(path, most_bytes=_MOST_BYTES))
        reason = record.get("reason")
        spec = record.get("spec")
        if isinstance(reason, str) and (spec is None or isinstance(spec, dict)):
            return reason, spec
    return f"not known: {path} cannot be read", None


def folder_of(root: Path, key: str, machine: str, repeat: int) -> Path:
    """The folder of a failed repeat."""
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
    """Remove the record of a failure, if there is one."""
    folder = folder_of(root, key, machine, repeat)
    remove_if_possible(folder)
    remove_empty(*list(folder.parents)[:3])
