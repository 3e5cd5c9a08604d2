"""Digests of what is stored and of what is in memory, in lower-case hex.

SHA-256 (64 digits) of files, arrays and plain values, for what is stored and compared elsewhere.
For tensors in memory, thousands of times in a training step, two that are faster and that see any
change of bits, order, sign, shape or dtype; neither resists somebody who searches for a clash:

- **xxh3** (32 digits) of what lies in the processor's memory: xxh3-128 of the values in C order.
- **lanes** (48 digits) of what lies on another device, computed there: the values in C order are
  cut into little-endian words of 64 bits, the last one filled up with zeros. For each of three
  lanes, word ``w`` at position ``i`` (from 0) becomes ``mix(w + i * step)``, with a step of the
  lane's own and degski's mixer, ``x ^= x >> 32; x *= m; x ^= x >> 32; x *= m; x ^= x >> 32``.
  The lane is the sum, all modulo 2**64. Sums of integers do not depend on their order, so neither
  device nor number of threads matters.

Both cover a header with dtype and shape. The length of a digest tells the algorithm.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import random
import struct
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from cellrepro.errors import BadInput, NotPossibleHere


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes; ``sha256sum`` agrees.

    Parameters
    ----------
    path : Path
        Read in pieces, so its size does not matter.

    Returns
    -------
    str
        64 lower-case hex digits.
    """
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def array_digest(array: np.ndarray) -> str:
    """SHA-256 of an array's dtype, shape and values in C order.

    Any layout of equal values gives the same digest; another dtype or shape another one.

    Examples
    --------
    >>> array_digest(np.zeros((2, 3))) == array_digest(np.zeros((3, 2)))
    False
    """
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.sha256(f"{little_endian.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(little_endian).tobytes())
    return digest.hexdigest()


def value_digest(value: Any) -> str:
    """SHA-256 of a plain value (JSON types only), whatever the order of its keys.

    Examples
    --------
    >>> value_digest({"a": 1, "b": 2}) == value_digest({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# -- tensors in memory ---------------------------------------------------------------------

_XXH3, _LANES = "xxh3", "lanes"


def tensor_digest(value: Any, *, algorithm: str | None = None) -> str:
    """A fast digest of a tensor's or an array's dtype, shape and bits, in C order.

    Strides, offsets, conjugate and negative views do not matter; the payload of NaN and the sign
    of 0 do. A tensor and an array of equal dtype, shape and bits have one digest. Sparse,
    quantized, nested and wrapping tensors are digested by their parts, so there the layout
    counts. The value is not changed, a tensor in the processor's memory is not copied if it is
    contiguous, and one elsewhere does not leave its device.

    Parameters
    ----------
    value : Tensor or ndarray
        Of any dtype and shape.
    algorithm : {"xxh3", "lanes"}, optional
        By default xxh3 in the processor's memory and lanes elsewhere. Ask for lanes to hold a
        tensor in the processor's memory against a digest that comes from another device.

    Returns
    -------
    str
        32 lower-case hex digits for xxh3, 48 for lanes.

    Raises
    ------
    BadInput
        If there is no such algorithm, the value is neither tensor nor array or holds no bits
        that could be read, or xxh3 is asked for on another device.
    NotPossibleHere
        If the device does not count as lanes needs it to.

    Examples
    --------
    >>> tensor_digest(np.zeros((2, 3))) == tensor_digest(np.zeros((3, 2)))
    False
    >>> len(tensor_digest(np.zeros(3))), len(tensor_digest(np.zeros(3), algorithm="lanes"))
    (32, 48)
    """
    if algorithm is None and _is_plain(value) and value.is_cpu:
        return xxhash.xxh3_128_hexdigest(_xxh3_token(value))
    tokens: list[Any] = []
    if not _add_tensor(tokens, value, "the value"):
        raise BadInput(
            f"the value is of type {type(value).__qualname__}; expected a tensor or an array "
            "(state_digest takes anything made of them)"
        )
    return _combined(tokens, algorithm)


def tensors_digest(tensors: Mapping[str, Any], *, algorithm: str | None = None) -> str:
    """One digest for a group of tensors and plain values, by name, whatever their order.

    Parameters
    ----------
    tensors : mapping of str to Tensor, ndarray, int, float, bool, str or None
        Numbers count by type and bits: 1, 1.0 and True differ.
    algorithm : {"xxh3", "lanes"}, optional
        For every tensor of the group; by default lanes if any of them is on another device.

    Returns
    -------
    str
        32 lower-case hex digits for xxh3, 48 for lanes.

    Raises
    ------
    BadInput
        If a name is no text or a value is none of these, and as `tensor_digest` raises it.

    Examples
    --------
    >>> one = tensors_digest({"weight": np.ones(3), "step": 1})
    >>> one == tensors_digest({"step": 1, "weight": np.ones(3)})
    True
    >>> one == tensors_digest({"weights": np.ones(3), "step": 1})
    False
    """
    for name in tensors:
        if not isinstance(name, str):
            raise BadInput(f"a name in the group is {name!r}; expected text")
    tokens: list[Any] = [b"{"]
    for name in sorted(tensors):
        value = tensors[name]
        tokens.append(_plain_token(name))
        if not _add_single(tokens, value, f"{name!r} in the group"):
            raise BadInput(
                f"{name!r} in the group is of type {type(value).__qualname__}; expected a tensor, "
                "an array, a number, text or None (state_digest takes nested values)"
            )
    return _combined([*tokens, b"}"], algorithm)


def state_digest(state: Any, *, algorithm: str | None = None) -> str:
    """One digest for nested plain data with tensors in it, such as an optimizer's state.

    Parameters
    ----------
    state : nested dicts, lists, tuples and sets of tensors, arrays, numbers, text, bytes, None
        The order of a dict's keys does not matter, that of lists and tuples does. Dtypes and
        devices of PyTorch count by name.
    algorithm : {"xxh3", "lanes"}, optional
        For every tensor; by default lanes if any of them is on another device.

    Returns
    -------
    str
        32 lower-case hex digits for xxh3, 48 for lanes.

    Raises
    ------
    BadInput
        If anything else is found, naming where, and as `tensor_digest` raises it.

    Examples
    --------
    >>> state_digest({"lr": 0.1, "betas": (0.9, 0.99)}) == state_digest(
    ...     {"betas": (0.9, 0.99), "lr": 0.1}
    ... )
    True
    """
    tokens: list[Any] = []
    _add(tokens, state, "the state")
    return _combined(tokens, algorithm)


def comparable(a: str, b: str) -> bool:
    """Whether two digests come from one algorithm, so that unequal ones mean unequal values.

    Examples
    --------
    >>> zeros = np.zeros(3)
    >>> comparable(tensor_digest(zeros), tensor_digest(zeros, algorithm="lanes"))
    False
    """
    return len(a) == len(b)


# A value becomes a row of tokens, none of which is the beginning of another, so that different
# values make different rows. Tensors stay tensors in it until the algorithm is known.


def _combined(tokens: list[Any], algorithm: str | None) -> str:
    if algorithm is None:
        algorithm = _LANES if any(map(_is_away, tokens)) else _XXH3
    if algorithm == _XXH3:
        return xxhash.xxh3_128_hexdigest(_xxh3_row(tokens))
    if algorithm == _LANES:
        row = b"".join(_with_lanes(tokens))
        return "".join(xxhash.xxh3_64_hexdigest(row, seed) for seed in (1, 2, 3))
    raise BadInput(f"algorithm is {algorithm!r}; expected 'xxh3', 'lanes' or None")


def _xxh3_row(tokens: list[Any]) -> bytes:
    return b"".join(x if type(x) is bytes else _xxh3_token(x) for x in tokens)


def _is_away(token: Any) -> bool:
    return not isinstance(token, bytes | np.ndarray) and not token.is_cpu


def _add(tokens: list[Any], value: Any, where: str) -> None:
    """Append the tokens of a nested value."""
    if _add_single(tokens, value, where):
        return
    if isinstance(value, Mapping):
        tokens.append(b"{")
        entries = []
        for key, item in value.items():
            name: list[Any] = []
            _add(name, key, f"the key {key!r} of {where}")
            if not all(isinstance(token, bytes) for token in name):
                raise BadInput(f"a key of {where} is a tensor; expected text or a number")
            entries.append((b"".join(name), key, item))
        for head, key, item in sorted(entries, key=lambda entry: entry[0]):
            tokens.append(head)
            _add(tokens, item, f"{where}[{key!r}]")
        tokens.append(b"}")
    elif isinstance(value, list | tuple):
        tokens.append(b"[" if isinstance(value, list) else b"(")
        for index, item in enumerate(value):
            _add(tokens, item, f"{where}[{index}]")
        tokens.append(b"]")
    elif isinstance(value, set | frozenset) and all(_plain_token(item) for item in value):
        tokens.extend([b"<", *sorted(_plain_token(item) or b"" for item in value), b">"])
    else:
        raise BadInput(
            f"{where} is of type {type(value).__qualname__}; expected a tensor, an array, a "
            "number, text, bytes, None, or a dict, list, tuple or plain set of these"
        )


def _add_single(tokens: list[Any], value: Any, where: str) -> bool:
    """Append the tokens of a tensor, an array or a plain value; False if it is none."""
    if _is_plain(value):
        tokens.append(value)
        return True
    token = _plain_token(value)
    if token is None:
        return _add_tensor(tokens, value, where)
    tokens.append(token)
    return True


def _plain_token(value: Any) -> bytes | None:
    """A plain value by its type and exact bits; None if it is none."""
    if isinstance(value, np.generic):  # float64 is a float, too
        return None
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"T" if value else b"F"
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, complex):
        return b"c" + struct.pack("<dd", value.real, value.imag)
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
        return b"s%d:" % len(value) + value
    if isinstance(value, bytes | bytearray):
        return b"b%d:" % len(value) + value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.dtype | torch.device):
        return f"d{value};".encode()
    return None


# -- tensors as tokens ---------------------------------------------------------------------


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor that is a view of memory, or could at once be made one."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and (type(value) is torch.Tensor or type(value) is torch.nn.Parameter)
        and value.layout is torch.strided
        and not value.is_nested
        and not value.is_quantized
        and not value.is_meta
        and not value._is_zerotensor()
    )


def _add_tensor(tokens: list[Any], value: Any, where: str) -> bool:
    """Append a tensor's or an array's tokens, in parts where it has some; False if it is none."""
    if isinstance(value, np.ndarray | np.generic):
        tokens.append(_plain_array(value, where))
        return True
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return False
    if _is_plain(value):
        tokens.append(value)
        return True
    if value.is_meta or isinstance(value, torch._subclasses.FakeTensor):
        raise BadInput(f"{where} is a tensor without values (meta or fake); expected a real one")
    from torch.utils._python_dispatch import _disable_current_modes

    from cellrepro.store.bits import parts

    with torch.no_grad(), _disable_current_modes():
        if value._is_zerotensor():
            tokens.append(torch.zeros(value.shape, dtype=value.dtype, device=value.device))
            return True
        pieces = parts(value)
        if pieces is None:
            tokens.append(_without_class(torch, value))
            return True
        pieces += _scales(torch, value) if value.is_quantized else []
        tokens.append(_kind(torch, value).encode())
        for index, piece in enumerate(pieces):
            _add(tokens, piece, f"part {index} of {where}")
        tokens.append(b"]")
    return True


def _without_class(torch: Any, value: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch():
        return value.as_subclass(torch.Tensor)


def _scales(torch: Any, value: Any) -> list[Any]:
    """What the integers of a quantized tensor stand for."""
    if value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return [value.q_scale(), value.q_zero_point()]
    return [
        value.q_per_channel_scales(),
        value.q_per_channel_zero_points(),
        value.q_per_channel_axis(),
    ]


def _kind(torch: Any, value: Any) -> str:
    """The header of a tensor in parts."""
    dtype = _dtype_name(value.dtype)
    if value.is_nested:  # which has no shape of its own
        return f"pnested {dtype}["
    kind = "quantized" if value.is_quantized else str(value.layout)
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        kind = type(value).__qualname__
    return f"p{kind} {dtype}{tuple(value.shape)}["


def _plain_array(value: Any, where: str) -> np.ndarray:
    """An array whose values are its bytes in native order, and nothing but them."""
    array = np.asarray(value)
    dtype = array.dtype
    if isinstance(value, np.ma.MaskedArray):
        raise BadInput(f"{where} is a masked array; give its data and its mask")
    # Objects are addresses, long doubles and fields have idle bytes; bfloat16 and the like are
    # types of their own.
    if not (dtype.kind in "biufcmMSU" or dtype.type.__module__ == "ml_dtypes") or (
        dtype.char in "gG"
    ):
        raise BadInput(
            f"{where} is an array of dtype {dtype}, whose bytes are not just its values; expected "
            "numbers, dates or text of fixed length"
        )
    return array if dtype.isnative else array.byteswap().view(dtype.newbyteorder("="))


@lru_cache(maxsize=256)
def _dtype_name(dtype: Any) -> str:
    return dtype.name if isinstance(dtype, np.dtype) else str(dtype).removeprefix("torch.")


@lru_cache(maxsize=4096)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    return f"t{dtype}{tuple(shape)};".encode()


# -- xxh3, in the processor's memory -------------------------------------------------------

_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_memory.restype = ctypes.py_object
_READ_ONLY = 0x100  # PyBUF_READ


def _xxh3_token(value: Any) -> bytes:
    """Header and digest of a plain tensor or array."""
    if isinstance(value, np.ndarray):
        header = _header(_dtype_name(value.dtype), value.shape)
        return header + xxhash.xxh3_128_digest(_array_bytes(value).data)
    if not value.is_cpu:
        raise BadInput(
            f"algorithm is 'xxh3', but a tensor is on {value.device}; leave the algorithm out or "
            "ask for 'lanes', which is computed there, or move the tensor with .cpu()"
        )
    stretch, address, n_bytes = value, _address(value), value.nbytes
    if not value.is_contiguous() or value.is_neg() or value.is_conj():
        stretch = _in_order(value)
        address = stretch.data_ptr()
    content = _memory(address, n_bytes, _READ_ONLY) if n_bytes else b""
    return _header(_dtype_name(value.dtype), value.shape) + xxhash.xxh3_128_digest(content)


def _address(tensor: Any) -> int:
    """Where a tensor begins. Reading one that is nowhere would end the process."""
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


def _in_order(tensor: Any) -> Any:
    """A tensor's bits as contiguous integers, by operations that nothing observes."""
    import torch

    from cellrepro.store.bits import as_integers

    with torch.no_grad(), torch._C._DisableTorchDispatch():
        return as_integers(tensor).contiguous()


def _array_bytes(array: np.ndarray) -> np.ndarray:
    if not array.nbytes:
        return np.empty(0, np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


# -- lanes, on any device ------------------------------------------------------------------

_MIX = 0xD6E8FEB86659FD93
_STEPS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD1B54A32D192ED03)
"""Odd, and unrelated: of the golden ratio, of xxHash, of Steele and Vigna's generators."""
_WORDS = {"cpu": 1 << 13}
_WORDS_ELSEWHERE = 1 << 21
"""How many words are mixed at once: in the cache of a core, or enough to keep a device busy."""


def _with_lanes(tokens: list[Any]) -> Iterator[bytes]:
    """The tokens, every tensor as header and lanes; one copy to the host for every device."""
    import torch

    with torch.no_grad(), torch._C._DisableTorchDispatch():
        sums = {
            index: _lane_sums(torch, token)
            for index, token in enumerate(tokens)
            if not isinstance(token, bytes)
        }
        devices: dict[Any, list[int]] = {}
        for index, lanes in sums.items():
            devices.setdefault(lanes.device, []).append(index)
        on_host: dict[int, list[int]] = {}
        for indices in devices.values():
            rows = torch.stack([sums[index] for index in indices]).tolist()
            on_host.update(zip(indices, rows, strict=True))
    for index, token in enumerate(tokens):
        if index in on_host:
            header = _header(_dtype_name(token.dtype), token.shape)
            yield header + struct.pack("<3q", *on_host[index])
        else:
            yield token


def _lane_sums(torch: Any, value: Any) -> Any:
    """The three sums over a plain tensor or array: int64, shape (3,), on its device."""
    if isinstance(value, np.ndarray):
        content = _array_bytes(value)  # PyTorch takes what may not be written to with a warning
        value = torch.from_numpy(content if content.flags.writeable else content.copy())
    _address(value)
    sums = torch.zeros(3, dtype=torch.int64, device=value.device)
    _add_lanes(torch, sums, _steps(value.device), value)
    return sums


def _add_lanes(torch: Any, sums: Any, steps: Any, tensor: Any) -> None:
    position = None
    for words in _words(torch, tensor, _WORDS.get(tensor.device.type, _WORDS_ELSEWHERE)):
        n = len(words)
        if position is None:  # no later piece is longer than the first
            position = torch.arange(n, device=words.device)
            room = torch.empty(3 * n, dtype=torch.int64, device=words.device)
        mixed = room[: 3 * n].view(3, n)
        torch.mul(position[:n], steps, out=mixed)
        mixed += words
        # PyTorch shifts with the sign, and int64 only: xor the halves instead.
        halves = mixed.view(torch.int32).view(3, n, 2)
        low, high = halves[..., 0], halves[..., 1]
        low ^= high
        for _ in range(2):
            mixed *= _signed(_MIX)
            low ^= high
        sums += mixed.sum(1)
        position += n


def _words(torch: Any, tensor: Any, n_words: int) -> Iterator[Any]:
    """A plain tensor's bits as int64, shape (words,), in pieces of at most about ``n_words``."""
    from cellrepro.store.bits import as_integers

    bits = as_integers(tensor)
    per_word = 8 // bits.element_size()
    if bits.is_contiguous():
        yield from _packed(torch, bits.view(-1), per_word, n_words)
        return
    bits = bits.squeeze()
    n_rows = n_words * per_word // bits[0].numel()
    # Rows in such numbers that their bytes fill whole words.
    for rows in bits.split(max(n_rows // per_word, 1) * per_word):
        yield from _packed(torch, rows.contiguous().view(-1), per_word, n_words)


def _packed(torch: Any, bits: Any, per_word: int, n_words: int) -> Iterator[Any]:
    n_whole = len(bits) // per_word * per_word
    for piece in bits[:n_whole].split(n_words * per_word) if n_whole else ():
        if piece.storage_offset() % per_word:  # its first word would begin inside a word
            piece = piece.clone()
        yield piece.view(torch.int64)
    if n_whole < len(bits):
        last = torch.zeros(per_word, dtype=bits.dtype, device=bits.device)
        last[: len(bits) - n_whole] = bits[n_whole:]
        yield last.view(torch.int64)


@lru_cache(maxsize=64)
def _steps(device: Any) -> Any:
    """The lanes' steps on a device that counts right: int64, shape (3, 1).

    Raises
    ------
    NotPossibleHere
        If the device does not count modulo 2**64, or begins a word with its high half.
    """
    import torch

    steps = torch.tensor([[_signed(step)] for step in _STEPS], device=device)
    words = [1, 2**63 + 12345, 2**64 - 2]
    sums = torch.zeros(3, dtype=torch.int64, device=device)
    _add_lanes(torch, sums, steps, torch.tensor(list(map(_signed, words)), device=device))
    expected = [
        _signed(sum(_mixed(word + i * step) for i, word in enumerate(words))) for step in _STEPS
    ]
    if sums.tolist() != expected:
        raise NotPossibleHere(
            f"{device} does not count in whole numbers of 64 bits as lanes needs it to, with "
            f"PyTorch {torch.__version__}; move the tensors with .cpu()"
        )
    return steps


def _mixed(word: int) -> int:
    word %= 2**64
    word ^= word >> 32
    for _ in range(2):
        word = word * _MIX % 2**64
        word ^= word >> 32
    return word


def _signed(word: int) -> int:
    """A word of 64 bits as int64 holds it."""
    return (word + 2**63) % 2**64 - 2**63


# -- generators ----------------------------------------------------------------------------


def generator_digests() -> dict[str, str]:
    """A digest of the state of every global generator of random numbers; none is moved.

    Returns
    -------
    dict of str
        "python", "numpy", "torch" (on the processor), "cuda:0" and so on if CUDA has started,
        "mps" if there is one: 32 lower-case hex digits each.
    """
    import torch

    states = {
        "python": _python_state(),
        "numpy": _numpy_state(),
        "torch": _state_of(torch.default_generator),
    }
    if torch.cuda.is_initialized():  # asking earlier would start it
        for index, generator in enumerate(torch.cuda.default_generators):
            states[f"cuda:{index}"] = _state_of(generator)
    if torch.backends.mps.is_available():
        states["mps"] = _xxh3_token(torch.mps.get_rng_state())
    return {name: xxhash.xxh3_128_hexdigest(state) for name, state in states.items()}


def _state_of(generator: Any) -> bytes:
    return _xxh3_token(generator.get_state())


_TWISTER = struct.Struct("<625I")


def _python_state() -> bytes:
    version, words, gauss = random.getstate()
    return b"%d;" % version + _TWISTER.pack(*words) + (_plain_token(gauss) or b"")


def _numpy_state() -> bytes:
    source = np.random.mtrand._rand
    if type(source._bit_generator) is not np.random.MT19937:  # np.random.set_bit_generator
        tokens: list[Any] = []
        _add(tokens, source.get_state(legacy=False), "NumPy's generator")
        return _xxh3_row(tokens)
    offset = _gauss_offset()
    return _twister_in_memory(source, offset) if offset else _twister_as_told(source)


_GAUSS = struct.Struct("@id")


def _twister_as_told(source: Any) -> bytes:
    told = source.get_state(legacy=False)
    state = told["state"]
    words = _TWISTER.pack(*state["key"].tolist(), state["pos"])
    return b"MT19937;" + words + _GAUSS.pack(told["has_gauss"], told["gauss"])


def _twister_in_memory(source: Any, offset: int) -> bytes:
    """What `_twister_as_told` gives in 30 us, in 1: the fields of NumPy's C structures.

    ``{uint32_t key[624]; int pos;}`` is where NumPy says, ``{int has_gauss; double gauss;}`` at an
    offset in the object itself.
    """
    words = ctypes.string_at(source._bit_generator.ctypes.state_address, _TWISTER.size)
    return b"MT19937;" + words + ctypes.string_at(id(source) + offset, _GAUSS.size)


@lru_cache(maxsize=1)
def _gauss_offset() -> int:
    """Where a ``RandomState`` keeps its spare normal number, found and tried; 0 if not sure.

    It follows the only pointer from the object to within itself (``aug_bitgen_t`` of NumPy 1.17
    to 2.4).
    """
    probe = np.random.RandomState(1)
    size, width = type(probe).__basicsize__, struct.calcsize("P")
    pointers = struct.unpack_from(f"{size // width}P", ctypes.string_at(id(probe), size))
    inside = [i for i, word in enumerate(pointers) if 0 < word - id(probe) < size]
    offset = (inside[0] + 1) * width if len(inside) == 1 else size
    if offset + _GAUSS.size > size:
        return 0
    for _ in range(4):
        if _twister_in_memory(probe, offset) != _twister_as_told(probe):
            return 0
        probe.standard_normal()
    return offset
