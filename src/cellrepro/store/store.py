"""The store: finished repeats, whole or absent, never overwritten.

::

    runs/KEY/spec.json              what was asked for
    runs/KEY/MACHINE/REPEAT/        manifest.json, weights.safetensors, masks/*.tif, notebook.ipynb
    data/DIGEST/                    the segmented images and their ground truth, once per data set
    failed/KEY/MACHINE/REPEAT/      why a repeat of a grid failed, with its notebook
    unfinished/KEY/MACHINE/REPEAT/  checkpoints of a training that goes on, or was killed
    .staging/                       work in progress; what a killed process left is swept away
    .digests/                       which content lies where: a cache, which may be removed

Equal files are stored once, as hard links. Nothing outside the folder is needed to read it, so
it can be copied, and two stores are united by copying one ``runs`` and ``data`` over the other.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from cellrepro.asked.spec import KEY_LENGTH, Spec
from cellrepro.bits.digests import array_digest, file_digest
from cellrepro.errors import BadInput, Damaged, NotPossibleHere, wrong_fields
from cellrepro.store import disk, this_machine
from cellrepro.store.manifest import Manifest, ResultSummary
from cellrepro.store.stored_spec import read_spec
from cellrepro.store.twins import remember, twins
from cellrepro.store.unchanged import RESTORE, Reading, digest_once, refuse_damaged
from cellrepro.words import some

MANIFEST = "manifest.json"
SPEC = "spec.json"
WEIGHTS = "weights.safetensors"
NOTEBOOK = "notebook.ipynb"
STAGED_DATA = "data"
"""Folder of a staged repeat whose content goes to the store's ``data/DIGEST``."""
SUMS = "SHA256SUMS"


def _read(path: Path, kind: type[BaseModel]) -> Any:
    try:
        if kind is Spec:
            return read_spec(path.read_bytes())
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        why = wrong_fields(error) if isinstance(error, ValidationError) else error
        raise BadInput(
            f"{path} is not a {path.stem} that this version of cellrepro reads ({why}); "
            f"move {path.parent} out of the store and run it again"
        ) from error


@dataclass(frozen=True)
class Repeat:
    """One finished repeat, in the store or not yet in it."""

    folder: Path

    @functools.cached_property
    def manifest(self) -> Manifest:
        """What happened, read once from ``manifest.json``."""
        return _read(self.folder / MANIFEST, Manifest)

    @functools.cached_property
    def outcome(self) -> ResultSummary:
        """Of the manifest what says how it came out, read in a fraction of the time."""
        return _read(self.folder / MANIFEST, ResultSummary)

    @functools.cached_property
    def spec(self) -> Spec:
        """What was asked for, of a repeat in the store."""
        return _read(self.folder.parents[1] / SPEC, Spec)

    @property
    def index(self) -> int:
        """Which repeat of its spec it is, from 0."""
        return self.manifest.repeat

    @functools.cached_property
    def machine(self) -> str:
        """Where it was computed, as its folder is named."""
        return self.manifest.machine.name

    @functools.cached_property
    def name(self) -> str:
        """``KEY/MACHINE/REPEAT``, as commands accept it."""
        return f"{self.manifest.key}/{self.machine}/{self.manifest.repeat}"

    def file(self, name: str) -> Path:
        """A file of the repeat, once it is known to be what was stored.

        Parameters
        ----------
        name : str
            As in the manifest, ``ledger.parquet`` or ``masks/IMAGE.tif``.

        Raises
        ------
        Damaged
            If its content is no longer that of the digest in the manifest.
        """
        path = disk.inside(self.folder, name)
        expected = self._known.files.get(name)
        if expected is not None:
            refuse_damaged(path, expected)
        return path

    def has(self, name: str) -> bool:
        """Whether one of its files is there; it may still be damaged."""
        return disk.inside(self.folder, name).exists()

    @property
    def _known(self) -> ResultSummary:
        """The manifest if it was read already, else the part of it that is read sooner."""
        return self.__dict__.get("manifest") or self.outcome

    def refuse_damage(self, *, reading: Reading | None = None) -> None:
        """Refuse weights and masks that are no longer what the manifest says, before it is judged.

        A file that is not there, as in a store without weights, is no damage.

        Parameters
        ----------
        reading : Reading, optional
            How much of it may be read; all by default.

        Raises
        ------
        Damaged
            With the first such file.
        """
        manifest = self._known
        of_masks = [record.file for record in manifest.masks.values()]
        for name in (WEIGHTS, *of_masks):
            expected = manifest.files.get(name)
            if expected is not None:  # no path objects: `list` looks at tens of thousands
                refuse_damaged(f"{self.folder}{os.sep}{name}", expected, reading=reading)

    @property
    def weights(self) -> Path | None:
        """The trained weights, none for a run that only segmented; `Damaged` if they changed."""
        return self.file(WEIGHTS) if self.has(WEIGHTS) else None

    def masks(self, image: str) -> np.ndarray:
        """The labels of one image as they were stored.

        Returns
        -------
        ndarray of uint16 or uint32, shape (Y, X), of a stack (Z, Y, X)
            0 is background.

        Raises
        ------
        Damaged
            If the file cannot be read, or holds other labels than were stored.
        """
        import tifffile

        record = self.manifest.masks[image]
        path = self.file(record.file)
        try:
            masks = tifffile.imread(path)
        except Exception as error:  # of a damaged file nearly any, struct.error among them
            raise Damaged(f"the masks {path} cannot be read ({error}); {RESTORE}") from error
        digest = array_digest(masks.astype(np.uint32, copy=False))
        if digest != record.digest:
            raise Damaged(
                f"the masks {path} are not those that were stored: the digest of their labels "
                f"begins with {digest[:12]}, and with {record.digest[:12]} in the manifest; "
                f"{RESTORE}"
            )
        return masks


