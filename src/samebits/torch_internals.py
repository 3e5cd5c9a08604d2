"""Calls into private parts of PyTorch and NumPy, each with the reason and the versions.

A call that one file alone needs stands in that file; `trace` has most. Tests of the callers notice
a version in which one no longer works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _pop_mode,
    _push_mode,
)

from samebits.replaced_functions import Replacement, SharedByBlocks, SharedInThread, replaced


def hidden_from_modes() -> AbstractContextManager[None]:
    """Operations in the block reach no ``TorchDispatchMode`` and no tensor subclass.

    The cheapest way to do so, for every digest of a tensor: a public mode can only be left, not
    passed over (torch 2.6 to 2.15).
    """
    return torch._C._DisableTorchDispatch()


def subclasses_as_plain_tensors() -> AbstractContextManager[None]:
    """Functions in the block treat a tensor subclass as the plain tensor it is made of.

    Without it ``as_subclass(torch.Tensor)`` would ask the subclass's ``__torch_function__``
    (torch 2.6 to 2.15).
    """
    return torch._C.DisableTorchFunctionSubclass()


def modes_suspended() -> AbstractContextManager[Any]:
    """Suspend every ``TorchDispatchMode`` in the block, while tensor subclasses still work.

    PyTorch's own tools suspend their modes with it (torch 2.6 to 2.15).
    """
    return _disable_current_modes()


def modes_suspended_if_any() -> AbstractContextManager[Any]:
    """The same as `modes_suspended`, which costs nothing where no mode is active."""
    is_observed = torch._C._len_torch_dispatch_stack() > 0
    return modes_suspended() if is_observed else nullcontext()


@contextmanager
def dispatch_mode_pushed(mode: TorchDispatchMode) -> Iterator[None]:
    """Put a mode on the stack of this thread alone, and take it off from wherever it is.

    Entering it would also note in the module that some thread has a mode, for `torch.compile`, and
    neither threads nor tasks of one leave in the order in which they entered (torch 2.6 to 2.15).
    """
    _push_mode(mode)
    try:
        yield
    finally:
        above = []
        while (last := _pop_mode()) is not mode:
            above.append(last)
        for other in reversed(above):
            _push_mode(other)


def _noted_modes() -> Iterator[Replacement]:
    """PyTorch's notes that some thread has a mode; it knows one to three of them."""
    for name in (
        "_is_in_torch_dispatch_mode",
        "_is_in_non_infra_torch_dispatch_mode",
        "_is_in_any_mode_without_ignore_compile_internals",
    ):
        if hasattr(_python_dispatch, name):
            yield Replacement(_python_dispatch, name, lambda was: True)


@contextmanager
def _noted_in_thread() -> Iterator[None]:
    """The note of it that the compiler's guards read (torch 2.12 to 2.15)."""
    note = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", bool)
    note(True)
    try:
        yield
    finally:
        note(torch._C._len_torch_dispatch_stack() > 0)


_NOTED = SharedByBlocks(lambda: replaced(_noted_modes()))
_NOTED_IN_THREAD = SharedInThread(_noted_in_thread)
_UNFUSED = SharedInThread(lambda: torch.jit.optimized_execution(False))


@contextmanager
def mode_of_block(mode: TorchDispatchMode) -> Iterator[None]:
    """Enter a mode so that it may be left in any order with those of other threads and tasks."""
    with _NOTED.in_force(), _NOTED_IN_THREAD.in_force(), dispatch_mode_pushed(mode):
        yield


def unfused() -> AbstractContextManager[None]:
    """Scripted functions of this thread run operation by operation; the switch is a thread's (torch
    2.6 to 2.15)."""
    return _UNFUSED.in_force()


def backward_node() -> Any:
    """The node of the graph whose gradient this thread computes; None outside of a backward pass.

    ``torch.autograd.graph`` gives nodes, and not which of them is at work (torch 2.6 to 2.15).
    """
    return torch._C._current_autograd_node()


def negative_view(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the same memory that reads with the opposite sign, as that of ``conj().imag``.

    Such views come out of public functions, and only this makes one (torch 2.6 to 2.15).
    """
    return torch._neg_view(tensor)


def fp32_precision(way: Literal["get", "set"]) -> Callable[..., Any]:
    """Getter or setter of the precision of float32 products.

    Its arguments are a backend and an operation, ``("cuda", "matmul")``, and for the setter a
    value. Before torch 2.9 it does nothing and returns None. The public
    ``torch.backends.mkldnn.fp32_precision`` sets all backends instead of its own (torch 2.15).
    """
    return getattr(torch._C, f"_{way}_fp32_precision_{way}ter", lambda *setting: None)


def numpy_global_state() -> dict[str, Any]:
    """The state of NumPy's global generator, also while ``numpy.random.get_state`` is replaced.

    The functions of ``numpy.random`` are methods of this object (NumPy 1.26 to 2.4).
    """
    return np.random.mtrand._rand.get_state(legacy=False)


Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """Let ``torch.compile`` call a function as it is, and compile what is around it.

    What ``torch.compiler.disable`` notes, which would import the compiler (torch 2.6 to 2.15).
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = "a block of samebits"  # type: ignore[attr-defined]
    return function


# The module of torch.compile's wrappers; imported with the first of them, or with an optimizer.
_COMPILER = "torch._dynamo.eval_frame"
_FOLDER = str(Path(torch.__file__).parent)


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether a module was made by ``torch.compile``, or compiled in place."""
    compiler = sys.modules.get(_COMPILER)
    if compiler is None:
        return False
    return isinstance(module, compiler.OptimizedModule) or module._compiled_call_impl is not None


_AS_WRITTEN = SharedByBlocks(lambda: torch.compiler.set_stance("force_eager"))


@uncompiled
@contextmanager
def compiler_paused() -> Iterator[None]:
    """Keep ``torch.compile`` from compiling what the block calls, where it began in a compiled
    function; what it calls uncompiled it would compile by itself (torch 2.6 to 2.15)."""
    if _COMPILER not in sys.modules:
        yield
        return
    compiler = torch._C._dynamo.eval_frame
    before = compiler.set_eval_frame(None)
    try:
        yield
    finally:
        compiler.set_eval_frame(before)


@uncompiled
@contextmanager
def without_compiling() -> Iterator[None]:
    """Let what ``torch.compile`` made run as it was written, also with ``fullgraph=True``, which
    is an error where a dispatch mode keeps PyTorch from compiling (torch 2.15)."""
    if _COMPILER not in sys.modules:
        yield
        return
    with compiler_paused(), _AS_WRITTEN.in_force():
        yield


def compiled_callers() -> Iterator[str]:
    """Name the functions made by ``torch.compile`` on the call stack.

    Compiled networks are left out: `is_compiled` tells them.
    """
    compiler = sys.modules.get(_COMPILER)
    if compiler is None:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == compiler.__file__:
            called = frame.f_locals
            function = called.get("fn")
            # That of a module is one of PyTorch's own functions around it.
            owner = getattr(function, "__self__", None)
            code = getattr(function, "__code__", None)
            is_own = code is not None and code.co_filename.startswith(_FOLDER)
            of_module = isinstance(owner, torch.nn.Module) or (owner is None and is_own)
            if isinstance(called.get("self"), compiler.OptimizeContext) and not of_module:
                yield getattr(function, "__qualname__", type(function).__name__)
        frame = frame.f_back
