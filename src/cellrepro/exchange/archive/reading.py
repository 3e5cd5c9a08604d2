"""Reading an exported file, which is accepted only as `cellrepro export` writes it.

Nothing in it is trusted: its skeleton is computed again from the central directory and compared
with the bytes of the file, and contents are compared with ``SHA256SUMS`` while they are read.
Memory is bounded: a block, the directory, and small files that are read whole.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from cellrepro.errors import BadInput, Damaged, no_such_file
from cellrepro.exchange.archive.entry_names import EntryName, refuse_twins
from cellrepro.exchange.archive.form import (
    DIRECTORY_RECORD,
    DIRECTORY_SIGNATURE,
    END,
    END_SIGNATURE,
    FULL_16,
    FULL_32,
    STORED,
    ZIP64_FIELD,
    ZIP64_TAIL,
    Entry,
    local_header,
    offsets,
    tail,
    zip64_directory_extent,
)
from cellrepro.store.seal import MOST_SUMS_BYTES, SUMS, read_seal

_BLOCK = 2**20
_MOST_FILES = 500_000
_MOST_DIRECTORY_BYTES = 2**27
_ADVICE = (
    "expected a file as `cellrepro export` writes it, unchanged: copy it again from where it came, "
    "or ask its sender for a new one"
)


@dataclass(frozen=True)
class _StoredEntry:
    """A file of an archive, and the offset of its content."""

    entry: Entry
    start: int


class ExportedFile:
    """An open exported file, whose skeleton has been checked."""

    def __init__(self, path: Path, stream: IO[bytes], entries: list[Entry]):
        self.path = path
        self._stream = stream
        starts = offsets(entries)[:-1]
        self._stored = {
            entry.name: _StoredEntry(entry, start + len(local_header(entry)))
            for entry, start in zip(entries, starts, strict=True)
        }
        if SUMS not in self._stored:
            raise self.refusal(f"it holds no {SUMS}")
        sums = self._read_sums()
        self.identity = hashlib.sha256(sums).hexdigest()
        self.digests = self._digests_of(sums)

    def refusal(self, what: str) -> BadInput:
        """The error that this file is not as `cellrepro export` writes it."""
        return _not_ours(self.path, what)

    def size(self, name: str) -> int:
        """Bytes of one file."""
        return self._stored[name].entry.size

    @property
    def n_bytes(self) -> int:
        """Bytes of all contents."""
        return sum(stored.entry.size for stored in self._stored.values())

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file in blocks; raises after the last if it was changed."""
        digest = hashlib.sha256()
        for block in self._crc_checked(name):
            digest.update(block)
            yield block
        if digest.hexdigest() != self.digests[name]:
            raise self._damaged(name)

    def content(self, name: str, *, most_bytes: int) -> bytes:
        """The whole content of a small file."""
        self._refuse_large(name, most_bytes)
        return b"".join(self.blocks(name))

    def _refuse_large(self, name: str, most_bytes: int) -> None:
        size = self.size(name)
        if size > most_bytes:
            raise self.refusal(f"{name} has {size} bytes, more than {most_bytes}")

    def _read_sums(self) -> bytes:
        self._refuse_large(SUMS, MOST_SUMS_BYTES)
        return b"".join(self._crc_checked(SUMS))

    def _digests_of(self, sums: bytes) -> Mapping[str, str]:
        """Parse ``SHA256SUMS``, which must list exactly the other files."""
        try:
            digests = read_seal(sums.decode())
        except ValueError as error:
            raise self.refusal(f"its {SUMS} cannot be read ({error})") from error
        if digests.keys() != self._stored.keys() - {SUMS}:
            differing = sorted(digests.keys() ^ (self._stored.keys() - {SUMS}))
            raise self.refusal(f"{SUMS} and what it holds differ in {differing[0]!a}")
        return digests

    def _crc_checked(self, name: str) -> Iterator[bytes]:
        stored = self._stored[name]
        n_left = stored.entry.size
        self._stream.seek(stored.start)
        crc = 0
        while n_left:
            block = self._stream.read(min(_BLOCK, n_left))
            if not block:
                raise self.refusal(f"it ends inside of {name}")
            # The consumer of a block may read another file before it takes the next one.
            position = self._stream.tell()
            crc = zlib.crc32(block, crc)
            n_left -= len(block)
            yield block
            self._stream.seek(position)
        if crc != stored.entry.crc:
            raise self._damaged(name)

    def _damaged(self, name: str) -> Damaged:
        return Damaged(f"{self.path}: the content of {name} is not what was exported; {_ADVICE}")


@contextmanager
def opened_export(path: Path) -> Iterator[ExportedFile]:
    """Open an exported file and check its skeleton; it is closed after the block."""
    if not path.exists():
        raise no_such_file(path, expected="a file that `cellrepro export` wrote")
    if not path.is_file():
        raise BadInput(f"{path} is a folder or a device; {_ADVICE}")
    with path.open("rb") as stream:
        n_bytes = stream.seek(0, os.SEEK_END)
        entries = _entries_of(path, _read_directory(path, stream, n_bytes))
        _refuse_other_skeleton(path, stream, n_bytes, entries)
        yield ExportedFile(path, stream, entries)


