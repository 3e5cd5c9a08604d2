"""Two files of weights byte by byte: their sizes, and where and why their bytes differ."""

from __future__ import annotations

import pickletools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.store import checkpoints
from cellrepro.torch_files import LOCAL_HEADER, format_of, read_archive
from samebits.results import derived
from samebits.words import amount

_Bytes = NDArray[np.uint8]
_PIECE = 2**22  # bytes of each file in memory at a time
_TENSORS = "tensors"
_NAMES = "entry names"
_PADDING = "padding"
_DIRECTORY = "zip directory"
_REASONS = {
    _PADDING: "every tensor begins at a multiple of 64 bytes, whatever stands before it",
    _DIRECTORY: "where the entries are, their sizes and checksums",
    ".data/serialization_id": "a checksum of the other entries",
    "header": "names, types, shapes, their order, or metadata",
    "content": "PyTorch's format before 1.6, whose bytes are not told apart",
}
_DEVICE = re.compile(r"cpu|meta|(cuda|mps|xpu|hpu)(:\d+)?")


@dataclass(frozen=True)
class DifferingPart:
    """A part of two files that differs, with all pieces that belong to it."""

    part: str
    """Its name: ``data.pkl``, ``entry names``."""
    n_a: int
    """Bytes of the first file that differ; where a piece has two lengths, all of it."""
    n_b: int
    """The same of the second file."""
    why: str
    """Why these bytes differ, in words."""


@dataclass(frozen=True)
class FileComparison:
    """Two files as bytes."""

    sizes: tuple[int, int]
    """Bytes of the two files."""
    differing: tuple[DifferingPart, ...]
    """The parts that differ; empty for files that are equal byte for byte."""

    @derived
    def equal(self) -> bool:
        """Whether every byte is equal."""
        return not self.differing

    def sentences(self) -> Iterator[str]:
        """The sizes, and a line for every part that differs."""
        equal = "equal" if self.equal else "not equal"
        yield f"{_both_sizes(*self.sizes)}, {equal} byte for byte"
        for differing in self.differing:
            sizes = _both_sizes(differing.n_a, differing.n_b)
            yield f"{differing.part}: {sizes} differ ({differing.why})"


def _both_sizes(a: int, b: int) -> str:
    """Two sizes in words; of equal ones only one."""
    return " and ".join(dict.fromkeys((amount(a, "byte"), amount(b, "byte"))))


def compare_files(
    path_a: str | Path,
    path_b: str | Path,
    *,
    same_parameters: bool,
    are_checkpoints: bool = False,
) -> FileComparison:
    """Find out where the bytes of two files of weights differ, and why.

    The files are mapped, not loaded.
    """
    file_a = _file_of_tensors(Path(path_a))
    file_b = _file_of_tensors(Path(path_b))
    a = _parts_of(file_a)
    b = _parts_of(file_b)
    sizes = (file_a.stat().st_size, file_b.stat().st_size)
    if a.keys() & b.keys() <= {_TENSORS}:
        return FileComparison(sizes, (DifferingPart("all", *sizes, "files of two formats"),))
    differing = []
    parts = list(a | b)
    causes = [part for part in parts if part not in _REASONS]
    consequences = [part for part in parts if part in _REASONS]
    for part in (*causes, *consequences):
        pieces = list(zip_longest(a.get(part, []), b.get(part, []), fillvalue=np.zeros(0, "u1")))
        n_a, n_b = np.sum([_n_differing(*sides) for sides in pieces], 0).tolist()
        if not (n_a or n_b):
            continue
        if part == _TENSORS:
            reason = _why_tensors_differ(same_parameters, are_checkpoints)
        else:
            reason = _why(part, *next(sides for sides in pieces if any(_n_differing(*sides))))
        differing.append(DifferingPart(part, n_a, n_b, reason))
    return FileComparison(sizes, tuple(differing))


def _file_of_tensors(path: Path) -> Path:
    """The file itself, or that of the tensors in a checkpoint of the lab."""
    return path / checkpoints.STATE if path.is_dir() else path


def _why_tensors_differ(same_parameters: bool, are_checkpoints: bool) -> str:
    reason = "parameters in a different order" if same_parameters else "parameters differ"
    if are_checkpoints:
        reason += ", or what lies beside the network, an optimizer's tensors for example"
    return reason


def _n_differing(a: _Bytes, b: _Bytes) -> tuple[int, int]:
    if len(a) != len(b):
        return len(a), len(b)
    pieces = (slice(start, start + _PIECE) for start in range(0, len(a), _PIECE))
    n = sum(int(np.count_nonzero(a[piece] != b[piece])) for piece in pieces)
    return n, n


