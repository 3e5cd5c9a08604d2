"""Import of an exported file into a store; everything is checked before the first run appears."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.archive import file_checks
from cellrepro.exchange.archive.contents import Contents, ReceivedRepeat, read_contents
from cellrepro.exchange.archive.reading import ExportedFile, opened_export
from cellrepro.exchange.archive.writing import BLOCK, BytesProgress
from cellrepro.exchange.attestation import Attestation
from cellrepro.exchange.input_lookup import INPUTS, NETWORKS
from cellrepro.exchange.kept_passports import keep_attestations
from cellrepro.results import Result, Row
from cellrepro.spec import defaults
from cellrepro.store.removal import remove_folder
from cellrepro.store.store import Store
from cellrepro.store.store_paths import inside, regular_bytes
from cellrepro.store.stored_run import MANIFEST, MOST_RECORD_BYTES, NOTEBOOK, WEIGHTS, Repeat
from cellrepro.store.unsent_files import note_not_sent
from cellrepro.store.whole_files import link_or_copy, moved, replace_file, to_disk
from cellrepro.words import amount, joined, some


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
            parts.append(f"{n_present} were there before")
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
        If the file is not as it was exported, or the store holds another repeat of the same name.
    NotPossibleHere
        If an image does not fit into memory, or the disk is full.
    """
    path = Path(file)
    target = Store(store)
    with opened_export(path) as archive:
        contents = read_contents(archive)
        _refuse_conflicts(path, target, contents.repeats.values())
        with target.receiving(f"import-{archive.identity[:16]}") as area:
            return _Import(archive, contents, target, area).carry_out(quiet=quiet)


def _refuse_conflicts(path: Path, store: Store, repeats: Iterable[ReceivedRepeat]) -> None:
    """Refuse a file with a repeat whose name is stored with another content."""
    for repeat in repeats:
        manifest = store.root / "runs" / repeat.name / MANIFEST
        if not manifest.parent.exists():
            continue
        stored = _digest_of_stored(manifest)
        if stored != repeat.digests[MANIFEST]:
            raise BadInput(
                f"{path}: the store {store.root} holds another repeat {repeat.name}: the SHA-256 "
                f"of its {MANIFEST} begins with {stored[:12]}, and that of the one in the file "
                f"with {repeat.digests[MANIFEST][:12]}; nothing is overwritten: import into "
                "another store with --store, and compare the two"
            )


