"""The store: finished repeats, whole or absent, never overwritten.

::

    runs/KEY/spec.json      what was asked for
    runs/KEY/REPEAT/        manifest.json, weights.safetensors, masks/*.tif, notebook.ipynb
    data/DIGEST/            the segmented images and their ground truth, once per data set
    failed/KEY/REPEAT/      why a repeat of a grid failed, with its notebook
    unfinished/KEY/REPEAT/  checkpoints of a training that goes on, or was killed
    .staging/               work in progress; what a killed process left is swept away

Equal files are stored once, as hard links. Nothing outside the folder is needed to read it, so
it can be copied, and two stores are united by copying one ``runs`` and ``data`` over the other.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.record.digests import array_digest, file_digest
from cellrepro.record.manifest import Manifest
from cellrepro.record.spec import KEY_LENGTH, Spec

try:
    import fcntl
except ImportError:  # Windows: staging folders are then swept by age only by their owner
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
NOTEBOOK = "notebook.ipynb"
STAGED_DATA = "data"
"""Folder of a staged repeat whose content goes to the store's ``data/DIGEST``."""
_UNFINISHED = "unfinished"
_LOCK = ".lock"
_UNLOCKED = "new-"
_MAKING_SECONDS = 600
_TRIES = 100


_RESTORE = "copy the store again, or remove that repeat's folder and run it again"


@dataclass(frozen=True)
class Repeat:
    """One finished repeat, in the store or not yet in it."""

    folder: Path

    @cached_property
    def manifest(self) -> Manifest:
        """What happened, read once from ``manifest.json``."""
        path = self.folder / MANIFEST
        try:
            return Manifest.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise BadInput(
                f"{path} is not a manifest this version reads ({error}); "
                "remove that repeat's folder and run it again"
            ) from error

    @property
    def index(self) -> int:
        """Which repeat of its spec it is, from 0."""
        return self.manifest.repeat

    @property
    def name(self) -> str:
        """``KEY/REPEAT``, as commands accept it."""
        return f"{self.manifest.key}/{self.manifest.repeat}"

    @property
    def weights(self) -> Path | None:
        """The trained weights, or none for a run that only segmented."""
        path = self.folder / WEIGHTS
        return path if path.exists() else None

    def masks(self, image: str) -> np.ndarray:
        """The labels of one image: uint16 or uint32, shape (Y, X), 0 is background.

        Raises
        ------
        BadInput
            If the stored file is gone or damaged, or holds others than the manifest says.
        """
        masks, digest = self.masks_on_disk(image)
        record = self.manifest.masks[image]
        if digest != record.digest:
            raise BadInput(
                f"the masks {self.folder / record.file} are others than were stored: their digest "
                f"is {digest[:12]}, expected {record.digest[:12]} from the manifest; {_RESTORE}"
            )
        return masks

    def masks_on_disk(self, image: str) -> tuple[np.ndarray, str]:
        """The labels of one image as they lie there now, and their digest.

        Raises
        ------
        BadInput
            If the stored file is gone or cannot be read.
        """
        import tifffile

        path = self.folder / self.manifest.masks[image].file
        try:
            masks = tifffile.imread(path)
        except (OSError, ValueError) as error:
            raise BadInput(f"the masks {path} cannot be read ({error}); {_RESTORE}") from error
        return masks, array_digest(masks.astype(np.uint32, copy=False))


@dataclass(frozen=True)
class Run:
    """One spec and its stored repeats, in order."""

    spec: Spec
    repeats: tuple[Repeat, ...]

    @property
    def key(self) -> str:
        """The spec's key."""
        return self.spec.key


