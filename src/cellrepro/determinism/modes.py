"""PyTorch's switches for determinism: set for one block, read back, given back.

Cellpose 4.2.1.1 sets ``torch.backends.cuda.matmul.allow_tf32 = True`` when its network module
is imported, so import it before entering a mode, never inside.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any

from cellrepro.determinism import substitutes
from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput

MODES = ("fast", "warn", "strict")
"""``fast`` fixes nothing but the seeds, ``warn`` warns of operations without a deterministic
implementation, ``strict`` makes them an error and puts the substitutes in place."""

_WORKSPACES = (":4096:8", ":16:8")  # with which cuBLAS gives equal bits; the first is faster

_FLAGS = {
    "cudnn_deterministic": "cudnn.deterministic",
    "cudnn_benchmark": "cudnn.benchmark",
    "onednn_deterministic": "mkldnn.deterministic",
}
"""Where in ``torch.backends`` each switch of a mode is."""

_RECORDED = {
    "onednn": "mkldnn.enabled",
    "cuda_float16_reduced_precision_sum": "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda_bfloat16_reduced_precision_sum": "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda_float16_accumulation": "cuda.matmul.allow_fp16_accumulation",  # torch 2.7
}
"""Switches that change numbers and that no mode sets: the profile's, and PyTorch's defaults."""

PARENTS = ("generic", "cuda", "onednn")
PRECISIONS = {
    "generic": ("generic", "all"),
    "cuda": ("cuda", "all"),
    "onednn": ("mkldnn", "all"),
    "cuda_matmul": ("cuda", "matmul"),
    "cudnn_conv": ("cuda", "conv"),
    "cudnn_rnn": ("cuda", "rnn"),
    "onednn_matmul": ("mkldnn", "matmul"),
    "onednn_conv": ("mkldnn", "conv"),
    "onednn_rnn": ("mkldnn", "rnn"),
}
"""PyTorch's newer precision settings (torch 2.9), `PARENTS` first: ``none`` inherits."""

_FULL_PRECISION: dict[str, Any] = {
    "matmul": "highest",
    "cudnn_tf32": False,
    "precisions": {name: "ieee" if name.endswith("matmul") else "none" for name in PRECISIONS},
}
"""Full float32 everywhere, as PyTorch's older interface leaves both."""

MIXED = "set through both of PyTorch's interfaces"
"""What `switches` reads where PyTorch refuses to answer: ``allow_tf32`` after ``fp32_precision``
was set to something else. Entering a mode resolves it, leaving restores it."""

MOVED_BY_CELLPOSE = (
    "cuda_matmul_allow_tf32",
    "float32_matmul_precision",
    "fp32_precision_cuda_matmul",
)
"""What the import of Cellpose 4.2.1.1's network module changes in `switches`."""


def check_mode(mode: str) -> str:
    """Return ``mode`` if there is such a mode."""
    if mode not in MODES:
        raise BadInput(f"unknown mode {mode!r}; expected one of {', '.join(MODES)}")
    return mode


def environment(mode: str) -> dict[str, str]:
    """The variables that must be set before a process starts for the mode to hold."""
    return {} if check_mode(mode) == "fast" else {"CUBLAS_WORKSPACE_CONFIG": _WORKSPACES[0]}


def switches() -> dict[str, Any]:
    """What is in force in this process, read back from PyTorch and the environment.

    Plain values, for JSON. None stands for a switch that this PyTorch does not have.
    ``fp32_precision_...`` are what an operation would use, inheritance followed.
    """
    import torch

    precisions = _precisions()
    return {
        **_flags(),
        "cuda_matmul_allow_tf32": _old(lambda: torch.backends.cuda.matmul.allow_tf32),
        "cudnn_allow_tf32": _old(lambda: torch.backends.cudnn.allow_tf32),
        "float32_matmul_precision": _old(torch.get_float32_matmul_precision),
        **{
            f"fp32_precision_{name}": precisions[0](*place) if precisions else None
            for name, place in PRECISIONS.items()
            if name not in PARENTS
        },
        **{name: _flag(place) for name, place in _RECORDED.items()},
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "substitutes": list(substitutes.in_force()),
    }


