"""Tensors that are created: random numbers, ranges, even steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from samebits.arithmetic.kernels.elementary import log, log1p, raised, square_root
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type
from samebits.arithmetic.kernels.sorting import FORMS as CHOOSING
from samebits.arithmetic.kernels.sums import FORMS as ADDING
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.kernels.trigonometry import cosine, sine

FORMS = PortableForms()


@FORMS.of("rand")
def _rand(size: Sequence[int], **options: Any) -> torch.Tensor:
    device = options.pop("device", None)
    return torch.rand(size, **options).to(device)  # CUDA has a generator of its own


@FORMS.of("uniform")
def _uniform(
    a: torch.Tensor, begin: float = 0.0, end: float = 1.0, *, generator: Any = None
) -> torch.Tensor:
    drawn = torch.rand(a.shape, dtype=a.dtype, generator=generator)
    return (drawn * (end - begin) + begin).to(a.device)


@FORMS.of("randint")
def _randint(*arguments: Any, **options: Any) -> torch.Tensor:
    device = options.pop("device", None)
    return torch.randint(*arguments, **options).to(device)


@FORMS.of("randperm")
def _randperm(n: int, **options: Any) -> torch.Tensor:
    device = options.pop("device", None)
    return torch.randperm(n, **options).to(device)


@FORMS.of("arange")
def _arange(*limits: float, **options: Any) -> torch.Tensor:
    dtype = options.get("dtype") or torch.get_default_dtype()
    start = limits[0] if len(limits) > 1 else 0
    end = limits[1] if len(limits) > 1 else limits[0]
    step = limits[2] if len(limits) > 2 else 1
    count = max(0, math.ceil((end - start) / step))
    index = torch.arange(count, dtype=torch.float64)
    return (index * float(step) + float(start)).to(dtype).to(options.get("device"))


@FORMS.of("bernoulli")
def _bernoulli(
    a: torch.Tensor,
    chance: float | torch.Tensor | None = None,
    *,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """1 where a uniform number is below the chance; PyTorch's own may come from MKL."""
    drawn = torch.rand(a.shape, generator=generator).to(a.device)
    chances = a if chance is None else chance
    return (drawn < chances).to(a.dtype)