def _not_ours(path: Path, what: str) -> BadInput:
    return BadInput(f"{path}: {what}; {_ADVICE}")


# -- the directory ---------------------------------------------------------------------------------


def _read_directory(path: Path, stream: IO[bytes], n_bytes: int) -> bytes:
    """The bytes of the central directory, found through the records at the end of the file."""
    n_tail = min(n_bytes, END.size + ZIP64_TAIL)
    last = _read_at(stream, n_bytes - n_tail, n_tail)
    if len(last) < END.size or last[-END.size :][:4] != END_SIGNATURE:
        raise _not_ours(path, _why_no_zip(_read_at(stream, 0, 600)))
    fields = END.unpack(last[-END.size :])
    n_files = fields[4]
    size = fields[5]
    offset = fields[6]
    n_after = END.size
    if n_files == FULL_16 or FULL_32 in (size, offset):
        extent = zip64_directory_extent(last[: -END.size])
        if extent is None:
            raise _not_ours(path, "its end is not that of a large zip file")
        offset, size = extent
        n_after += ZIP64_TAIL
    if offset + size + n_after != n_bytes:
        raise _not_ours(path, "its directory is not where its end says")
    if size > _MOST_DIRECTORY_BYTES:
        raise _not_ours(path, f"its directory has {size} bytes")
    return _read_at(stream, offset, size)


def _read_at(stream: IO[bytes], offset: int, n_bytes: int) -> bytes:
    stream.seek(offset)
    return stream.read(n_bytes)


def _why_no_zip(start: bytes) -> str:
    """Why a file lacks the end record of a zip, from its first bytes."""
    if start[:4] == b"PK\x03\x04":
        return "its end is missing, as of a file that was copied in part, or something follows it"
    if start[257:262] == b"ustar" or start[:2] == b"\x1f\x8b":
        return "a tar or gzip archive, which is never read"
    return f"no zip file, it begins with {start[:12]!r}" if start else "empty (0 bytes)"


def _entries_of(path: Path, directory: bytes) -> list[Entry]:
    """Name, size and CRC of each file; all other fields are compared with the skeleton later."""
    entries: list[Entry] = []
    position = 0
    while position < len(directory):
        if len(entries) == _MOST_FILES:
            raise _not_ours(path, f"it holds more than {_MOST_FILES} files")
        try:
            fields = DIRECTORY_RECORD.unpack_from(directory, position)
            n_name, n_extra, n_comment = fields[10:13]
            name_start = position + DIRECTORY_RECORD.size
            extra_start = name_start + n_name
            name = directory[name_start:extra_start].decode()
            extra = directory[extra_start : extra_start + n_extra]
            size = _size_of(fields[9], extra)
        except (struct.error, UnicodeDecodeError):
            raise _not_ours(path, "its directory cannot be read") from None
        if fields[0] != DIRECTORY_SIGNATURE:
            raise _not_ours(path, "its directory cannot be read")
        if fields[4] != STORED:
            raise _not_ours(path, f"{name!a} is compressed, so it was packed anew")
        entries.append(Entry(name, size, fields[7]))
        position = extra_start + n_extra + n_comment
    _refuse_names(path, [entry.name for entry in entries])
    return entries


def _size_of(size: int, extra: bytes) -> int:
    """The size of a file, from the extra field of ZIP64 if it is large."""
    if size != FULL_32:
        return size
    kind, _, large_size = struct.unpack_from("<2HQ", extra)
    return large_size if kind == ZIP64_FIELD else size


def _refuse_names(path: Path, names: list[str]) -> None:
    try:
        for name in names:
            EntryName.parse(name)
        refuse_twins(names)
    except BadInput as error:
        raise _not_ours(path, str(error)) from None
    if any(a.encode() >= b.encode() for a, b in pairwise(names)):
        raise _not_ours(path, "its files are not sorted by name")


# -- the skeleton ----------------------------------------------------------------------------------


def _refuse_other_skeleton(
    path: Path, stream: IO[bytes], n_bytes: int, entries: list[Entry]
) -> None:
    """Refuse a file whose bytes outside of the contents differ from those of the writer."""
    starts = offsets(entries)
    # Wrong sizes may add up to more than a record can hold, so they are checked before records.
    written_tail = tail(entries) if starts[-1] < n_bytes else b""
    if starts[-1] + len(written_tail) != n_bytes or not written_tail:
        raise _not_ours(path, "the sizes of its files do not add up to its own")
    if _read_at(stream, starts[-1], len(written_tail)) != written_tail:
        raise _not_ours(path, "its directory is not as it was written")
    for entry, start in zip(entries, starts[:-1], strict=True):
        header = local_header(entry)
        if _read_at(stream, start, len(header)) != header:
            raise _not_ours(path, f"what stands before {entry.name} is not as it was written")
