"""Generators of random numbers in two checkpoints: whether they stand at the same place.

Python's, NumPy's global one and PyTorch's on the processor are Mersenne twisters (MT19937): 624
words and how many of them were given; after the last one all are computed anew. M. Matsumoto and
T. Nishimura, ACM TOMACS 8 (1998), and their code of 2002 for seeding.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from cellrepro.comparison.torch_names import StoredArray
from cellrepro.comparison.weight_tensors import Tensor
from cellrepro.determinism.generator_states import ENTRY, parsed_states
from cellrepro.errors import BadInput

GeneratorKind = Literal["Python", "NumPy", "PyTorch", "CUDA", "MPS"]

_PYTORCH_BYTES = 5056  # of the state on the processor (2.0 to 2.15), see `_of_pytorch`
_CUDA_BYTES = 16  # seed and offset of Philox
_MPS_BYTES = 44
_N_WORDS = 624  # of a Mersenne twister
_MOST_BLOCKS = 2**14  # of 624 numbers, ten million in all
_AT_A_TIME = 2**9
_FIRST_OF_ARRAY = 0x80000000  # the first word after seeding by an array, as Python does
_MULTIPLIER = 1812433253
_USUAL_SEEDS = 2**10  # of Python, whose seeds can only be tried
_WORDS_OF_GENERATORS = ("rng", "random", "generator", "cuda", "mps", "seed")


@dataclass(frozen=True)
class GeneratorState:
    """Where a generator stands."""

    kind: GeneratorKind
    seed: int | None
    """With which it began; None where the state does not say."""
    stream: object
    """What stays the same from one draw to the next, for some draws at least."""
    position: int | None
    """Draws made in that stream; None where it cannot be told."""
    kept: object
    """What it has drawn and not given yet, as the second of two normal numbers."""
    twister: TwisterState | None = None
    """Stream and position of a Mersenne twister."""

    @property
    def freshness(self) -> str:
        """That nothing was drawn since it was seeded, in words; empty where something was."""
        if self.kind == "CUDA" and self.position == 0:
            return f"freshly seeded with {self.seed}"
        if self.twister is None or not self.twister.is_fresh:
            return ""
        seed = self.seed if self.seed is not None else self.twister.seed
        return "freshly seeded" if seed is None else f"freshly seeded with {seed}"


@dataclass(frozen=True)
class GeneratorPair:
    """One generator in two files."""

    name: str
    """Where it is in the files."""
    kind: GeneratorKind
    """Whose generator it is."""
    equal: bool
    """Whether it stands at the same place of the same numbers."""
    seeds: tuple[int | None, int | None]
    """With which they began, where the states say so."""
    draws_apart: int | None
    """How many numbers lie between the two, where they are of one stream."""
    fresh: tuple[str, str] = ("", "")
    """For each side that it stands where seeding puts it; empty if something was drawn since."""

    def sentence(self) -> str:
        """Say how the two stand to each other, and which of them was seeded and not used."""
        a, b = self.fresh
        if a and a == b:
            return f"{self._difference()}; both stand where seeding puts them ({a})"
        stands = "".join(
            f"; {side} stands where seeding puts it ({fresh})"
            for side, fresh in (("A", a), ("B", b))
            if fresh
        )
        return f"{self._difference()}{stands}"

    def _difference(self) -> str:
        if self.equal:
            return f"{self.kind}: equal"
        a, b = self.seeds
        if a != b:
            return f"{self.kind}: seeds {a} and {b}"
        seed = "" if a is None else f", both of seed {a}"
        if self.draws_apart:
            unit = "steps" if self.kind == "CUDA" else "numbers of 32 bits"
            return f"{self.kind}: {self.draws_apart} {unit} apart in one stream{seed}"
        return f"{self.kind}: at different places{seed}"


def compare_generators(name: str, a: GeneratorState, b: GeneratorState) -> GeneratorPair:
    """Compare one generator in two files."""
    apart = None
    if a.twister is not None and b.twister is not None and a.seed == b.seed:
        apart = draws_between(a.twister, b.twister)
    elif a.stream == b.stream and a.position is not None and b.position is not None:
        apart = abs(a.position - b.position)
    return GeneratorPair(
        name,
        a.kind,
        equal=a == b,
        seeds=(a.seed, b.seed),
        draws_apart=apart,
        fresh=(a.freshness, b.freshness),
    )


# -- read from a checkpoint ------------------------------------------------------------------


def generators_in(name: str, value: object) -> Iterator[tuple[str, GeneratorState]]:
    """Give the generators that a value of a checkpoint stands for; none of any other value."""
    if isinstance(value, Mapping) and str(value.get("format", "")).startswith(ENTRY):
        yield from _of_the_lab(name, value)
        return
    state = _of_python(value) or _of_numpy(value) or _of_tensor(name, value)
    if state is not None:
        yield name, state


def _of_the_lab(name: str, value: Mapping[object, object]) -> Iterator[tuple[str, GeneratorState]]:
    """The generators that `cellrepro.add_seed_to` put into a checkpoint."""
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
    """From `random.getstate`: version 3, the words and the position, the second normal number."""
    if not isinstance(value, list | tuple) or len(value) != 3 or value[0] != 3:
        return None
    words = value[1]
    if not isinstance(words, list | tuple) or len(words) != _N_WORDS + 1:
        return None
    *stream, position = words
    if not isinstance(position, int):
        return None
    state = twister(stream, position)
    return GeneratorState("Python", None, tuple(stream), position, repr(value[2]), state)


def _of_numpy(value: object) -> GeneratorState | None:
    """From ``numpy.random.get_state``, as a tuple or as a dictionary, or from a bit generator."""
    if isinstance(value, list | tuple) and len(value) == 5 and value[0] == "MT19937":
        words = _words(value[1])
        if words is not None and isinstance(value[2], int):
            state = twister(words, value[2])
            return GeneratorState("NumPy", None, words, value[2], repr(value[3:]), state)
    if not isinstance(value, Mapping) or not isinstance(value.get("bit_generator"), str):
        return None
    state = value.get("state")
    kept = repr([value.get(key) for key in ("has_gauss", "gauss", "has_uint32", "uinteger")])
    if isinstance(state, Mapping) and isinstance(state.get("pos"), int):
        words = _words(state.get("key"))
        if words is not None:
            position = state["pos"]
            where = twister(words, position)
            return GeneratorState("NumPy", None, words, position, kept, where)
    return GeneratorState("NumPy", None, (value["bit_generator"], repr(state)), None, kept)


def _words(value: object) -> tuple[object, ...] | None:
    if isinstance(value, StoredArray):
        value = value.content
    if isinstance(value, Tensor) and value.n == _N_WORDS:
        return tuple(value.read(0, _N_WORDS).tolist())
    return tuple(value) if isinstance(value, list | tuple) else None


def _of_tensor(name: str, value: object) -> GeneratorState | None:
    """From ``torch.get_rng_state`` and its likes: tensors of bytes."""
    if not isinstance(value, Tensor) or value.dtype != "U8" or len(value.shape) != 1:
        return None
    is_named = any(word in name.lower() for word in _WORDS_OF_GENERATORS)
    if value.n != _PYTORCH_BYTES and not (is_named and value.n in (_CUDA_BYTES, _MPS_BYTES)):
        return None
    return _of_bytes(value.read(0, value.n).tobytes())


def _as_bytes(numbers: object) -> bytes:
    return bytes(numbers) if isinstance(numbers, list | tuple) else b""


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
    """From the state on the processor (``aten/src/ATen/CPUGeneratorImpl.cpp``, 2.0 to 2.15).

    Seed, numbers left, whether seeded, the next one, 624 words of 8 bytes, and normal numbers that
    were drawn.
    """
    seed, n_left, _, following = struct.unpack_from("<QiiQ", state)
    end = 24 + 8 * _N_WORDS
    words = struct.unpack_from(f"<{_N_WORDS}Q", state, 24)
    is_new = n_left == 1 and not following  # seeded, or set: the words are not computed yet
    where = twister(words, _N_WORDS if is_new else following)
    return GeneratorState("PyTorch", seed, state[24:end], following, state[end:], where)


# -- Mersenne twisters -----------------------------------------------------------------------


@dataclass(frozen=True)
class TwisterState:
    """Where a Mersenne twister stands."""

    numbers: tuple[int, ...]
    """The 624 words."""
    position: int
    """How many of them were given; 624 where new ones come next."""

    @property
    def is_fresh(self) -> bool:
        """Whether it stands where seeding puts it, and nothing was drawn."""
        return self.position == _N_WORDS and (self.seed is not None or self._is_by_array)

    @cached_property
    def seed(self) -> int | None:
        """The number with which a fresh one was seeded; None where it does not show."""
        if self.position != _N_WORDS:
            return None
        if not self._is_by_array:
            return self.numbers[0] if self.numbers == _seeded(self.numbers[0]) else None
        for seed in range(_USUAL_SEEDS):
            if random.Random(seed).getstate()[1][:_N_WORDS] == self.numbers:
                return seed
        return None

    @property
    def _is_by_array(self) -> bool:
        return self.position == _N_WORDS and self.numbers[0] == _FIRST_OF_ARRAY


def draws_between(a: TwisterState, b: TwisterState) -> int | None:
    """How many numbers of 32 bits lie between two states of one stream.

    None for two streams, and where more than ten million numbers lie between them.
    """
    if a.numbers == b.numbers:
        return abs(a.position - b.position)
    n_blocks = _blocks_to(a, b)
    if n_blocks is not None:
        return n_blocks * _N_WORDS + b.position - a.position
    n_blocks = _blocks_to(b, a)
    return None if n_blocks is None else n_blocks * _N_WORDS + a.position - b.position


def _blocks_to(a: TwisterState, b: TwisterState) -> int | None:
    """How often the words of a are computed anew until they are those of b."""
    expected = _generator(b, position=0).random_raw(_N_WORDS)
    generator = _generator(a, position=_N_WORDS)
    for n_before in range(0, _MOST_BLOCKS, _AT_A_TIME):
        blocks = generator.random_raw(_AT_A_TIME * _N_WORDS).reshape(_AT_A_TIME, _N_WORDS)
        (candidates,) = np.nonzero(blocks[:, 0] == expected[0])
        for index in candidates.tolist():
            if np.array_equal(blocks[index], expected):
                return int(n_before + index + 1)
    return None


def _generator(state: TwisterState, *, position: int) -> np.random.MT19937:
    """NumPy's generator with the words of a state."""
    generator = np.random.MT19937()
    words = np.array(state.numbers, np.uint32)
    generator.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": position}}
    return generator


def _seeded(seed: int) -> tuple[int, ...]:
    """The words after seeding with a number, as PyTorch and NumPy's ``seed`` do."""
    words = [seed]
    for index in range(1, _N_WORDS):
        last = words[-1]
        words.append((_MULTIPLIER * (last ^ (last >> 30)) + index) & 0xFFFFFFFF)
    return tuple(words)


def twister(words: Sequence[object], position: int) -> TwisterState | None:
    """The state with these words; None if these are not the words of one."""
    if len(words) != _N_WORDS or not 0 <= position <= _N_WORDS:
        return None
    numbers = [word for word in words if type(word) is int and 0 <= word < 2**32]
    return TwisterState(tuple(numbers), position) if len(numbers) == _N_WORDS else None
