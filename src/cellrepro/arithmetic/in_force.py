"""Portable arithmetic put in force: proved on the device, with the switches of mode strict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cellrepro.arithmetic.portable_mode import PortableArithmetic, portable_arithmetic
from cellrepro.arithmetic.proof import prove
from cellrepro.determinism.modes import mode_in_force


@contextmanager
def proved_arithmetic(device: torch.device | str) -> Iterator[PortableArithmetic]:
    """Compute in portable arithmetic for one block, on a device that is proved before."""
    prove(device)
    with portable_arithmetic() as arithmetic:
        yield arithmetic


@contextmanager
def portable(device: torch.device | str = "cpu") -> Iterator[None]:
    """Compute with PyTorch in one block so that every machine gets the same bits.

    For networks and training steps of one's own: forward pass, loss, backward pass and update. The
    numbers must be float32.

    Parameters
    ----------
    device : torch.device or str
        On which is computed: a processor, or a GPU with float64 numbers.

    Yields
    ------
    None
        Once the device is proved.

    Raises
    ------
    NotPortable
        From an operation in the block that has no portable form, with its module and line.
    NotPossibleHere
        If the device does not compute as is assumed; nothing was computed then.

    Examples
    --------
    >>> import cellrepro
    >>> import torch
    >>> with cellrepro.portable():
    ...     print(torch.ones(2, 3) @ torch.full((3, 1), 0.5))
    tensor([[1.5000],
            [1.5000]])
    """
    kind = torch.device(device).type
    with mode_in_force("portable", device=kind), proved_arithmetic(device):
        yield
