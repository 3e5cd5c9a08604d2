"""The store: finished repeats, whole or absent, never overwritten.

::

    runs/KEY/spec.json              what was asked for
    runs/KEY/MACHINE/REPEAT/        manifest.json, weights.safetensors, masks/*.tif, notebook.ipynb
    …/SHA256SUMS                    digests of the files beside it, for ``sha256sum -c``
    inputs/, networks/, passports/  images, starting networks and statements that came with runs
    data/DIGEST/                    the segmented images and their ground truth, once per data set
    failed/KEY/MACHINE/REPEAT/      why a repeat of a grid failed, with its notebook
    unfinished/KEY/MACHINE/REPEAT/  checkpoints of a training that goes on, or was killed
    .staging/                       work in progress; what a killed process left is swept away
    .claims/                        which process is at which repeat

A file that equals one of repeat 0 is a hard link to it. Nothing outside the folder is needed to
read it, so it can be copied, and two stores are united by copying one ``runs`` and ``data`` over
the other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.errors import Damaged
from cellrepro.progress import note_once
from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store import committing, locks, store_paths, unfinished
from cellrepro.store.committing import STAGED_DATA
from cellrepro.store.references import Reference, n_telling_digits, repeats_of_one_machine
from cellrepro.store.seal import SUMS
from cellrepro.store.stored_run import (
    MANIFEST,
    NOTEBOOK,
    SPEC,
    WEIGHTS,
    Repeat,
    Run,
    read_record,
    read_spec,
)
from cellrepro.store.tiff_pages import check_pages_of_file
from cellrepro.store.unchanged import digest_once, repair_of, sealed_digests
from cellrepro.store.unfinished import KeptFailure
from samebits.errors import BadInput, NotPossibleHere
from samebits.words import amount, some

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MANIFEST", "NOTEBOOK", "SPEC", "STAGED_DATA", "WEIGHTS", "Repeat", "Run", "Store"]

_SECONDS_BETWEEN_TRIES = 0.5


class Store:
    """A folder of finished runs; it need not exist, and is made when the first is staged.

    Parameters
    ----------
    root : Path or str
        The folder.

    Attributes
    ----------
    root : Path
    passed_over : dict of str to str
        Runs that `runs` could not read, by key, and repeats that `readable_runs` could not, by
        ``KEY/MACHINE/REPEAT``; and why.

    Raises
    ------
    BadInput
        If there cannot be a folder of that name.

    Examples
    --------
    ::

        store = Store("outputs")
        for run in store.runs():
            print(run.key, run.listed())
        repeat = store.find("0a1b2c3d/0")
        repeat.masks("img_000")
    """

    def __init__(self, root: Path | str):
        self.root = Path(root)
        self.passed_over: dict[str, str] = {}
        try:
            usable = self.root.is_dir() or not self.root.exists()
        except OSError:  # a name too long, or inside a folder that may not be entered
            usable = False
        if not usable:
            raise BadInput(f"the store cannot be at {root}; expected a folder, or a name to make")

    # -- runs ------------------------------------------------------------------------------

    def knows(self, key: str) -> bool:
        """Whether anything of a run of a full key is there, finished or not."""
        return any((self.root / area / key).is_dir() for area in ("runs", "unfinished"))

    def run(self, key: str) -> Run | None:
        """The stored run of a full key, or none.

        Raises
        ------
        BadInput
            If its spec is none that this version reads.
        """
        run = self.root / "runs" / key
        repeats = [
            Repeat(run / machine / name)
            for machine in sorted(_folders(run))
            for name in sorted(filter(str.isdecimal, _folders(run / machine)), key=int)
        ]
        return Run(read_record(run / SPEC, read_spec), tuple(repeats)) if repeats else None

    def repeat(self, key: str, machine: str, index: int) -> Repeat | None:
        """A stored repeat by its full name, or none."""
        folder = self.root / "runs" / key / machine / str(index)
        return Repeat(folder) if folder.exists() else None

    def runs(self) -> list[Run]:
        """Every run that this version reads, in order of keys.

        One of a newer version, as two stores that are united by copying may hold, is passed over
        with a note on standard error that names its folder.
        """
        runs = []
        for key in self._keys():
            try:
                run = self.run(key)
            except BadInput as error:
                self._pass_over(key, error)
                continue
            if run is not None:
                runs.append(run)
        return runs

    def readable_runs(self, *, data_digest: str | None = None) -> list[Run]:
        """`runs` with those of their repeats whose manifest can be read, and is theirs.

        The others are passed over as a run is that cannot be read: one bad repeat is no reason to
        say nothing of all others.

        Parameters
        ----------
        data_digest : str, optional
            Only runs over these images.
        """
        runs = []
        for run in self.runs():
            if data_digest not in (None, run.spec.data_digest):
                continue
            for repeat in run.repeats:
                if repeat.why_unreadable is not None:
                    self._pass_over(repeat.folder_name, repeat.why_unreadable)
            readable = tuple(r for r in run.repeats if r.why_unreadable is None)
            if readable:
                runs.append(Run(run.spec, readable))
        return runs

    def _pass_over(self, name: str, why: object) -> None:
        self.passed_over[name] = str(why)
        note_once(f"passed over: {why}")

    def _keys(self) -> list[str]:
        return sorted(_folders(self.root / "runs"))

    # -- references ------------------------------------------------------------------------

    def find_run(self, reference: str) -> Run:
        """The run that a key, or its first digits, means; what names its repeat may follow.

        Raises
        ------
        BadInput
            If they mean none, or several.
        """
        key = reference.partition("/")[0]
        matches = []
        for name in self._keys():
            run = self.run(name) if key and name.startswith(key) else None
            if run is not None:
                matches.append(run)
        if len(matches) != 1:
            raise self._names_no_run(reference, len(matches))
        return matches[0]

    def _names_no_run(self, reference: str, n_matches: int) -> BadInput:
        """Make the error for a reference to none or several, which may be a mistyped path."""
        keys = [run.key for run in self.runs()]
        if n_matches:
            meant = f"{reference!r} names {amount(n_matches, 'run')}"
        elif os.path.exists(reference):  # noqa: PTH110 - it may be no path at all
            meant = f"{reference!r} is a file or folder, and names no run"
        else:
            meant = (
                f"{reference!r} (check its spelling): no such file or folder, and it names no run"
            )
        if not keys:
            none = "holds none" if self.root.is_dir() else "is not there"
            return BadInput(
                f"{meant}, as the store in {self.root} {none}; --store FOLDER names another store"
            )
        n_digits = n_telling_digits(keys)
        one_of = "its only run" if len(keys) == 1 else f"one of its {amount(len(keys), 'run')}"
        return BadInput(
            f"{meant} of the store in {self.root}; expected KEY, KEY/REPEAT or "
            f"KEY/MACHINE/REPEAT of {one_of}: {some([key[:n_digits] for key in keys], 8)}"
        )

    def find(self, reference: str) -> Repeat:
        """The repeat that ``KEY``, ``KEY/REPEAT`` or ``KEY/MACHINE/REPEAT`` means.

        Parameters
        ----------
        reference : str
            Of keys and machines the first letters are enough. Without a repeat it is 0, without a
            machine the only one that has the repeat, else this one.

        Raises
        ------
        BadInput
            If it means none, or several.
        """
        run, parsed = self._parsed(reference)
        return repeats_of_one_machine(run, parsed.machine, [parsed.index or 0])[0]

    def find_two(self, a: str, b: str) -> tuple[Repeat, Repeat]:
        """Two repeats as of `find`; the same key twice means repeats 0 and 1 of one machine.

        Raises
        ------
        BadInput
            If one of the references means none, or several.
        """
        run, parsed = self._parsed(a)
        if parsed.index is None and parsed == self._parsed(b)[1]:
            first, second = repeats_of_one_machine(run, parsed.machine, [0, 1])
            return first, second
        return self.find(a), self.find(b)

    def _parsed(self, reference: str) -> tuple[Run, Reference]:
        run = self.find_run(reference)
        return run, Reference.parse(reference, run)

    # -- images ----------------------------------------------------------------------------

    def has_images(self, images_digest: str) -> bool:
        """Whether the images of a data set, and their ground truth, are kept already."""
        return self.kept(images_digest, SUMS).parent.is_dir()

    def image(self, images_digest: str, name: str) -> np.ndarray | None:
        """A segmented image, none if it was not kept.

        Parameters
        ----------
        images_digest : str
            ``images_digest`` of the run's spec.
        name : str
            Of the image, without extension.

        Returns
        -------
        ndarray or None
            The dtype as stored, shape (Y, X) or (Y, X, C), of a stack with Z first.

        Raises
        ------
        Damaged
            If its file is no longer what was stored.
        """
        return self._pixels(images_digest, f"{name}.tif")

    def truth(self, images_digest: str, name: str) -> np.ndarray | None:
        """The ground truth of an image, none where there is none.

        Parameters
        ----------
        images_digest, name : str
            As in `image`.

        Returns
        -------
        ndarray or None
            int32, shape (Y, X), of a stack (Z, Y, X); 0 is background.

        Raises
        ------
        Damaged
            If its file is no longer what was stored.
        """
        return self._pixels(images_digest, f"{name}_masks.tif")

    def kept(self, images_digest: str, file: str) -> Path:
        """The path that a file of a data set has or would have; never outside the store."""
        return store_paths.inside(self.root / "data", f"{images_digest[:KEY_LENGTH]}/{file}")

    def kept_file(self, images_digest: str, file: str) -> Path | None:
        """A file of a data set as it was stored; none if it was not kept.

        Raises
        ------
        Damaged
            If it is damaged, or what says so is.
        """
        path = self.kept(images_digest, file)
        digest_by_name: Mapping[str, str] = {}
        try:
            digest_by_name = sealed_digests(path.with_name(SUMS))
            if file not in digest_by_name and not path.exists():
                return None
            if digest_once(path) != digest_by_name[file]:
                raise ValueError("its digest is not the one it was stored with")
        except Exception as error:
            digest = digest_by_name.get(file)
            advice = None if digest is None else repair_of(path, digest)
            raise _not_as_stored(path, error, advice) from error
        return path

    def _pixels(self, images_digest: str, file: str) -> np.ndarray | None:
        import tifffile

        path = self.kept_file(images_digest, file)
        if path is None:
            return None
        try:
            check_pages_of_file(path)
            return tifffile.imread(path)
        except Exception as error:
            raise _not_as_stored(path, error) from error

    # -- writing ---------------------------------------------------------------------------

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A private folder on the store's file system; gone after the block.

        Raises
        ------
        BadInput
            If the store cannot be written; `NotPossibleHere` if its disk is full.
        """
        with contextlib.ExitStack() as stack:
            with self.writing():
                folder = stack.enter_context(locks.private_folder(self.root / ".staging"))
            yield folder

    def commit(self, staged: Path, spec: Spec) -> Repeat:
        """Seal a staged repeat with its digests and move it into place, whole.

        Parameters
        ----------
        staged : Path
            Inside `staging`, with ``manifest.json``, the files it speaks of and the images in
            `STAGED_DATA`.
        spec : Spec
            What was asked for.

        Returns
        -------
        Repeat
            If another process stored the same repeat first, it is that one.

        Raises
        ------
        BadInput
            If the store cannot be written; `NotPossibleHere` if its disk is full.
        """
        with self.writing():
            return committing.commit(self.root, staged, spec)

    @contextmanager
    def receiving(self, name: str) -> Iterator[Path]:
        """A folder on the store's file system for what comes from elsewhere.

        Parameters
        ----------
        name : str
            Of what comes; when it comes again after an interruption, its folder is as it was left.

        Raises
        ------
        BadInput
            If the store cannot be written; `NotPossibleHere` if its disk is full.
        """
        with contextlib.ExitStack() as stack:
            with self.writing():
                area = self.root / ".staging"
                folder = stack.enter_context(locks.resumable_folder(area, name))
            yield folder

    def commit_received(self, staged: Path, staged_run: Path) -> Repeat:
        """Move a repeat that another store sealed into place, whole; its files stay as they are.

        Parameters
        ----------
        staged : Path
            Inside `receiving`, with ``manifest.json`` and the files that came with it.
        staged_run : Path
            Folder with the ``spec.json`` of its run, and the seal of that where there is one.

        Returns
        -------
        Repeat
            If another process stored the same repeat first, it is that one.

        Raises
        ------
        BadInput
            If the store cannot be written; `NotPossibleHere` if its disk is full.
        """
        with self.writing():
            return committing.commit_received(self.root, staged, staged_run)

    @contextmanager
    def alone(
        self, key: str, machine: str, repeat: int, waits: Callable[[], None]
    ) -> Iterator[None]:
        """Hold a repeat while it is looked for and made, so that no two processes make it.

        Parameters
        ----------
        key, machine : str
            Whole.
        repeat : int
        waits : callable
            Called again and again while another process is at it.
        """
        folder = self.root / ".claims" / f"{key}-{machine}-{repeat}"
        while True:
            with contextlib.ExitStack() as stack:
                with self.writing():
                    is_ours = stack.enter_context(locks.locked(folder))
                if is_ours:
                    yield
                    return
            waits()
            time.sleep(_SECONDS_BETWEEN_TRIES)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Say of what the system refuses in the block that the store cannot be written.

        Raises
        ------
        BadInput
            Likewise, or if one of the store's own folders is a link; `NotPossibleHere` if the disk
            is full.
        """
        store_paths.refuse_links(self.root)
        try:
            yield
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            kind = NotPossibleHere if is_full else BadInput
            raise kind(
                f"the store {self.root} cannot be written: {error}; free some space there, or name "
                "another folder that you may write to with --store"
            ) from error

    # -- failures and unfinished work ------------------------------------------------------

    def failures(self) -> list[KeptFailure]:
        """Failures that grids kept, in order of keys, machines and repeats."""
        return unfinished.read_failures(self.root)

    def keep_failure(
        self, staged: Path, spec: Spec, *, machine: str, repeat: int, reason: str
    ) -> Path:
        """Keep what a failed repeat left outside ``runs``, in place of an earlier failure.

        Parameters
        ----------
        staged : Path
            Folder with the notebook, if there is one.
        spec : Spec
            What was asked for.
        machine, repeat, reason
            Where it was, which repeat, and why it failed, in words.

        Returns
        -------
        Path
            The folder.
        """
        with self.writing():
            return unfinished.keep_failure(
                self.root, staged, spec, machine=machine, repeat=repeat, reason=reason
            )

    def forget_failure(self, key: str, machine: str, repeat: int) -> None:
        """Remove the trace of a failure once the repeat succeeded."""
        store_paths.refuse_links(self.root)
        unfinished.forget_failure(self.root, key, machine=machine, repeat=repeat)

    @contextmanager
    def unfinished(self, spec: Spec, machine: str, repeat: int) -> Iterator[Path | None]:
        """A folder for what a repeat needs to go on after a kill; none if another process is at it.

        What lies there stays if the block is left by an error, and goes after one that ends well.
        """
        with contextlib.ExitStack() as stack:
            with self.writing():
                folder = stack.enter_context(unfinished.work_on(self.root, spec, machine, repeat))
            yield folder

    def unfinished_specs(self) -> dict[str, dict[str, Any] | None]:
        """The specs of all trainings that were not finished, by ``KEY/MACHINE/REPEAT``.

        None where a spec cannot be read.
        """
        return unfinished.read_unfinished_specs(self.root)


def _not_as_stored(path: Path, why: object, advice: str | None = None) -> Damaged:
    usual = (
        f"copy the store again, or remove {path.parent} and run one of its runs into another store"
    )
    return Damaged(
        f"{path} is not as it was stored, by {SUMS} beside it ({why}); {advice or usual}"
    )


def _folders(folder: Path) -> list[str]:
    """The names of the folders in a folder; none where it does not exist."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir()]
    return []


if TYPE_CHECKING:
    StoreOrFolder = Store | str | Path
else:
    StoreOrFolder = str
"""A store as Python passes it; a terminal writes its folder."""
