"""Whether two values have the same bits, and if not, by how much they differ."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from samebits.errors import BadInput

PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter})
"""Types of a tensor that is one view of memory; one of a subclass may stand for several."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_INFINITE = float("inf")
# The C library's comparison is several times as fast as a comparison of tensors.
_memcmp: Any = ctypes.CDLL(None).memcmp if os.name == "posix" else None
if _memcmp is not None:
    _memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def holds_bits(value: Any) -> bool:
    """Whether a value is more than an empty tensor or one without memory."""
    return not isinstance(value, torch.Tensor) or (value.numel() > 0 and not value.is_meta)


def in_one_stretch(value: Any) -> bool:
    """Whether a value is a tensor whose elements fill one stretch of memory that can be compared.

    Always False on Windows, where ``memcmp`` is not called.
    """
    return (
        _memcmp is not None
        and type(value) in PLAIN_TYPES
        and value.is_cpu
        and value.layout is torch.strided
        and not (value.is_complex() or value.is_nested or value.is_neg() or value.is_quantized)
        and (value.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense.default(value))
        and value.data_ptr() != 0
    )


def same_bits(a: Any, b: Any) -> bool:
    """Whether two values hold the same bits: NaN is NaN, 0 and -0 differ.

    Tensors, arrays, numbers and other plain values, and lists, tuples and dictionaries of them.
    Other objects are refused where ``==`` does not give one bool.
    """
    dense = in_one_stretch(a) and in_one_stretch(b)
    if dense and a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride():
        return _memcmp(a.data_ptr(), b.data_ptr(), a.nbytes) == 0
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and _same_plain_bits(a, b)
    if not _same_kind(a, b) or a.device != b.device:
        return False
    x, y = dense_parts(a), dense_parts(b)
    if x is None or y is None:
        return torch.equal(as_integers(a), as_integers(b))
    return len(x) == len(y) and all(map(same_bits, x, y))


def difference(a: Any, b: Any) -> tuple[int, float]:
    """How many elements of two results differ in their bits, and by how much at most.

    The distance is infinite where none can be given: different shapes, a number beside NaN.
    """
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        if same_bits(a, b):
            return 0, 0.0
        numbers = isinstance(a, int | float | complex) and isinstance(b, int | float | complex)
        return (1, _largest(torch.tensor([a]), torch.tensor([b]))) if numbers else (1, _INFINITE)
    x, y = dense_parts(a), dense_parts(b)
    if not _same_kind(a, b) or len(x or ()) != len(y or ()):
        return max(a.numel(), b.numel()), _INFINITE
    if x is not None and y is not None:
        both = list(map(difference, x, y))
        return sum(n for n, _ in both), max((largest for _, largest in both), default=0.0)
    changed = as_integers(a).cpu() != as_integers(b).cpu()
    return int(changed.sum()), _largest(_real(a).cpu()[changed], _real(b).cpu()[changed])


@dataclass
class LargestDifference:
    """The most by which pairs of values differed."""

    n_elements: int = 0
    max_abs: float = 0.0

    def include(self, a: Any, b: Any) -> None:
        """Count in one more pair."""
        n_elements, max_abs = difference(a, b)
        self.n_elements = max(self.n_elements, n_elements)
        self.max_abs = max(self.max_abs, max_abs)


def _largest(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest distance of two real tensors, element by element; of NaN to itself it is 0."""
    x, y = _real(a).to(torch.float64), _real(b).to(torch.float64)
    distances = torch.nan_to_num((x - y).abs(), nan=_INFINITE, posinf=_INFINITE)
    distances[torch.isnan(x) & torch.isnan(y)] = 0.0
    return float(distances.max()) if distances.numel() else 0.0


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.layout != b.layout or a.is_nested != b.is_nested:
        return False
    return a.is_nested or a.shape == b.shape  # a nested tensor has no shape of its own


def _same_plain_bits(a: Any, b: Any) -> bool:
    """Whether two values of one type that is no tensor hold the same bits."""
    if isinstance(a, float | complex):
        return struct.pack("dd", a.real, a.imag) == struct.pack("dd", b.real, b.imag)
    if isinstance(a, np.ndarray | np.generic):
        return _same_array_bits(np.asarray(a), np.asarray(b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_bits(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    equal = a == b
    if not isinstance(equal, bool):
        raise BadInput(
            f"the bits of {type(a).__name__} cannot be compared; expected a tensor, an array, a "
            "plain value, or a list, tuple or dictionary of these"
        )
    return equal


def _same_array_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.hasobject:
        return all(map(same_bits, a.ravel().tolist(), b.ravel().tolist()))
    return a.tobytes() == b.tobytes()


def dense_parts(tensor: torch.Tensor) -> list[Any] | None:
    """Dense tensors and scales of a nested, quantised or sparse tensor; None for a dense one."""
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.is_quantized:
        return [tensor.int_repr(), *_scales(tensor)]
    return None if tensor.layout == torch.strided else [tensor.to_dense()]


def _scales(quantised: torch.Tensor) -> list[Any]:
    """Give the scales and zero points of a quantised tensor, which its integers stand for."""
    if quantised.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return [quantised.q_scale(), quantised.q_zero_point()]
    return [
        quantised.q_per_channel_scales(),
        quantised.q_per_channel_zero_points(),
        quantised.q_per_channel_axis(),
    ]


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a plain tensor as integers of its width; a view where that is possible."""
    real = _real(tensor)
    return real.view(_INTEGERS[real.element_size()])


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a plain tensor, those of complex ones as pairs."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
