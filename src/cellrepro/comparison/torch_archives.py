"""Files that ``torch.save`` wrote, read without PyTorch; no code in them runs.

Since version 1.6 such a file is a zip archive: a pickle with names, types and shapes, and a part
for the numbers of each tensor. Before, it was four pickles and then the numbers. Both are taken
apart by `PickleReader`, and numbers are read when they are asked for.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Mapping
from pathlib import Path

from cellrepro.comparison.pickle_reading import MOST_BYTES, PickleReader, Refused
from cellrepro.comparison.torch_names import Numbers, TorchNames, stored_numbers, width_of
from cellrepro.comparison.zip_parts import Part, stored_parts
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
            known[key] = _placed(numbers, parts.get(f"{folder}/data/{key}"), key)
        return _as_said_before(known[key], numbers)

    reader = PickleReader(memoryview(pickle), names=names.by_name, stored_outside=stored_outside)
    return reader.load()


def _read(path: Path, part: Part, *, most: int) -> bytes:
    """A part of an archive, as long as it is small and whole."""
    if part.size > most:
        raise Refused(f"a part of it has {part.size} bytes, where at most {most} are expected")
    with path.open("rb") as stream:
        stream.seek(part.start)
        content = stream.read(part.size)
    if zlib.crc32(content) != part.crc:
        raise Refused("its list of tensors is damaged: the checksum is another one")
    return content


def _placed(numbers: Numbers, part: Part | None, key: str) -> Numbers:
    """Numbers, with the place of the part that holds them."""
    if part is None:
        raise Refused(f"the numbers {ascii(key)[:40]} are missing in it")
    if part.size != numbers.n_bytes:
        raise Refused(
            f"the numbers {ascii(key)[:40]} take {numbers.n_bytes} bytes, and {part.size} are there"
        )
    numbers.start = part.start
    return numbers


def _as_said_before(first: Numbers, again: Numbers) -> Numbers:
    """Numbers that were named before, read as the type that is named now."""
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
        _place_all(content, position, known, keys)
    return saved


def _place_all(
    content: memoryview, position: int, known: Mapping[str, Numbers], keys: object
) -> None:
    """Find where the numbers lie, which follow in the order of their keys, each after its size."""
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
