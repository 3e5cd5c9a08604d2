"""The numeric class: processes of one class agree, to the bit, on a fixed set of small operations.

What makes a difference is the profile: threads, instruction sets, oneDNN, TF32; no mode does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.digests import array_digest, value_digest
from samebits.libraries import has_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES = ("float32", "bfloat16")
"""Every probe runs in both: Cellpose trains in the first and segments in the second."""


def measure_numeric_class(device: str = "cpu") -> dict[str, Any]:
    """Run the probes in this process: with PyTorch, or with NumPy where that is not installed."""
    if not has_library("torch"):
        probes = {f"numpy-{name}": _numpy_digest(name) for name in _NUMPY_PROBES}
        return {"name": value_digest(probes)[:12], "probes": probes}
    import torch

    from samebits.torch_internals import modes_suspended_if_any

    cudnn = torch.backends.cudnn
    before = (cudnn.deterministic, cudnn.benchmark)
    autocast_off = torch.autocast(device.partition(":")[0], enabled=False)
    plain_arithmetic = modes_suspended_if_any()  # also in mode portable: what PyTorch itself gives
    with torch.inference_mode(False), torch.enable_grad(), autocast_off, plain_arithmetic:
        try:
            # No algorithm that adds in varying order.
            cudnn.deterministic = True
            cudnn.benchmark = False
            probes = {
                f"{name}/{dtype}": _digest(probe(Numbers(device, dtype)))
                for dtype in DTYPES
                for name, probe in PROBES.items()
            }
        finally:
            cudnn.deterministic, cudnn.benchmark = before
    return {"name": value_digest(probes)[:12], "probes": probes}


def differing_probes(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """The probes in which two classes differ, or that only one of them has, sorted."""
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


class Numbers:
    """Inputs of the probes, the same bits on every machine; no global generator is used."""

    def __init__(self, device: Any, dtype: str):
        self._bits = np.random.PCG64(20261101)
        self._device = device
        self._dtype = dtype

    def __call__(self, *shape: int, gradient: bool = False) -> Any:
        """Uniform numbers in [-1, 1)."""
        import torch

        values = _uniform(self._bits, shape)
        # A copy that PyTorch allocates: MKL's bits depend on how memory is aligned.
        dtype = getattr(torch, self._dtype)
        tensor = torch.from_numpy(values).to(device=self._device, dtype=dtype, copy=True)
        return tensor.requires_grad_(gradient)


def _uniform(bits: np.random.PCG64, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Uniform numbers in [-1, 1): shifts and a division by a power of two are exact."""
    raw = bits.random_raw(int(np.prod(shape))) >> np.uint64(40)
    return (raw.astype(np.float32) / np.float32(2**23) - np.float32(1)).reshape(shape)


_NUMPY_PROBES: Mapping[str, Callable[[NDArray[np.float32], NDArray[np.float32]], object]] = {
    "matmul": lambda a, b: a @ b,
    "matmul-float64": lambda a, b: a.astype(np.float64) @ b.astype(np.float64),
    "sum": lambda a, b: a.sum(0),
    "exp": lambda a, b: np.exp(a),
    "sin": lambda a, b: np.sin(8 * a),
    "sqrt": lambda a, b: np.sqrt(np.abs(a)),
}
"""Operations of NumPy that differ between machines; a changed one renames every class."""


def _numpy_digest(name: str) -> str:
    """Digest of the result of one of `_NUMPY_PROBES`."""
    bits = np.random.PCG64(20261101)
    a = _uniform(bits, (257, 1031))
    b = _uniform(bits, (1031, 131))
    return array_digest(np.asarray(_NUMPY_PROBES[name](a, b)))


def _digest(results: tuple[Any, ...]) -> str:
    import torch

    digests = []
    for result in results:
        tensor = result.detach().cpu().contiguous()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.view(torch.int16)  # NumPy has no bfloat16; its bits are digested
        digests.append(array_digest(tensor.numpy()))
    return value_digest(digests)


