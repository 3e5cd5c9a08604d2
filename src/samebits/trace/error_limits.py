"""Classes of operations by how they round, and how far a result of each may be off.

Errors are counted in units in the last place (ulp), see `samebits.trace.float64_reference`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

import torch

from samebits.known_operations import base_name
from samebits.torch_switches import read_switches
from samebits.trace.observer import Call
from samebits.trace.replay_plan import inputs_of, is_plain

_CLASSES = {
    # Values are moved or chosen: nothing is rounded, or once where the dtype is another.
    "exact": """abs amax amin cat ceil clamp clamp_max clamp_min clone constant_pad_nd copy
        diag_embed embedding fill flip floor full full_like gather hardtanh index index_copy
        index_select masked_fill masked_select max max_pool2d_with_indices maximum min minimum neg
        new_full new_ones new_zeros ones ones_like pixel_shuffle pixel_unshuffle relu repeat roll
        round scalar_tensor scatter select_backward sign slice_backward sort stack
        threshold_backward to_copy topk tril triu trunc view where zero zeros zeros_like""",
    # A few roundings for each element.
    "elementwise": """add addcdiv addcmul arange div leaky_relu lerp linspace mul reciprocal rsub
        sqrt square sub true_divide""",
    # Sums of products, in any order.
    "reduction": """addbmm addmm addmv addr baddbmm bmm col2im convolution convolution_backward
        cudnn_convolution cumsum dot embedding_dense_backward index_add index_put
        linalg_vector_norm linear mean miopen_convolution mkldnn_convolution mm mv nansum norm
        scatter_add sum trace unfold_backward vdot""",
}
CLASS_OF = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
"""The class of an operation by the name that `base_of` gives it; all others are functions."""

CANCEL_INSIDE = frozenset({"gelu", "gelu_backward", "silu", "silu_backward"})
"""Functions that are judged by the rule for sums, as terms cancel inside them: ``1 + erf(x)``."""

JUMPS = (
    "bucketize",
    "fake_quantize",
    "fmod",
    "floor_divide",
    "frac",
    "grid_sampler_2d_backward",
    "grid_sampler_3d_backward",
    "histc",
    "nan_to_num",
    "nextafter",
    "remainder",
    "upsample_nearest",
)
"""How the names of operations begin that have no limit: a rounded input may give a wholly different
result, or float64 has a different one by its nature."""


@dataclass(frozen=True)
class _Limit:
    """How far a class of operations may be from the exact result, in ulp."""

    constant: float
    by_root_of_terms: float
    """What is added for each unit of the root of the number of terms."""

    def for_terms(self, n_terms: int) -> float:
        return self.constant + self.by_root_of_terms * math.sqrt(n_terms)


LIMITS = {
    # PyTorch rounds float64 to 16 bits through float32, so twice: half an ulp and a little.
    "exact": _Limit(0.5 + 2**-12, 0.0),
    "elementwise": _Limit(8, 0),
    "function": _Limit(32, 4),
    "reduction": _Limit(4, 8),
}
"""Two to four times the largest errors seen in float32 over a few hundred operations of random
shapes and magnitudes (PyTorch 2.15 on a CPU) and steps of a vision transformer. A result off by
1e-4 of the largest exceeds them. Seen outside: batch normalisation of two values, attention scores
beyond 1e4, convolutions whose gradients cancel, overflow within half-precision functions."""

BY_TRANSFORM = 12
"""The factor on the limit of a convolution of 3 x 3 on a GPU, which cuDNN computes by Winograd's
transforms: these round more, up to 5.3 times the limit (36 backward passes in float32 on an H200,
PyTorch 2.11). With TF32, which nobody asked for, the same were 64 to 210 times above it."""

EPS_OF_TF32 = 2.0**-10
"""Where TF32 is allowed, factors are rounded to 10 bits first."""

_NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})


def base_of(op: str) -> str:
    """The name of an operation without overload, in-place mark and ``foreach_``."""
    return base_name(op).removeprefix("foreach_")


def rounds_to_tf32(base: str) -> bool:
    """Whether a product or a convolution of float32 on a GPU may be computed in TF32."""
    switch = "cudnn_allow_tf32" if "convolution" in base else "cuda_matmul_allow_tf32"
    return read_switches()[switch] is True


def has_small_kernel(base: str, tensors: list[torch.Tensor]) -> bool:
    """Whether an operation is a convolution with a kernel of 3 x 3."""
    return "convolution" in base and any(tensor.shape[2:] == (3, 3) for tensor in tensors)


def is_real(leaf: object) -> bool:
    """Whether a leaf of the arguments is no tensor, or one of plain real numbers."""
    return not isinstance(leaf, torch.Tensor) or (is_plain(leaf) and not leaf.is_complex())


def is_judged(output: object) -> TypeGuard[torch.Tensor]:
    """Whether an output is a tensor narrower than float64."""
    return isinstance(output, torch.Tensor) and output.dtype in _NARROW and is_real(output)


def n_terms_of(call: Call, outputs: list[object]) -> int:
    """Estimate from the sizes how many terms are added for one element.

    For the product of an m x k and a k x n matrix it is the root of mk * kn / mn, which is k.
    """
    base = base_of(call.site.op)
    kind = CLASS_OF.get(base, "function")
    if kind in ("exact", "elementwise"):
        return 1
    inputs = [leaf for leaf in inputs_of(call) if isinstance(leaf, torch.Tensor)]
    sizes = sorted(tensor.numel() for tensor in inputs if tensor.is_floating_point())
    largest = sizes[-1] if sizes else 0
    second = sizes[-2] if len(sizes) > 1 else 0
    results = [output for output in outputs if is_judged(output)]
    fewest = max(1, min(result.numel() for result in results))
    if "convolution" in base:
        n = _n_terms_of_convolution(base, inputs)
    elif kind == "reduction" and second:  # products of pairs
        n = math.isqrt(largest * second // fewest)
    else:
        n = largest // fewest
    if base.startswith("upsample"):  # places are worked out in float32: off by the longest side
        n = max(n, max(max(tensor.shape[2:]) for tensor in [*inputs, *results]) ** 2)
    return max(1, n)


def _n_terms_of_convolution(base: str, inputs: list[torch.Tensor]) -> int:
    """Estimate the terms by the size of the kernel; the backward pass also adds over positions."""
    is_backward = base.endswith("backward")
    weight = inputs[2 if is_backward else 1]
    n = weight.numel() // max(1, min(weight.shape[:2]))
    if not is_backward:
        return n
    gradient = inputs[0]  # (image, channel, …): that of the weights adds over images and positions
    return max(n, gradient.numel() // max(1, gradient.shape[1]))
