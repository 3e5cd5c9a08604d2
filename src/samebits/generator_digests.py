"""Digests of the states of all global generators of random numbers."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import numpy as np
import xxhash

from samebits.tensor_digests import processor_row

_TWISTER = struct.Struct("<625I")
"""The state of a Mersenne twister: 624 words, and the position among them."""


def generator_digests() -> dict[str, str]:
    """A digest of the state of every global generator of random numbers; none is moved.

    By name: "python", "numpy", "torch" (on the processor), "cuda:0" and so on, "mps".
    """
    import torch

    version, words, gauss = random.getstate()
    states = {
        "python": b"%d;" % version + _TWISTER.pack(*words) + processor_row(gauss),
        "numpy": _numpy_state(),
        "torch": processor_row(torch.default_generator.get_state()),
    }
    if torch.cuda.is_initialized():  # asking earlier would start it
        for index, generator in enumerate(torch.cuda.default_generators):
            states[f"cuda:{index}"] = processor_row(generator.get_state())
    if torch.backends.mps.is_available():
        states["mps"] = processor_row(torch.mps.get_rng_state())
    return {name: xxhash.xxh3_128_hexdigest(state) for name, state in states.items()}


def _numpy_state() -> bytes:
    """The state of NumPy's global generator, whichever bit generator somebody gave it."""
    held: Any = np.random.get_state(legacy=False)
    state = held["state"]
    spare = struct.pack("@id", held["has_gauss"], held["gauss"])
    if held["bit_generator"] == "MT19937":
        return b"MT19937;" + _TWISTER.pack(*state["key"].tolist(), state["pos"]) + spare
    return json.dumps(held, sort_keys=True, default=lambda array: array.tolist()).encode()