@contextmanager
def mode_in_force(
    mode: str, *, tf32: bool = False, loose: Collection[str] = (), device: str | None = None
) -> Iterator[dict[str, Any]]:
    """Set every switch of a mode for one block; yields them as `switches` reads them back.

    ``fast`` sets what ``warn`` and ``strict`` set to PyTorch's defaults, whatever was before. How
    precise float32 products are is the profile's to say, so every mode sets it from ``tf32``
    alone. On CPU and MPS (``device``) nothing is asked of cuBLAS. Blocks nest: the innermost one's
    switches hold, but substitutes stay in place in ``fast`` and ``warn`` blocks inside ``strict``.
    Enter and leave from one thread while no other computes: the switches are the process's.
    """
    import torch

    check_mode(mode)
    _check_workspace(mode, device)
    before = _read()
    fixed = mode != "fast"
    wanted: dict[str, Any] = {
        "deterministic_algorithms": fixed,
        "deterministic_warn_only": mode == "warn",
        # Most of the price of determinism, and only reads of memory that nobody wrote need it.
        "fill_uninitialized_memory": not fixed and before["fill_uninitialized_memory"],
        "cudnn_deterministic": fixed,
        "cudnn_benchmark": False,
        "onednn_deterministic": fixed,
    }
    with ExitStack() as stack:
        placed = {}
        if mode == "strict":
            chosen = stack.enter_context(substitutes.applied(without=loose))
            placed["substitutes"] = [substitute.name for substitute in chosen]
        stack.callback(_write, before)
        _write({**wanted, **_FULL_PRECISION})
        if tf32:
            with _no_warnings():
                torch.backends.cuda.matmul.allow_tf32 = True
                torch.backends.cudnn.allow_tf32 = True
        in_force = switches()
        wrong = {
            name: in_force[name]
            for name, value in (wanted | placed | _precision_in_force(tf32)).items()
            if in_force[name] != value and in_force[name] is not None
        }
        if wrong:
            raise RuntimeError(f"mode {mode!r} did not take hold: PyTorch reads back {wrong}")
        yield in_force


def _check_workspace(mode: str, device: str | None) -> None:
    import torch

    found = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    on_cuda = torch.cuda.is_available() if device is None else device.startswith("cuda")
    if mode != "fast" and found not in _WORKSPACES and on_cuda:
        raise BadInput(
            f"mode {mode!r} needs CUBLAS_WORKSPACE_CONFIG to be {' or '.join(_WORKSPACES)}, but it "
            f"is {found!r}; it is read once, when a process first uses cuBLAS, so set it before "
            f"the process starts (CUBLAS_WORKSPACE_CONFIG={_WORKSPACES[0]} in front of the "
            "command), or use `cellrepro train`, which starts processes of its own"
        )


def left_loose(op: str) -> Any:
    """Turn determinism off for the calls of one operation, backward too, in its ``with`` block.

    ``n_calls`` of what is returned says how many calls there were; 0 proves nothing about them.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    wanted = base_name(op)

    class Loose(TorchDispatchMode):
        # Operations that take functions, such as flex attention, come here too (torch 2.7).
        supports_higher_order_operators = True
        n_calls = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if base_name(str(func)) != wanted:
                return func(*args, **(kwargs or {}))
            self.n_calls += 1
            mode, cudnn = torch.get_deterministic_debug_mode(), torch.backends.cudnn.deterministic
            try:
                torch.set_deterministic_debug_mode("default")
                torch.backends.cudnn.deterministic = False
                return func(*args, **(kwargs or {}))
            finally:
                torch.set_deterministic_debug_mode(mode)
                torch.backends.cudnn.deterministic = cudnn

    return Loose()


# -- the switches --------------------------------------------------------------------------


def _flag(place: str) -> Any:
    """A switch in ``torch.backends``; none where this PyTorch does not have it."""
    import torch

    owner, _, attribute = place.rpartition(".")
    return getattr(attrgetter(owner)(torch.backends), attribute, None)


def _flags() -> dict[str, Any]:
    """Every switch of a mode but those of precision."""
    import torch
    import torch.utils.deterministic as memory

    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill_uninitialized_memory": memory.fill_uninitialized_memory,  # type: ignore[attr-defined]
        **{name: _flag(place) for name, place in _FLAGS.items()},
    }


@contextmanager
def _no_warnings() -> Iterator[None]:
    """PyTorch 2.9 calls its older interface to precision deprecated, once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _old(read: Callable[[], Any]) -> Any:
    """A reading through PyTorch's older interface; `MIXED` where it refuses."""
    with _no_warnings():
        try:
            return read()
        except RuntimeError:
            return MIXED


