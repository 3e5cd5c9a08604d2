"""PyTorch's switches for determinism: set for one block, read back, given back.

Cellpose 4.2.1.1 sets ``torch.backends.cuda.matmul.allow_tf32 = True`` when its network module
is imported, so import it before entering a mode, never inside.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

from cellrepro.determinism import substitutes
from cellrepro.determinism.choices import MODES, Mode
from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput

FREE = ("off", "fast")
"""Those in which no operation is asked to be deterministic."""

_WORKSPACES = (":4096:8", ":16:8")  # with which cuBLAS gives equal bits; the first is faster

_FLAGS = {
    "cudnn_deterministic": "cudnn.deterministic",
    "cudnn_benchmark": "cudnn.benchmark",
    "onednn_deterministic": "mkldnn.deterministic",
}
"""Where in ``torch.backends`` each switch of a mode is."""

_FIXED = ("deterministic_algorithms", "deterministic_warn_only", *_FLAGS)
Switch = Literal[
    "deterministic_algorithms",
    "deterministic_warn_only",
    "fill_uninitialized_memory",
    "cudnn_deterministic",
    "cudnn_benchmark",
    "onednn_deterministic",
    "cuda_matmul_allow_tf32",
    "cudnn_allow_tf32",
]
"""What a profile may set by itself, under the names of `switches`."""

_RECORDED = {
    "onednn": "mkldnn.enabled",
    "cuda_float16_reduced_precision_sum": "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda_bfloat16_reduced_precision_sum": "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda_float16_accumulation": "cuda.matmul.allow_fp16_accumulation",  # torch 2.7
}
"""Switches that change numbers and that no mode sets: the profile's, and PyTorch's defaults."""

_INHERITED = {
    "fp32_precision_generic": ("generic", "all"),
    "fp32_precision_cuda": ("cuda", "all"),
    "fp32_precision_onednn": ("mkldnn", "all"),
}
_PRECISIONS = {
    **_INHERITED,
    "fp32_precision_cuda_matmul": ("cuda", "matmul"),
    "fp32_precision_cudnn_conv": ("cuda", "conv"),
    "fp32_precision_cudnn_rnn": ("cuda", "rnn"),
    "fp32_precision_onednn_matmul": ("mkldnn", "matmul"),
    "fp32_precision_onednn_conv": ("mkldnn", "conv"),
    "fp32_precision_onednn_rnn": ("mkldnn", "rnn"),
}
"""PyTorch's newer precision settings (torch 2.9); ``none`` takes what `_INHERITED` says."""

_TF32 = tuple(f"fp32_precision_{part}" for part in ("cuda_matmul", "cudnn_conv", "cudnn_rnn"))

MIXED = "set through both of PyTorch's interfaces"
"""What `switches` reads where PyTorch refuses to answer: ``allow_tf32`` after ``fp32_precision``
was set to something else. A mode resolves it."""


def check_mode(mode: str) -> Mode:
    """Return ``mode`` if there is such a mode."""
    for known in MODES:
        if mode == known:
            return known
    raise BadInput(f"unknown mode {mode!r}; expected one of {', '.join(MODES)}")


def environment(mode: Mode) -> dict[str, str]:
    """The variables that must be set before a process starts for the mode to hold."""
    return {} if check_mode(mode) in FREE else {"CUBLAS_WORKSPACE_CONFIG": _WORKSPACES[0]}


def check_switches(mode: Mode, chosen: Mapping[str, bool]) -> None:
    """Refuse switches with which a mode would not be what its name says."""
    if check_mode(mode) in FREE:
        return
    required = _of_mode(mode)
    wrong = [f"{name} {on}" for name, on in chosen.items() if required.get(name, on) != on]
    if wrong:
        raise BadInput(
            f"the profile sets {', '.join(wrong)}, with which mode {mode!r} would not be itself; "
            "use mode fast, in which a profile may set every switch, or leave these out"
        )


def _of_mode(mode: Mode) -> dict[str, bool]:
    """What a mode sets of `_FIXED`; nothing in ``off``."""
    if check_mode(mode) == "off":
        return {}
    fixed = mode not in FREE
    warns = {"deterministic_warn_only": mode == "warn", "cudnn_benchmark": False}
    return dict.fromkeys(_FIXED, fixed) | warns


