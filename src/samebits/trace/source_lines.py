"""The line of Python that called an operation, past libraries and the lab's own code."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import warnings
from pathlib import Path
from types import FrameType

import numpy as np
import torch
import typing_extensions
from torch.autograd import graph as torch_graph

from samebits import checkpoint_seeds, data_order, generator_states, loose_operation, seeds
from samebits.call_site import short_path

_ENGINE = torch_graph._engine_run_backward.__code__  # of a backward pass asked for in Python
_ARITHMETIC = Path(__file__).parent.parent / "arithmetic" / "portable_mode.py"  # of mode portable
_LIBRARIES = tuple(
    str(Path(file).parent) + os.sep for file in (torch.__file__, np.__file__, __file__, _ARITHMETIC)
)
# Their lines stand for those of their callers.
_PLUMBING = {
    str(module.__file__)
    for module in (
        functools,
        contextlib,
        random,
        typing_extensions,  # whose `deprecated` wraps functions of PyTorch
        warnings,  # it has it, too, from Python 3.13 on
        checkpoint_seeds,
        data_order,
        generator_states,
        loose_operation,
        seeds,
    )
}


@functools.cache
def _is_plumbing(file: str) -> bool:
    return file.startswith((*_LIBRARIES, "<frozen")) or file in _PLUMBING


def source_line() -> str | None:
    """``FILE:LINE in FUNCTION`` of the innermost line that is neither a library's nor the lab's.

    None where only autograd's engine lies below it, as of a backward pass without Python.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is _ENGINE:
            return None
        if not _is_plumbing(code.co_filename):
            return _line(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=4096)
def _line(file: str, line: int, function: str) -> str:
    return f"{short_path(file)}:{line} in {function}"
