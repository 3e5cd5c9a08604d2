"""Reading an exported file, which is accepted only as `cellrepro export` writes it.

Nothing in it is trusted. Files are stored uncompressed, sorted by name, one right after the other;
date, mode and flags are fixed; there are no comments, and no extra fields but those of ZIP64 for
large numbers. Every byte outside of the contents is held to that, which leaves no room for anything
hidden or ambiguous, and contents are compared with ``SHA256SUMS`` while they are read. Memory is
bounded: a block, the directory, and small files that are read whole.

Records and fields are those of PKWARE's APPNOTE 6.3.10, sections 4.3 to 4.5.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO

from cellrepro.errors import Damaged, no_such_file
from cellrepro.exchange.archive.entry_names import EntryName, refuse_twins
from cellrepro.exchange.archive.writing import (
    BLOCK,
    FIXED_DATE,
    PLAIN_FILE,
    UNIX,
    UTF8_NAME,
)
from cellrepro.store.seal import MOST_SUMS_BYTES, SUMS, read_seal
from samebits.errors import BadInput

_MOST_FILES = 500_000
_MOST_DIRECTORY_BYTES = 2**27
_ADVICE = (
    "expected a file as `cellrepro export` writes it, unchanged: copy it again from where it came, "
    "or ask its sender for a new one"
)


class ExportedFile:
    """An open exported file, of which everything but the contents has been checked."""

    def __init__(self, path: Path, archive: zipfile.ZipFile):
        self.path = path
        self._archive = archive
        self._entries = {entry.orig_filename: entry for entry in archive.infolist()}
        if SUMS not in self._entries:
            raise self.refusal(f"it holds no {SUMS}")
        sums = self._read_sums()
        self.identity = hashlib.sha256(sums).hexdigest()
        self.digests = self._digests_of(sums)

    def refusal(self, what: str) -> BadInput:
        """The error that this file is not as `cellrepro export` writes it."""
        return _not_ours(self.path, what)

    def size(self, name: str) -> int:
        """Bytes of one file."""
        return self._entries[name].file_size

    @property
    def n_bytes(self) -> int:
        """Bytes of all contents."""
        return sum(entry.file_size for entry in self._entries.values())

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
        if digests.keys() != self._entries.keys() - {SUMS}:
            differing = sorted(digests.keys() ^ (self._entries.keys() - {SUMS}))
            raise self.refusal(f"{SUMS} and what it holds differ in {differing[0]!a}")
        return digests

    def _crc_checked(self, name: str) -> Iterator[bytes]:
        try:
            with self._archive.open(self._entries[name]) as content:
                while block := content.read(BLOCK):
                    yield block
        except (zipfile.BadZipFile, EOFError) as error:
            raise self._damaged(name) from error

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
        start, directory = _read_directory(path, stream)
        try:
            archive = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError):
            raise _not_ours(path, "its directory cannot be read") from None
        with archive:
            entries = archive.infolist()
            _refuse_other_directory(path, start, directory, entries)
            _refuse_other_headers(path, stream, start, entries)
            yield ExportedFile(path, archive)


def _not_ours(path: Path, what: str) -> BadInput:
    return BadInput(f"{path}: {what}; {_ADVICE}")


def _read_at(stream: IO[bytes], offset: int, n_bytes: int) -> bytes:
    stream.seek(offset)
    return stream.read(n_bytes)


# -- the directory ---------------------------------------------------------------------------------

_RECORD_BYTES = 46
"""Bytes of a file's record in the directory without its name and extra field."""
_LENGTHS = struct.Struct("<3H")
_LENGTHS_AT = 28
"""Where in a record the lengths of its name, extra field and comment stand."""
_RECORD_SIGNATURE = b"PK\x01\x02"
_END = struct.Struct("<4s4H2IH")
_END_SIGNATURE = b"PK\x05\x06"
_ZIP64_END = struct.Struct("<4sQ2H2I4Q")
_ZIP64_LOCATOR = struct.Struct("<4sIQI")
_ZIP64_LOCATOR_SIGNATURE = b"PK\x06\x07"
_FULL_16 = 0xFFFF
_FULL_32 = 0xFFFFFFFF
"""Marks a number that stands in a record or field of ZIP64."""
_PLAIN_VERSION = 20
_ZIP64_VERSION = 45
_ZIP64_CREATORS = (_ZIP64_VERSION, UNIX << 8 | _ZIP64_VERSION)
"""Of the record of ZIP64 at the end: as Python writes it, and as version 0.1.0 of cellrepro did."""


def _read_directory(path: Path, stream: IO[bytes]) -> tuple[int, bytes]:
    """The directory's offset, and all bytes from there on; its size is limited before."""
    n_bytes = stream.seek(0, os.SEEK_END)
    end_at = n_bytes - _END.size
    if end_at < 0 or _read_at(stream, end_at, 4) != _END_SIGNATURE:
        raise _not_ours(path, _why_no_zip(_read_at(stream, 0, 600)))
    _, _, _, _, _, size, offset, _ = _END.unpack(_read_at(stream, end_at, _END.size))
    locator_at = end_at - _ZIP64_LOCATOR.size
    if locator_at >= _ZIP64_END.size and _read_at(stream, locator_at, 4) == (
        _ZIP64_LOCATOR_SIGNATURE
    ):
        end_at = locator_at - _ZIP64_END.size
    start = end_at - size
    if start < 0 or offset not in (start, _FULL_32):
        raise _not_ours(path, "its directory is not where its end says")
    if size > _MOST_DIRECTORY_BYTES:
        raise _not_ours(path, f"its directory has {size} bytes")
    directory = _read_at(stream, start, n_bytes - start)
    if directory.count(_RECORD_SIGNATURE) > _MOST_FILES:
        raise _not_ours(path, f"it holds more than {_MOST_FILES} files")
    return start, directory


