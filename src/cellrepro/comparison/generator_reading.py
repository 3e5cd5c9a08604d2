"""Where a generator of random numbers stands, read from what a checkpoint holds of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cellrepro.comparison.mersenne_twister import N_WORDS, TwisterState, twister
from cellrepro.comparison.weight_tensors import Tensor
from cellrepro.pickles import is_plain, of_array
from samebits.errors import BadInput
from samebits.generator_states import ENTRY, parsed_states

GeneratorKind = Literal["Python", "NumPy", "PyTorch", "CUDA", "MPS"]
_PYTORCH_BYTES = 5056  # of the state on the processor (2.0 to 2.15), see `_of_pytorch`
_CUDA_BYTES = 16  # seed and offset of Philox
_MPS_BYTES = 44
_MOST_PARTS = 8  # of the state of a bit generator of NumPy's
_WORDS_OF_GENERATORS = ("rng", "random", "generator", "cuda", "mps", "seed")


@dataclass(frozen=True)
class GeneratorState:
    """The place at which a generator stands."""

    kind: GeneratorKind
    seed: int | None
    """The seed with which it began; None where the state does not say."""
    stream: object
    """The part that stays the same from one draw to the next, for some draws at least."""
    position: int | None
    """Draws made in that stream; None where it cannot be told."""
    kept: object
    """Numbers that it has drawn and not given yet, as the second of two normal ones."""
    twister: TwisterState | None = None
    """Stream and position of a Mersenne twister."""

    @property
    def freshness(self) -> str:
        """Say that nothing was drawn since it was seeded; empty where something was."""
        if self.kind == "CUDA" and self.position == 0:
            return f"freshly seeded with {self.seed}"
        if self.twister is None or not self.twister.is_fresh:
            return ""
        seed = self.seed if self.seed is not None else self.twister.seed
        return "freshly seeded" if seed is None else f"freshly seeded with {seed}"


def generators_in(name: str, value: object) -> Iterator[tuple[str, GeneratorState]]:
    """Give the generators that a value of a checkpoint stands for; none of any other value."""
    if isinstance(value, Mapping) and str(value.get("format", "")).startswith(ENTRY):
        yield from _of_the_lab(name, value)
        return
    state = _of_python(value) or _of_numpy(value) or _of_tensor(name, value)
    if state is not None:
        yield name, state


def _of_the_lab(name: str, value: Mapping[object, object]) -> Iterator[tuple[str, GeneratorState]]:
    """Read the generators that `cellrepro.add_seed_to` put into a checkpoint."""
    try:
        states = parsed_states({str(key): part for key, part in value.items()})
    except (BadInput, LookupError, TypeError, ValueError):
        return  # then they are compared as the plain values that they are
    by_part = [
        ("python", _of_python(states.python)),
        ("numpy", _of_numpy(states.numpy)),
        ("torch", _of_bytes(_as_bytes(states.torch))),
        ("mps", _of_bytes(_as_bytes(states.mps))),
    ]
    for index, of_device in enumerate(states.cuda or ()):
        by_part.append((f"cuda.{index}", _of_bytes(_as_bytes(of_device))))
    for part, state in by_part:
        if state is not None:
            yield f"{name}.{part}", state


def _of_python(value: object) -> GeneratorState | None:
    """Read `random.getstate`: version 3, words and position, the second normal number."""
    if not isinstance(value, list | tuple) or len(value) != 3 or value[0] != 3:
        return None
    words = value[1]
    if not isinstance(words, list | tuple) or len(words) != N_WORDS + 1:
        return None
    *stream, position = words
    if not isinstance(position, int) or not is_plain(value[2]):
        return None
    state = twister(stream, position)
    return GeneratorState("Python", None, tuple(stream), position, repr(value[2]), state)


def _of_numpy(value: object) -> GeneratorState | None:
    """Read ``numpy.random.get_state``, a tuple or a dictionary, or a bit generator's state."""
    if isinstance(value, list | tuple) and len(value) == 5 and value[0] == "MT19937":
        words = _words(value[1])
        if words is not None and isinstance(value[2], int) and all(map(is_plain, value[3:])):
            state = twister(words, value[2])
            return GeneratorState("NumPy", None, words, value[2], repr(value[3:]), state)
    if not isinstance(value, Mapping) or not isinstance(value.get("bit_generator"), str):
        return None
    state = value.get("state")
    kept = [value.get(key) for key in ("has_gauss", "gauss", "has_uint32", "uinteger")]
    if not isinstance(state, Mapping) or len(state) > _MOST_PARTS or not all(map(is_plain, kept)):
        return None
    position = state.get("pos")
    words = _words(state.get("key"))
    if isinstance(position, int) and words is not None:
        where = twister(words, position)
        return GeneratorState("NumPy", None, words, position, repr(kept), where)
    parts = {str(name): part if is_plain(part) else _words(part) for name, part in state.items()}
    return GeneratorState("NumPy", None, (value["bit_generator"], repr(parts)), None, repr(kept))


def _words(value: object) -> tuple[object, ...] | None:
    value = of_array(value)
    if isinstance(value, Tensor) and value.n == N_WORDS:
        return tuple(value.read(0, N_WORDS).tolist())
    if isinstance(value, np.ndarray) and value.size <= N_WORDS:
        value = value.reshape(-1).tolist()
    if not isinstance(value, list | tuple) or len(value) > N_WORDS:
        return None
    return tuple(value) if all(map(is_plain, value)) else None


def _of_tensor(name: str, value: object) -> GeneratorState | None:
    """Read ``torch.get_rng_state`` and its likes: tensors of bytes."""
    if not isinstance(value, Tensor) or value.dtype != "U8" or len(value.shape) != 1:
        return None
    is_named = any(word in name.lower() for word in _WORDS_OF_GENERATORS)
    if value.n != _PYTORCH_BYTES and not (is_named and value.n in (_CUDA_BYTES, _MPS_BYTES)):
        return None
    return _of_bytes(value.read(0, value.n).tobytes())


def _as_bytes(numbers: object) -> bytes:
    if not isinstance(numbers, list | tuple) or len(numbers) > _PYTORCH_BYTES:
        return b""
    return bytes(numbers)


def _of_bytes(state: bytes) -> GeneratorState | None:
    if len(state) == _PYTORCH_BYTES:
        return _of_pytorch(state)
    if len(state) == _CUDA_BYTES:
        seed, offset = struct.unpack("<2Q", state)
        return GeneratorState("CUDA", seed, seed, offset, None)
    if len(state) == _MPS_BYTES:
        return GeneratorState("MPS", None, state, None, None)
    return None


def _of_pytorch(state: bytes) -> GeneratorState:
    """Read a state of ``aten/src/ATen/CPUGeneratorImpl.cpp``, PyTorch 2.0 to 2.15.

    Seed, numbers left, whether seeded, the next one, 624 words of 8 bytes, and normal numbers that
    were drawn.
    """
    seed, n_left, _, following = struct.unpack_from("<QiiQ", state)
    end = 24 + 8 * N_WORDS
    words = struct.unpack_from(f"<{N_WORDS}Q", state, 24)
    is_new = n_left == 1 and not following  # seeded, or set: the words are not computed yet
    where = twister(words, N_WORDS if is_new else following)
    return GeneratorState("PyTorch", seed, state[24:end], following, state[end:], where)