@dataclass(frozen=True)
class Run:
    """One spec and its stored repeats, machine by machine, in order."""

    spec: Spec
    repeats: tuple[Repeat, ...]

    @functools.cached_property
    def machines(self) -> dict[str, dict[int, Repeat]]:
        """The repeats of each machine, by its name and their index, as the folders are named."""
        found: dict[str, dict[int, Repeat]] = {}
        for repeat in self.repeats:
            found.setdefault(repeat.folder.parent.name, {})[int(repeat.folder.name)] = repeat
        return found

    @functools.cached_property
    def key(self) -> str:
        """The spec's key."""
        return self.spec.key

    def listed(self) -> str:
        """The repeats of each machine: ``laptop-0a1b2c3d/0, 1; a100-9f8e7d6c/0``."""
        return "; ".join(
            f"{name}/{', '.join(map(str, repeats))}" for name, repeats in self.machines.items()
        )


class Store:
    """A folder of finished runs; it need not exist, and is made when the first is staged."""

    def __init__(self, root: Path | str):
        self.root = Path(root)
        self.passed_over: dict[str, str] = {}  # runs that could not be read, and why, by key
        try:
            usable = self.root.is_dir() or not self.root.exists()
        except OSError:  # a name too long, or inside a folder that may not be entered
            usable = False
        if not usable:
            raise BadInput(f"the store cannot be at {root}; expected a folder, or a name to make")

    # -- reading ---------------------------------------------------------------------------

    def run(self, key: str) -> Run | None:
        """The stored run of a full key, or none."""
        run = self.root / "runs" / key
        folders = [
            Repeat(run / machine / name)
            for machine in sorted(_folders(run))
            for name in sorted(filter(str.isdecimal, _folders(run / machine)), key=int)
        ]
        return Run(_read(run / SPEC, Spec), tuple(folders)) if folders else None

    def repeat(self, key: str, machine: str, index: int) -> Repeat | None:
        """A stored repeat by its full name, or none."""
        folder = self.root / "runs" / key / machine / str(index)
        return Repeat(folder) if folder.exists() else None

    def runs(self) -> list[Run]:
        """Every run that this version reads, in order of keys.

        One of a newer version, as two stores that are united by copying may hold, is passed over
        with a note on standard error that names its folder.
        """
        found = []
        for key in self._keys():
            try:
                run = self.run(key)
            except BadInput as error:
                self.passed_over[key] = str(error)
                _say_once(f"passed over: {error}")
                continue
            if run is not None:
                found.append(run)
        return found

    def _keys(self) -> list[str]:
        return sorted(_folders(self.root / "runs"))

    def find_run(self, key: str) -> Run:
        """The run that a key, or its first digits, means."""
        matching = [name for name in self._keys() if key and name.startswith(key)]
        runs = [run for name in matching if (run := self.run(name)) is not None]
        if len(runs) != 1:
            keys = [run.key for run in self.runs()]
            raise BadInput(
                f"{key!r} names {len(runs)} runs of the store {self.root}; expected KEY, "
                f"KEY/REPEAT or KEY/MACHINE/REPEAT of one of its {len(keys)} runs: "
                f"{some(keys, 8) or 'train one first with `cellrepro train`'}"
            )
        return runs[0]

    def find(self, reference: str) -> Repeat:
        """The repeat that ``KEY``, ``KEY/REPEAT`` or ``KEY/MACHINE/REPEAT`` means.

        Of keys and machines the first letters are enough. Without a repeat it is 0, without a
        machine the only one that has the repeat, else this one.
        """
        run, machine, index = self._parsed(reference)
        return _of_machine(run, machine, index or 0)[0]

    def find_two(self, a: str, b: str) -> tuple[Repeat, Repeat]:
        """Two repeats as of `find`; the same key twice means repeats 0 and 1 of one machine."""
        run, machine, index = parsed = self._parsed(a)
        if index is None and parsed == self._parsed(b):
            return _of_machine(run, machine, 0, 1)
        return self.find(a), self.find(b)

    def _parsed(self, reference: str) -> tuple[Run, str, int | None]:
        """The run, the first letters of the machine, and the index, as far as they are named."""
        key, _, rest = reference.partition("/")
        run = self.find_run(key)
        found = re.fullmatch(r"([^/]*[^/\d][^/]*)?/?(\d+)?", rest)
        if found is None:
            raise BadInput(
                f"{reference!r} names no repeat of {run.key}; expected KEY, KEY/REPEAT or "
                f"KEY/MACHINE/REPEAT of {run.listed()}"
            )
        return run, found[1] or "", None if found[2] is None else int(found[2])

    def image(self, images_digest: str, name: str) -> np.ndarray | None:
        """A segmented image, none if it was not kept.

        Parameters
        ----------
        images_digest : str
            ``images_digest`` of the run's spec.
        name : str

        Returns
        -------
        ndarray of the file's dtype, shape (Y, X) or (Y, X, C), of a stack with Z first
        """
        return self._kept(images_digest, f"{name}.tif")

    def truth(self, images_digest: str, name: str) -> np.ndarray | None:
        """Its ground truth: int32, shape (Y, X), 0 is background; none where there is none."""
        return self._kept(images_digest, f"{name}_masks.tif")

    def kept(self, images_digest: str, file: str) -> Path:
        """Where a file of a data set would lie; never outside the store, links followed."""
        return disk.inside(self.root / "data", f"{images_digest[:KEY_LENGTH]}/{file}")

    def kept_file(self, images_digest: str, file: str) -> Path | None:
        """A file of a data set as it was stored; none if it was not kept.

        Raises
        ------
        BadInput
            If it is damaged, or what says so is.
        """
        path = self.kept(images_digest, file)
        sums = path.with_name(SUMS)
        try:
            lines = sums.read_text(encoding="utf-8").splitlines() if sums.exists() else []
            sealed = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
            if file not in sealed and not path.exists():
                return None
            if digest_once(path) != sealed[file]:
                raise ValueError("its digest is not the one it was stored with")
        except Exception as error:
            raise _not_as_stored(path, error) from error
        return path

    def _kept(self, images_digest: str, file: str) -> np.ndarray | None:
        import tifffile

        path = self.kept_file(images_digest, file)
        if path is None:
            return None
        try:
            return tifffile.imread(path)
        except Exception as error:
            raise _not_as_stored(path, error) from error

    def failures(self) -> list[dict]:
        """What the grid kept of failed repeats: key, machine, repeat, reason, spec, folder."""
        return [_failure(path) for path in sorted(self.root.glob("failed/*/*/*/failure.json"))]

    def unfinished_specs(self) -> dict[str, dict]:
        """What was asked of every training that was not finished, by ``KEY/MACHINE/REPEAT``."""
        area = self.root / "unfinished"
        return {
            path.parent.relative_to(area).as_posix(): json.loads(path.read_bytes())
            for path in sorted(area.glob(f"*/*/*/{SPEC}"))
        }

    # -- writing ---------------------------------------------------------------------------

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A private folder on the store's file system; gone after the block."""
        with contextlib.ExitStack() as stack:
            with self._writing():
                folder = stack.enter_context(disk.private_folder(self.root / ".staging"))
            yield folder

    def commit(self, staged: Path, spec: Spec) -> Repeat:
        """Seal a staged repeat with its digests and move it into place, whole.

        ``staged`` lies inside `staging` and holds ``manifest.json``, the files it speaks of and
        `STAGED_DATA`. If another process stored the same repeat first, that one is returned.
        """
        manifest = Repeat(staged).manifest
        run = self.root / "runs" / spec.key
        target = run / manifest.machine.name / str(manifest.repeat)
        with self._writing():
            self._keep_data(staged / STAGED_DATA, spec.images_digest)
            if target.exists():
                return Repeat(target)
            self._seal(staged, manifest)
            if not run.exists():  # then it appears with its spec and its first repeat
                whole = staged.with_name(f"{staged.name}-{spec.key}")
                first = whole / target.relative_to(run)
                first.parent.mkdir(parents=True)
                disk.write_whole(whole / SPEC, spec.model_dump_json(indent=1), read_only=True)
                staged.rename(first)
                run.parent.mkdir(parents=True, exist_ok=True)
                if disk.moved(whole, run):
                    return Repeat(target)
                staged = first
            target.parent.mkdir(exist_ok=True)
            disk.moved(staged, target)
        return Repeat(target)

    @contextmanager
    def alone(
        self, key: str, machine: str, repeat: int, waits: Callable[[], None]
    ) -> Iterator[None]:
        """Hold a repeat while it is looked for and made, so that no two processes make it.

        ``waits`` is called again and again while another one is at it.
        """
        folder = self.root / ".claims" / f"{key}-{machine}-{repeat}"
        while True:
            with contextlib.ExitStack() as stack:
                with self._writing():
                    mine = stack.enter_context(disk.locked(folder))
                if mine:
                    yield
                    return
            waits()
            time.sleep(0.5)

    def keep_failure(
        self, staged: Path, spec: Spec, *, machine: str, repeat: int, reason: str
    ) -> Path:
        """Keep what a failed repeat left (its notebook) outside ``runs``; returns the folder."""
        target = self.root / "failed" / spec.key / machine / str(repeat)
        record = {"key": spec.key, "machine": machine, "repeat": repeat, "reason": reason}
        record["spec"] = spec.model_dump(mode="json")
        with self._writing():
            self.forget_failure(spec.key, machine, repeat)
            target.mkdir(parents=True)
            if (staged / NOTEBOOK).exists():
                shutil.copy(staged / NOTEBOOK, target / NOTEBOOK)
            disk.write_whole(target / "failure.json", json.dumps(record, indent=1))
        return target

    def forget_failure(self, key: str, machine: str, repeat: int) -> None:
        """Remove the trace of a failure once the repeat succeeded."""
        folder = self.root / "failed" / key / machine / str(repeat)
        shutil.rmtree(folder, ignore_errors=True)
        disk.remove_empty(*list(folder.parents)[:3])

    @contextmanager
    def unfinished(self, spec: Spec, machine: str, repeat: int) -> Iterator[Path | None]:
        """Where a repeat leaves what is needed to go on after a kill; none if another is at it.

        What lies there stays if the block is left by an error, and goes after one that ends well.
        """
        folder = self.root / "unfinished" / spec.key / machine / str(repeat)
        with contextlib.ExitStack() as stack:
            with self._writing():
                stack.callback(disk.remove_empty, *list(folder.parents)[1:3])
                if mine := stack.enter_context(disk.locked(folder)):
                    folder.mkdir(exist_ok=True)
                    disk.write_whole(folder / SPEC, spec.model_dump_json())
            done = False
            try:
                yield folder if mine else None
                done = True
            finally:
                if mine and (done or not any(item.is_dir() for item in folder.iterdir())):
                    shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = NotPossibleHere if error.errno in (errno.ENOSPC, errno.EDQUOT) else BadInput
            raise kind(
                f"the store {self.root} cannot be written: {error}; free some space there, or name "
                "another folder that you may write to with --store"
            ) from error

    def _keep_data(self, staged: Path, digest: str) -> None:
        target = self.root / "data" / digest[:KEY_LENGTH]
        if target.exists():  # nothing was made read-only yet, which Windows would not remove
            shutil.rmtree(staged, ignore_errors=True)
        elif staged.is_dir():
            sums = [f"{file_digest(path)}  {path.name}\n" for path in sorted(staged.iterdir())]
            (staged / SUMS).write_text("".join(sums), encoding="utf-8")  # as sha256sum -c reads it
            for path in staged.iterdir():
                path.chmod(0o444)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not disk.moved(staged, target):  # another process was first
                disk.remove_folder(staged)

    def _seal(self, staged: Path, manifest: Manifest) -> None:
        files = {
            path.relative_to(staged).as_posix(): file_digest(path)
            for path in sorted(staged.rglob("*"))
            if path.is_file() and path.name != MANIFEST
        }
        found = twins(self.root, {*files.values()}, manifest.key, _files_of)
        own = {}
        for name, digest in files.items():
            if digest not in found or not disk.replace_by_link(staged / name, found[digest]):
                own[name] = digest
            # A change in place would reach every repeat that shares it.
            (staged / name).chmod(0o444)
        remember(self.root, f"{manifest.key}/{manifest.machine.name}/{manifest.repeat}", own)
        manifest.files = files
        disk.write_whole(staged / MANIFEST, manifest.model_dump_json(indent=1), read_only=True)


