"""A proof, in less than a second, that a device computes as portable arithmetic assumes.

It is made before every use: products of whole numbers as large as they can be are compared with
Python's integers, and roundings, casts, roots and the smallest numbers with what IEEE 754 says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from samebits.arithmetic.exact_sums import BITS_OF_DOUBLE, n_bits_of_count
from samebits.arithmetic.kernels.elementary import square_root
from samebits.errors import NotPossibleHere
from samebits.torch_internals import modes_suspended

_SHAPES = ((1, 1, 1), (3, 5, 2), (17, 64, 33), (64, 1024, 48), (5, 4097, 3))
"""Rows, length and columns of the products that are checked."""
_SMALLEST_FLOAT32 = 2.0**-149


@dataclass(frozen=True)
class Claim:
    """One assumption of portable arithmetic about a device."""

    name: str
    """The fault where it does not hold, for the message."""
    holds: Callable[[torch.device], bool]


def prove(device: torch.device | str) -> None:
    """Refuse a device that does not compute as is assumed."""
    device = torch.device(device)
    if device.type == "mps":
        raise NotPossibleHere(
            "mode portable was asked for on device mps, which has no float64 numbers, and without "
            "them products cannot be exact; use profile cpu on this machine: it gives the same "
            "bits as any other"
        )
    failed = list(failed_claims(device))
    if failed:
        raise NotPossibleHere(
            f"device {device} does not compute as mode portable assumes: {'; '.join(failed)}. Its "
            "results would not be those of other machines. Update PyTorch or the driver, or use "
            "another device; please report this with its name and the version of PyTorch"
        )


def failed_claims(device: torch.device) -> Iterator[str]:
    """The names of the claims that do not hold on a device."""
    with modes_suspended(), torch.no_grad():
        for claim in CLAIMS:
            if not claim.holds(device):
                yield claim.name


def _drawn_integers(
    generator: np.random.Generator, shape: tuple[int, ...], most: int
) -> np.ndarray:
    """Whole numbers up to a largest one, which stands among them as often as not."""
    numbers = generator.integers(-most, most, shape, endpoint=True)
    return np.where(generator.random(shape) < 0.5, np.sign(numbers) * most, numbers)


def _products_are_exact(device: torch.device) -> bool:
    generator = np.random.default_rng(0)
    for n_rows, length, n_columns in _SHAPES:
        n_bits = (BITS_OF_DOUBLE - n_bits_of_count(length)) // 2
        left = _drawn_integers(generator, (n_rows, length), 2**n_bits)
        right = _drawn_integers(generator, (length, n_columns), 2**n_bits)
        expected = left @ right  # of int64, in which no sum is too large
        of_rows = torch.from_numpy(left).to(device, torch.float64)
        of_columns = torch.from_numpy(right).to(device, torch.float64)
        across = of_columns.T.contiguous().T
        if device.type == "cpu":  # small products are NumPy's
            by_numpy = np.matmul(left.astype(np.float64), right.astype(np.float64))
            if not np.array_equal(by_numpy.astype(np.int64), expected):
                return False
        for columns in (of_columns, across):
            stacked = torch.bmm(of_rows[None], columns[None])[0]
            single = torch.mm(of_rows, columns)
            for actual in (stacked, single):
                if not np.array_equal(actual.cpu().numpy().astype(np.int64), expected):
                    return False
    return True


def _odd_numbers(n_numbers: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of float32 numbers with all their bits in use, of sizes far apart."""
    generator = np.random.default_rng(1)
    mantissas = generator.integers(2**23, 2**24, (2, n_numbers)).astype(np.float32)
    exponents = generator.integers(-40, 40, (2, n_numbers))
    numbers = np.ldexp(mantissas, exponents - 23).astype(np.float32)
    signs = generator.choice(np.asarray([-1, 1], np.float32), (2, n_numbers))
    return (numbers * signs)[0], (numbers * signs)[1]