class Store:
    """A folder of finished runs.

    Parameters
    ----------
    root : Path
        Need not exist; it is made when the first repeat is staged.
    """

    def __init__(self, root: Path | str):
        self.root = Path(root)
        try:
            is_file = self.root.exists() and not self.root.is_dir()
        except OSError as error:  # a name too long, or inside a folder that may not be entered
            raise BadInput(f"the store cannot be at {self.root}: {error}; name another") from error
        if is_file:
            raise BadInput(f"the store {self.root} is a file; expected a folder, or a name to make")

    # -- reading ---------------------------------------------------------------------------

    def run(self, key: str) -> Run | None:
        """The stored run of a full key, or none."""
        folder = self.root / "runs" / key
        try:
            spec = Spec.model_validate_json((folder / "spec.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):  # a desktop leaves files such as .DS_Store
            return None
        except ValidationError as error:
            raise BadInput(
                f"{folder / 'spec.json'} was written by another version of cellrepro or changed "
                f"by hand ({error.error_count()} problems); move {folder} out of the store"
            ) from error
        indices = sorted(int(item.name) for item in folder.iterdir() if item.name.isdecimal())
        return Run(spec, tuple(Repeat(folder / str(index)) for index in indices))

    def runs(self) -> list[Run]:
        """Every run with at least one repeat, in order of keys."""
        folder = self.root / "runs"
        keys = sorted(item.name for item in folder.iterdir()) if folder.is_dir() else []
        found = (self.run(key) for key in keys)
        return [run for run in found if run is not None and run.repeats]

    def find(self, reference: str) -> tuple[Run, Repeat | None]:
        """The run, and the repeat if one is named, that ``KEY`` or ``KEY/REPEAT`` means.

        Parameters
        ----------
        reference : str
            A key or its first digits, as long as only one run begins with them.

        Raises
        ------
        BadInput
            If none or several match; the message lists what the store holds.
        """
        key, _, index = reference.partition("/")
        folder = self.root / "runs"
        keys = sorted(item.name for item in folder.iterdir()) if folder.is_dir() else []
        matching = [name for name in keys if key and name.startswith(key)]
        if len(matching) != 1:
            listed = ", ".join(keys[:8]) + (" …" if len(keys) > 8 else "")
            raise BadInput(
                f"{reference!r} names {len(matching)} runs of the store {self.root}; expected "
                f"KEY or KEY/REPEAT of one of its {len(keys)} runs"
                + (f": {listed}" if keys else "; train one first with `cellrepro train`")
            )
        run = self.run(matching[0])
        if run is None or not run.repeats:
            raise BadInput(f"run {matching[0]} of the store {self.root} has no finished repeat")
        if not index:
            return run, None
        for repeat in run.repeats:
            if repeat.folder.name == index:
                return run, repeat
        raise BadInput(
            f"run {run.key} has no repeat {index!r}; it has "
            f"{', '.join(repeat.folder.name for repeat in run.repeats)}"
        )

    def find_two(self, a: str, b: str) -> tuple[tuple[Run, Repeat], tuple[Run, Repeat]]:
        """The two repeats that two references mean.

        Parameters
        ----------
        a, b : str
            As of `find`. A key alone is its first repeat; the same key twice its first two.

        Raises
        ------
        BadInput
            If one of them is not found, or the one run named twice has a single repeat.
        """
        (run_a, repeat_a), (run_b, repeat_b) = self.find(a), self.find(b)
        if repeat_a is None and repeat_b is None and run_a.key == run_b.key:
            if len(run_a.repeats) < 2:
                raise BadInput(
                    f"run {run_a.key} has a single repeat; name two runs, or train a second repeat "
                    "with --repeats 2"
                )
            return (run_a, run_a.repeats[0]), (run_b, run_b.repeats[1])
        return (run_a, repeat_a or run_a.repeats[0]), (run_b, repeat_b or run_b.repeats[0])

    def image(self, data_digest: str, name: str) -> np.ndarray | None:
        """A segmented image, shape (Y, X) or (Y, X, C), or none if it was not kept."""
        return self._kept(data_digest, f"{name}.tif")

    def truth(self, data_digest: str, name: str) -> np.ndarray | None:
        """Its ground truth: int32, shape (Y, X), 0 is background; none where there is none."""
        return self._kept(data_digest, f"{name}_masks.tif")

    def _kept(self, data_digest: str, file: str) -> np.ndarray | None:
        import tifffile

        path = self.root / "data" / data_digest[:KEY_LENGTH] / file
        return tifffile.imread(path) if path.exists() else None

    def failures(self) -> list[dict]:
        """What the grid kept of failed repeats: key, repeat, reason, folder."""
        return [
            {**json.loads(path.read_text(encoding="utf-8")), "folder": str(path.parent)}
            for path in sorted(self.root.glob("failed/*/*/failure.json"))
        ]

    # -- writing ---------------------------------------------------------------------------

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A private folder on the store's file system; gone after the block.

        What killed processes left behind is removed first.

        Raises
        ------
        BadInput
            If the store cannot be written.
        NotPossibleHere
            If the disk is full.
        """
        area = self.root / ".staging"
        with contextlib.ExitStack() as undo:
            with self._writing():
                missing = [path for path in (self.root, *self.root.parents) if not path.exists()]
                undo.callback(_remove_empty, [area, *missing])  # no trace of a refused run
                unlocked = _private_folder(area)
                lock = _lock(unlocked)
                if lock is not None:
                    undo.callback(os.close, lock)
                # Under its own name only once it is locked: a sweep passes over the others.
                folder = unlocked.rename(area / unlocked.name.removeprefix(_UNLOCKED))
                undo.callback(shutil.rmtree, folder, ignore_errors=True)
                _sweep(area)
            yield folder

    def commit(self, staged: Path, spec: Spec) -> Repeat:
        """Seal a staged repeat with its digests and move it into place, whole.

        Parameters
        ----------
        staged : Path
            Folder inside `staging` with ``manifest.json``, the files it speaks of and
            ``data/``, the images that were segmented.
        spec : Spec
            What was asked for.

        Returns
        -------
        Repeat
            The stored repeat; if another process stored the same one first, that one.
        """
        manifest = Repeat(staged).manifest
        with self._writing():
            self._keep_data(staged / STAGED_DATA, spec.data_digest)
            self._seal(staged, manifest)
            target = self.root / "runs" / spec.key
            if not target.exists():
                whole = staged.with_name(f"{staged.name}-{spec.key}")
                whole.mkdir()
                try:
                    _write_spec(whole / "spec.json", spec)
                    staged.rename(whole / str(manifest.repeat))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if _move(whole, target):
                        return Repeat(target / str(manifest.repeat))
                    (whole / str(manifest.repeat)).rename(staged)
                finally:
                    shutil.rmtree(whole, ignore_errors=True)
            _move(staged, target / str(manifest.repeat))
        return Repeat(target / str(manifest.repeat))

    def keep_failure(self, staged: Path, spec: Spec, *, repeat: int, reason: str) -> Path:
        """Keep what a failed repeat left (its notebook) outside ``runs``; returns the folder."""
        target = self.root / "failed" / spec.key / str(repeat)
        record = {
            "key": spec.key,
            "repeat": repeat,
            "reason": reason,
            "spec": spec.model_dump(mode="json"),
        }
        with self._writing():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            if (staged / NOTEBOOK).exists():
                shutil.copy(staged / NOTEBOOK, target / NOTEBOOK)
            _write_whole(target / "failure.json", json.dumps(record, indent=1))
        return target

    def forget_failure(self, key: str, repeat: int) -> None:
        """Remove the trace of a failure once the repeat succeeded."""
        shutil.rmtree(self.root / "failed" / key / str(repeat), ignore_errors=True)
        for empty in (self.root / "failed" / key, self.root / "failed"):
            with contextlib.suppress(OSError):
                empty.rmdir()

    @contextmanager
    def unfinished(self, spec: Spec, repeat: int) -> Iterator[Path | None]:
        """Where a repeat leaves what is needed to go on with it after a kill.

        What lies there stays if the block is left by an error or a kill, and is removed after a
        block that ends well.

        Yields
        ------
        Path or None
            None if another process is at this very repeat.

        Raises
        ------
        BadInput
            If the store cannot be written.
        NotPossibleHere
            If the disk is full.
        """
        folder = self.root / _UNFINISHED / spec.key / str(repeat)
        with self._writing():
            missing = [path for path in (self.root, *self.root.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            lock = _try_lock(folder)
            if lock is not None:
                _write_whole(folder / "spec.json", json.dumps(spec.model_dump(mode="json")))
        if lock is None:
            yield None
            return
        done = False
        try:
            yield folder
            done = True
        finally:
            if done or not any(item.is_dir() for item in folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
            _remove_empty([folder.parent, folder.parent.parent, *missing])

    def unfinished_specs(self) -> dict[str, dict]:
        """What was asked of every training that was not finished, by ``KEY/REPEAT``."""
        return {
            f"{path.parent.parent.name}/{path.parent.name}": json.loads(path.read_bytes())
            for path in sorted(self.root.glob(f"{_UNFINISHED}/*/*/spec.json"))
        }

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NotPossibleHere(
                    f"no space left for the store {self.root}: {error}; free some, or name another "
                    "folder with --store"
                ) from error
            raise BadInput(
                f"the store {self.root} cannot be written: {error}; expected a folder you may "
                "write to, name one with --store"
            ) from error

    def _keep_data(self, staged: Path, digest: str) -> None:
        target = self.root / "data" / digest[:KEY_LENGTH]
        if staged.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists() or not _move(staged, target):
                shutil.rmtree(staged)

    def _seal(self, staged: Path, manifest: Manifest) -> None:
        paths = sorted(
            path for path in staged.rglob("*") if path.is_file() and path.name != MANIFEST
        )
        manifest.files = {path.relative_to(staged).as_posix(): file_digest(path) for path in paths}
        known = self._files_by_digest(set(manifest.files.values()))
        for path in paths:
            twin = known.get(manifest.files[path.relative_to(staged).as_posix()])
            if twin is not None:
                _replace_by_link(path, twin)
            path.chmod(0o444)  # a change in place would reach every repeat that shares the file
        _write_whole(staged / MANIFEST, manifest.model_dump_json(indent=1))
        (staged / MANIFEST).chmod(0o444)

    def _files_by_digest(self, wanted: set[str]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for path in self.root.glob(f"runs/*/*/{MANIFEST}"):
            if wanted <= found.keys():
                break
            try:
                files = Manifest.model_validate_json(path.read_bytes()).files
            except (OSError, ValidationError):  # damaged: no reason to lose the run just finished
                continue
            for name, digest in files.items():
                if digest in wanted:
                    found.setdefault(digest, path.parent / name)
        return found


def _write_spec(path: Path, spec: Spec) -> None:
    path.write_text(json.dumps(spec.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    path.chmod(0o444)


def _write_whole(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.part")
    scratch.write_text(text + "\n", encoding="utf-8")
    scratch.replace(path)


def _move(source: Path, target: Path) -> bool:
    """Rename a folder into place; false if another process was first."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def _replace_by_link(path: Path, twin: Path) -> None:
    scratch = path.with_name(f".{path.name}.link")
    try:
        scratch.hardlink_to(twin)
    except OSError:  # no hard links on this file system, or the twin has just gone: keep the copy
        return
    if file_digest(scratch) != file_digest(path):
        scratch.unlink()  # the stored file was changed behind our back; never spread it
        return
    scratch.replace(path)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _private_folder(area: Path) -> Path:
    for _ in range(_TRIES):
        # Another process may remove the empty area, or the store around it, at any moment.
        try:
            area.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=area))
        except FileNotFoundError:
            pass
        except FileExistsError as error:  # it was there for mkdir, and then no longer
            if Path(error.filename).is_file():
                raise
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(area))


def _lock(folder: Path) -> int | None:
    """Hold a lock that the system releases when this process ends, however it ends."""
    if fcntl is None:
        return None
    descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _try_lock(folder: Path) -> int | None:
    """Hold a folder's lock as `_lock` does, or none if another process holds it."""
    descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
    return descriptor


def _sweep(area: Path) -> None:
    """Remove staging folders whose process is gone."""
    if fcntl is None:
        return
    for folder in area.iterdir():
        if folder.name.startswith(_UNLOCKED) or not (folder / _LOCK).exists():
            # Being made or being removed, unless its process was killed at that.
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > _MAKING_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)
            continue
        try:
            descriptor = os.open(folder / _LOCK, os.O_RDWR)
        except OSError:
            continue  # just removed by its owner
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its owner is alive
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