@functools.cache
def _say_once(text: str) -> None:
    """A note on standard error, once a process however often a store is read."""
    print(f"note: {text}", file=sys.stderr)


def _failure(path: Path) -> dict[str, Any]:
    """What one file keeps of a failed repeat, or, where it was cut off, what its folder says."""
    key, machine, repeat = path.parent.parts[-3:]
    record = {
        "key": key,
        "machine": machine,
        "repeat": int(repeat) if repeat.isdecimal() else repeat,
        "reason": f"not known: {path} cannot be read",
        "spec": None,
    }
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(kept, dict):
            record |= kept
    return {**record, "folder": str(path.parent)}


def _not_as_stored(path: Path, why: object) -> Damaged:
    return Damaged(
        f"{path} is not as it was stored, by {SUMS} beside it ({why}); copy the store again, or "
        f"remove {path.parent} and run one of its runs into another store"
    )


def _folders(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir()]
    return []


def _files_of(repeat: Path) -> dict[str, str]:
    return Repeat(repeat).manifest.files


def _of_machine(run: Run, begins: str, *indices: int) -> Any:
    """Some repeats of a run, of the only machine that has them all, else of this one."""
    having = [
        [repeats[index] for index in indices]
        for name, repeats in run.machines.items()
        if name.startswith(begins) and repeats.keys() >= {*indices}
    ]
    if len(having) > 1:
        here = [found for found in having if this_machine.is_here(found[0].manifest.machine)]
        having = here or having
    if len(having) == 1:
        return having[0]
    named = " and ".join(map(str, indices))
    raise BadInput(
        f"repeat {named} of {run.key} on {begins or 'a machine'} was found {len(having)} times; "
        f"expected KEY/MACHINE/REPEAT, one of {run.listed()} (--repeats 2 trains two)"
    )
