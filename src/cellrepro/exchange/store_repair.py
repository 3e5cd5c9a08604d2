"""What is wrong in a store put right, as far as the store itself holds what that takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cellrepro.digests.digests import file_digest
from cellrepro.exchange.folder_check import Look
from cellrepro.exchange.problem import Mending, Move, Problem, PutAside, Remove, Restore, Write
from cellrepro.store.locks import locked
from cellrepro.store.whole_files import (
    link_or_copy,
    remove_empty,
    remove_file,
    remove_folder,
    replace_file,
    scratch_beside,
    whole_file,
)

ASIDE = "aside"
"""Folder of the store to which is moved what the lab has not put there."""

Kind = TypeVar("Kind", Restore, Write, Move, Remove, PutAside)


@dataclass(frozen=True)
class Repair:
    """One thing that was put right."""

    what: str
    """What was done, in a sentence."""
    where: str
    """The file or folder, by its path in the store."""


def carry_out(problems: Iterable[Problem], look: Look) -> list[Repair]:
    """Put right what can be.

    Empty where nothing could be done.
    """
    mendings = [
        problem.mending
        for problem in problems
        if problem.mending is not None and _stays_in(look.root, problem.mending)
    ]
    restored = _restore_all([one for one in mendings if isinstance(one, Restore)], look)
    others = [
        *_each(mendings, Write, _write),
        *_each(mendings, Remove, _remove),
        *_each(mendings, PutAside, lambda one: _put_aside(one, look.root)),
        *_each(mendings, Move, lambda one: _move(one, look)),
    ]
    return [*restored, *(Repair(what, look.where(path)) for path, what in others)]


def _stays_in(root: Path, mending: Mending) -> bool:
    """Whether what would be put right lies in the store, links followed, and stays there."""
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
    """Carry those of one kind out, and say of each what was done."""
    for one in mendings:
        if isinstance(one, kind):
            what = carry(one)
            if what is not None:
                yield one.path, what


def _restore_all(mendings: Iterable[Restore], look: Look) -> list[Repair]:
    """Bring contents back from where they lie elsewhere.

    All are prepared before the first is put in place: of two files that were exchanged each is the
    only source of the other.
    """
    prepared = [_prepared(one, look) for one in mendings]
    repairs = []
    for copy in prepared:
        if copy is not None:
            copy.scratch.chmod(0o444)
            replace_file(copy.scratch, copy.target)
            what = f"it has its content again, from {look.where(copy.source)}"
            repairs.append(Repair(what, look.where(copy.target)))
    return repairs


@dataclass(frozen=True)
class _Prepared:
    """A file of the right content beside the wrong one, and where that content lay."""

    target: Path
    scratch: Path
    source: Path


def _prepared(one: Restore, look: Look) -> _Prepared | None:
    """Prepare a file that was damaged or is missing; none where its content is not to be had."""
    for source in look.contents.files_with(one.digest):
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
    return f"it was written; {one.said}"


def _remove(one: Remove) -> str | None:
    if one.path.suffix == ".lock":
        # Who takes a lock removes it in the end; what another process has taken since stays.
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
    """Where something is put aside: where nothing is yet."""
    relative = one.path.relative_to(root)
    target = root / ASIDE / relative
    number = 1
    while target.exists():
        number += 1
        target = root / f"{ASIDE}-{number}" / relative
    return target


def _move(one: Move, look: Look) -> str | None:
    if one.target.exists() or not one.path.exists():
        return None
    one.target.parent.mkdir(parents=True, exist_ok=True)
    one.path.rename(one.target)
    remove_empty(one.path.parent)
    return f"it was renamed to {look.where(one.target)}"
