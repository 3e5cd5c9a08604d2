"""Fast digests of tensors in memory, thousands of times in a training step, in lower-case hex.

There are two; the length of a digest tells which:

- **xxh3** (32 digits) of what lies in the processor's memory: xxh3-128 of the values in C order.
- **lanes** (48 digits) of what lies on another device, computed there: the values in C order are
  cut into little-endian words of 64 bits, the last one filled up with zeros. In each of three
  lanes word ``w`` at position ``i`` (from 0) becomes ``mix(w + i * step)``, with a step of the
  lane's own and degski's mixer, ``x ^= x >> 32; x *= m; x ^= x >> 32; x *= m; x ^= x >> 32``, and
  the lane is the sum, all modulo 2**64: sums of integers do not depend on their order.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xxhash

from samebits.errors import BadInput

if TYPE_CHECKING:
    import torch


def tensor_digest(value: Any) -> str:
    """A fast digest of a tensor or an array, or of nested plain data with such in it.

    Strides, views and the order of keys do not matter; the payload of NaN and the sign of 0 do.
    """
    return _combined(list(_tokens(value)))


def tensors_digest(tensors: Mapping[str, Any]) -> str:
    """One digest for a group of tensors and plain values by name, whatever their order."""
    row = [token for name in sorted(tensors) for token in (name, tensors[name])]
    return _combined([b"{", *chain.from_iterable(map(_tokens, row)), b"}"])


def comparable(a: str, b: str) -> bool:
    """Whether two digests come from one algorithm, so that unequal ones mean unequal values."""
    return len(a) == len(b)


if TYPE_CHECKING:
    Token: TypeAlias = bytes | torch.Tensor
    """A value becomes a row of tokens, none of which is the beginning of another one; a strided
    tensor stays one until it is known whether all lie on the processor."""


def processor_row(value: Any) -> bytes:
    """The row of bytes that stands for a value in the processor's memory, before it is digested."""
    return _row(list(_tokens(value)))


def _combined(tokens: list[Token]) -> str:
    if all(isinstance(token, bytes) or token.is_cpu for token in tokens):
        return row_digest(_row(tokens), of_processor=True)
    return lanes_digest(tokens)


def _row(tokens: list[Token]) -> bytes:
    return b"".join(token if isinstance(token, bytes) else _xxh3(token) for token in tokens)


def row_digest(row: bytes, *, of_processor: bool) -> str:
    """The digest of a row of bytes, in the length that tells where the values in it lay."""
    if of_processor:
        return xxhash.xxh3_128_hexdigest(row)
    return "".join(xxhash.xxh3_64_hexdigest(row, seed) for seed in (1, 2, 3))


def _tokens(value: Any) -> Iterator[Token]:
    """The tokens of a nested value."""
    if _is_strided(value):
        yield value
    elif isinstance(value, np.ndarray | np.generic):
        yield _array_as_tensor(value)
    elif isinstance(value, Mapping):
        heads = {key: processor_row(key) for key in value}
        yield b"{"
        for key in sorted(value, key=heads.__getitem__):
            yield heads[key]
            yield from _tokens(value[key])
        yield b"}"
    elif isinstance(value, list | tuple):
        yield b"[" if isinstance(value, list) else b"("
        for item in value:
            yield from _tokens(item)
        yield b"]"
    elif (plain := _plain_token(value)) is not None:
        yield plain
    else:
        yield from _tensor_tokens(value)


def _plain_token(value: Any) -> bytes | None:
    """A plain value by its type and exact bits; None if it is none."""
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"T" if value else b"F"
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return b"s%d:" % len(text) + text
    return None


def _is_strided(value: Any) -> bool:
    """Whether a value is a plain tensor with values, which is a token by itself."""
    torch = sys.modules.get("torch")  # without which there are no tensors
    return torch is not None and (
        (type(value) is torch.Tensor or type(value) is torch.nn.Parameter)
        and value.layout is torch.strided
        and not (value.is_nested or value.is_meta)
    )


