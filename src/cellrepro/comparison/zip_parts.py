"""Where the parts of a zip archive lie in its file: of a stored one, as ``torch.save`` writes it.

The offsets are those of PKWARE's APPNOTE 6.3.10, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16 and
4.5.3. Nothing is decompressed, and no part may lie over another one, so that what is read is never
more than the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MOST_PARTS = 2**17
_LONGEST_DIRECTORY = 2**26
_LONGEST_COMMENT = 2**16
_IN_64_BITS = 2**32 - 1
_ENCRYPTED = 1


class NotStored(ValueError):
    """An archive that is damaged, or of another kind than is read here."""


class Part(NamedTuple):
    """A part of an archive."""

    start: int
    """Of its content, in bytes from the beginning of the file."""
    size: int
    """Bytes."""
    crc: int
    """CRC-32 of its content, as the archive says."""


class _Directory(NamedTuple):
    """Where the list of all parts stands."""

    start: int
    size: int
    n_parts: int


class _Entry(NamedTuple):
    """What that list says of a part."""

    name: str
    header: int
    size: int
    crc: int


def stored_parts(path: Path) -> dict[str, Part]:
    """Read where each part of an archive lies.

    By name, in the order of their content.
    """
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        directory = _directory(stream, size)
        stream.seek(directory.start)
        entries = sorted(
            _entries(stream.read(directory.size), directory.n_parts), key=lambda each: each.header
        )
        parts = {entry.name: _part(stream, entry, directory.start) for entry in entries}
    if len(parts) < len(entries):
        raise NotStored("two of its parts have one name")
    for before, after in pairwise(zip(parts.values(), entries, strict=True)):
        if before[0].start + before[0].size > after[1].header:
            raise NotStored(f"{before[1].name} and {after[1].name} lie over each other in it")
    return parts


def _directory(stream: IO[bytes], size: int) -> _Directory:
    """Find the list of all parts by the record at the end."""
    stream.seek(max(size - _END.size - _LONGEST_COMMENT, 0))
    tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise NotStored("the end of the archive is missing")
    _, _, _, _, n_parts, n_bytes, start, _ = _END.unpack_from(tail, at)
    end = size - len(tail) + at
    found = _Directory(start, n_bytes, n_parts)
    stream.seek(max(end - _LOCATOR.size, 0))
    mark, _, end_64, _ = _LOCATOR.unpack(stream.read(_LOCATOR.size).ljust(_LOCATOR.size, b"\0"))
    if mark == b"PK\x06\x07":
        stream.seek(min(end_64, size))
        record = stream.read(_END_64.size)
        if len(record) < _END_64.size or not record.startswith(b"PK\x06\x06"):
            raise NotStored("the end of the archive is damaged")
        *_, n_parts, n_bytes, start = _END_64.unpack(record)
        found = _Directory(start, n_bytes, n_parts)
        end = end_64
    if found.start + found.size > end:
        raise NotStored("the end of the archive is damaged")
    if found.n_parts > _MOST_PARTS or found.size > _LONGEST_DIRECTORY:
        raise NotStored(f"it has more than {_MOST_PARTS} parts")
    return found


def _entries(directory: bytes, n_parts: int) -> Iterator[_Entry]:
    at = 0
    for _ in range(n_parts):
        if at + _ENTRY.size > len(directory):
            raise NotStored("its list of parts is damaged")
        fields = _ENTRY.unpack_from(directory, at)
        mark, _, _, flags, method, _, _, crc, packed, size = fields[:10]
        n_name, n_extra, n_comment = fields[10:13]
        if mark != b"PK\x01\x02":
            raise NotStored("its list of parts is damaged")
        at += _ENTRY.size
        name = directory[at : at + n_name].decode("utf-8", "replace")
        extra = directory[at + n_name : at + n_name + n_extra]
        at += n_name + n_extra + n_comment
        size, packed, header = _in_64_bits([size, packed, fields[-1]], extra)
        if method or flags & _ENCRYPTED or size != packed:
            raise NotStored(f"{ascii(name)[1:-1][:60]} is compressed or encrypted in it")
        yield _Entry(name, header, size, crc)


def _in_64_bits(values: list[int], extra: bytes) -> list[int]:
    """Sizes and offset of an entry, of which those that need it stand in a field of their own."""
    at = 0
    while at + 4 <= len(extra):
        kind, n = struct.unpack_from("<2H", extra, at)
        field = extra[at + 4 : at + 4 + n]
        at += 4 + n
        if kind != 1:
            continue
        longer = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
        return [next(longer, value) if value == _IN_64_BITS else value for value in values]
    return values


def _part(stream: IO[bytes], entry: _Entry, stop: int) -> Part:
    """Where the content of an entry begins, after its own header."""
    stream.seek(entry.header)
    header = stream.read(_LOCAL.size)
    if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
        raise NotStored(f"{ascii(entry.name)[1:-1][:60]} is not where its list says")
    *_, n_name, n_extra = _LOCAL.unpack(header)
    start = entry.header + _LOCAL.size + n_name + n_extra
    if start + entry.size > stop:
        raise NotStored(f"{ascii(entry.name)[1:-1][:60]} is longer than the file")
    return Part(start, entry.size, entry.crc)
