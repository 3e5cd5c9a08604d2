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
_TENSORS = "tensors"
_NAMES = "entry names"
_PADDING = "padding"
_DIRECTORY = "zip directory"
_REASONS = {
    _PADDING: "every tensor begins at a multiple of 64 bytes, whatever stands before it",
    _DIRECTORY: "where the entries are, their sizes and checksums",
    ".data/serialization_id": "a checksum of the other entries",
    "header": "names, types, shapes, their order, or metadata",
    "content": "PyTorch's format before 1.6, which is not taken apart",
}
_DEVICE = re.compile(r"cpu|meta|(cuda|mps|xpu|hpu)(:\d+)?")


class DifferingPart(NamedTuple):
    """A part of two files, with all places that belong to it, that differs.

    Attributes
    ----------
    part : str
        Its name: ``data.pkl``, ``entry names``.
    n_a : int
        Bytes of the first file that differ; where a piece has two lengths, all of it.
    n_b : int
        The same of the second file.
    why : str
        In words.
    """

    part: str
    n_a: int
    n_b: int
    why: str


@dataclass(frozen=True)
class FileComparison:
    """Two files as bytes.

    Attributes
    ----------
    sizes : (int, int)
        Bytes of the two files.
    parts : tuple of DifferingPart
        Those that differ; empty for files that are equal byte for byte.
    """

    sizes: tuple[int, int]
    parts: tuple[DifferingPart, ...]

    def sentences(self) -> Iterator[str]:
        """The sizes, and a line for every part that differs."""
        equal = "not equal" if self.parts else "equal"
        yield f"{_both_sizes(*self.sizes)}, {equal} byte for byte"
        for differing in self.parts:
            sizes = _both_sizes(differing.n_a, differing.n_b)
            yield f"{differing.part} ({sizes}): {differing.why}"


def _both_sizes(a: int, b: int) -> str:
    """Of equal ones only one."""
    return " and ".join(dict.fromkeys((amount(a, "byte"), amount(b, "byte"))))


def compare_files(
    path_a: str | Path,
    path_b: str | Path,
    *,
    same_parameters: bool,
    checkpoints: bool = False,
) -> FileComparison:
    """Get where the bytes of two files of weights differ, and why; they are mapped, not loaded.

    Parameters
    ----------
    path_a, path_b : str or Path
        Files as `compare_weights` takes them.
    same_parameters : bool
        Whether the parameters are the same, as that says.
    checkpoints : bool
        Whether one is a checkpoint, with tensors beside its network.

    Returns
    -------
    FileComparison
    """
    a = _parts_of(Path(path_a))
    b = _parts_of(Path(path_b))
    sizes = (Path(path_a).stat().st_size, Path(path_b).stat().st_size)
    if a.keys() & b.keys() <= {_TENSORS}:
        return FileComparison(sizes, (DifferingPart("all", *sizes, "files of two formats"),))
    differing = []
    for part in sorted(a | b, key=[*_REASONS].__contains__):  # the others cause these
        places = list(zip_longest(a.get(part, []), b.get(part, []), fillvalue=np.zeros(0, "u1")))
        n_a, n_b = np.sum([_n_differing(*sides) for sides in places], 0).tolist()
        if not (n_a or n_b):
            continue
        if part == _TENSORS:
            reason = _why_tensors_differ(same_parameters, checkpoints)
        else:
            reason = _why(part, *places[0])
        differing.append(DifferingPart(part, n_a, n_b, reason))
    return FileComparison(sizes, tuple(differing))


def _why_tensors_differ(same_parameters: bool, checkpoints: bool) -> str:
    reason = "parameters in another order" if same_parameters else "parameters differ"
    if checkpoints:
        reason += ", or what lies beside the network, an optimizer's tensors for example"
    return reason


def _n_differing(a: _Bytes, b: _Bytes) -> tuple[int, int]:
    if len(a) != len(b):
        return len(a), len(b)
    pieces = (slice(start, start + _PIECE) for start in range(0, len(a), _PIECE))
    n = sum(int(np.count_nonzero(a[piece] != b[piece])) for piece in pieces)
    return n, n


def _parts_of(path: Path) -> dict[str, list[_Bytes]]:
    """Every byte of a file once: the places of each part, in their order."""
    content = np.memmap(path, np.uint8, "r")
    at = 0
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
            entries = archive.infolist()
            directory = archive.start_dir
        for entry in sorted(entries, key=lambda entry: entry.header_offset):
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

    network = load_file(weights)
    ways = {"monday.pth": network, "tuesday.pth": network, "in_order.safetensors": network}
    ways["reversed.safetensors"] = dict(reversed(network.items()))
    if torch.cuda.is_available():
        ways["from_gpu.pth"] = {name: tensor.cuda() for name, tensor in network.items()}
    first_of_format: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, tensors in ways.items():
            path = Path(scratch, name)
            save = torch.save if path.suffix == ".pth" else save_file
            save(tensors, path)
            same = compare_weights(weights, path).equal
            other = first_of_format.setdefault(path.suffix, path)
            yield name, file_digest(path), same, compare_files(other, path, same_parameters=same)
