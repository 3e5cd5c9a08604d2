"""Import of an exported file into a store; everything is checked before the first run appears."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import Damaged
from cellrepro.exchange.archive.contents import ReceivedRepeat, read_contents
from cellrepro.exchange.archive.reading import opened_export
from cellrepro.exchange.import_staging import ImportStaging
from cellrepro.exchange.kept_passports import keep_attestations, refuse_to_keep_too_much
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command
from cellrepro.store.store import Store
from cellrepro.store.store_paths import inside, regular_bytes
from cellrepro.store.stored_run import MANIFEST, MOST_RECORD_BYTES, WEIGHTS, Repeat
from cellrepro.store.unsent_files import note_not_sent
from cellrepro.store.whole_files import moved
from samebits.errors import BadInput
from samebits.results import Result, Row
from samebits.words import amount, joined, some, verb_of


@dataclass(frozen=True)
class ImportedRepeat:
    """One repeat of an imported file."""

    name: str
    """``KEY/MACHINE/REPEAT``, as other commands take it."""
    label: str
    """What was asked for, in words."""
    new: bool
    """Whether the store did not hold it before."""
    completed: tuple[str, ...]
    """Files that came for a repeat that was there without them."""
    missing: tuple[str, ...]
    """Files of which its manifest speaks and that are not in the store."""


@dataclass(frozen=True, repr=False)
class Imported(Result):
    """The repeats and images of an imported file."""

    runs: tuple[ImportedRepeat, ...]
    """Every repeat of the file."""
    folder: Path
    """The store."""
    images: tuple[Path, ...]
    """Folders of images that came with the runs, those that were there among them."""

    def sentence(self) -> str:
        """Count what is new, what was there, and what did not come."""
        n_new = sum(repeat.new for repeat in self.runs)
        n_present = len(self.runs) - n_new
        parts = [f"{amount(n_new, 'repeat')} imported into {self.folder}"]
        n_completed = sum(bool(repeat.completed) for repeat in self.runs)
        if n_present:
            parts.append(f"{n_present} {verb_of(n_present, 'was', 'were')} there before")
        if n_completed:
            parts.append(f"{amount(n_completed, 'repeat')} got files that were missing")
        n_without = sum(WEIGHTS in repeat.missing for repeat in self.runs)
        if n_without:
            parts.append(f"the weights of {amount(n_without, 'repeat')} are not in the file")
        if self.images:
            parts.append(f"images in {joined([str(path) for path in self.images])}")
        return "; ".join(parts)

    def rows(self) -> list[Row]:
        """Give each repeat, and whether it is new."""
        return [
            {
                "repeat": repeat.name,
                "run": repeat.label,
                "state": "new" if repeat.new else "was there",
                "not here": some(list(repeat.missing), 3),
            }
            for repeat in self.runs
        ]


def import_runs(
    file: str | Path, *, store: str | Path = defaults.STORE, quiet: bool = False
) -> Imported:
    """Merge an exported file into a store.

    Every byte of the file is checked before the first run appears. An import that was killed goes
    on where it was, if it is the next that writes into the store.

    Parameters
    ----------
    file : str or Path
        As `export_runs` wrote it.
    store : str or Path
        Folder of finished runs, made if it is not there. What it holds is never overwritten.
    quiet : bool
        Show no progress.

    Returns
    -------
    Imported
        Its ``str`` counts what is new; in a notebook it shows the table of repeats.

    Raises
    ------
    BadInput
        If the file is not as it was exported, or the store holds another repeat of the same name,
        or one whose manifest cannot be read.
    NotPossibleHere
        If an image does not fit into memory, or the disk is full.
    """
    path = Path(file)
    target = Store(store)
    with opened_export(path) as archive:
        contents = read_contents(archive)
        _refuse_conflicts(path, target, contents.repeats.values())
        with target.receiving(f"import-{archive.identity[:16]}") as area:
            staging = ImportStaging(archive, contents, target, area)
            staging.receive(quiet=quiet)
            return _moved_into_store(staging)


def _refuse_conflicts(path: Path, store: Store, repeats: Iterable[ReceivedRepeat]) -> None:
    """Refuse a file with a repeat whose name is stored with another content."""
    for repeat in repeats:
        manifest = store.root / "runs" / repeat.name / MANIFEST
        if not manifest.parent.exists():
            continue
        try:
            content = regular_bytes(manifest, most_bytes=MOST_RECORD_BYTES)
        except OSError as error:
            command = lab_command("fsck", store=store.root)
            raise Damaged(
                f"{path}: the store {store.root} holds a repeat {repeat.name}, too, whose "
                f"{MANIFEST} cannot be read ({error.strerror}), so that nothing says whether it is "
                f"the same; nothing is overwritten: `{command}` says "
                "what is damaged, or import into another store with --store"
            ) from error
        stored = hashlib.sha256(content).hexdigest()
        if stored != repeat.digests[MANIFEST]:
            raise BadInput(
                f"{path}: the store {store.root} holds another repeat {repeat.name}: the SHA-256 "
                f"of its {MANIFEST} begins with {stored[:12]}, and that of the one in the file "
                f"with {repeat.digests[MANIFEST][:12]}; nothing is overwritten: import into "
                "another store with --store, and compare the two"
            )


# -- from the staging folder into the store --------------------------------------------------------


def _moved_into_store(staging: ImportStaging) -> Imported:
    """Build every folder before the first is moved, so that what is refused leaves nothing."""
    contents = staging.contents
    store = staging.store
    staged_repeats = {
        name: staging.repeat_folder(index, repeat)
        for index, (name, repeat) in enumerate(contents.repeats.items())
    }
    staged_runs = {
        key: staging.built(f"run-{key}", files) for key, files in contents.run_files.items()
    }
    networks = staging.networks()
    images = staging.kept_images()
    folders = staging.image_folders()
    refuse_to_keep_too_much(store, staged_repeats, contents.passports)
    with store.writing():
        for parts in (networks, images, folders):
            _place(parts, store)
    repeats = []
    for name, staged in staged_repeats.items():
        repeat = contents.repeats[name]
        repeats.append(_commit(repeat, staged, staged_runs[repeat.spec.key], staging))
        keep_attestations(store, name, contents.passports.attestations_of(name))
    return Imported(
        runs=tuple(repeats),
        folder=store.root,
        images=tuple(store.root / name for name in folders),
    )


def _place(parts: Mapping[str, Path], store: Store) -> None:
    """Move files and folders to their paths in the store, unless these exist."""
    for name, staged in parts.items():
        folder, _, rest = name.partition("/")
        target = inside(store.root / folder, rest)
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        files = [staged] if staged.is_file() else [p for p in staged.rglob("*") if p.is_file()]
        for path in files:
            path.chmod(0o444)
        moved(staged, target)


def _commit(
    repeat: ReceivedRepeat, staged: Path, staged_run: Path, staging: ImportStaging
) -> ImportedRepeat:
    """Commit a new repeat, or add missing files to a stored one."""
    store = staging.store
    key, machine, index = repeat.name.split("/")
    stored = store.repeat(key, machine, int(index))
    is_new = stored is None
    completed: tuple[str, ...] = ()
    if stored is None:
        _note_not_sent(repeat.name, repeat.missing, store)
        stored = store.commit_received(staged, staged_run)
        # Another process may have been first, with a run of its own.
        _refuse_conflicts(staging.archive.path, store, [repeat])
    else:
        completed = _completed(stored, repeat, staged, store)
    missing = tuple(name for name in repeat.manifest.files if not stored.has(name))
    if completed:
        _note_not_sent(repeat.name, missing, store)
    return ImportedRepeat(
        name=repeat.name,
        label=repeat.spec.label,
        new=is_new,
        completed=completed,
        missing=missing,
    )


def _note_not_sent(repeat: str, files: Sequence[str], store: Store) -> None:
    """Record that files were never sent, so that `fsck` does not miss them."""
    with store.writing():
        note_not_sent(store.root, repeat, files)


def _completed(
    stored: Repeat, repeat: ReceivedRepeat, staged: Path, store: Store
) -> tuple[str, ...]:
    """Add the files to a stored repeat that it lacks."""
    missing = [name for name in repeat.digests if not stored.has(name)]
    with store.writing():
        for name in missing:
            target = stored.folder / name
            target.parent.mkdir(exist_ok=True)
            (staged / name).chmod(0o444)
            with contextlib.suppress(FileExistsError):
                (staged / name).rename(target)
    return tuple(missing)
