"""PyTorch's switches that change numbers: where each is, read and written.

What a mode sets them to, `samebits.modes` says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Literal, TypeAlias

_FLAGS = {
    "cudnn_deterministic": "cudnn.deterministic",
    "cudnn_benchmark": "cudnn.benchmark",
    "onednn_deterministic": "mkldnn.deterministic",
}
"""Place of each switch of a mode in ``torch.backends``."""

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
"""What a profile may set by itself, under the names of `samebits.modes.switches`."""

_RECORDED = {
    "onednn": "mkldnn.enabled",
    "cuda_float16_reduced_precision_sum": "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda_bfloat16_reduced_precision_sum": "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda_float16_accumulation": "cuda.matmul.allow_fp16_accumulation",  # torch 2.7
}
"""Switches that change numbers and that no mode sets: the profile's, and PyTorch's defaults."""

INHERITED = {
    "fp32_precision_generic": ("generic", "all"),
    "fp32_precision_cuda": ("cuda", "all"),
    "fp32_precision_onednn": ("mkldnn", "all"),
}
"""Precisions that more special ones inherit."""

PRECISIONS = {
    **INHERITED,
    "fp32_precision_cuda_matmul": ("cuda", "matmul"),
    "fp32_precision_cudnn_conv": ("cuda", "conv"),
    "fp32_precision_cudnn_rnn": ("cuda", "rnn"),
    "fp32_precision_onednn_matmul": ("mkldnn", "matmul"),
    "fp32_precision_onednn_conv": ("mkldnn", "conv"),
    "fp32_precision_onednn_rnn": ("mkldnn", "rnn"),
}
"""PyTorch's newer precision settings (torch 2.9); ``none`` takes what `INHERITED` says."""

TF32_OF_PRODUCTS = "fp32_precision_cuda_matmul"
TF32_OF_CUDNN = ("fp32_precision_cudnn_conv", "fp32_precision_cudnn_rnn")
"""The precisions that TF32 is about: of products, then of convolutions and recurrent layers."""

MIXED = "set through both of PyTorch's interfaces"
"""What `read_switches` gives where PyTorch refuses to answer: ``allow_tf32`` after
``fp32_precision`` was set to something else. A mode resolves it."""

SwitchValue: TypeAlias = bool | str | None
"""None stands for a switch that this PyTorch does not have."""


def _flag(path: str) -> SwitchValue:
    """A switch in ``torch.backends``; none where this PyTorch does not have it."""
    import torch

    owner, _, attribute = path.rpartition(".")
    return getattr(attrgetter(owner)(torch.backends), attribute, None)


def read_switches() -> dict[str, SwitchValue]:
    """Read everything that a mode sets.

    PyTorch keeps the precision of float32 products twice: the older interface (``allow_tf32``,
    ``float32_matmul_precision``) sets a part of the newer one and refuses to answer where the two
    disagree. An inherited precision reads as what it inherits.

    Plain values by name; None for a switch that this PyTorch does not have, `MIXED` where it
    refuses to answer.
    """
    import torch
    import torch.utils.deterministic as memory

    from samebits.torch_internals import fp32_precision

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older interface is deprecated
        return {
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
            "fill_uninitialized_memory": memory.fill_uninitialized_memory,  # type: ignore[attr-defined]
            **{name: _flag(path) for name, path in _FLAGS.items()},
            "cuda_matmul_allow_tf32": _answer(lambda: torch.backends.cuda.matmul.allow_tf32),
            "cudnn_allow_tf32": _answer(lambda: torch.backends.cudnn.allow_tf32),
            "float32_matmul_precision": _answer(torch.get_float32_matmul_precision),
            **{name: fp32_precision("get")(*setting) for name, setting in PRECISIONS.items()},
        }


def read_recorded() -> dict[str, SwitchValue]:
    """Read the switches that change numbers and that no mode sets."""
    return {name: _flag(path) for name, path in _RECORDED.items()}


def _answer(read: Callable[[], SwitchValue]) -> SwitchValue:
    """The answer of PyTorch's older interface, if it has one."""
    try:
        return read()
    except RuntimeError:
        return MIXED


def write_switches(state: Mapping[str, SwitchValue]) -> None:
    """Set everything that a mode sets."""
    import torch
    import torch.utils.deterministic as memory

    from samebits.torch_internals import fp32_precision

    now = read_switches()
    algorithms = ("deterministic_algorithms", "deterministic_warn_only")
    if any(state[name] != now[name] for name in algorithms):
        # not called without need: it imports the compiler, which takes seconds (torch 2.15)
        torch.use_deterministic_algorithms(
            bool(state[algorithms[0]]), warn_only=bool(state[algorithms[1]])
        )
    memory.fill_uninitialized_memory = state["fill_uninitialized_memory"]  # type: ignore[attr-defined]
    for name, path in _FLAGS.items():
        if now[name] is not None:
            owner, _, attribute = path.partition(".")
            setattr(getattr(torch.backends, owner), attribute, state[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older interface is deprecated
        if state["float32_matmul_precision"] != MIXED:
            torch.set_float32_matmul_precision(str(state["float32_matmul_precision"]))
        elif state["cuda_matmul_allow_tf32"] != MIXED:  # the same value, also read beside oneDNN's
            torch.backends.cuda.matmul.allow_tf32 = bool(state["cuda_matmul_allow_tf32"])
        if state["cudnn_allow_tf32"] != MIXED:
            torch.backends.cudnn.allow_tf32 = bool(state["cudnn_allow_tf32"])
    read_precision = fp32_precision("get")
    write_precision = fp32_precision("set")
    for name, setting in PRECISIONS.items():  # last, since the older ones change these
        write_precision(*setting, "none")
        if read_precision(*setting) != state[name]:  # else it is inherited, as it may have been
            write_precision(*setting, state[name])
