"""The layout of files that ``torch.save`` writes: how they begin, and where their parts lie."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from cellrepro.pickles import Refused
from cellrepro.zip_files import opened_zip

ZIP = b"PK\x03\x04"
"""Of PyTorch 1.6 and later; a safetensors header has no such length."""
PICKLE = b"\x80\x02\x8a\nl\xfc\x9cF"
"""Of earlier versions."""
LOCAL_HEADER = 30
"""Bytes before the name of a part (PKWARE's APPNOTE 6.3.10, section 4.3.7)."""
_AT_FIRST_PART = 42  # in the list of parts: where the first one begins (section 4.3.12)
_END = struct.Struct("<4s4H2LH")  # section 4.3.16
_ENCRYPTED = 1


def format_of(path: Path) -> Literal["archive", "pickles"] | None:
    """Tell by its beginning in which format of ``torch.save`` a file is; None for no such file."""
    if path.is_dir():
        return None
    with path.open("rb") as stream:
        beginning = stream.read(len(PICKLE))
    if beginning.startswith(ZIP):
        return "archive"
    return "pickles" if beginning == PICKLE else None


def is_saved_by_torch(path: Path) -> bool:
    """Whether a file begins as one of ``torch.save``; no folder does."""
    return format_of(path) is not None


class Part(NamedTuple):
    """A part of an archive; its places are bytes from the beginning of the file."""

    header: int
    """Where its header begins."""
    n_name: int
    """Bytes of its name, which follow the header."""
    start: int
    """Where its content begins."""
    size: int
    """Bytes of its content."""
    crc: int
    """CRC-32 of its content, as the archive says."""


class Archive(NamedTuple):
    """The parts of an archive by name, in their order, and where the list of them begins."""

    parts: dict[str, Part]
    directory: int


def read_archive(path: Path) -> Archive:
    """Find the parts of an archive: none is compressed, and none lies over another one.

    So what is read of it is never more than the file.
    """
    parts: dict[str, Part] = {}
    with opened_zip(path) as archive, path.open("rb") as stream:
        directory = archive.start_dir
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        # Zipfile reads an archive behind other bytes, too, and does not count the parts; PyTorch
        # would then read others.
        stream.seek(directory + _AT_FIRST_PART)
        if not entries or entries[0].header_offset or any(stream.read(4)):
            raise Refused("its first part is not where its list says")
        stream.seek(-_END.size, io.SEEK_END)
        *_, n_parts, _size, _start, n_comment = _END.unpack(stream.read())
        if n_comment or n_parts != min(len(entries), 2**16 - 1):
            raise Refused("its list has more or fewer parts than it says")
        end = 0
        for entry in entries:
            if entry.header_offset < end:
                raise Refused(f"{_shown(entry)} lies over another part in it")
            part = _part(stream, entry)
            end = part.start + part.size
            if end > directory:
                raise Refused(f"{_shown(entry)} is longer than the file")
            parts[entry.filename] = part
    if len(parts) < len(entries):
        raise Refused("two of its parts have one name")
    return Archive(parts, directory)


def _part(stream: BinaryIO, entry: zipfile.ZipInfo) -> Part:
    """Find where a part's content begins, after its own header."""
    is_packed = entry.compress_type or entry.file_size != entry.compress_size
    if is_packed or entry.flag_bits & _ENCRYPTED:
        raise Refused(f"{_shown(entry)} is compressed or encrypted in it")
    stream.seek(entry.header_offset)
    header = stream.read(LOCAL_HEADER)
    if len(header) < LOCAL_HEADER or not header.startswith(ZIP):
        raise Refused(f"{_shown(entry)} is not where its list says")
    n_name, n_padding = struct.unpack("<2H", header[26:])
    start = entry.header_offset + LOCAL_HEADER + n_name + n_padding
    return Part(entry.header_offset, n_name, start, entry.file_size, entry.CRC)


def _shown(entry: zipfile.ZipInfo) -> str:
    return ascii(entry.filename)[1:-1][:60]
