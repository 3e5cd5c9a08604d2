"""Where every global generator stands, read without drawing from it."""

from __future__ import annotations

import ctypes
import pickle
import random
from typing import Any, NamedTuple

import torch

from samebits import torch_internals

BLOCK = 624  # numbers that a Mersenne Twister makes at once


class GeneratorPosition(NamedTuple):
    """The state of a generator at one look."""

    state: Any
    """The whole state, to be compared."""
    position: int | None
    """How many numbers it has given, within its block where there are blocks, if known."""
    block: int = 0
    """How many numbers it makes at once; 0 where it makes them one by one."""
    seed: bytes = b""
    """Its seed, of PyTorch's generators, whose states hold it."""

    def moved_since(self, last: GeneratorPosition) -> int | None:
        """Count the numbers by which it moved; None if a seed or a state set it."""
        if self.position is None or last.position is None or self.seed != last.seed:
            return None
        moved = self.position - last.position
        if self.block:
            return moved % self.block
        return moved if moved >= 0 else None


def positions_now() -> dict[str, GeneratorPosition]:
    """Read every global generator, from where no replaced function is in the way."""
    python = random.getstate()
    generators = {"python": GeneratorPosition(python, python[1][-1], BLOCK)}
    numpy = torch_internals.numpy_global_state()
    # Another bit generator, put in its place by somebody, has no position.
    generators["numpy"] = GeneratorPosition(pickle.dumps(numpy), numpy["state"].get("pos"), BLOCK)
    raw = _raw_bytes(torch.default_generator)
    # Seed, then how many numbers of the block are left, and one (5056 bytes; torch 2.6 to 2.15).
    left = int.from_bytes(raw[8:12], "little")
    generators["torch"] = GeneratorPosition(raw, BLOCK + 1 - left, BLOCK, raw[:8])
    # A generator cannot be read while its device records a graph; it is at the next look.
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        for index, generator in enumerate(torch.cuda.default_generators):
            raw = _raw_bytes(generator)  # 16 bytes: seed, and offset in steps of 4
            offset = int.from_bytes(raw[8:16], "little", signed=True)
            generators[f"cuda:{index}"] = GeneratorPosition((raw[:8], offset), offset, seed=raw[:8])
    return generators


def _raw_bytes(generator: torch.Generator) -> bytes:
    """Read a state without an operation that an observer would see."""
    state = generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.nbytes)
