"""Writing an exported file: the same files give the same bytes, on every machine, at any time."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cellrepro.errors import Damaged
from cellrepro.exchange.archive.entry_names import EntryName, refuse_twins
from cellrepro.progress import progress
from cellrepro.progress_count import Progress
from cellrepro.store.seal import SUMS, seal_text
from cellrepro.store.unchanged import repair_of
from cellrepro.store.whole_files import whole_file
from samebits.digests import file_digest
from samebits.errors import BadInput
from samebits.words import amount

BLOCK = 2**20
"""Bytes of a content that are held in memory."""
FIXED_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date of a zip, so that its bytes do not depend on the clock."""
UNIX = 3
"""The system that a zip names, also if it was written on another one."""
PLAIN_FILE = 0o100644 << 16
"""Mode of every file: never a link, never executable."""
UTF8_NAME = 1 << 11
"""The only flag of a file, also if its name is ASCII."""


@dataclass(frozen=True)
class Outgoing:
    """A file that goes into an archive."""

    name: str
    """Path inside the archive."""
    content: Path | bytes
    """Path of a file, or the content itself."""
    digest: str
    """SHA-256 that the content must have."""

    @classmethod
    def of_bytes(cls, name: str, content: bytes) -> Outgoing:
        """A file whose content is made for the archive."""
        return cls(name, content, hashlib.sha256(content).hexdigest())

    @classmethod
    def of_file(cls, path: Path) -> Outgoing:
        """A file under its own name, with the digest that it has now."""
        return cls(path.name, path, file_digest(path))

    @property
    def shown(self) -> str:
        """Its name in a message."""
        return str(self.content) if isinstance(self.content, Path) else self.name

    @property
    def size(self) -> int:
        """Bytes of its content."""
        if isinstance(self.content, bytes):
            return len(self.content)
        return self.content.stat().st_size

    def blocks(self) -> Iterator[bytes]:
        """Yield its content in blocks."""
        with self._open() as stream:
            while block := stream.read(BLOCK):
                yield block

    def _open(self) -> IO[bytes]:
        if isinstance(self.content, bytes):
            return io.BytesIO(self.content)
        return self.content.open("rb")


class BytesProgress:
    """A progress bar that advances by blocks, whatever the sizes of the files."""

    def __init__(self, n_bytes: int, label: str, *, quiet: bool = False):
        self.bar: Progress = progress(n_bytes // BLOCK, label, quiet=quiet)
        self._n_over = 0

    def add(self, n_bytes: int) -> None:
        """Count bytes that are done."""
        n_blocks, self._n_over = divmod(self._n_over + n_bytes, BLOCK)
        for _ in range(n_blocks):
            if self.bar.done < self.bar.total:
                self.bar.advance()


def write_archive(path: Path, files: Sequence[Outgoing], *, quiet: bool = False) -> str:
    """Write an exported file with its ``SHA256SUMS``; returns its SHA-256."""
    ordered = _in_order(files)
    return write_zip(path, ordered, label=f"export {amount(len(ordered), 'file')}", quiet=quiet)


def write_zip(path: Path, files: Sequence[Outgoing], *, label: str, quiet: bool) -> str:
    """Write a zip of these files in this order, whole or not at all; returns its SHA-256."""
    done = BytesProgress(sum(file.size for file in files), label, quiet=quiet)
    with done.bar, whole_file(path) as scratch:
        with zipfile.ZipFile(scratch, "w", zipfile.ZIP_STORED) as scratch_zip:
            for file in files:
                _add(file, scratch_zip, done)
        return file_digest(scratch)


def _in_order(files: Sequence[Outgoing]) -> list[Outgoing]:
    """Check the names, add ``SHA256SUMS``, and sort by name."""
    for file in files:
        try:
            EntryName.parse(file.name)
        except BadInput as error:
            raise BadInput(
                f"{error}; rename that file where the run was made, and run it"
            ) from None
    refuse_twins([SUMS, *(file.name for file in files)])
    digests = {file.name: file.digest for file in files}
    sums = Outgoing.of_bytes(SUMS, seal_text(digests).encode())
    return sorted([sums, *files], key=lambda file: file.name.encode())


def _add(file: Outgoing, scratch_zip: zipfile.ZipFile, done: BytesProgress) -> None:
    """Add a file, and compare its content with its digest."""
    entry = zipfile.ZipInfo(file.name, FIXED_DATE)
    entry.create_system = UNIX
    entry.external_attr = PLAIN_FILE
    entry.file_size = file.size
    digest = hashlib.sha256()
    with scratch_zip.open(entry, "w") as stream:
        entry.flag_bits |= UTF8_NAME  # only now: `open` resets the flags
        for block in file.blocks():
            digest.update(block)
            stream.write(block)
            done.add(len(block))
    if digest.hexdigest() != file.digest:
        repair = repair_of(file.shown, file.digest)
        advice = repair or "copy the store again, or run it again"
        raise Damaged(
            f"{file.shown} is damaged: its SHA-256 begins with {digest.hexdigest()[:12]}, and that "
            f"of the file that was stored with {file.digest[:12]}; {advice}"
        )