def _tensor_tokens(value: Any) -> Iterator[Token]:
    """The tokens of any other tensor, in parts where it has some."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise BadInput(
            f"a value of type {type(value).__qualname__} cannot be digested; expected a tensor, an "
            "array, a number, text, None, or dicts, lists and tuples of them"
        )

    from samebits.bit_equality import dense_parts
    from samebits.torch_internals import (
        hidden_from_modes,
        modes_suspended,
        subclasses_as_plain_tensors,
    )

    with torch.no_grad(), modes_suspended():
        pieces = dense_parts(value)
        if pieces is None:
            with subclasses_as_plain_tensors(), hidden_from_modes():
                yield value.as_subclass(torch.Tensor)
            return
        yield f"p{type(value).__qualname__} {value.layout} {_name(value.dtype)}[".encode()
        for piece in pieces:
            yield from _tokens(piece)
        yield b"]"


def _array_as_tensor(value: np.ndarray | np.generic) -> torch.Tensor:
    """An array in C order and native bytes; a copy only where it is not so."""
    import torch

    from samebits.torch_internals import hidden_from_modes

    array = np.require(value, requirements=("C", "W"))
    try:
        with hidden_from_modes():
            return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except TypeError as error:  # objects are addresses, long doubles have idle bytes
        raise BadInput(f"an array cannot be digested; expected numbers ({error})") from error


@lru_cache(maxsize=4096)
def _header(dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    return f"t{_name(dtype)}{tuple(shape)};".encode()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -- xxh3, in the processor's memory -------------------------------------------------------

_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_memory.restype = ctypes.py_object
_READ_ONLY = 0x100  # PyBUF_READ


def memory_digest(address: int, n_bytes: int) -> bytes:
    """The xxh3 of a stretch of the processor's memory, which the caller keeps alive."""
    return xxhash.xxh3_128_digest(_memory(address, n_bytes, _READ_ONLY))


def _xxh3(tensor: torch.Tensor) -> bytes:
    """Header and digest of a strided tensor."""
    address = _address(tensor)
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        in_order = _integers_in_order(tensor)
        address = in_order.data_ptr()
    content = _memory(address, tensor.nbytes, _READ_ONLY) if tensor.nbytes else b""
    return _header(tensor.dtype, tensor.shape) + xxhash.xxh3_128_digest(content)


def _address(tensor: torch.Tensor) -> int:
    """The address of a tensor's values; refused if it has none, as reading there would crash."""
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # also the answer inside torch.func and torch.compile
        address = 0
    if not address and tensor.numel():
        raise BadInput(
            "a tensor has no memory that could be read: it is released, fake, or inside "
            "torch.func or torch.compile; expected one with values"
        )
    return address


def _integers_in_order(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bits as contiguous integers, by operations that nothing observes."""
    import torch

    from samebits.bit_equality import as_integers
    from samebits.torch_internals import hidden_from_modes

    with torch.no_grad(), hidden_from_modes():
        return as_integers(tensor).contiguous()


# -- lanes, on any device ------------------------------------------------------------------

_MIX = 0xD6E8FEB86659FD93
_STEPS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD1B54A32D192ED03)
_PIECE = 1 << 21
"""How many words are mixed at once: enough to keep a device busy, little beside a network."""


def lanes_digest(tokens: list[Token]) -> str:
    """The digest of tensors, on any device, and of bytes between them."""
    import torch

    from samebits.torch_internals import hidden_from_modes

    with torch.no_grad(), hidden_from_modes():
        sums = [_lanes(token) for token in tokens if not isinstance(token, bytes)]
        device = next((one.device for one in sums if not one.is_cpu), "cpu")
        # One copy to the host for all.
        lanes = iter(torch.stack([one.to(device) for one in sums]).tolist())
    row = b"".join(
        token
        if isinstance(token, bytes)
        else _header(token.dtype, token.shape) + struct.pack("<3q", *next(lanes))
        for token in tokens
    )
    return row_digest(row, of_processor=False)


def _lanes(value: torch.Tensor) -> torch.Tensor:
    """The three sums over a strided tensor: int64, shape (3,), on its device."""
    import torch

    _address(value)  # refuses one without memory
    integers = _integers_in_order(value)  # contiguous, yet a single one may have any stride
    content = integers.as_strided((integers.numel(),), (1,)).view(torch.uint8)
    sums = torch.zeros(3, dtype=torch.int64, device=content.device)
    for start in range(0, len(content), 8 * _PIECE):
        piece = content[start : start + 8 * _PIECE]
        words = torch.nn.functional.pad(piece, (0, -len(piece) % 8)).view(torch.int64)
        position = torch.arange(start // 8, start // 8 + len(words), device=content.device)
        for lane, step in enumerate(_STEPS):
            sums[lane] += _mixed(words + position * _signed(step)).sum()
    return sums


def _mixed(words: torch.Tensor) -> torch.Tensor:
    """degski's mixer; PyTorch shifts int64 with its sign, which a mask takes off."""
    for _ in range(2):
        words = (words ^ (words >> 32 & 0xFFFFFFFF)) * _signed(_MIX)
    return words ^ (words >> 32 & 0xFFFFFFFF)


def _signed(word: int) -> int:
    """A word of 64 bits as int64 holds it."""
    return (word + 2**63) % 2**64 - 2**63
