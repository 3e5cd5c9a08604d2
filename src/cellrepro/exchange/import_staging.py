"""The staging folder of an import: what came in a file, checked, and laid out as in a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellrepro.exchange.archive import file_checks
from cellrepro.exchange.archive.contents import Contents, ReceivedRepeat
from cellrepro.exchange.archive.reading import ExportedFile
from cellrepro.exchange.archive.writing import BLOCK, BytesProgress
from cellrepro.exchange.input_lookup import INPUTS, NETWORKS
from cellrepro.store.removal import remove_folder
from cellrepro.store.store import Store
from cellrepro.store.stored_run import NOTEBOOK, WEIGHTS
from cellrepro.store.whole_files import link_or_copy, replace_file, to_disk
from samebits.errors import BadInput
from samebits.words import amount


@dataclass(frozen=True)
class ImportStaging:
    """The contents of one exported file in a folder of the store, until they are moved into it."""

    archive: ExportedFile
    contents: Contents
    store: Store
    area: Path
    """The folder; an interrupted import of the same file may have left contents in it."""

    # -- contents, by their digest

    def _content(self, digest: str) -> Path:
        return self.area / "content" / digest

    def receive(self, *, quiet: bool) -> None:
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
        self._clear_folders()

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

    # -- folders of these contents

    def _clear_folders(self) -> None:
        """Remove the folders that an interrupted import has left."""
        for path in self.area.iterdir():
            if path.is_dir() and path.name != "content":
                remove_folder(path)

    def built(self, folder: str, files: Mapping[str, str]) -> Path:
        """Build a staged folder from files with these digests."""
        built = self.area / folder
        for name, digest in files.items():
            path = built / name
            with self.store.writing():
                path.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(self._content(digest), path)
        return built

    def repeat_folder(self, index: int, repeat: ReceivedRepeat) -> Path:
        """Stage a repeat, and check each of its files by its format."""
        staged = self.built(f"repeat-{index}", repeat.digests)
        with self._refusing_as(staged, f"runs/{repeat.name}"):
            for record in repeat.manifest.masks.values():
                file_checks.check_masks(staged / record.file, record)
            for name in repeat.digests:
                check = _CHECKS.get(Path(name).suffix)
                if check is not None:
                    check(staged / name)
        return staged

    def kept_images(self) -> Mapping[str, Path]:
        """Stage the kept images by their folder in the store, and decode each once."""
        staged = {}
        for digits, files in self.contents.kept_images.items():
            folder = self.built(f"kept-{digits}", files)
            with self._refusing_as(folder, f"data/{digits}"):
                for path in sorted(folder.glob("*.tif")):
                    file_checks.check_image(path)
            staged[f"data/{digits}"] = folder
        return staged

    def image_folders(self) -> Mapping[str, Path]:
        """Stage the image folders by their folder in the store; a run that uses one checks it."""
        return {
            f"{INPUTS}/{digits}": self.built(f"inputs-{digits}", files)
            for digits, files in self.contents.image_folders.items()
        }

    def networks(self) -> Mapping[str, Path]:
        """Stage the networks by their file in the store."""
        staged = {}
        for digest in self.contents.networks:
            name = f"{digest}.safetensors"
            path = self.built(NETWORKS, {name: digest}) / name
            with self._refusing_as(path.parent, NETWORKS):
                file_checks.check_network(path)
            staged[f"{NETWORKS}/{name}"] = path
        return staged

    @contextmanager
    def _refusing_as(self, folder: Path, prefix: str) -> Iterator[None]:
        """Name a bad file of a staged folder by its path in the archive."""
        try:
            yield
        except BadInput as error:
            # With the separator, since repeat-1 begins the name of repeat-10, too.
            message = str(error).replace(f"{folder}{os.sep}", f"{prefix}/")
            raise self.archive.refusal(message) from error


_CHECKS: Mapping[str, Callable[[Path], None]] = {
    Path(WEIGHTS).suffix: file_checks.check_network,
    Path(NOTEBOOK).suffix: file_checks.check_notebook,
    ".parquet": file_checks.check_ledger,
}
"""The check of a file by its ending; masks are checked with their record."""
