"""Weights read from files in pieces, so that memory does not grow with a tensor.

Files are safetensors, or what PyTorch saved of a network, as Cellpose's own are.

The format is eight bytes of header length, a JSON header, then the tensors' bytes
(https://huggingface.co/docs/safetensors). The library's own NumPy reader has no bfloat16 and
hands out whole tensors only. PyTorch maps its files into memory instead of reading them.
"""

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.errors import BadInput

# Type codes of the safetensors format (little-endian) as NumPy reads them. NumPy has no bfloat16:
# its 16 bits are the upper half of a float32, see `numbers`.
_NUMPY_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "u1",
}
_TORCH_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
_PARAMETER_KINDS = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}

Bits = NDArray[np.unsignedinteger]
"""Parameters as unsigned integers of their width, flat."""


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies in its file.

    Attributes
    ----------
    dtype : str
        As safetensors spells it.
    shape : tuple of int
    offset : int
        Bytes from the start of the file.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def n(self) -> int:
        """Number of parameters."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Bytes of one parameter."""
        return np.dtype(_NUMPY_TYPES[self.dtype]).itemsize


@dataclass(frozen=True)
class WeightsFile:
    """A file of weights of which only the header was read; see `open_weights`."""

    path: Path
    tensors: dict[str, Tensor]

    def bits(
        self,
        name: str,
        start: int = 0,
        stop: int | None = None,
        memory: NDArray[np.uint8] | None = None,
    ) -> Bits:
        """Parameters start to stop of one tensor.

        Parameters
        ----------
        name : str
        start, stop : int
            Of the flat tensor; to its end by default.
        memory : ndarray of uint8, optional
            To read into instead of new memory; as many bytes as asked for, or more.

        Raises
        ------
        BadInput
            If the file became shorter since its header was read.
        """
        tensor = self.tensors[name]
        n = (tensor.n if stop is None else min(stop, tensor.n)) - start
        n_bytes = n * tensor.width
        content = np.empty(n_bytes, np.uint8) if memory is None else memory[:n_bytes]
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(tensor.offset + start * tensor.width)
            n_read = 0
            while n_read < n_bytes:
                n_more = stream.readinto(content[n_read:].data)
                if not n_more:
                    raise BadInput(
                        f"{self.path} became shorter while it was read; let its writer finish"
                    )
                n_read += n_more
        return content.view(f"<u{tensor.width}")

    def pieces(self, name: str, n_values: int) -> Iterator[tuple[int, Bits]]:
        """Start and content of each piece of a tensor; one empty piece if it holds nothing."""
        for start in range(0, max(self.tensors[name].n, 1), n_values):
            yield start, self.bits(name, start, start + n_values)


@dataclass(frozen=True)
class _TorchFile(WeightsFile):
    """What PyTorch saved of a network; its tensors lie in the mapped file."""

    held: dict[str, Any]

    def bits(
        self,
        name: str,
        start: int = 0,
        stop: int | None = None,
        memory: NDArray[np.uint8] | None = None,
    ) -> Bits:
        import torch

        whole = self.held[name].reshape(-1)
        width = self.tensors[name].width
        plain = whole.view(getattr(torch, f"int{8 * width}"))[start:stop].numpy()
        return plain.view(f"<u{width}")


