"""Moves a staged repeat into the store: images once, files sealed, then an atomic rename."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store.removal import remove_folder
from cellrepro.store.seal import FIRST_SEALED_FORMAT, SUMS, seal_files, seal_repeat
from cellrepro.store.store_paths import inside
from cellrepro.store.stored_run import MANIFEST, SPEC, Repeat
from cellrepro.store.whole_files import link_or_copy, moved, replace_by_link, write_whole
from samebits.digests import file_digest
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.store.manifest import Manifest

STAGED_DATA = "data"
"""Folder of a staged repeat whose content goes to the store's ``data/DIGEST``."""


def commit(root: Path, staged: Path, spec: Spec) -> Repeat:
    """Seal a staged repeat and move it into place, unless another process has stored it."""
    manifest = Repeat(staged).manifest
    target = _folder_of(root, spec.key, manifest)
    _keep_images(root, staged / STAGED_DATA, spec.images_digest)
    if not target.exists():
        _seal(root, staged, manifest)
        _move_into_place(staged, target, write_spec=partial(_write_spec, spec))
    return Repeat(target)


def commit_received(root: Path, staged: Path, staged_run: Path) -> Repeat:
    """Move a repeat into place that another store has sealed; its files stay as they came.

    If another process was first, the repeat is that one's.
    """
    manifest = Repeat(staged).manifest
    target = _folder_of(root, manifest.key, manifest)
    if not target.exists():
        present = {name: d for name, d in manifest.files.items() if (staged / name).exists()}
        _share(root, staged, manifest.key, present)
        for name in (MANIFEST, SUMS):
            if (staged / name).exists():
                (staged / name).chmod(0o444)
        _move_into_place(staged, target, write_spec=partial(_copy_spec, staged_run))
    return Repeat(target)


def _folder_of(root: Path, key: str, manifest: Manifest) -> Path:
    """The folder of a repeat; never behind a link that leads out of the store."""
    return inside(root / "runs", f"{key}/{manifest.machine.name}/{manifest.repeat}")


def _move_into_place(staged: Path, target: Path, *, write_spec: Callable[[Path], None]) -> None:
    """Rename a repeat into its run, or into place together with a run that is new.

    ``write_spec`` makes the folder of a new run, with its ``spec.json`` and the seal of that.
    """
    run = target.parents[1]
    if not run.exists():
        new_run = staged.with_name(f"{staged.name}-{run.name}")
        write_spec(new_run)
        repeat = new_run / target.relative_to(run)
        repeat.parent.mkdir(parents=True)
        staged.rename(repeat)
        run.parent.mkdir(parents=True, exist_ok=True)
        if moved(new_run, run):
            return
        staged = repeat  # another process was first with another repeat, or this one
    target.parent.mkdir(exist_ok=True)
    moved(staged, target)


def _write_spec(spec: Spec, new_run: Path) -> None:
    new_run.mkdir(parents=True)
    write_whole(new_run / SPEC, spec.model_dump_json(indent=1), replace=True, read_only=True)
    seal_files(new_run, SPEC)


def _copy_spec(staged_run: Path, new_run: Path) -> None:
    shutil.copytree(staged_run, new_run, copy_function=link_or_copy)
    for path in new_run.iterdir():
        path.chmod(0o444)


def _keep_images(root: Path, staged: Path, digest: str) -> None:
    """Store the segmented images and their ground truth, unless they are there already."""
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
    """Write the digests of all files into manifest and seal, and link to equal stored files."""
    (staged / SUMS).unlink(missing_ok=True)  # of a repeat that was sent, with another manifest
    files = {
        path.relative_to(staged).as_posix(): file_digest(path)
        for path in sorted(staged.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    _share(root, staged, manifest.key, files)
    manifest.files = files
    manifest.format = FIRST_SEALED_FORMAT
    text = manifest.model_dump_json(indent=1)
    write_whole(staged / MANIFEST, text, replace=True, read_only=True)
    seal_repeat(staged, files, manifest=MANIFEST)


def _share(root: Path, staged: Path, key: str, files: Mapping[str, str]) -> None:
    """Replace files by hard links to equal ones of repeat 0 of the run, and make all read-only."""
    stored = _files_of_first_repeats(inside(root / "runs", key))
    for name, digest in files.items():
        if digest in stored:
            replace_by_link(staged / name, stored[digest])
        # A change in place would reach every repeat that shares it.
        (staged / name).chmod(0o444)


def _files_of_first_repeats(run: Path) -> dict[str, Path]:
    """The files of repeat 0 of each machine, by the digests in its manifest."""
    files = {}
    for folder in run.glob("*/0"):
        with contextlib.suppress(BadInput):  # damaged: no reason to lose the new one
            for name, digest in Repeat(folder).manifest.files.items():
                files[digest] = inside(folder, name)
    return files