class _Cutter:
    """Cuts the content of a file into pieces, from its beginning on."""

    def __init__(self, content: _Bytes):
        self.pieces = defaultdict[str, list[_Bytes]](list)
        self.position = 0
        self._content = content

    def cut(self, part: str, n: int) -> None:
        """Take the next n bytes as a piece of a part."""
        self.pieces[part].append(self._content[self.position : self.position + n])
        self.position += n

    def cut_up_to(self, part: str, stop: int) -> None:
        """Take the bytes before a position as a piece of a part."""
        self.cut(part, stop - self.position)

    def cut_rest(self, part: str) -> None:
        """Take all bytes that are left."""
        self.cut_up_to(part, len(self._content))

    def numbers(self, start: int, stop: int) -> list[int]:
        """Read some of the next bytes as 16-bit numbers; nothing is cut."""
        numbers = self._content[self.position + start : self.position + stop].view("<u2")
        return numbers.tolist()


def _parts_of(path: Path) -> dict[str, list[_Bytes]]:
    """Every byte of a file once: the pieces of each part, in their order."""
    content = np.memmap(path, np.uint8, "r")
    cutter = _Cutter(content)
    saved_by_torch = format_of(path)
    if saved_by_torch == "pickles":
        cutter.cut_rest("content")
    elif saved_by_torch == "archive":
        _cut_archive(cutter, path)
    else:  # safetensors
        cutter.cut("header", 8 + int.from_bytes(content[:8].tobytes(), "little"))
        cutter.cut_rest(_TENSORS)
    return cutter.pieces


def _cut_archive(cutter: _Cutter, path: Path) -> None:
    """Cut an archive of `torch.save`, which is a ZIP file."""
    parts, directory = read_archive(path)
    for name, part in parts.items():
        name_in_folder = name.partition("/")[2]
        is_tensor = re.fullmatch(r"data/\d+", name_in_folder) is not None
        cutter.cut_up_to(
            _DIRECTORY, part.header + LOCAL_HEADER
        )  # what follows the part before, too
        cutter.cut(_NAMES, part.n_name)
        cutter.cut_up_to(_PADDING, part.start)
        cutter.cut(_TENSORS if is_tensor else name_in_folder, part.size)
    cutter.cut_up_to(_DIRECTORY, directory)
    for _ in parts:  # PKWARE's APPNOTE 6.3.10, section 4.3.12
        n_name, n_extra, n_comment = cutter.numbers(28, 34)
        cutter.cut(_DIRECTORY, 46)
        cutter.cut(_NAMES, n_name)
        cutter.cut(_DIRECTORY, n_extra + n_comment)
    cutter.cut_rest(_DIRECTORY)


def _why(part: str, a: _Bytes, b: _Bytes) -> str:
    """Why a part differs that holds no tensors, from the first of its pieces that differ."""
    if part in _REASONS:
        return _REASONS[part]
    bytes_a = a.tobytes()
    bytes_b = b.tobytes()
    if part == _NAMES:
        return _why_names_differ(bytes_a.decode(errors="replace"), bytes_b.decode(errors="replace"))
    if part == "data.pkl":
        return _why_pickles_differ(_words_in(bytes_a), _words_in(bytes_b))
    return f"{bytes_a.decode(errors='replace')!r} and {bytes_b.decode(errors='replace')!r}"


def _why_names_differ(name_a: str, name_b: str) -> str:
    """Why the names of two entries differ; an empty one where a file has no more entries."""
    archive_a, _, entry_a = name_a.partition("/")
    archive_b, _, entry_b = name_b.partition("/")
    if archive_a != archive_b and name_a and name_b:
        return f"torch.save puts the name of its file first, {archive_a!r} and {archive_b!r}"
    if name_a and name_b:
        return f"other entries, {entry_a!r} and {entry_b!r} first"
    return f"entries that only one of them has, {entry_a or entry_b!r} first"


def _words_in(pickle: bytes) -> list[str]:
    """The texts in a pickle, which are enough; nothing is unpickled."""
    return [word for _, word, _ in pickletools.genops(pickle) if isinstance(word, str)]


def _why_pickles_differ(words_a: Sequence[str], words_b: Sequence[str]) -> str:
    """Why two pickles of networks differ: devices, order, names or types of their tensors."""
    reasons = []
    devices_a = _devices_among(words_a)
    devices_b = _devices_among(words_b)
    if devices_a != devices_b:
        reasons.append(f"tensors lay on {devices_a} and on {devices_b}")
    names_a = [word for word in words_a if not _DEVICE.fullmatch(word)]
    names_b = [word for word in words_b if not _DEVICE.fullmatch(word)]
    if names_a != names_b:
        only_order = sorted(names_a) == sorted(names_b)
        reasons.append(
            "tensors in a different order" if only_order else "different names or types of tensors"
        )
    return "; ".join(reasons) or "different shapes, or laid out otherwise in memory"


def _devices_among(words: Sequence[str]) -> str:
    return ", ".join(sorted({word for word in words if _DEVICE.fullmatch(word)}))
