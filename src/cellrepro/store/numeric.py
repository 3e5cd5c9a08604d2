"""The machine's numeric class: which bits it computes, told by a fixed set of small operations.

Two processes of one class agree on every probe, so digests stored by one may be compared with
those of the other. The processor, its instruction sets, the settings that limit them, the thread
count and the libraries' versions all show here, and only if they change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.store.digests import array_digest, value_digest

NAME_LENGTH = 12
"""Hex digits of a class's name."""

DTYPES = ("float32", "bfloat16")
"""In both of them every probe runs: Cellpose trains in the first and segments in the second."""


@dataclass(frozen=True)
class NumericClass:
    """Which bits a process computes."""

    name: str
    """The first `NAME_LENGTH` hex digits of the digest of all probes."""
    probes: Mapping[str, str]
    """SHA-256 of each probe's results, by ``OPERATION/DTYPE``."""


def numeric_class(device: str = "cpu") -> NumericClass:
    """Name the numeric class of this process on one device, in about half a second.

    No generator is drawn from, no switch stays moved, and no mode makes a difference: what does
    is the profile, that is threads, instruction sets, oneDNN, and on CUDA also TF32.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda`` (also ``cuda:1``) or ``mps``.

    Raises
    ------
    BadInput
        If it is no such device.
    NotPossibleHere
        If this machine does not have it.
    """
    place = _device(device)
    with _undisturbed(place.type):
        probes = {
            f"{name}/{dtype}": _digest(results)
            for dtype in DTYPES
            for name, results in _results(place, dtype)
        }
    return NumericClass(value_digest(probes)[:NAME_LENGTH], probes)


def differs(a: NumericClass, b: NumericClass) -> list[str]:
    """The probes in which two classes differ, sorted; a probe of only one of them is one.

    Examples
    --------
    >>> one = NumericClass("0a", {"sum/float32": "aa", "conv/float32": "bb"})
    >>> differs(one, NumericClass("1b", {"sum/float32": "cc", "conv/float32": "bb"}))
    ['sum/float32']
    """
    return sorted(
        name
        for name in a.probes.keys() | b.probes.keys()
        if a.probes.get(name) != b.probes.get(name)
    )


def _device(name: str) -> Any:
    import torch

    there = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    kind, _, index = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind not in there or not (index.isdecimal() or name == kind):
        raise BadInput(f"device is {name!r}; expected cpu, cuda, cuda:N or mps")
    if int(index or 0) >= there[kind]:
        raise NotPossibleHere(
            f"device is {name!r}, and PyTorch {torch.__version__} finds {there[kind]} devices of "
            "this kind on this machine; choose one that is here, as cpu always is"
        )
    return torch.device(name)


@contextmanager
def _undisturbed(device_type: str) -> Iterator[None]:
    """Gradients on, autocast off, and no cuDNN algorithm that adds in varying order."""
    import torch

    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autocast(device_type, enabled=False))
        try:
            cudnn.deterministic, cudnn.benchmark = True, False
            yield
        finally:
            cudnn.deterministic, cudnn.benchmark = before


class _Numbers:
    """Inputs that are the same on every machine, to the bit."""

    def __init__(self, device: Any, dtype: str):
        self._bits = np.random.PCG64(20261101)  # of its own: no global generator moves
        self._device, self._dtype = device, dtype

    def __call__(self, *shape: int, gradient: bool = False) -> Any:
        """Uniform numbers in [-1, 1), shape as given.

        Shifts and a division by a power of two are exact, and so is the rounding to bfloat16.
        """
        import torch

        raw = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(40)
        values = (raw.astype(np.float32) / np.float32(2**23) - np.float32(1)).reshape(shape)
        # A copy that PyTorch allocates, since MKL's bits depend on how memory is aligned.
        tensor = torch.from_numpy(values).to(
            device=self._device, dtype=getattr(torch, self._dtype), copy=True
        )
        return tensor.clone().requires_grad_(gradient)


