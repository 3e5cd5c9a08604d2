"""Two files of weights byte by byte: their sizes, and where and why their bytes differ."""

from __future__ import annotations

import pickletools
import re
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellrepro.bits.digests import file_digest
from cellrepro.same.weight_reading import PICKLE, ZIP
from cellrepro.same.weights import compare_weights
from cellrepro.words import amount

_Bytes = NDArray[np.uint8]
_PIECE = 2**22  # bytes of each file in memory at a time
_TENSORS, _NAMES, _PADDING, _DIRECTORY = "tensors", "entry names", "padding", "zip directory"
_REASONS = {
    _PADDING: "every tensor begins at a multiple of 64 bytes, whatever stands before it",
    _DIRECTORY: "where the entries are, their sizes and checksums",
    ".data/serialization_id": "a checksum of the other entries",
    "header": "names, types, shapes, their order, or metadata",
    "content": "PyTorch's format before 1.6, which is not taken apart",
}
_DEVICE = re.compile(r"cpu|meta|(cuda|mps|xpu|hpu)(:\d+)?")


class DifferingPart(NamedTuple):
    """A part of two files, with all places that belong to it, that differs."""

    part: str  # ``data.pkl``, ``entry names`` …
    n_a: int  # bytes that differ; of a place that has two lengths, all
    n_b: int
    why: str


@dataclass(frozen=True)
class FileComparison:
    """Two files as bytes."""

    sizes: tuple[int, int]  # bytes
    parts: tuple[DifferingPart, ...]  # none of files that are equal byte for byte

    def sentences(self) -> Iterator[str]:
        """The sizes, and a line for every part that differs."""
        yield _each(*self.sizes) + f", {'not ' * bool(self.parts)}equal byte for byte"
        yield from (f"{part} ({_each(n_a, n_b)}): {why}" for part, n_a, n_b, why in self.parts)


def _each(a: int, b: int) -> str:
    return " and ".join(dict.fromkeys((amount(a, "byte"), amount(b, "byte"))))


def compare_files(
    path_a: str | Path,
    path_b: str | Path,
    *,
    same_parameters: bool,
    checkpoints: bool = False,
) -> FileComparison:
    """Get where the bytes of two files of weights differ, and why; they are mapped, not loaded.

    The files are as `compare_weights` takes them, which says whether the parameters are the same,
    and whether one is a checkpoint, with tensors beside its network.
    """
    a, b = _parts_of(Path(path_a)), _parts_of(Path(path_b))
    sizes = Path(path_a).stat().st_size, Path(path_b).stat().st_size
    if a.keys() & b.keys() <= {_TENSORS}:
        return FileComparison(sizes, (DifferingPart("all", *sizes, "files of two formats"),))
    differing = []
    for part in sorted(a | b, key=[*_REASONS].__contains__):  # the others cause these
        places = list(zip_longest(a.get(part, []), b.get(part, []), fillvalue=np.zeros(0, "u1")))
        n_a, n_b = np.sum([_n_differing(*sides) for sides in places], 0).tolist()
        if n_a or n_b:
            why = "parameters differ" if not same_parameters else "parameters in another order"
            if checkpoints:
                why += ", or what lies beside the network, an optimizer's tensors for example"
            why = why if part == _TENSORS else _why(part, *places[0])
            differing.append(DifferingPart(part, n_a, n_b, why))
    return FileComparison(sizes, tuple(differing))


def _n_differing(a: _Bytes, b: _Bytes) -> tuple[int, int]:
    if len(a) != len(b):
        return len(a), len(b)
    pieces = (slice(start, start + _PIECE) for start in range(0, len(a), _PIECE))
    n = sum(int(np.count_nonzero(a[piece] != b[piece])) for piece in pieces)
    return n, n


def _parts_of(path: Path) -> dict[str, list[_Bytes]]:
    """Every byte of a file once: the places of each part, in their order."""
    content, at = np.memmap(path, np.uint8, "r"), 0
    found = defaultdict[str, list[_Bytes]](list)

    def cut(part: str, n: int) -> None:
        nonlocal at
        found[part].append(content[at : at + n])
        at += n

    beginning = content[: len(PICKLE)].tobytes()
    if beginning == PICKLE:
        cut("content", len(content))
    elif not beginning.startswith(ZIP):  # safetensors
        cut("header", 8 + int.from_bytes(beginning, "little"))
        cut(_TENSORS, len(content) - at)
    else:
        with zipfile.ZipFile(path) as archive:
            entries, directory = archive.infolist(), archive.start_dir
        for entry in sorted(entries, key=lambda one: one.header_offset):
            cut(_DIRECTORY, entry.header_offset - at)  # after the entry before
            n_name, n_padding = content[at + 26 : at + 30].view("<u2").tolist()
            name = entry.filename.partition("/")[2]
            cut(_DIRECTORY, 30)
            cut(_NAMES, n_name)
            cut(_PADDING, n_padding)
            cut(_TENSORS if re.fullmatch(r"data/\d+", name) else name, entry.compress_size)
        cut(_DIRECTORY, directory - at)
        for _ in entries:
            n_name, *n_more = content[at + 28 : at + 34].view("<u2").tolist()
            cut(_DIRECTORY, 46)
            cut(_NAMES, n_name)
            cut(_DIRECTORY, sum(n_more))
        cut(_DIRECTORY, len(content) - at)
    return found


def _why(part: str, *places: _Bytes) -> str:
    """Why a part differs that holds no tensors, from the first of its places in both."""
    if part in _REASONS:
        return _REASONS[part]
    a, b = (place.tobytes() for place in places)
    if part == _NAMES:
        archives = (repr(name.decode().partition("/")[0]) for name in (a, b))
        return f"torch.save puts the name of its file first, {' and '.join(archives)}"
    if part != "data.pkl":
        return f"{a.decode(errors='replace')!r} and {b.decode(errors='replace')!r}"
    # Its words, which are enough; nothing is unpickled.
    words = [[w for _, w, _ in pickletools.genops(x) if isinstance(w, str)] for x in (a, b)]
    devices = [", ".join(sorted(set(filter(_DEVICE.fullmatch, side)))) for side in words]
    names = [[w for w in side if not _DEVICE.fullmatch(w)] for side in words]
    reasons = []
    if devices[0] != devices[1]:
        reasons.append(f"tensors lay on {' and on '.join(devices)}")
    if names[0] != names[1]:
        same = sorted(names[0]) == sorted(names[1])
        reasons.append("tensors in another order" if same else "other names or types of tensors")
    return "; ".join(reasons) or "other shapes, or laid out otherwise in memory"


def saved_in_several_ways(weights: Path) -> Iterator[tuple[str, str, bool, FileComparison]]:
    """Save a stored network under some names, one from a GPU if there is one: name, SHA-256,
    whether every bit came back, and how the file differs from the first one of its format."""
    import torch
    from safetensors.torch import load_file, save_file

    held, first = load_file(weights), dict[str, Path]()
    ways = {"monday.pth": held, "tuesday.pth": held, "in_order.safetensors": held}
    ways["reversed.safetensors"] = dict(reversed(held.items()))
    if torch.cuda.is_available():
        ways["from_gpu.pth"] = {name: tensor.cuda() for name, tensor in held.items()}
    with tempfile.TemporaryDirectory() as scratch:
        for name, tensors in ways.items():
            path = Path(scratch, name)
            (torch.save if path.suffix == ".pth" else save_file)(tensors, path)
            same = compare_weights(weights, path).equal
            other = first.setdefault(path.suffix, path)
            yield name, file_digest(path), same, compare_files(other, path, same_parameters=same)