def switches() -> dict[str, Any]:
    """What is in force in this process, read back from PyTorch and the environment.

    Plain values, for JSON. None stands for a switch that this PyTorch does not have.
    ``fp32_precision_...`` are what an operation would use, inheritance followed.
    """
    return {
        **{name: value for name, value in _held().items() if name not in _INHERITED},
        **{name: _flag(place) for name, place in _RECORDED.items()},
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "substitutes": list(substitutes.in_force()),
    }


@contextmanager
def mode_in_force(
    mode: Mode,
    *,
    tf32: bool = False,
    loose: Collection[str] = (),
    device: str | None = None,
    chosen: Mapping[str, bool] = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """Set every switch of a mode for one block.

    ``fast`` sets what ``warn`` and ``strict`` set to PyTorch's defaults, whatever was before.
    Blocks nest: the innermost one's switches hold, but substitutes stay in place in blocks of other
    modes inside ``strict``. Enter and leave from one thread while no other computes: the switches
    are the process's.

    Parameters
    ----------
    mode : {"off", "fast", "warn", "strict"}
        How strictly PyTorch is held.
    tf32 : bool
        How precise float32 products are is the profile's to say, so every mode sets it from this
        alone; ``off`` leaves it, too, as it was.
    loose : collection of str
        Operations that ``strict`` puts no substitute in place of.
    device : str, optional
        On ``cpu`` and ``mps`` nothing is asked of cuBLAS; by default it is asked where there is
        CUDA.
    chosen : mapping of str to bool
        Switches, of `Switch`, that the profile sets by themselves.

    Yields
    ------
    dict
        The switches in force, as `switches` reads them back.

    Raises
    ------
    BadInput
        If there is no such mode, ``chosen`` contradicts it, or cuBLAS was not told at the start of
        the process to be deterministic.
    RuntimeError
        If PyTorch does not take a switch.
    """
    check_switches(mode, chosen)
    _check_workspace(mode, device)
    before = _held()
    wanted: dict[str, Any] = _of_mode(mode) | _precision_of(mode, tf32, chosen, before)
    wanted |= chosen
    if mode not in FREE:
        # Most of the price of determinism, and only reads of memory that nobody wrote need it.
        wanted = {"fill_uninitialized_memory": False, **wanted}
    with ExitStack() as stack:
        if mode == "strict":
            placed = stack.enter_context(substitutes.applied(without=loose))
            wanted["substitutes"] = [substitute.name for substitute in placed]
        stack.callback(_write, before)
        _write(before | wanted)
        in_force = switches()
        wrong = {
            name: in_force[name]
            for name, value in wanted.items()
            if in_force.get(name) not in (value, None)
        }
        if wrong:
            raise RuntimeError(f"mode {mode!r} did not take hold: PyTorch reads back {wrong}")
        yield in_force


def _precision_of(
    mode: Mode, tf32: bool, chosen: Mapping[str, bool], before: Mapping[str, Any]
) -> dict[str, Any]:
    """How precise float32 products are, in both of PyTorch's interfaces."""
    parts = ("cuda_matmul_allow_tf32", "cudnn_allow_tf32")
    as_before = mode == "off" and not tf32
    if as_before and not chosen.keys() & set(parts):
        return {}
    usual = {part: before[part] is True if as_before else tf32 for part in parts}
    matmul, cudnn = ({**usual, **chosen}[part] for part in parts)
    return {
        **dict(zip(parts, (matmul, cudnn), strict=True)),
        # One value in PyTorch with the first of these: TF32 is what "high" means on CUDA.
        "float32_matmul_precision": "high" if matmul else "highest",
        # Full float32 as PyTorch's older interface leaves it: "ieee" for products, else "none".
        **{name: "ieee" if name.endswith("matmul") else "none" for name in _PRECISIONS},
        **({_TF32[0]: "tf32"} if matmul else {}),
        **(dict.fromkeys(_TF32[1:], "tf32") if cudnn else {}),
    }


def _check_workspace(mode: Mode, device: str | None) -> None:
    import torch

    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    on_cuda = torch.cuda.is_available() if device is None else device.startswith("cuda")
    if mode not in FREE and workspace not in _WORKSPACES and on_cuda:
        raise BadInput(
            f"mode {mode!r} needs CUBLAS_WORKSPACE_CONFIG to be {' or '.join(_WORKSPACES)}, but it "
            f"is {workspace!r}; it is read once, when a process first uses cuBLAS, so set it "
            f"before the process starts (CUBLAS_WORKSPACE_CONFIG={_WORKSPACES[0]} in front of the "
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
            mode_before = torch.get_deterministic_debug_mode()
            cudnn_before = torch.backends.cudnn.deterministic
            try:
                torch.set_deterministic_debug_mode("default")
                torch.backends.cudnn.deterministic = False
                return func(*args, **(kwargs or {}))
            finally:
                torch.set_deterministic_debug_mode(mode_before)
                torch.backends.cudnn.deterministic = cudnn_before

    return Loose()


# -- the switches --------------------------------------------------------------------------


def _flag(place: str) -> Any:
    """A switch in ``torch.backends``; none where this PyTorch does not have it."""
    import torch

    owner, _, attribute = place.rpartition(".")
    return getattr(attrgetter(owner)(torch.backends), attribute, None)


def _held() -> dict[str, Any]:
    """Everything that a mode sets, as PyTorch reads it.

    PyTorch keeps the precision of float32 products twice: the older interface (``allow_tf32``,
    ``float32_matmul_precision``) sets a part of the newer one and refuses to answer where the two
    disagree. An inherited precision reads as what it inherits.
    """
    import torch
    import torch.utils.deterministic as memory

    from cellrepro.torch_internals import fp32_precision

    def old(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except RuntimeError:
            return MIXED

    with warnings.catch_warnings(action="ignore"):  # the older interface is deprecated
        return {
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
            "fill_uninitialized_memory": memory.fill_uninitialized_memory,  # type: ignore[attr-defined]
            **{name: _flag(place) for name, place in _FLAGS.items()},
            "cuda_matmul_allow_tf32": old(lambda: torch.backends.cuda.matmul.allow_tf32),
            "cudnn_allow_tf32": old(lambda: torch.backends.cudnn.allow_tf32),
            "float32_matmul_precision": old(torch.get_float32_matmul_precision),
            **{name: fp32_precision("get")(*place) for name, place in _PRECISIONS.items()},
        }


def _write(state: dict[str, Any]) -> None:
    """Set everything as `_held` found it."""
    import torch
    import torch.utils.deterministic as memory

    from cellrepro.torch_internals import fp32_precision

    now = _held()
    algorithms = ("deterministic_algorithms", "deterministic_warn_only")
    if any(state[name] != now[name] for name in algorithms):
        # not called without need: it imports the compiler, which takes seconds (torch 2.15)
        torch.use_deterministic_algorithms(state[algorithms[0]], warn_only=state[algorithms[1]])
    memory.fill_uninitialized_memory = state["fill_uninitialized_memory"]  # type: ignore[attr-defined]
    for name, place in _FLAGS.items():
        if now[name] is not None:
            owner, _, attribute = place.partition(".")
            setattr(getattr(torch.backends, owner), attribute, state[name])
    with warnings.catch_warnings(action="ignore"):  # the older interface is deprecated
        if state["float32_matmul_precision"] != MIXED:
            torch.set_float32_matmul_precision(state["float32_matmul_precision"])
        elif state["cuda_matmul_allow_tf32"] != MIXED:  # the same value, also read beside oneDNN's
            torch.backends.cuda.matmul.allow_tf32 = state["cuda_matmul_allow_tf32"]
        if state["cudnn_allow_tf32"] != MIXED:
            torch.backends.cudnn.allow_tf32 = state["cudnn_allow_tf32"]
    read_precision = fp32_precision("get")
    write_precision = fp32_precision("set")
    for name, setting in _PRECISIONS.items():  # last, since the older ones change these
        write_precision(*setting, "none")
        if read_precision(*setting) != state[name]:  # else it is inherited, as it may have been
            write_precision(*setting, state[name])
