"""The states of all global generators of random numbers: read, put back, stored as numbers."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.errors import BadInput, NotPossibleHere
from samebits.libraries import has_library
from samebits.replaced_functions import GivenBack
from samebits.words import joined

if TYPE_CHECKING:
    import torch

_FORMAT = "cellrepro generators 2"
_FIRST_FORMAT = "cellrepro generators 1"

ENTRY = "cellrepro generators"
"""The key under which `samebits.add_seed_to` puts the generators into a checkpoint."""


@dataclass(frozen=True)
class GeneratorStates:
    """The states of all global generators, as their libraries give them or as plain numbers.

    TensorFlow's and CuPy's cannot be read.
    """

    python: Any
    """`random.getstate`: version, words, and the second of two normal numbers or None."""
    numpy: Any
    """``numpy.random.get_state(legacy=False)``."""
    torch: Any
    """Bytes of the state of PyTorch's generator on the processor; None where PyTorch is not
    installed."""
    cuda: Any
    """Bytes of the state on each CUDA device; None where CUDA had not started."""
    mps: Any
    """Bytes of the state on Apple's GPU; None where there is none."""

    @classmethod
    def read(cls) -> GeneratorStates:
        """Read them all: fast enough for every epoch and every image."""
        python = random.getstate()
        in_numpy = np.random.get_state(legacy=False)
        if not has_library("torch"):
            return cls(python=python, numpy=in_numpy, torch=None, cuda=None, mps=None)
        import torch

        return cls(
            python=python,
            numpy=in_numpy,
            torch=torch.random.get_rng_state(),
            # Asking an uninitialised CUDA runtime for its state would initialise it.
            cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None,
            mps=torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
        )

    def write(self) -> None:
        """Put every generator back."""
        version, words, second_normal = self.python
        random.setstate((version, tuple(words), second_normal))
        np.random.set_state(self.numpy)
        if self.torch is None:
            return
        import torch

        seed_before = torch.initial_seed()
        torch.random.set_rng_state(_bytes_on_the_processor(self.torch))
        if self.cuda is not None:
            torch.cuda.set_rng_state_all([_bytes_on_the_processor(state) for state in self.cuda])
        elif torch.cuda.is_initialized() or torch.initial_seed() != seed_before:
            # CUDA had not started: it is where it starts, or will be once it does.
            torch.cuda.manual_seed_all(torch.initial_seed())
        if self.mps is not None:
            torch.mps.set_rng_state(_bytes_on_the_processor(self.mps))


def _bytes_on_the_processor(state: Any) -> torch.Tensor:
    """A state as PyTorch takes it: on the processor, whatever the default device is."""
    import torch

    return torch.as_tensor(state, dtype=torch.uint8, device="cpu")


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put every generator back after the block; TensorFlow's and CuPy's cannot be read."""
    with _KEPT.after_block():
        yield


_KEPT = GivenBack(GeneratorStates.read, GeneratorStates.write)


# -- as plain numbers, to store ------------------------------------------------------------


def capture() -> dict[str, Any]:
    """Read the state of every generator as plain numbers.

    For JSON: ``format``, the fields of `GeneratorStates`, and an empty ``generators``.
    """
    states = GeneratorStates.read()
    by_name = {field.name: _plain(getattr(states, field.name)) for field in fields(states)}
    return {"format": _FORMAT, **by_name, "generators": {}}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def restore(checkpoint: Mapping[str, Any]) -> None:
    """Put every generator exactly where `samebits.add_seed_to` found it, or change nothing.

    Where CUDA had not started, it is seeded with PyTorch's seed then, which is where it would
    have begun.

    Parameters
    ----------
    checkpoint : mapping
        The dict that ``torch.load`` gave, or its entry alone.

    Raises
    ------
    BadInput
        If it holds no state, or one that a generator does not accept.
    NotPossibleHere
        If the state is of a different number of CUDA devices.
    """
    import torch

    states = parsed_states(checkpoint)
    n_stored = len(states.cuda or ())
    n_here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if n_stored not in (0, n_here):
        raise NotPossibleHere(
            f"the state holds the generators of {n_stored} CUDA devices, and PyTorch finds "
            f"{n_here}; restore it where CUDA_VISIBLE_DEVICES shows {n_stored}"
        )
    if states.cuda is not None:
        torch.cuda.init()
    before = GeneratorStates.read()
    try:
        if states.numpy["state"].get("pos", 0) not in range(625):
            raise ValueError("pos is out of range")  # NumPy 2.4 would read past its words
        states.write()
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        before.write()
        raise BadInput(
            f"a generator does not accept its state ({error}); expected what "
            "add_seed_to stored; nothing was restored"
        ) from error


def parsed_states(checkpoint: Mapping[str, Any]) -> GeneratorStates:
    """Parse what `capture` gave, in either of its two formats."""
    state = checkpoint
    if isinstance(checkpoint, Mapping):
        state = checkpoint.get(ENTRY, checkpoint)
    stored_format = state.get("format") if isinstance(state, Mapping) else state
    if stored_format == _FIRST_FORMAT:
        return _of_the_first_format(state)
    if stored_format != _FORMAT:
        raise BadInput(
            f"the generators' state has the format {str(stored_format)[:60]!r}; expected "
            f"{_FORMAT!r}, as samebits.add_seed_to(checkpoint) leaves it"
        )
    names = [field.name for field in fields(GeneratorStates)]
    missing = [name for name in names if name not in state]
    if missing:
        raise BadInput(
            f"the generators' state has no {joined(missing)}; expected what "
            "samebits.add_seed_to(checkpoint) leaves in it; nothing was restored"
        )
    return GeneratorStates(**{name: state[name] for name in names})


def _of_the_first_format(state: Mapping[str, Any]) -> GeneratorStates:
    """Parse the first format, in which bytes were written in base 64."""
    python = _twister_of_the_first_format(state["python"])
    words = [*python["state"]["key"], python["state"]["pos"]]
    cuda = state["cuda"]
    mps = state["mps"]
    return GeneratorStates(
        python=[3, words, python["gauss"] if python["has_gauss"] else None],
        numpy=_twister_of_the_first_format(state["numpy"]),
        torch=list(base64.b64decode(state["torch"])),
        cuda=cuda and [list(base64.b64decode(text)) for text in cuda],
        mps=mps and list(base64.b64decode(mps)),
    )


def _twister_of_the_first_format(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a Mersenne twister, as NumPy has it."""
    words = np.frombuffer(base64.b64decode(state["state"]["key"]), "<u4").tolist()
    position = state["state"]["pos"]
    return {
        **state,
        "state": {"key": words, "pos": position},
        "gauss": float.fromhex(state["gauss"]),
    }