def _why_no_zip(start: bytes) -> str:
    """Why a file lacks the end record of a zip, from its first bytes."""
    if start[:4] == b"PK\x03\x04":
        return "its end is missing, as of a file that was copied in part, or something follows it"
    if start[257:262] == b"ustar" or start[:2] == b"\x1f\x8b":
        return "a tar or gzip archive, which is never read"
    return f"no zip file, it begins with {start[:12]!r}" if start else "empty (0 bytes)"


def _refuse_other_directory(
    path: Path, start: int, directory: bytes, entries: Sequence[zipfile.ZipInfo]
) -> None:
    """Refuse a directory or an end with anything that `export` does not write."""
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise _not_ours(path, f"{entry.orig_filename!a} is compressed, so it was packed anew")
    names = [entry.orig_filename for entry in entries]
    try:
        for name in names:
            EntryName.parse(name)
        refuse_twins(names)
    except BadInput as error:
        raise _not_ours(path, str(error)) from None
    if any(a.encode() >= b.encode() for a, b in pairwise(names)):
        raise _not_ours(path, "its files are not sorted by name")
    position = 0
    for entry in entries:
        lengths = (len(entry.orig_filename.encode()), len(entry.extra), 0)
        # zipfile cuts the last name where its length leads out of the directory.
        if _LENGTHS.unpack_from(directory, position + _LENGTHS_AT) != lengths:
            raise _not_ours(path, "its directory is not as it was written")
        position += _RECORD_BYTES + sum(lengths)
    ends = _possible_ends(len(entries), position, start)
    if directory[position:] not in ends or not all(map(_is_as_written, entries)):
        raise _not_ours(path, "its directory is not as it was written")


def _is_as_written(entry: zipfile.ZipInfo) -> bool:
    sizes = (entry.file_size, entry.file_size)
    extras = (
        b"",
        _zip64_field(*sizes),
        _zip64_field(entry.header_offset),
        _zip64_field(*sizes, entry.header_offset),
    )
    return (
        entry.extra in extras
        and entry.create_version == entry.extract_version
        and entry.extract_version in (_PLAIN_VERSION, _ZIP64_VERSION)
        and entry.create_system == UNIX
        and entry.flag_bits == UTF8_NAME
        and entry.date_time == FIXED_DATE
        and entry.compress_size == entry.file_size
        and entry.external_attr == PLAIN_FILE
        and entry.comment == b""
        and entry.reserved == entry.volume == entry.internal_attr == 0
    )


def _zip64_field(*numbers: int) -> bytes:
    """An extra field with numbers of more than 32 bits."""
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers)


def _possible_ends(n_files: int, size: int, start: int) -> list[bytes]:
    """All that may follow the records of the directory: with the records of ZIP64, and without."""
    n_here = min(n_files, _FULL_16)
    end = _END.pack(_END_SIGNATURE, 0, 0, n_here, n_here, size, min(start, _FULL_32), 0)
    locator = _ZIP64_LOCATOR.pack(_ZIP64_LOCATOR_SIGNATURE, 0, start + size, 1)
    counts = (n_files, n_files, size, start)
    records = [
        _ZIP64_END.pack(b"PK\x06\x06", 44, creator, _ZIP64_VERSION, 0, 0, *counts)
        for creator in _ZIP64_CREATORS
    ]
    large_ends = [record + locator + end for record in records]
    return large_ends if start >= _FULL_32 else [end, *large_ends]


# -- between the contents --------------------------------------------------------------------------

_HEADER = struct.Struct("<4s5H3I2H")
_MIDNIGHT = 0
_FIRST_OF_1980 = 0x21


def _refuse_other_headers(
    path: Path, stream: IO[bytes], start: int, entries: Sequence[zipfile.ZipInfo]
) -> None:
    """Refuse contents between which lies anything but the headers that `export` writes."""
    position = 0
    for entry in entries:
        if entry.header_offset != position or position + entry.file_size > start:
            raise _not_ours(path, "offsets and sizes of its files do not add up")
        headers = _possible_headers(entry)
        found = _read_at(stream, position, max(map(len, headers)))
        lengths = [len(header) for header in headers if found.startswith(header)]
        if not lengths:
            what = f"what stands before {entry.orig_filename} is not as it was written"
            raise _not_ours(path, what)
        position += lengths[0] + entry.file_size
    if position != start:
        raise _not_ours(path, "offsets and sizes of its files do not add up")


def _possible_headers(entry: zipfile.ZipInfo) -> list[bytes]:
    """The bytes before the content of a file: with the field of ZIP64, and without."""
    sizes = (entry.file_size, entry.file_size)
    forms = [(_FULL_32, _zip64_field(*sizes))]
    if entry.file_size < _FULL_32:
        forms += [(entry.file_size, b""), (entry.file_size, _zip64_field(*sizes))]
    name = entry.orig_filename.encode()
    return [
        _HEADER.pack(
            b"PK\x03\x04",
            _ZIP64_VERSION if extra else _PLAIN_VERSION,
            UTF8_NAME,
            zipfile.ZIP_STORED,
            _MIDNIGHT,
            _FIRST_OF_1980,
            entry.CRC,
            size,
            size,
            len(name),
            len(extra),
        )
        + name
        + extra
        for size, extra in forms
    ]
