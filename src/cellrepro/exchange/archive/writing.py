"""An exported file written: its contents read once to be checked, and once to be written."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cellrepro.errors import BadInput, Damaged
from cellrepro.exchange.archive.entry_names import SUMS, place_of, refuse_twins
from cellrepro.exchange.archive.form import Entry, local_header, tail
from cellrepro.progress import Progress, progress
from cellrepro.store.seal import seal_text
from cellrepro.store.whole_files import whole_file
from cellrepro.words import amount

BLOCK = 2**20
"""Bytes that are held in memory at a time."""


@dataclass(frozen=True)
class Outgoing:
    """A file that goes into an archive."""

    name: str
    """Path inside the archive."""
    content: Path | bytes
    """Where it lies, or what it holds."""
    digest: str
    """SHA-256 that its content must have."""

    @classmethod
    def of_bytes(cls, name: str, content: bytes) -> Outgoing:
        """A file that is made for the archive."""
        return cls(name, content, hashlib.sha256(content).hexdigest())

    @property
    def shown(self) -> str:
        """What a message calls it: where it lies, else its name."""
        return str(self.content) if isinstance(self.content, Path) else self.name

    @property
    def size(self) -> int:
        """Bytes of its content."""
        if isinstance(self.content, bytes):
            return len(self.content)
        return self.content.stat().st_size

    def blocks(self) -> Iterator[bytes]:
        """Its content, a block at a time."""
        with self._open() as stream:
            while block := stream.read(BLOCK):
                yield block

    def _open(self) -> IO[bytes]:
        if isinstance(self.content, bytes):
            return io.BytesIO(self.content)
        return self.content.open("rb")


class BytesShown:
    """Progress in steps of a block, whatever the sizes of the files."""

    def __init__(self, n_bytes: int, label: str, *, quiet: bool = False):
        self.bar: Progress = progress(n_bytes // BLOCK, label, quiet=quiet)
        self._n_over = 0

    def add(self, n_bytes: int) -> None:
        """So many more bytes are done."""
        n_blocks, self._n_over = divmod(self._n_over + n_bytes, BLOCK)
        for _ in range(n_blocks):
            if self.bar.done < self.bar.total:
                self.bar.advance()


def write_archive(path: Path, files: Sequence[Outgoing], *, quiet: bool = False) -> str:
    """Write an exported file, whole or not at all."""
    ordered = _in_order(files)
    n_bytes = sum(file.size for file in ordered)
    shown = BytesShown(2 * n_bytes, f"export {amount(len(ordered), 'file')}", quiet=quiet)
    with shown.bar:
        entries = [_checked(file, shown) for file in ordered]
        with whole_file(path) as scratch, scratch.open("wb") as stream:
            return _written(stream, ordered, entries, shown)


def _in_order(files: Sequence[Outgoing]) -> list[Outgoing]:
    """The files with ``SHA256SUMS``, sorted by name, once every name is known to be sound."""
    for file in files:
        try:
            place_of(file.name)
        except BadInput as error:
            raise BadInput(
                f"{error}; rename that file where the run was made, and run it"
            ) from None
    refuse_twins([SUMS, *(file.name for file in files)])
    digests = {file.name: file.digest for file in files}
    sums = Outgoing.of_bytes(SUMS, seal_text(digests).encode())
    return sorted([sums, *files], key=lambda file: file.name.encode())


def _checked(file: Outgoing, shown: BytesShown) -> Entry:
    """Read a file and see that it is what it is said to be."""
    digest = hashlib.sha256()
    crc = 0
    size = 0
    for block in file.blocks():
        digest.update(block)
        crc = zlib.crc32(block, crc)
        size += len(block)
        shown.add(len(block))
    if digest.hexdigest() != file.digest:
        raise Damaged(
            f"{file.shown} is damaged: its SHA-256 begins with {digest.hexdigest()[:12]}, and that "
            f"of the file that was stored with {file.digest[:12]}; copy the store again, or run it "
            "again"
        )
    return Entry(file.name, size, crc)


def _written(
    stream: IO[bytes], files: Sequence[Outgoing], entries: Sequence[Entry], shown: BytesShown
) -> str:
    """Write all bytes; returns their SHA-256."""
    digest = hashlib.sha256()

    def write(block: bytes) -> None:
        stream.write(block)
        digest.update(block)

    for file, entry in zip(files, entries, strict=True):
        write(local_header(entry))
        crc = 0
        for block in file.blocks():
            write(block)
            crc = zlib.crc32(block, crc)
            shown.add(len(block))
        if crc != entry.crc:
            raise BadInput(f"{file.shown} changed while it was exported; export again")
    write(tail(entries))
    return digest.hexdigest()
