"""Moves a staged repeat into the store: images once, files sealed, then an atomic rename."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cellrepro.digests.digests import file_digest
from cellrepro.errors import BadInput
from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store.removal import remove_folder
from cellrepro.store.renames import link_or_copy, moved, replace_by_link
from cellrepro.store.seal import FIRST_SEALED_FORMAT, SUMS, seal_files, seal_repeat
from cellrepro.store.store_paths import inside
from cellrepro.store.stored_run import MANIFEST, SPEC, Repeat
from cellrepro.store.whole_files import write_whole

if TYPE_CHECKING:
    from cellrepro.store.manifest import Manifest

STAGED_DATA = "data"
"""Folder of a staged repeat whose content goes to the store's ``data/DIGEST``."""

Placing = Literal["is stored", "as a new run", "into its run"]


def commit(root: Path, staged: Path, spec: Spec) -> Repeat:
    """Seal a staged repeat and move it into place, unless another process has stored it."""
    manifest = Repeat(staged).manifest
    target = _folder_of(root, spec.key, manifest)
    run = target.parents[1]
    _keep_images(root, staged / STAGED_DATA, spec.images_digest)
    placing = _where_to_place(run, target)
    if placing != "is stored":
        _seal(root, staged, manifest)
    match placing:
        case "is stored":
            pass
        case "as a new run":
            _move_with_spec(staged, run, target, spec)
        case "into its run":
            _move_into_run(staged, target)
    return Repeat(target)


def commit_received(root: Path, staged: Path, staged_run: Path) -> Repeat:
    """Move a repeat into place that another store has sealed; its files stay as they came.

    If another process was first, the repeat is that one's.
    """
    manifest = Repeat(staged).manifest
    target = _folder_of(root, manifest.key, manifest)
    run = target.parents[1]
    placing = _where_to_place(run, target)
    if placing != "is stored":
        present = {name: d for name, d in manifest.files.items() if (staged / name).exists()}
        _share(root, staged, manifest, present)
        for name in (MANIFEST, SUMS):
            if (staged / name).exists():
                (staged / name).chmod(0o444)
    if placing == "as a new run":
        whole = staged.with_name(f"{staged.name}-{manifest.key}")
        shutil.copytree(staged_run, whole, copy_function=link_or_copy)
        for path in whole.iterdir():
            path.chmod(0o444)
        _move_whole_run(whole, staged, run, target)
    elif placing == "into its run":
        _move_into_run(staged, target)
    return Repeat(target)


def _folder_of(root: Path, key: str, manifest: Manifest) -> Path:
    """The folder of a repeat; never behind a link that leads out of the store."""
    return inside(root / "runs", f"{key}/{manifest.machine.name}/{manifest.repeat}")


def _where_to_place(run: Path, target: Path) -> Placing:
    if target.exists():
        return "is stored"
    return "into its run" if run.exists() else "as a new run"


def _move_with_spec(staged: Path, run: Path, target: Path, spec: Spec) -> None:
    """Store a run with its spec and its first repeat, in one rename."""
    whole = staged.with_name(f"{staged.name}-{spec.key}")
    whole.mkdir(parents=True)
    text = spec.model_dump_json(indent=1)
    write_whole(whole / SPEC, text, replace=True, read_only=True)
    seal_files(whole, SPEC)
    _move_whole_run(whole, staged, run, target)


def _move_whole_run(whole: Path, staged: Path, run: Path, target: Path) -> None:
    """Put a repeat into the new folder of its run, and rename that into place."""
    first = whole / target.relative_to(run)
    first.parent.mkdir(parents=True)
    staged.rename(first)
    run.parent.mkdir(parents=True, exist_ok=True)
    if not moved(whole, run):  # another process was first with another repeat, or this one
        _move_into_run(first, target)


def _move_into_run(staged: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    moved(staged, target)


def _keep_images(root: Path, staged: Path, digest: str) -> None:
    """Store the segmented images and their truth, unless they are there already."""
    target = inside(root / "data", digest[:KEY_LENGTH])
    if target.exists():  # nothing was made read-only yet, which Windows would not remove
        shutil.rmtree(staged, ignore_errors=True)
        return
    if not staged.is_dir():
        return
    names = [path.name for path in staged.iterdir()]
    seal_files(staged, *names)
    for name in names:
        (staged / name).chmod(0o444)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not moved(staged, target):  # another process was first
        remove_folder(staged)


def _seal(root: Path, staged: Path, manifest: Manifest) -> None:
    """Write all digests into manifest and seal, and link to what the store holds already."""
    (staged / SUMS).unlink(missing_ok=True)  # of a repeat that was sent, with another manifest
    files = {
        path.relative_to(staged).as_posix(): file_digest(path)
        for path in sorted(staged.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    _share(root, staged, manifest, files)
    manifest.files = files
    manifest.format = FIRST_SEALED_FORMAT
    text = manifest.model_dump_json(indent=1)
    write_whole(staged / MANIFEST, text, replace=True, read_only=True)
    seal_repeat(staged, files, manifest=MANIFEST)


def _share(root: Path, staged: Path, manifest: Manifest, files: Mapping[str, str]) -> None:
    """Link files that the run's first repeats hold already, and make all read-only."""
    stored = _files_by_digest(inside(root / "runs", manifest.key))
    for name, digest in files.items():
        if digest in stored:
            replace_by_link(staged / name, stored[digest])
        # A change in place would reach every repeat that shares it.
        (staged / name).chmod(0o444)


def _files_by_digest(run: Path) -> dict[str, Path]:
    """The files of repeat 0 of each machine, by the digests in their manifests."""
    files = {}
    for folder in run.glob("*/0"):
        with contextlib.suppress(BadInput):  # damaged: no reason to lose the new one
            for name, digest in Repeat(folder).manifest.files.items():
                files[digest] = inside(folder, name)
    return files