def _precisions() -> tuple[Callable[..., str], Callable[..., Any]] | None:
    """Reader and setter of the newer interface; none before torch 2.9.

    The public attributes are no way to all of it: in torch 2.15 setting
    ``torch.backends.mkldnn.fp32_precision`` sets the generic one.
    """
    from torch import _C

    reader = getattr(_C, "_get_fp32_precision_getter", None)
    setter = getattr(_C, "_set_fp32_precision_setter", None)
    return None if reader is None or setter is None else (reader, setter)


def _read() -> dict[str, Any]:
    """Everything that a mode sets, as PyTorch holds it, also where it would refuse to read it.

    PyTorch keeps the precision of float32 products twice: ``matmul`` and ``cudnn_tf32`` behind
    the older interface, ``precisions`` behind the newer one, of which the older sets a part. The
    newer one reads with inheritance followed, the older one not at all where the two disagree.

    One thing cannot be put back: that cuDNN's two precisions were never set (torch 2.15). They
    read ``tf32`` as before, but a parent set after the first mode no longer reaches them.
    """
    import torch

    interface = _precisions()
    if interface is None:
        matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        return {**_flags(), "matmul": matmul, "cudnn_tf32": cudnn, "precisions": {}}
    reader, setter = interface
    found: dict[str, str] = {}
    try:
        # Once its parents say none, a setting reads as what was set and not as inherited.
        for name, place in PRECISIONS.items():
            found[name] = reader(*place)
            setter(*place, "none")
        matmul = _old(torch.get_float32_matmul_precision)  # nothing is left to disagree with
        for name in ("cudnn_conv", "cudnn_rnn"):
            setter(*PRECISIONS[name], "tf32")
        cudnn = _old(lambda: torch.backends.cudnn.allow_tf32) is True  # or they disagree
    finally:
        for name, value in found.items():
            setter(*PRECISIONS[name], value)
    return {**_flags(), "matmul": matmul, "cudnn_tf32": cudnn, "precisions": found}


def _write(state: dict[str, Any]) -> None:
    """Set everything as `_read` found it."""
    import torch
    import torch.utils.deterministic as memory

    now = _flags()
    algorithms = ("deterministic_algorithms", "deterministic_warn_only")
    if any(state[name] != now[name] for name in algorithms):
        # not called without need: it imports the compiler, which takes seconds (torch 2.15)
        torch.use_deterministic_algorithms(state[algorithms[0]], warn_only=state[algorithms[1]])
    memory.fill_uninitialized_memory = state["fill_uninitialized_memory"]  # type: ignore[attr-defined]
    for name, place in _FLAGS.items():
        if now[name] is not None:
            owner, _, attribute = place.partition(".")
            setattr(getattr(torch.backends, owner), attribute, state[name])
    with _no_warnings():
        torch.set_float32_matmul_precision(state["matmul"])
        torch.backends.cudnn.allow_tf32 = state["cudnn_tf32"]
    if interface := _precisions():
        for name, value in state["precisions"].items():  # last, since the older ones change these
            interface[1](*PRECISIONS[name], value)


def _precision_in_force(tf32: bool) -> dict[str, Any]:
    """What `switches` must read for the precision."""
    precisions = dict(_FULL_PRECISION["precisions"])
    if tf32:
        precisions |= dict.fromkeys(("cuda_matmul", "cudnn_conv", "cudnn_rnn"), "tf32")
    return {
        "cuda_matmul_allow_tf32": tf32,
        "cudnn_allow_tf32": tf32,
        # One value in PyTorch with the first of these: TF32 is what "high" means on CUDA.
        "float32_matmul_precision": "high" if tf32 else "highest",
        **{f"fp32_precision_{n}": value for n, value in precisions.items() if n not in PARENTS},
    }
