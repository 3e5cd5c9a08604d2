"""PyTorch's switches for determinism: set for one block, read back, given back.

Some libraries set switches when they are imported (Cellpose 4.2.1.1 allows TF32 so): import them
before entering a mode, never inside.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType

from samebits import substitutes
from samebits.errors import BadInput, NotPossibleHere
from samebits.libraries import has_library
from samebits.mode_names import MODES, Mode
from samebits.replaced_functions import GivenBack
from samebits.torch_switches import (
    INHERITED,
    PRECISIONS,
    TF32_OF_CUDNN,
    TF32_OF_PRODUCTS,
    SwitchValue,
    read_recorded,
    read_switches,
    write_switches,
)

FREE = ("off", "fast")
"""Modes in which no operation is asked to be deterministic."""

SUBSTITUTING = ("strict", "portable")
"""Modes that put the substitutes in place, by which they promise equal runs on one machine."""

_WORKSPACES = (":4096:8", ":16:8")  # with which cuBLAS gives equal bits; the first is faster

_FIXED = (
    "deterministic_algorithms",
    "deterministic_warn_only",
    "cudnn_deterministic",
    "cudnn_benchmark",
    "onednn_deterministic",
)
"""Switches that every mode but ``off`` sets, under the names of `switches`."""


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
    """The switches of `_FIXED` that a mode sets; none in ``off``."""
    if check_mode(mode) == "off":
        return {}
    fixed = mode not in FREE
    warns = {"deterministic_warn_only": mode == "warn", "cudnn_benchmark": False}
    return dict.fromkeys(_FIXED, fixed) | warns


def switches() -> dict[str, object]:
    """The switches in force in this process, read back from PyTorch and the environment.

    Plain values, for JSON. None stands for a switch that this PyTorch does not have.
    ``fp32_precision_...`` are what an operation would use, inheritance followed. Nothing where
    PyTorch is not installed.
    """
    if not has_library("torch"):
        return {}
    return {
        **{name: value for name, value in read_switches().items() if name not in INHERITED},
        **read_recorded(),
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "substitutes": list(substitutes.in_force()),
    }


_SWITCHES = GivenBack(read_switches, write_switches)


@contextmanager
def mode_in_force(
    mode: Mode,
    *,
    tf32: bool = False,
    loose: Collection[str] = (),
    device: str | None = None,
    chosen: Mapping[str, bool] = MappingProxyType({}),
) -> Iterator[dict[str, object]]:
    """Set every switch of a mode for one block.

    ``fast`` sets what ``warn`` and ``strict`` set to PyTorch's defaults, whatever was before.
    Blocks nest: the innermost one's switches hold, but substitutes stay in place in blocks of other
    modes inside ``strict`` and ``portable``. The switches are the process's: while a block of
    another thread or task lasts, one that would set them otherwise is refused, and the last one to
    end gives them back.
    """
    check_switches(mode, chosen)
    if not has_library("torch"):
        if mode not in FREE:
            raise NotPossibleHere(
                f"mode {mode!r} sets switches of PyTorch, which is not installed; use mode 'fast' "
                "or 'off', or install PyTorch"
            )
        yield switches()
        return
    _check_workspace(mode, device)
    with ExitStack() as stack:
        with _SWITCHES.lock:
            before = stack.enter_context(_SWITCHES.after_block())
            of_others = switches() if _SWITCHES.has_others() else {}
            settings = _settings_of(mode, tf32, chosen, before)
            expected: dict[str, object] = dict(settings)
            if mode in SUBSTITUTING:
                placed = stack.enter_context(substitutes.applied(without=loose))
                expected["substitutes"] = [substitute.name for substitute in placed]
            otherwise = _unlike(of_others, expected)
            if otherwise:
                raise NotPossibleHere(
                    f"mode {mode!r} begins while a block of another thread or task lasts, in which "
                    f"PyTorch has {otherwise}; switches belong to the whole process, so let that "
                    "block end before, or use the same mode in both"
                )
            write_switches(before | settings)
            in_force = switches()
            wrong = _unlike(in_force, expected)
            if wrong:
                raise RuntimeError(f"mode {mode!r} did not take hold: PyTorch reads back {wrong}")
        yield in_force


def _unlike(found: Mapping[str, object], expected: Mapping[str, object]) -> dict[str, object]:
    """What is found otherwise than expected; None stands for what this PyTorch does not have."""
    return {
        name: found[name]
        for name, value in expected.items()
        if found.get(name) not in (value, None)
    }


def _settings_of(
    mode: Mode, tf32: bool, chosen: Mapping[str, bool], before: Mapping[str, SwitchValue]
) -> dict[str, SwitchValue]:
    """All that a mode sets."""
    settings: dict[str, SwitchValue] = {}
    if mode not in FREE:
        # Most of the price of determinism, and only reads of memory that nobody wrote need it.
        settings["fill_uninitialized_memory"] = False
    return {**settings, **_of_mode(mode), **_precision_of(mode, tf32, chosen, before), **chosen}


def _precision_of(
    mode: Mode, tf32: bool, chosen: Mapping[str, bool], before: Mapping[str, SwitchValue]
) -> dict[str, SwitchValue]:
    """The precision of float32 products, in both of PyTorch's interfaces."""
    matmul_switch = "cuda_matmul_allow_tf32"
    cudnn_switch = "cudnn_allow_tf32"
    leaves_as_it_was = mode == "off" and not tf32
    if leaves_as_it_was and not chosen.keys() & {matmul_switch, cudnn_switch}:
        return {}
    in_matmul = before[matmul_switch] is True if leaves_as_it_was else tf32
    in_matmul = chosen.get(matmul_switch, in_matmul)
    in_cudnn = before[cudnn_switch] is True if leaves_as_it_was else tf32
    in_cudnn = chosen.get(cudnn_switch, in_cudnn)
    settings: dict[str, SwitchValue] = {
        matmul_switch: in_matmul,
        cudnn_switch: in_cudnn,
        # One value in PyTorch with the first of these: TF32 is what "high" means on CUDA.
        "float32_matmul_precision": "high" if in_matmul else "highest",
    }
    for name in PRECISIONS:
        # Full float32 as PyTorch's older interface leaves it: "ieee" for products, else "none".
        settings[name] = "ieee" if name.endswith("matmul") else "none"
    if in_matmul:
        settings[TF32_OF_PRODUCTS] = "tf32"
    if in_cudnn:
        settings |= dict.fromkeys(TF32_OF_CUDNN, "tf32")
    return settings


def _check_workspace(mode: Mode, device: str | None) -> None:
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    if device is None:
        import torch

        on_cuda = torch.cuda.is_available()
    else:
        on_cuda = device.startswith("cuda")
    if mode not in FREE and workspace not in _WORKSPACES and on_cuda:
        raise BadInput(
            f"mode {mode!r} needs CUBLAS_WORKSPACE_CONFIG to be {' or '.join(_WORKSPACES)}, but it "
            f"is {workspace!r}; it is read once, when a process first uses cuBLAS, so set it "
            f"before the process starts (CUBLAS_WORKSPACE_CONFIG={_WORKSPACES[0]} in front of the "
            "command)"
        )


def may_race(
    mode: str, *, device: str, threads: int | None, loose: str | None = None
) -> str | None:
    """Why repeats may differ in bits by a race between threads; none where there can be none."""
    if device == "cpu" and threads == 1:
        return None
    if mode == "warn":
        return "mode warn lets operations race that have no deterministic implementation"
    if mode == "off":
        return "mode off fixes nothing: neither seeds, nor the order in which threads add"
    if mode not in SUBSTITUTING:
        return f"mode {mode} lets operations add in the order in which threads arrive"
    return None if loose is None else f"{loose} was left loose"