Probe = Callable[[Numbers], tuple[Any, ...]]


def _probe(compute: Callable[..., Any], *shapes: tuple[int, ...]) -> Probe:
    """An operation's output and the gradients of its inputs, or the outputs of several."""

    def probe(numbers: Numbers) -> tuple[Any, ...]:
        import torch

        inputs = [numbers(*shape, gradient=True) for shape in shapes]
        output = compute(torch.nn.functional, *inputs)
        if isinstance(output, tuple):
            return output
        # Times one is exact, so these are the gradients for the incoming numbers; handing those to
        # `grad` itself makes PyTorch import half a second's worth of other modules.
        loss = (output * numbers(*output.shape)).sum()
        return (output, *torch.autograd.grad(loss, inputs))

    return probe


# Sizes are odd, so that what is left over by a vector or a block shows, and large enough that
# two threads share the work. Nothing here adds in an order that varies: no scatter, no gather's
# backward, and interpolation forward only, whose backward is atomic on CUDA (torch 2.15).
PROBES: Mapping[str, Probe] = {
    "conv": _probe(lambda F, x, w: F.conv2d(x, w, padding=1), (2, 24, 61, 67), (40, 24, 3, 3)),
    "conv-patches": _probe(
        lambda F, x, w: F.conv2d(x, w, stride=8), (2, 3, 128, 128), (96, 3, 8, 8)
    ),
    "conv-transposed": _probe(
        lambda F, x, w: F.conv_transpose2d(x, w, stride=8), (2, 64, 16, 16), (64, 3, 8, 8)
    ),
    "matmul": _probe(lambda F, a, b: a @ b, (257, 1031), (1031, 131)),
    "linear": _probe(lambda F, x, w, b: F.linear(x, w, b), (4, 97, 512), (129, 512), (129,)),
    "attention": _probe(
        lambda F, queries, keys, values: (queries @ keys.transpose(1, 2)).softmax(-1) @ values,
        *((8, 196, 67),) * 3,
    ),
    "softmax": _probe(lambda F, rows: (rows * 8).softmax(-1), (96, 1037)),
    "layer-norm": _probe(
        lambda F, x, w, b: F.layer_norm(x, (389,), w, b), (601, 389), (389,), (389,)
    ),
    "gelu": _probe(lambda F, rows: F.gelu(rows * 4), (130, 1037)),
    "interpolation": _probe(
        lambda F, images, lines, grid: (
            F.interpolate(images, size=(128, 150), mode="bilinear"),
            F.interpolate(images, size=(128, 150), mode="bicubic"),
            F.interpolate(lines, size=27, mode="linear"),
            F.grid_sample(images, grid, mode="bilinear", align_corners=False),
        ),
        *((1, 3, 61, 67), (1, 64, 63), (1, 90, 91, 2)),
    ),
    "sum": _probe(lambda F, x: (x.sum(), x.sum(0), x.sum(1), x.mean()), (300, 1031)),
    "variance": _probe(lambda F, x: (x.var(), x.var(1), x.norm()), (300, 1031)),
    "loss": _probe(
        lambda F, a, b: (F.mse_loss(a, b), F.binary_cross_entropy_with_logits(a, b.abs())),
        *((300, 1031), (300, 1031)),
    ),
    "elementwise": _probe(
        lambda F, x: ((y := x * 8).exp(), y.sigmoid(), y.tanh(), y.abs().log(), y.sin()),
        (130, 1031),
    ),
    # MKL refines the processor's own approximation of a reciprocal square root in these, whatever
    # MKL_CBWR says: one value in six is not the nearest, and processors differ in which.
    "sqrt": _probe(lambda F, x: (x.abs().sqrt(), x.asin(), x.atan()), (130, 1031)),
}
"""The operations; a changed one renames every class, so add and replace with care."""