@FORMS.of("native_dropout")
def _native_dropout(
    a: torch.Tensor, p: float, train: bool | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What stays is divided by the chance to stay."""
    check_type(a)
    if train is False:
        return a.clone(), torch.ones_like(a, dtype=torch.bool)
    stays = (torch.rand(a.shape) < 1.0 - p).to(a.device)
    return a * stays * (0.0 if p == 1 else 1.0 / (1.0 - p)), stays


@FORMS.of("native_dropout_backward")
def _native_dropout_backward(
    gradient: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    return gradient * mask * scale


@FORMS.of("random", in_any_type=True)
def _random(
    a: torch.Tensor, *limits: int | None, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Whole numbers, from the generator of the processor: a DataLoader draws its seed so."""
    drawn = torch.empty(a.shape, dtype=a.dtype)
    return drawn.random_(*limits, generator=generator).to(a.device)


# -- normal numbers ------------------------------------------------------------------------


_TOGETHER = 16
"""So many uniform numbers PyTorch turns into normal ones at a time (torch 2.6 to 2.15)."""


def _normal_numbers(
    shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator | None
) -> torch.Tensor:
    """Normal numbers of mean 0 and deviation 1 by Box and Muller's method.

    They are made of the uniform numbers of which PyTorch makes those of tensors with 16 numbers and
    more, so they are PyTorch's but for roundings, which its vectorised logarithm and cosine do
    otherwise on every kind of processor; with fewer than 16 they are numbers of their own.
    """
    n_numbers = math.prod(shape)
    if n_numbers == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    n_drawn = max(n_numbers, _TOGETHER)
    uniform = torch.rand(n_drawn, dtype=dtype, generator=generator)
    n_whole = n_drawn - n_drawn % _TOGETHER
    normal = torch.empty_like(uniform)
    normal[:n_whole] = _box_muller(uniform[:n_whole])
    if n_whole < n_drawn:  # the last 16 are drawn anew, as PyTorch does it
        anew = torch.rand(_TOGETHER, dtype=dtype, generator=generator)
        normal[-_TOGETHER:] = _box_muller(anew)
    return normal[:n_numbers].reshape(tuple(shape))


def _box_muller(uniform: torch.Tensor) -> torch.Tensor:
    """Of 16 numbers from 0 to 1 the first 8 say how far, and the last 8 in which direction."""
    pairs = uniform.reshape(-1, 2, _TOGETHER // 2)
    radius = square_root(log(1.0 - pairs[:, 0]).mul_(-2.0))
    angle = pairs[:, 1] * (2.0 * math.pi)
    return torch.stack([radius * cosine(angle), radius * sine(angle)], 1).reshape(-1)


def _checked(dtype: torch.dtype | None) -> torch.dtype:
    checked = dtype or torch.get_default_dtype()
    if checked not in (torch.float32, torch.float64):
        raise NoPortableForm(f"has a portable form for float32 and float64, and got {checked}")
    return checked


@FORMS.of("randn")
def _randn(
    size: Sequence[int], *, generator: torch.Generator | None = None, **options: Any
) -> torch.Tensor:
    dtype = _checked(options.get("dtype"))
    return _normal_numbers(size, dtype, generator).to(options.get("device"))


@FORMS.of("randn_like")
def _randn_like(
    a: torch.Tensor, *, generator: torch.Generator | None = None, **options: Any
) -> torch.Tensor:
    dtype = _checked(options.get("dtype") or a.dtype)
    return _normal_numbers(a.shape, dtype, generator).to(options.get("device") or a.device)


@FORMS.of("rand_like")
def _rand_like(
    a: torch.Tensor, *, generator: torch.Generator | None = None, **options: Any
) -> torch.Tensor:
    drawn = torch.rand(a.shape, dtype=options.get("dtype") or a.dtype, generator=generator)
    return drawn.to(options.get("device") or a.device)


@FORMS.of("randint_like")
def _randint_like(
    a: torch.Tensor, *limits: Any, generator: torch.Generator | None = None, **options: Any
) -> torch.Tensor:
    least, most = (0, *limits)[-2:]
    dtype = options.get("dtype") or a.dtype
    drawn = torch.randint(int(least), int(most), a.shape, dtype=dtype, generator=generator)
    return drawn.to(options.get("device") or a.device)


@FORMS.of("normal_")
def _filled_with_normal(
    a: torch.Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    dtype = _checked(a.dtype)
    return (_normal_numbers(a.shape, dtype, generator) * std + mean).to(a.device)


@FORMS.of("normal")
def _normal(
    mean: float | torch.Tensor,
    std: float | torch.Tensor = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: torch.Generator | None = None,
    **options: Any,
) -> torch.Tensor:
    """Of a size, or of the means and deviations that are tensors."""
    tensors = [number for number in (mean, std) if isinstance(number, torch.Tensor)]
    check_type(*tensors)
    if size is None:
        size = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        dtype = tensors[0].dtype
    else:
        dtype = _checked(options.get("dtype"))
    device = tensors[0].device if tensors else options.get("device")
    return _normal_numbers(size, dtype, generator).to(device) * std + mean


@FORMS.of("exponential")
def _exponential(
    a: torch.Tensor, lambd: float = 1.0, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """-log(1 - u) / lambda of uniform numbers: numbers of their own, not PyTorch's."""
    check_type(a)
    drawn = torch.rand(a.shape, dtype=a.dtype, generator=generator)
    return (log1p(-drawn).neg_() / torch.full_like(drawn, lambd)).to(a.device)


@FORMS.of("multinomial")
def _multinomial(
    a: torch.Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Places drawn by their weights: with replacement PyTorch's but for roundings, otherwise (and
    of one place) made of exponential numbers, which are others."""
    check_type(a)
    total = pairwise_sum(a, [-1], keepdim=True)
    if not bool(((a >= 0).all(-1, keepdim=True) & (total > 0) & total.isfinite()).all()):
        raise ValueError("expected weights that are finite, not negative, and not all 0")
    if num_samples == 1 or not replacement:
        waiting = _exponential(a, generator=generator).clamp_(min=torch.finfo(a.dtype).tiny)
        _, places = CHOOSING["topk"](a / waiting, num_samples)
        return places
    shares = ADDING["cumsum"](a, -1) / total
    shares[..., -1] = 1.0
    drawn = torch.rand((*a.shape[:-1], num_samples), dtype=torch.float64, generator=generator).to(
        a.device
    )
    return torch.searchsorted(shares.double(), drawn, right=True)


@FORMS.of("linspace")
def _linspace(start: float, end: float, steps: int, **options: Any) -> torch.Tensor:
    dtype = options.get("dtype") or torch.get_default_dtype()
    index = torch.arange(steps, dtype=torch.float64)
    step = (float(end) - float(start)) / (steps - 1) if steps > 1 else 0.0
    upward = index * step + float(start)
    downward = float(end) - (steps - 1 - index) * step
    values = torch.where(index < max(1, steps // 2), upward, downward)
    return values.to(dtype).to(options.get("device"))


@FORMS.of("logspace")
def _logspace(
    start: float, end: float, steps: int, base: float = 10.0, **options: Any
) -> torch.Tensor:
    dtype = _checked(options.get("dtype"))
    exponents = _linspace(start, end, steps, dtype=torch.float64)
    powers = raised(torch.full_like(exponents, base), exponents)
    return powers.to(dtype).to(options.get("device"))


# -- windows of a spectrum ---------------------------------------------------------------------


@FORMS.of("hann_window")
def _hann_window(n: int, periodic: bool = True, **options: Any) -> torch.Tensor:
    return _window(n, periodic, (0.5, -0.5), options)


@FORMS.of("hamming_window")
def _hamming_window(
    n: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> torch.Tensor:
    return _window(n, periodic, (alpha, -beta), options)


@FORMS.of("blackman_window")
def _blackman_window(n: int, periodic: bool = True, **options: Any) -> torch.Tensor:
    return _window(n, periodic, (0.42, -0.5, 0.08), options)


def _window(
    n: int, periodic: bool, parts: Sequence[float], options: dict[str, Any]
) -> torch.Tensor:
    """Numbers that are a sum of cosines, each with its part, over one period."""
    dtype = _checked(options.get("dtype"))
    places = torch.arange(n, dtype=torch.float64)
    angles = places * (2.0 * math.pi / max(1, n if periodic else n - 1))
    window = torch.full_like(angles, parts[0])
    for index, part in enumerate(parts[1:], 1):
        window += part * cosine(angles * float(index))
    if n == 1:
        window = torch.ones_like(window)
    return window.to(dtype).to(options.get("device"))
