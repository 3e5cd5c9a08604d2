"""Files that ``torch.save`` wrote, read without PyTorch; no code in them runs.

Since version 1.6 such a file is a zip archive: a pickle with names, types and shapes, and a part
for the numbers of each tensor. Before, it was four pickles and then the numbers. Both are taken
apart by `PickleReader`, and numbers are read when they are asked for. Of an archive nothing is
decompressed, and no part may lie over another one, so that what is read is never more than the
file.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

from cellrepro.comparison.pickle_reading import MOST_BYTES, PickleReader, Refused
from cellrepro.comparison.stored_tensors import Numbers, stored_numbers, width_of
from cellrepro.comparison.torch_names import TorchNames
from cellrepro.digests.torch_files import ZIP

_CONTENT = "/data.pkl"
_LITTLE = b"little"
_OLD_PROTOCOL = 1001
_OVERLAP = 8
_SMALL = 2**26
"""Tensors may show more bytes than the file has, as two names of one: up to eight times as many, or
64 MiB."""


def content_of(path: Path) -> object:
    """Give what ``torch.save`` was given, with a `Tensor` for each tensor."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        is_archive = stream.read(len(ZIP)) == ZIP
    names = TorchNames(path, most_bytes=max(_OVERLAP * size, _SMALL))
    return _of_archive(path, names) if is_archive else _of_pickles(path, names)


# -- since version 1.6 -----------------------------------------------------------------------


def _of_archive(path: Path, names: TorchNames) -> object:
    parts = stored_parts(path)
    of_content = [name for name in parts if name.endswith(_CONTENT)]
    if len(of_content) != 1:
        raise Refused("a zip archive that torch.save did not write")
    folder = of_content[0].removesuffix(_CONTENT)
    order = parts.get(f"{folder}/byteorder")
    if order is not None and _read(path, order, most=len(_LITTLE)) != _LITTLE:
        raise Refused("its numbers begin with the highest byte")
    pickle = _read(path, parts[of_content[0]], most=MOST_BYTES)
    known: dict[str, Numbers] = {}

    def stored_outside(identity: object) -> Numbers:
        key, numbers = stored_numbers(identity, has_view=False)
        if key not in known:
            known[key] = _located(numbers, parts.get(f"{folder}/data/{key}"), key)
        return _read_as(known[key], numbers)

    reader = PickleReader(memoryview(pickle), names=names.by_name, stored_outside=stored_outside)
    return reader.load()


def _read(path: Path, part: Part, *, most: int) -> bytes:
    """The bytes of a part; refused where they are too many, or damaged."""
    if part.size > most:
        raise Refused(f"a part of it has {part.size} bytes, where at most {most} are expected")
    with path.open("rb") as stream:
        stream.seek(part.start)
        content = stream.read(part.size)
    if zlib.crc32(content) != part.crc:
        raise Refused("its list of tensors is damaged: the checksum is another one")
    return content


def _located(numbers: Numbers, part: Part | None, key: str) -> Numbers:
    """The numbers, with the first byte of the part that holds them."""
    if part is None:
        raise Refused(f"the numbers {ascii(key)[:40]} are missing in it")
    if part.size != numbers.n_bytes:
        raise Refused(
            f"the numbers {ascii(key)[:40]} take {numbers.n_bytes} bytes, and {part.size} are there"
        )
    numbers.start = part.start
    return numbers


def _read_as(first: Numbers, again: Numbers) -> Numbers:
    """Numbers that a tensor named before, in the type in which another one names them."""
    if first.n_bytes != again.n_bytes:
        raise Refused("numbers in it have two sizes")
    return first if first.dtype == again.dtype else Numbers(again.dtype, first.n_bytes, first.start)


# -- before version 1.6 ----------------------------------------------------------------------


