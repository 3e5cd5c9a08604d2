"""PyTorch's switches for determinism: set for one block, read back, given back.

Cellpose 4.2.1.1 sets ``torch.backends.cuda.matmul.allow_tf32 = True`` when its network module
is imported, so import it before entering a mode, never inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cellrepro.errors import BadInput

MODES = ("fast", "warn", "strict")
"""``fast`` fixes nothing but the seeds, ``warn`` warns of operations without a deterministic
implementation, ``strict`` makes them an error."""


def check_mode(mode: str) -> str:
    """Return ``mode`` if there is such a mode.

    Raises
    ------
    BadInput
        If there is none; the message lists the modes.
    """
    if mode not in MODES:
        raise BadInput(f"unknown mode {mode!r}; expected one of {', '.join(MODES)}")
    return mode


def environment(mode: str) -> dict[str, str]:
    """The variables that must be set before a process starts for the mode to hold.

    cuBLAS reads ``CUBLAS_WORKSPACE_CONFIG`` when its handle is made.

    Examples
    --------
    >>> environment("fast")
    {}
    """
    return {} if check_mode(mode) == "fast" else {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def switches() -> dict[str, Any]:
    """What is in force in this process, read back from PyTorch and the environment."""
    import torch
    import torch.utils.deterministic as memory

    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill_uninitialized_memory": memory.fill_uninitialized_memory,  # type: ignore[attr-defined]
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cuda_matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    }


@contextmanager
def mode_in_force(mode: str, *, tf32: bool = False) -> Iterator[dict[str, Any]]:
    """Set every switch of a mode for one block; yields them as read back.

    Parameters
    ----------
    mode : str
        ``fast``, ``warn`` or ``strict``.
    tf32 : bool
        Whether CUDA may round float32 products to TF32; part of the profile, not of the mode.

    Yields
    ------
    dict
        What `switches` reads once everything is set.

    Raises
    ------
    BadInput
        If there is no such mode.
    RuntimeError
        If a switch does not read back as it was set.
    """
    import torch

    check_mode(mode)
    before = switches()
    fixed = mode != "fast"
    wanted = {
        "deterministic_algorithms": fixed,
        "deterministic_warn_only": mode == "warn",
        # Most of the price of determinism, and only reads of memory that nobody wrote need it.
        "fill_uninitialized_memory": not fixed and before["fill_uninitialized_memory"],
        "cudnn_deterministic": fixed,
        "cudnn_benchmark": False,
        "cuda_matmul_allow_tf32": tf32,
        "cudnn_allow_tf32": tf32,
    }
    try:
        _set(torch, wanted)
        in_force = switches()
        wrong = {name: in_force[name] for name in wanted if in_force[name] != wanted[name]}
        if wrong:
            raise RuntimeError(f"mode {mode!r} did not take hold: PyTorch reads back {wrong}")
        yield in_force
    finally:
        _set(torch, before)


def _set(torch: Any, wanted: dict[str, Any]) -> None:
    import torch.utils.deterministic as memory

    torch.use_deterministic_algorithms(
        wanted["deterministic_algorithms"], warn_only=wanted["deterministic_warn_only"]
    )
    memory.fill_uninitialized_memory = wanted["fill_uninitialized_memory"]  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = wanted["cudnn_deterministic"]
    torch.backends.cudnn.benchmark = wanted["cudnn_benchmark"]
    torch.backends.cuda.matmul.allow_tf32 = wanted["cuda_matmul_allow_tf32"]
    torch.backends.cudnn.allow_tf32 = wanted["cudnn_allow_tf32"]
