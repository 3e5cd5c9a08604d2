"""The zip of an exported file, byte by byte: what tests change, as an attacker would.

Cellrepro 0.1.0 wrote files so, and they must be read for ever. Python's zipfile writes the same
bytes, except that it has the fields of ZIP64 from 2 GiB on.

Records and fields are those of PKWARE's APPNOTE 6.3.10, sections 4.3 to 4.5.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_LOCAL = struct.Struct("<4s5H3I2H")
DIRECTORY_RECORD = struct.Struct("<4s6H3I5H2I")
"""The fixed part of a file's record in the central directory."""
_ZIP64_END = struct.Struct("<4sQ2H2I4Q")
_ZIP64_LOCATOR = struct.Struct("<4sIQI")
END = struct.Struct("<4s4H2IH")
"""The end-of-central-directory record, which has no comment."""

DIRECTORY_SIGNATURE = b"PK\x01\x02"
END_SIGNATURE = b"PK\x05\x06"
FULL_16 = 0xFFFF
"""Marks a number of more than 16 bits, which stands in a ZIP64 record."""
FULL_32 = 0xFFFFFFFF
"""Marks a number of more than 32 bits, which stands in a ZIP64 record."""
ZIP64_FIELD = 1
"""Header ID of the extra field with numbers of more than 32 bits."""
STORED = 0
"""The compression method "no compression"."""

_ZIP64_VERSION = 45
_PLAIN_VERSION = 20
_UNIX = 3 << 8
_UTF8_NAMES = 1 << 11
_MIDNIGHT = 0
_FIRST_OF_1980 = 0x21  # the earliest date of the format, so that bytes do not depend on the clock
_MODE = 0o100644 << 16  # a plain file, never a link


@dataclass(frozen=True)
class Entry:
    """One file of an archive."""

    name: str
    """Path inside the archive, with slashes."""
    size: int
    """Bytes."""
    crc: int
    """CRC-32 of its content."""

    @property
    def is_large(self) -> bool:
        """Whether its size needs the extra field of ZIP64."""
        return self.size >= FULL_32


def local_header(entry: Entry) -> bytes:
    """The bytes before the content of a file."""
    name = entry.name.encode()
    sizes = (entry.size, entry.size) if entry.is_large else ()
    extra = _zip64_field(*sizes)
    size = min(entry.size, FULL_32)
    header = _LOCAL.pack(
        b"PK\x03\x04",
        _version(extra),
        _UTF8_NAMES,
        STORED,
        _MIDNIGHT,
        _FIRST_OF_1980,
        entry.crc,
        size,
        size,
        len(name),
        len(extra),
    )
    return header + name + extra


def offsets(entries: Sequence[Entry]) -> list[int]:
    """Offset of each file's local header, and of the central directory behind them.

    >>> offsets([Entry("a", 10, 0), Entry("bc", 5, 0)])
    [0, 41, 78]
    """
    lengths = [len(local_header(entry)) + entry.size for entry in entries]
    return list(accumulate(lengths, initial=0))


def tail(entries: Sequence[Entry]) -> bytes:
    """The bytes after all contents: the central directory and the end record."""
    starts = offsets(entries)
    records = [_record(entry, start) for entry, start in zip(entries, starts[:-1], strict=True)]
    directory = b"".join(records)
    return directory + _end(len(entries), len(directory), starts[-1])


def _record(entry: Entry, offset: int) -> bytes:
    """A file's record in the central directory."""
    name = entry.name.encode()
    large = [entry.size, entry.size] if entry.is_large else []
    if offset >= FULL_32:
        large.append(offset)
    extra = _zip64_field(*large)
    size = min(entry.size, FULL_32)
    n_comment = 0
    disk = 0
    internal_attributes = 0
    record = DIRECTORY_RECORD.pack(
        DIRECTORY_SIGNATURE,
        _UNIX | _version(extra),
        _version(extra),
        _UTF8_NAMES,
        STORED,
        _MIDNIGHT,
        _FIRST_OF_1980,
        entry.crc,
        size,
        size,
        len(name),
        len(extra),
        n_comment,
        disk,
        internal_attributes,
        _MODE,
        min(offset, FULL_32),
    )
    return record + name + extra


def _end(n_entries: int, directory_size: int, directory_offset: int) -> bytes:
    """The end record, with the records of ZIP64 before it if a number needs them."""
    is_large = n_entries >= FULL_16 or max(directory_size, directory_offset) >= FULL_32
    zip64 = _zip64_end(n_entries, directory_size, directory_offset) if is_large else b""
    end = END.pack(
        END_SIGNATURE,
        0,  # number of this disk
        0,  # that of the directory
        min(n_entries, FULL_16),
        min(n_entries, FULL_16),
        min(directory_size, FULL_32),
        min(directory_offset, FULL_32),
        0,  # no comment
    )
    return zip64 + end


def _zip64_end(n_entries: int, directory_size: int, directory_offset: int) -> bytes:
    n_bytes_that_follow = _ZIP64_END.size - 12
    record = _ZIP64_END.pack(
        b"PK\x06\x06",
        n_bytes_that_follow,
        _UNIX | _ZIP64_VERSION,
        _ZIP64_VERSION,
        0,
        0,
        n_entries,
        n_entries,
        directory_size,
        directory_offset,
    )
    return record + _ZIP64_LOCATOR.pack(b"PK\x06\x07", 0, directory_offset + directory_size, 1)


def _zip64_field(*numbers: int) -> bytes:
    if not numbers:
        return b""
    return struct.pack(f"<2H{len(numbers)}Q", ZIP64_FIELD, 8 * len(numbers), *numbers)


def _version(extra: bytes) -> int:
    """The version of the format that a reader needs for a record with this extra field."""
    return _ZIP64_VERSION if extra else _PLAIN_VERSION