def open_weights(path: str | Path) -> WeightsFile:
    """Read the header of a safetensors file, or map what PyTorch saved of a network.

    PyTorch's files are known by how they begin, whatever they are called: those that Cellpose
    trains have no ending.

    Raises
    ------
    BadInput
        If the file is missing, incomplete, neither of the two, or holds a dtype without a value
        in float64 (complex, 8 bits and less).
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            beginning = stream.read(len(_PICKLE))
    except FileNotFoundError:
        raise BadInput(
            f"{path} does not exist; give a .safetensors file of weights, or one of Cellpose's own"
        ) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error}); give a file of weights") from error
    if beginning.startswith((_ZIP, _PICKLE)):
        return _open_torch(path, mapped=beginning.startswith(_ZIP))
    return _open_safetensors(path)


_ZIP, _PICKLE = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF"
"""How files begin that PyTorch saves, since version 1.6 and before; no length of a header."""


def _open_torch(path: Path, *, mapped: bool) -> WeightsFile:
    import torch

    problem = "it holds no state_dict: names with tensors"
    try:
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # of a file that is something else PyTorch raises anything
        held, problem = None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    tensors = held.items() if isinstance(held, dict) else ()
    if not tensors or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in tensors
    ):
        raise BadInput(
            f"{path} is no weights file that can be read ({problem}); expected .safetensors, or a "
            "network's state_dict as torch.save and Cellpose write it"
        )
    # As Cellpose's own loading does (4.2.1.1), for networks that were trained on several GPUs.
    held = {name.removeprefix("module."): tensor.detach() for name, tensor in tensors}
    codes = {getattr(torch, name): code for name, code in _TORCH_TYPES.items()}
    for name, tensor in held.items():
        if tensor.dtype not in codes or tensor.layout != torch.strided:
            raise _no_numbers(path, name, str(tensor.dtype).removeprefix("torch."))
    layout = {
        name: Tensor(codes[tensor.dtype], tuple(tensor.shape), 0) for name, tensor in held.items()
    }
    return _TorchFile(path, layout, held)


def _no_numbers(path: Path, name: str, dtype: str) -> BadInput:
    return BadInput(
        f"{path} holds {name} as {dtype}, and {', '.join(_NUMPY_TYPES)} can be compared; store it "
        "as one of these"
    )


def _open_safetensors(path: Path) -> WeightsFile:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass  # the library checks the header, every range in it and the file's length
        with path.open("rb") as stream:
            n_header = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(n_header))
    except (SafetensorError, OSError) as error:
        raise BadInput(
            f"{path} is no weights file that can be read ({error}); expected .safetensors, or a "
            "network's state_dict as torch.save and Cellpose write it; if it was copied or "
            "downloaded, do that again"
        ) from error
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if entry["dtype"] not in _NUMPY_TYPES:
            raise _no_numbers(path, name, entry["dtype"])
    return WeightsFile(
        path,
        {
            name: Tensor(
                entry["dtype"], tuple(entry["shape"]), 8 + n_header + entry["data_offsets"][0]
            )
            for name, entry in header.items()
        },
    )


def in_step(files: Sequence[WeightsFile], n_values: int) -> Iterator[tuple[str, list[Bits]]]:
    """Go through files of one layout together: the same piece of each, all pieces in turn.

    Parameters
    ----------
    files : sequence of WeightsFile
        With equal names and shapes.
    n_values : int
        Of a piece, over all files.

    Yields
    ------
    name, bits : str, list of ndarray
        A piece of one tensor from each file; a tensor without parameters is an empty piece. The
        arrays are written over two pieces later: while one piece is worked on, a thread reads
        the next.
    """
    step = max(1, n_values // len(files))
    places = [
        (name, start)
        for name, tensor in sorted(files[0].tensors.items(), key=lambda item: item[1].offset)
        for start in range(0, max(tensor.n, 1), step)
    ]
    largest = max((t.n * t.width for f in files for t in f.tensors.values()), default=0)
    widest = max((t.width for f in files for t in f.tensors.values()), default=1)
    memory = np.empty((2, len(files), min(step * widest, largest)), np.uint8)

    def read(i: int) -> list[Bits]:
        name, start = places[i]
        return [
            file.bits(name, start, start + step, row)
            for file, row in zip(files, memory[i % 2], strict=True)
        ]

    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(read, 0) if places else None
        for i, (name, _) in enumerate(places):
            assert ahead is not None
            bits = ahead.result()
            ahead = reader.submit(read, i + 1) if i + 1 < len(places) else None
            yield name, bits


def numbers(bits: Bits, dtype: str) -> NDArray[np.generic]:
    """What the bits stand for, in the narrowest dtype of NumPy that holds every value."""
    if dtype == "BF16":
        upper_half = bits.astype("<u4") << np.uint32(16)
        return upper_half.view("<f4")
    return bits.view(_NUMPY_TYPES[dtype])


def values(bits: Bits, dtype: str) -> NDArray[np.float64]:
    """What the bits stand for; 64-bit integers are rounded beyond 2**53."""
    with np.errstate(invalid="ignore"):  # raised by casting a signalling NaN
        return numbers(bits, dtype).astype(np.float64)


def slots_of_equal_content(
    files: Sequence[WeightsFile], digests: Sequence[str | None] | None
) -> list[int]:
    """For each file the number of its content, from 0 in order of appearance.

    Raises
    ------
    BadInput
        If there are not as many digests as files.
    """
    if digests is not None and len(digests) != len(files):
        raise BadInput(
            f"{len(digests)} digests were given for {len(files)} weights files; give one per "
            "file, in the same order, None where unknown"
        )
    slot_of: dict[object, int] = {}
    slots: list[int] = []
    for file, digest in zip(files, digests or [None] * len(files), strict=True):
        status = file.path.stat()
        keys: list[object] = [(status.st_dev, status.st_ino)]
        if digest is not None:
            keys.append(digest)
        known = [slot_of[key] for key in keys if key in slot_of]
        slots.append(known[0] if known else len(set(slots)))
        slot_of.update(dict.fromkeys(keys, slots[-1]))
    return slots


def layout(file: WeightsFile) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor by name: equal for files of one network, whatever the dtypes."""
    return {name: tensor.shape for name, tensor in file.tensors.items()}


def known_names(file: WeightsFile, names: Iterable[str]) -> list[str]:
    """The names, each once, if the file holds them all; else BadInput."""
    chosen = list(names)
    for name in chosen:
        if name not in file.tensors:
            close = difflib.get_close_matches(name, file.tensors) or sorted(file.tensors)[:3]
            raise BadInput(f"{file.path} holds no tensor {name!r}; it holds for example {close}")
    return list(dict.fromkeys(chosen))


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted with numbers as numbers: blocks.2 before blocks.10."""
    return tuple(sorted(names, key=_natural_key))


def _natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    # [0-9], not \d, which takes digits that int() refuses; the name itself settles "1" and "01".
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)], name


def layer_group(name: str) -> str:
    """Get the part of the network that a tensor belongs to, from its name.

    That is the first two dotted components, three where the second is ``blocks``, without the
    kind of parameter at the end.

    Parameters
    ----------
    name : str
        As in a PyTorch ``state_dict``.

    Returns
    -------
    str
        The group.

    Examples
    --------
    >>> layer_group("encoder.blocks.0.attn.qkv.weight")
    'encoder.blocks.0'
    >>> layer_group("encoder.neck.2.bias")
    'encoder.neck'
    >>> layer_group("encoder.pos_embed")
    'encoder.pos_embed'
    >>> layer_group("out.weight")
    'out'
    >>> layer_group("W2")
    'W2'
    """
    parts = name.split(".")
    if len(parts) > 1 and parts[-1] in _PARAMETER_KINDS:
        parts = parts[:-1]
    return ".".join(parts[:3] if parts[1:2] == ["blocks"] else parts[:2])


def layer_groups(names: Iterable[str]) -> tuple[str, ...]:
    """The groups of some tensors, each once, in natural order of the tensors."""
    return tuple(dict.fromkeys(layer_group(name) for name in natural_order(names)))
