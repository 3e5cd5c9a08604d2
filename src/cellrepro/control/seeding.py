"""Every generator a training draws from: seed them, keep them, give them back.

Cellpose 4.2.1.1 draws image order and augmentation from NumPy's global generator, which
``cellpose.train.train_seg`` reseeds at every epoch, and layer dropping from PyTorch's
generator of the training device.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cellrepro.errors import BadInput


def check_seed(seed: int, *, name: str = "seed") -> int:
    """Return ``seed`` if every generator accepts it.

    Parameters
    ----------
    seed : int
        In [0, 2**32), the range of NumPy's global generator.
    name : str
        The parameter's name, for the message.

    Raises
    ------
    BadInput
        If it is not a whole number in that range.

    Examples
    --------
    >>> check_seed(7)
    7
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise BadInput(f"{name} is {seed!r}; expected a whole number from 0 to {2**32 - 1}")
    return seed


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy's global generator and PyTorch on every device.

    Parameters
    ----------
    seed : int
        In [0, 2**32).

    Raises
    ------
    BadInput
        If the seed is out of range.
    """
    import torch

    check_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # CPU, every CUDA device and MPS


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put every generator back after the block, also when it raises.

    For whatever only looks: evaluation, saving, plotting. Blocks may be nested.
    """
    import torch

    states = _states(torch)
    try:
        yield
    finally:
        _restore(torch, states)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python, NumPy and PyTorch for one block, then restore them.

    Parameters
    ----------
    seed : int
        In [0, 2**32).
    """
    check_seed(seed)
    with generators_kept():
        seed_everything(seed)
        yield


def _states(torch: Any) -> dict[str, Any]:
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.random.get_rng_state(),
    }
    # Asking an uninitialised CUDA runtime for its state would initialise it.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def _restore(torch: Any, states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.random.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])
    if "mps" in states:
        torch.mps.set_rng_state(states["mps"])