def _results(device: Any, dtype: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Each probe's name and result tensors."""
    for name, probe in PROBES.items():
        yield name, probe(_Numbers(device, dtype))


def _digest(results: Iterable[Any]) -> str:
    import torch

    arrays = []
    for tensor in results:
        on_cpu = tensor.detach().cpu().contiguous()
        # NumPy has no bfloat16; its bits are digested.
        bits = on_cpu.view(torch.int16) if on_cpu.dtype == torch.bfloat16 else on_cpu
        arrays.append(array_digest(bits.numpy()))
    return value_digest(arrays)


# -- the probes ----------------------------------------------------------------------------
#
# Sizes are odd, so that what is left over by a vector or a block shows, and large enough that
# two threads share the work. Nothing here adds in an order that varies: no scatter, no gather's
# backward, and interpolation forward only, whose backward is atomic on CUDA (torch 2.15).


def _with_gradients(output: Any, inputs: tuple[Any, ...], numbers: _Numbers) -> tuple[Any, ...]:
    import torch

    # Times one is exact, so these are the gradients for the incoming numbers; handing those to
    # `grad` itself makes PyTorch import half a second's worth of other modules.
    loss = (output * numbers(*output.shape)).sum()
    return (output, *torch.autograd.grad(loss, inputs))


def _conv(numbers: _Numbers) -> tuple[Any, ...]:
    import torch.nn.functional as F

    images = numbers(2, 24, 61, 67, gradient=True)
    kernels = numbers(40, 24, 3, 3, gradient=True)
    return _with_gradients(F.conv2d(images, kernels, padding=1), (images, kernels), numbers)


def _conv_patches(numbers: _Numbers) -> tuple[Any, ...]:
    import torch.nn.functional as F

    images = numbers(2, 3, 128, 128, gradient=True)
    kernels = numbers(96, 3, 8, 8, gradient=True)
    return _with_gradients(F.conv2d(images, kernels, stride=8), (images, kernels), numbers)


def _conv_transposed(numbers: _Numbers) -> tuple[Any, ...]:
    import torch.nn.functional as F

    images = numbers(2, 64, 16, 16, gradient=True)
    kernels = numbers(64, 3, 8, 8, gradient=True)
    output = F.conv_transpose2d(images, kernels, stride=8)
    return _with_gradients(output, (images, kernels), numbers)


def _matmul(numbers: _Numbers) -> tuple[Any, ...]:
    a, b = numbers(257, 1031, gradient=True), numbers(1031, 131, gradient=True)
    return _with_gradients(a @ b, (a, b), numbers)


def _linear(numbers: _Numbers) -> tuple[Any, ...]:
    import torch.nn.functional as F

    rows = numbers(4, 97, 512, gradient=True)
    weights, biases = numbers(129, 512, gradient=True), numbers(129, gradient=True)
    return _with_gradients(F.linear(rows, weights, biases), (rows, weights, biases), numbers)


def _attention(numbers: _Numbers) -> tuple[Any, ...]:
    queries, keys, values = (numbers(8, 196, 67, gradient=True) for _ in range(3))
    output = (queries @ keys.transpose(1, 2)).softmax(-1) @ values
    return _with_gradients(output, (queries, keys, values), numbers)


def _softmax(numbers: _Numbers) -> tuple[Any, ...]:
    rows = numbers(96, 1037, gradient=True)
    return _with_gradients((rows * 8).softmax(-1), (rows,), numbers)


def _layer_norm(numbers: _Numbers) -> tuple[Any, ...]:
    import torch.nn.functional as F

    rows = numbers(601, 389, gradient=True)
    weights, biases = numbers(389, gradient=True), numbers(389, gradient=True)
    output = F.layer_norm(rows, (389,), weights, biases)
    return _with_gradients(output, (rows, weights, biases), numbers)


def _gelu(numbers: _Numbers) -> tuple[Any, ...]:
    import torch.nn.functional as F

    rows = numbers(130, 1037, gradient=True)
    return _with_gradients(F.gelu(rows * 4), (rows,), numbers)


def _interpolation(numbers: _Numbers) -> tuple[Any, ...]:
    import torch.nn.functional as F

    images, lines = numbers(1, 3, 61, 67), numbers(1, 64, 63)
    return (
        F.interpolate(images, size=(128, 150), mode="bilinear"),
        F.interpolate(images, size=(128, 150), mode="bicubic"),
        F.interpolate(lines, size=27, mode="linear"),
        F.grid_sample(images, numbers(1, 90, 91, 2), mode="bilinear", align_corners=False),
    )


def _sum(numbers: _Numbers) -> tuple[Any, ...]:
    rows = numbers(300, 1031)
    return rows.sum(), rows.sum(0), rows.sum(1), rows.mean()


def _variance(numbers: _Numbers) -> tuple[Any, ...]:
    rows = numbers(300, 1031)
    return rows.var(), rows.var(1), rows.norm()


def _loss(numbers: _Numbers) -> tuple[Any, ...]:
    import torch.nn.functional as F

    a, b = numbers(300, 1031), numbers(300, 1031)
    return F.mse_loss(a, b), F.binary_cross_entropy_with_logits(a, b.abs())


def _elementwise(numbers: _Numbers) -> tuple[Any, ...]:
    rows = numbers(130, 1031) * 8
    return rows.exp(), rows.sigmoid(), rows.tanh(), rows.abs().log(), rows.sin()


PROBES: Mapping[str, Callable[[_Numbers], tuple[Any, ...]]] = {
    "conv": _conv,
    "conv-patches": _conv_patches,
    "conv-transposed": _conv_transposed,
    "matmul": _matmul,
    "linear": _linear,
    "attention": _attention,
    "softmax": _softmax,
    "layer-norm": _layer_norm,
    "gelu": _gelu,
    "interpolation": _interpolation,
    "sum": _sum,
    "variance": _variance,
    "loss": _loss,
    "elementwise": _elementwise,
}
"""The operations; each is given numbers of one dtype on one device. A changed one renames every
class, so add and replace with care."""
