"""Repair of a store, from contents that lie elsewhere in it or follow from its other files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cellrepro.digests.digests import file_digest
from cellrepro.exchange.files_on_disk import FilesOnDisk
from cellrepro.exchange.problem import Mending, Move, Problem, PutAside, Remove, Restore, Write
from cellrepro.store.locks import locked
from cellrepro.store.removal import remove_empty, remove_file, remove_folder
from cellrepro.store.whole_files import link_or_copy, replace_file, scratch_beside, whole_file

ASIDE = "aside"
"""Folder of the store for what the lab has not written."""

Kind = TypeVar("Kind", Restore, Write, Move, Remove, PutAside)


@dataclass(frozen=True)
class Repair:
    """One repair that was made."""

    what: str
    """What was done, in a sentence."""
    where: str
    """The file or folder, by its path in the store."""


def carry_out(problems: Iterable[Problem], on_disk: FilesOnDisk) -> list[Repair]:
    """Carry out the mendings of problems; returns those that succeeded."""
    mendings = [
        problem.mending
        for problem in problems
        if problem.mending is not None and _stays_in(on_disk.root, problem.mending)
    ]
    restored = _restore_all([one for one in mendings if isinstance(one, Restore)], on_disk)
    others = [
        *_each(mendings, Write, _write),
        *_each(mendings, Remove, _remove),
        *_each(mendings, PutAside, lambda one: _put_aside(one, on_disk.root)),
        *_each(mendings, Move, lambda one: _move(one, on_disk)),
    ]
    return [*restored, *(Repair(what, on_disk.where(path)) for path, what in others)]


def _stays_in(root: Path, mending: Mending) -> bool:
    """Whether a mending touches only the store, with symbolic links resolved."""
    paths = [mending.path]
    if isinstance(mending, Move):
        paths.append(mending.target)
    if isinstance(mending, PutAside):
        paths.append(_aside(mending, root))
    real_root = root.resolve()
    return all(path.parent.resolve().is_relative_to(real_root) for path in paths)


def _each(
    mendings: Iterable[object], kind: type[Kind], carry: Callable[[Kind], str | None]
) -> Iterable[tuple[Path, str]]:
    """Carry out the mendings of one kind, and say of each what was done."""
    for one in mendings:
        if isinstance(one, kind):
            what = carry(one)
            if what is not None:
                yield one.path, what


def _restore_all(mendings: Iterable[Restore], on_disk: FilesOnDisk) -> list[Repair]:
    """Restore files from others with their content.

    All copies are made before the first is renamed into place: if two files were exchanged, each is
    the only source of the other.
    """
    prepared = [_prepared(one, on_disk) for one in mendings]
    repairs = []
    for copy in prepared:
        if copy is not None:
            copy.scratch.chmod(0o444)
            replace_file(copy.scratch, copy.target)
            what = f"it has its content again, from {on_disk.where(copy.source)}"
            repairs.append(Repair(what, on_disk.where(copy.target)))
    return repairs


@dataclass(frozen=True)
class _Prepared:
    """A scratch file with the right content beside the wrong file."""

    target: Path
    scratch: Path
    source: Path


def _prepared(one: Restore, on_disk: FilesOnDisk) -> _Prepared | None:
    """Copy the right content beside a damaged or missing file; None if no file has it."""
    for source in on_disk.files_with(one.digest):
        with contextlib.suppress(OSError):
            scratch = scratch_beside(one.path)
            scratch.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, scratch)
            if file_digest(scratch) == one.digest:
                return _Prepared(one.path, scratch, source)
            remove_file(scratch)
    return None


def _write(one: Write) -> str:
    with whole_file(one.path, replace=True, read_only=True) as scratch:
        scratch.write_bytes(one.text.encode())
    return f"it was written; {one.remark}"


def _remove(one: Remove) -> str | None:
    if one.path.suffix == ".lock":
        # `locked` deletes the file when the block ends, unless another process has taken the lock.
        with locked(one.path.with_suffix("")) as is_ours:
            return "it was removed" if is_ours else None
    if one.path.is_dir() and not one.path.is_symlink():
        remove_folder(one.path)
    else:
        remove_file(one.path)
    remove_empty(one.path.parent)
    return "it was removed"


def _put_aside(one: PutAside, root: Path) -> str:
    target = _aside(one, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    one.path.rename(target)
    remove_empty(one.path.parent)
    return f"it was moved to {target.relative_to(root).as_posix()}"


def _aside(one: PutAside, root: Path) -> Path:
    """The first free path for something that is put aside."""
    relative = one.path.relative_to(root)
    target = root / ASIDE / relative
    number = 1
    while target.exists():
        number += 1
        target = root / f"{ASIDE}-{number}" / relative
    return target


def _move(one: Move, on_disk: FilesOnDisk) -> str | None:
    if one.target.exists() or not one.path.exists():
        return None
    one.target.parent.mkdir(parents=True, exist_ok=True)
    one.path.rename(one.target)
    remove_empty(one.path.parent)
    return f"it was renamed to {on_disk.where(one.target)}"