def _digest_of_stored(manifest: Path) -> str:
    """The digest of a stored manifest; words for a message if it cannot be read."""
    try:
        content = regular_bytes(manifest, most_bytes=MOST_RECORD_BYTES)
    except FileNotFoundError:
        return "nothing"
    except OSError:
        return "what cannot be read"
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class _Import:
    """One import, staged in a folder of the store until it is complete."""

    archive: ExportedFile
    contents: Contents
    store: Store
    area: Path
    """The staging folder; an interrupted import of the same file may have left contents in it."""

    def carry_out(self, *, quiet: bool) -> Imported:
        """Read and check the whole file, then move its parts into the store."""
        self._receive(quiet=quiet)
        self._clear_folders()
        staged_repeats = {
            name: self._staged_repeat(index, repeat)
            for index, (name, repeat) in enumerate(self.contents.repeats.items())
        }
        staged_runs = {
            key: self._built(f"run-{key}", files) for key, files in self.contents.run_files.items()
        }
        images = self._staged_images()
        networks = self._staged_networks()
        folders = self._staged_folders()
        with self.store.writing():
            for parts in (networks, images, folders):
                self._place(parts)
        repeats = []
        for name, staged in staged_repeats.items():
            repeat = self.contents.repeats[name]
            repeats.append(self._commit(repeat, staged, staged_runs[repeat.spec.key]))
            keep_attestations(self.store, name, self._attestations_of(name))
        return Imported(
            runs=tuple(repeats),
            folder=self.store.root,
            images=tuple(self.store.root / name for name in folders),
        )

    # -- contents, by their digest

    def _content(self, digest: str) -> Path:
        return self.area / "content" / digest

    def _receive(self, *, quiet: bool) -> None:
        """Read and check every content once, and stage those that the store may lack."""
        with self.store.writing():
            self._content("").mkdir(exist_ok=True)
        wanted = self._wanted()
        names = list(self.archive.digests)
        verified_before = {path.name for path in self._content("").iterdir()}
        label = f"import {amount(len(names), 'file')}"
        done = BytesProgress(self.archive.n_bytes, label, quiet=quiet)
        with done.bar:
            for name in names:
                digest = self.archive.digests[name]
                n_bytes = self.archive.size(name)
                # Only large files were synced to disk before they got their name, see `_keep`.
                if n_bytes >= BLOCK and digest in verified_before:
                    done.add(n_bytes)
                elif digest in wanted:
                    self._keep(name, self._content(digest), done)
                else:
                    for block in self.archive.blocks(name):
                        done.add(len(block))

    def _wanted(self) -> set[str]:
        """Digests of the contents that the store may lack."""
        digests = set(self.contents.networks)
        for files in (*self.contents.kept_images.values(), *self.contents.image_folders.values()):
            digests |= set(files.values())
        for repeat in self.contents.repeats.values():
            digests |= set(repeat.digests.values())
        for files in self.contents.run_files.values():
            digests |= set(files.values())
        return digests

    def _keep(self, name: str, content: Path, done: BytesProgress) -> None:
        """Write one content, and rename it to its digest once it is complete and checked."""
        scratch = self.area / "unchecked"
        with self.store.writing():
            with scratch.open("wb") as stream:
                for block in self.archive.blocks(name):
                    stream.write(block)
                    done.add(len(block))
            if self.archive.size(name) >= BLOCK:
                to_disk(scratch)
            replace_file(scratch, content)

    # -- staged files and folders

    def _clear_folders(self) -> None:
        """Remove the folders that an interrupted import has left."""
        for path in self.area.iterdir():
            if path.is_dir() and path.name != "content":
                remove_folder(path)

    def _built(self, folder: str, files: Mapping[str, str]) -> Path:
        """Build a staged folder from files with these digests."""
        built = self.area / folder
        for name, digest in files.items():
            path = built / name
            with self.store.writing():
                path.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(self._content(digest), path)
        return built

    def _staged_repeat(self, index: int, repeat: ReceivedRepeat) -> Path:
        """Stage a repeat, and check each of its files by its format."""
        staged = self._built(f"repeat-{index}", repeat.digests)
        with self._refusing_as(f"runs/{repeat.name}"):
            for record in repeat.manifest.masks.values():
                file_checks.check_masks(staged / record.file, record)
            for name in repeat.digests:
                check = _CHECKS.get(Path(name).suffix)
                if check is not None:
                    check(staged / name)
        return staged

    def _staged_images(self) -> Mapping[str, Path]:
        """Stage the kept images by their folder in the store, and decode each once."""
        staged = {}
        for digits, files in self.contents.kept_images.items():
            folder = self._built(f"kept-{digits}", files)
            with self._refusing_as(f"data/{digits}"):
                for path in sorted(folder.glob("*.tif")):
                    file_checks.check_image(path)
            staged[f"data/{digits}"] = folder
        return staged

    def _staged_folders(self) -> Mapping[str, Path]:
        """Stage the image folders by their folder in the store; a run that uses one checks it."""
        return {
            f"{INPUTS}/{digits}": self._built(f"inputs-{digits}", files)
            for digits, files in self.contents.image_folders.items()
        }

    def _staged_networks(self) -> Mapping[str, Path]:
        """Stage the networks by their file in the store."""
        staged = {}
        for digest in self.contents.networks:
            name = f"{digest}.safetensors"
            path = self._built(NETWORKS, {name: digest}) / name
            with self._refusing_as(NETWORKS):
                file_checks.check_network(path)
            staged[f"{NETWORKS}/{name}"] = path
        return staged

    @contextmanager
    def _refusing_as(self, prefix: str) -> Iterator[None]:
        """Name a bad file by its path in the archive instead of the staging folder."""
        try:
            yield
        except BadInput as error:
            message = str(error)
            for folder in self.area.iterdir():
                message = message.replace(str(folder), prefix)
            raise self.archive.refusal(message) from error

    # -- into the store

    def _place(self, parts: Mapping[str, Path]) -> None:
        """Move files and folders to their paths in the store, unless these exist."""
        for name, staged in parts.items():
            folder, _, rest = name.partition("/")
            target = inside(self.store.root / folder, rest)
            if target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            files = [staged] if staged.is_file() else [p for p in staged.rglob("*") if p.is_file()]
            for path in files:
                path.chmod(0o444)
            moved(staged, target)

    def _attestations_of(self, name: str) -> Iterator[Attestation]:
        """The passports and receipts of a repeat."""
        bundle = self.contents.passports
        for passport in bundle.passports_of(name):
            yield passport.attestation
            for receipt in bundle.receipts_of(passport):
                yield receipt.attestation

    def _commit(self, repeat: ReceivedRepeat, staged: Path, staged_run: Path) -> ImportedRepeat:
        """Commit a new repeat, or add missing files to a stored one."""
        key, machine, index = repeat.name.split("/")
        stored = self.store.repeat(key, machine, int(index))
        is_new = stored is None
        completed: tuple[str, ...] = ()
        if stored is None:
            self._note_not_sent(repeat, repeat.missing)
            stored = self.store.commit_received(staged, staged_run)
            # Another process may have been first, with a run of its own.
            _refuse_conflicts(self.archive.path, self.store, [repeat])
        else:
            completed = self._completed(stored, repeat, staged)
        missing = tuple(name for name in repeat.manifest.files if not stored.has(name))
        if completed:
            self._note_not_sent(repeat, missing)
        return ImportedRepeat(
            name=repeat.name,
            label=repeat.spec.label,
            new=is_new,
            completed=completed,
            missing=missing,
        )

    def _note_not_sent(self, repeat: ReceivedRepeat, names: Sequence[str]) -> None:
        """Record that files were never sent, so that `fsck` does not miss them."""
        with self.store.writing():
            note_not_sent(self.store.root, repeat.name, names)

    def _completed(self, stored: Repeat, repeat: ReceivedRepeat, staged: Path) -> tuple[str, ...]:
        """Add the files to a stored repeat that it lacks."""
        missing = [name for name in repeat.digests if not stored.has(name)]
        with self.store.writing():
            for name in missing:
                target = stored.folder / name
                target.parent.mkdir(exist_ok=True)
                (staged / name).chmod(0o444)
                with contextlib.suppress(FileExistsError):
                    (staged / name).rename(target)
        return tuple(missing)


_CHECKS: Mapping[str, Callable[[Path], None]] = {
    Path(WEIGHTS).suffix: file_checks.check_network,
    Path(NOTEBOOK).suffix: file_checks.check_notebook,
    ".parquet": file_checks.check_ledger,
}
"""The check of a file by its ending; masks are checked with their record."""
