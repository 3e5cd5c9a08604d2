"""Weights read from files in pieces, so that memory does not grow with a tensor.

Files are safetensors, or what PyTorch saved of a network, as Cellpose's own are. The library's
own NumPy reader of safetensors has no bfloat16 and hands out whole tensors only; the format is
eight bytes of header length, a JSON header, then the tensors' bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.errors import BadInput

# Type codes of the safetensors format (little-endian) as NumPy reads them. NumPy has no bfloat16:
# its 16 bits are the upper half of a float32, see `values`.
_NUMPY_TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "u1"},
}
_TORCH_TYPES = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"},
    **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"},
}
_PARAMETER_KINDS = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF"
"""How files begin that PyTorch saves, since version 1.6 and before; no length of a header."""

Bits = NDArray[np.unsignedinteger]
"""Parameters as unsigned integers of their width, flat."""


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies in its file; the dtype as safetensors spells it, the offset in bytes."""

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

    def bits(self, name: str, start: int, stop: int) -> Bits:
        """Parameters start to stop of one tensor, flat; fewer at its end."""
        tensor = self.tensors[name]
        n, width = min(stop, tensor.n) - start, tensor.width
        offset = tensor.offset + start * width
        found = np.fromfile(self.path, f"<u{width}", count=n, offset=offset)
        if len(found) < n:
            raise BadInput(f"{self.path} became shorter while it was read; let its writer finish")
        return found

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor by name: equal for files of one network, whatever the dtypes."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}


@dataclass(frozen=True)
class _TorchFile(WeightsFile):
    """What PyTorch saved of a network; its tensors lie in the mapped file."""

    held: dict[str, Any]

    def bits(self, name: str, start: int, stop: int) -> Bits:
        import torch

        width = self.tensors[name].width
        plain = self.held[name].reshape(-1).view(getattr(torch, f"int{8 * width}"))
        return plain[start:stop].numpy().view(f"<u{width}")


def pieces(
    files: Sequence[WeightsFile], name: str, n_values: int
) -> Iterator[tuple[int, list[Bits]]]:
    """Start and content of each piece of a tensor that all files hold in one shape.

    One empty piece if it holds nothing.
    """
    for start in range(0, max(files[0].tensors[name].n, 1), n_values):
        yield start, [file.bits(name, start, start + n_values) for file in files]


def values(bits: Bits, dtype: str) -> NDArray[np.float64]:
    """What the bits stand for; 64-bit integers are rounded beyond 2**53."""
    if dtype == "BF16":
        bits, dtype = bits.astype("<u4") << np.uint32(16), "F32"
    with np.errstate(invalid="ignore"):  # raised by casting a signalling NaN
        return bits.view(_NUMPY_TYPES[dtype]).astype(np.float64)


# -- opening ---------------------------------------------------------------------------------


def open_weights(path: str | Path) -> WeightsFile:
    """Read the header of a safetensors file, or map what PyTorch saved of a network.

    PyTorch's files are known by how they begin, whatever they are called: those that Cellpose
    trains have no ending. A dtype without a value in float64 (complex, 8 bits and less) is refused.
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


def _open_torch(path: Path, *, mapped: bool) -> WeightsFile:
    import torch

    problem = "it holds no state_dict: names with tensors"
    try:
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # of a file that is something else PyTorch raises anything
        held, problem = None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    tensors = held.items() if isinstance(held, dict) else ()
    if not tensors or not all(isinstance(tensor, torch.Tensor) for _, tensor in tensors):
        raise _unreadable(path, problem)
    # As Cellpose's own loading does (4.2.1.1), for networks that were trained on several GPUs.
    held = {str(name).removeprefix("module."): tensor.detach() for name, tensor in tensors}
    layout = {}
    for name, tensor in held.items():
        code = _TORCH_TYPES.get(str(tensor.dtype).removeprefix("torch."))
        if code is None or tensor.layout != torch.strided:
            raise _no_numbers(path, name, str(tensor.dtype))
        layout[name] = Tensor(code, tuple(tensor.shape), 0)
    return _TorchFile(path, layout, held)


def _open_safetensors(path: Path) -> WeightsFile:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass  # the library checks the header, every range in it and the file's length
        with path.open("rb") as stream:
            n_header = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(n_header))
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, str(error)) from error
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in _NUMPY_TYPES:
            raise _no_numbers(path, name, entry["dtype"])
        offset = 8 + n_header + entry["data_offsets"][0]
        tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), offset)
    return WeightsFile(path, tensors)


def _unreadable(path: Path, problem: str) -> BadInput:
    return BadInput(
        f"{path} is no weights file that can be read ({problem}); expected .safetensors, or a "
        "network's state_dict as torch.save and Cellpose write it; if it was copied or "
        "downloaded, do that again"
    )


def _no_numbers(path: Path, name: str, dtype: str) -> BadInput:
    return BadInput(
        f"{path} holds {name} as {dtype}, and {', '.join(_NUMPY_TYPES)} can be compared; store it "
        "as one of these"
    )


# -- names -----------------------------------------------------------------------------------


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted with numbers as numbers: blocks.2 before blocks.10."""

    def key(name: str) -> tuple[list[tuple[int, str]], str]:
        # [0-9], not \d, which takes digits that int() refuses; the name itself settles 1 and 01.
        parts = re.split(r"([0-9]+)", name)
        return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)], name

    return tuple(sorted(names, key=key))


def layer_group(name: str) -> str:
    """The part of the network that a tensor belongs to, from its name.

    That is the first two dotted components, three where the second is ``blocks``, without the
    kind of parameter at the end.

    Examples
    --------
    >>> layer_group("encoder.blocks.0.attn.qkv.weight"), layer_group("encoder.neck.2.bias")
    ('encoder.blocks.0', 'encoder.neck')
    >>> layer_group("encoder.pos_embed"), layer_group("out.weight"), layer_group("W2")
    ('encoder.pos_embed', 'out', 'W2')
    """
    parts = name.split(".")
    if len(parts) > 1 and parts[-1] in _PARAMETER_KINDS:
        parts = parts[:-1]
    return ".".join(parts[:3] if parts[1:2] == ["blocks"] else parts[:2])


def layer_groups(names: Iterable[str]) -> tuple[str, ...]:
    """The groups of some tensors, each once, in natural order of the tensors."""
    return tuple(dict.fromkeys(layer_group(name) for name in natural_order(names)))