def _of_pickles(path: Path, names: TorchNames) -> object:
    known: dict[str, Numbers] = {}

    def stored_outside(identity: object) -> Numbers:
        key, numbers = stored_numbers(identity, has_view=True)
        first = known.setdefault(key, numbers)
        if (first.dtype, first.n_bytes) != (numbers.dtype, numbers.n_bytes):
            raise Refused("numbers in it have two types or sizes")
        return first

    with (
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as file,
        memoryview(file) as content,
    ):
        position = 0
        values = []
        for _ in range(5):  # a mark, the protocol, the machine, the content, the keys
            reader = PickleReader(
                content, names=names.by_name, stored_outside=stored_outside, start=position
            )
            values.append(reader.load())
            position = reader.position
        _, protocol, machine, saved, keys = values
        if protocol != _OLD_PROTOCOL or not isinstance(machine, Mapping):
            raise Refused("it is of an unknown version of torch.save")
        if machine.get("little_endian") is not True:
            raise Refused("its numbers begin with the highest byte")
        _locate_all(content, position, known, keys)
    return saved


def _locate_all(
    content: memoryview, position: int, known: Mapping[str, Numbers], keys: object
) -> None:
    """Find the first bytes of all numbers: they follow in the order of their keys, with sizes."""
    if not isinstance(keys, list) or sorted(known) != keys:
        raise Refused("it does not hold the numbers that its tensors show")
    for key in keys:
        numbers = known[key]
        width = width_of(numbers.dtype or "U8")
        n = int.from_bytes(content[position : position + 8], "little")
        if n * width != numbers.n_bytes:
            raise Refused(f"the numbers {ascii(key)[:40]} are not as many as its tensors show")
        numbers.start = position + 8
        position = numbers.start + numbers.n_bytes
        if position > len(content):
            raise Refused("it ends too soon")


# -- the parts of a zip archive --------------------------------------------------------------

# Offsets are those of PKWARE's APPNOTE 6.3.10, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16 and 4.5.3.
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
    """The start of its content, in bytes from the beginning of the file."""
    size: int
    """Bytes."""
    crc: int
    """CRC-32 of its content, as the archive says."""


class _Directory(NamedTuple):
    """The place of the list of all parts."""

    start: int
    size: int
    n_parts: int


class _Entry(NamedTuple):
    """A part in that list."""

    name: str
    header: int
    size: int
    crc: int


def stored_parts(path: Path) -> dict[str, Part]:
    """Find where each part of an archive lies, by name, in the order of their content."""
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
    directory = _Directory(start, n_bytes, n_parts)
    stream.seek(max(end - _LOCATOR.size, 0))
    mark, _, end_64, _ = _LOCATOR.unpack(stream.read(_LOCATOR.size).ljust(_LOCATOR.size, b"\0"))
    if mark == b"PK\x06\x07":
        stream.seek(min(end_64, size))
        record = stream.read(_END_64.size)
        if len(record) < _END_64.size or not record.startswith(b"PK\x06\x06"):
            raise NotStored("the end of the archive is damaged")
        *_, n_parts, n_bytes, start = _END_64.unpack(record)
        directory = _Directory(start, n_bytes, n_parts)
        end = end_64
    if directory.start + directory.size > end:
        raise NotStored("the end of the archive is damaged")
    if directory.n_parts > _MOST_PARTS or directory.size > _LONGEST_DIRECTORY:
        raise NotStored(f"it has more than {_MOST_PARTS} parts")
    return directory


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
    """Find the beginning of an entry's content, after its own header."""
    stream.seek(entry.header)
    header = stream.read(_LOCAL.size)
    if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
        raise NotStored(f"{ascii(entry.name)[1:-1][:60]} is not where its list says")
    *_, n_name, n_extra = _LOCAL.unpack(header)
    start = entry.header + _LOCAL.size + n_name + n_extra
    if start + entry.size > stop:
        raise NotStored(f"{ascii(entry.name)[1:-1][:60]} is longer than the file")
    return Part(start, entry.size, entry.crc)