def _rounded(exact: Fraction) -> float:
    """The float32 number nearest to a fraction, the even one of two; for numbers of usual size."""
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 23)
    rounded = round(magnitude / unit) * unit  # Python rounds a half to the even number
    return float(rounded if exact > 0 else -rounded)


_N_ROUNDINGS = 300


def _operations_are_rounded(device: torch.device) -> bool:
    a, b = _odd_numbers(_N_ROUNDINGS)
    on_device: list[Any] = [torch.from_numpy(numbers).to(device) for numbers in (a, b)]
    pairs = [on_device, [a, b]] if device.type == "cpu" else [on_device]  # short ones are NumPy's
    fractions = [(Fraction(float(x)), Fraction(float(y))) for x, y in zip(a, b, strict=True)]
    expected = [
        [_rounded(x + y) for x, y in fractions],
        [_rounded(x - y) for x, y in fractions],
        [_rounded(x * y) for x, y in fractions],
        [_rounded(x / y) for x, y in fractions],
    ]
    return all(
        np.array_equal(torch.as_tensor(computed).cpu().numpy(), np.asarray(exact, np.float32))
        for x, y in pairs
        for computed, exact in zip((x + y, x - y, x * y, x / y), expected, strict=True)
    )


def _products_and_sums_are_apart(device: torch.device) -> bool:
    """Whether a product is rounded before something is added to it."""
    a, b = _odd_numbers(_N_ROUNDINGS)
    on_device = [torch.from_numpy(numbers).to(device) for numbers in (a, b)]
    product = on_device[0] * on_device[1]
    rest = product - on_device[0] * on_device[1]
    return not bool(rest.any())


def _casts_are_rounded(device: torch.device) -> bool:
    a, b = _odd_numbers(_N_ROUNDINGS)
    exact = a.astype(np.float64) * b.astype(np.float64)  # 48 bits
    expected = [_rounded(Fraction(float(number))) for number in exact]
    actual = torch.from_numpy(exact).to(device).float()
    halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -3.5], device=device).round()
    return np.array_equal(
        actual.cpu().numpy(), np.asarray(expected, np.float32)
    ) and halves.tolist() == [
        0,
        2,
        2,
        0,
        -4,
    ]


def _roots_are_rounded(device: torch.device) -> bool:
    """A root is the nearest number if its neighbours, half a step away, lie on both sides."""
    a, _ = _odd_numbers(_N_ROUNDINGS)
    numbers = np.abs(a)
    roots = square_root(torch.from_numpy(numbers).to(device)).cpu().numpy()
    for number, root in zip(numbers, roots, strict=True):
        half_step = Fraction(float(np.spacing(root))) / 2
        middle = Fraction(float(root))
        if not (middle - half_step) ** 2 <= Fraction(float(number)) <= (middle + half_step) ** 2:
            return False
    return True


def _smallest_numbers_are_kept(device: torch.device) -> bool:
    smallest = torch.full((70_000,), _SMALLEST_FLOAT32, device=device)
    doubled = smallest + smallest
    halved = torch.full((70_000,), 2.0**-126, device=device) * 0.5
    as_double = smallest.double()
    return (
        bool((doubled == 2 * _SMALLEST_FLOAT32).all())
        and bool((halved == 2.0**-127).all())
        and bool((as_double == _SMALLEST_FLOAT32).all())
        and bool((as_double.float() == smallest).all())
    )


_FLUSHED = (
    "numbers below 2**-126 are flushed to zero (torch.set_flush_denormal(False) keeps them, before "
    "PyTorch starts its threads)"
)
CLAIMS = (
    Claim("products of large whole numbers in float64 are not exact", _products_are_exact),
    Claim("single operations in float32 are not rounded to the nearest", _operations_are_rounded),
    Claim("a product and a sum are fused into one operation", _products_and_sums_are_apart),
    Claim("casts to float32 are not rounded to the nearest", _casts_are_rounded),
    Claim("square roots are not rounded to the nearest", _roots_are_rounded),
    Claim(_FLUSHED, _smallest_numbers_are_kept),
)
"""All that is assumed of a device."""
