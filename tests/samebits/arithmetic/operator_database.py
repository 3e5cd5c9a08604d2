"""PyTorch's own database of its operations, and what of a call must be as PyTorch's."""

import hashlib
import importlib
import itertools
import json
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from samebits.arithmetic.portable_mode import NotPortable, PortableArithmetic

EPSILONS = 32
"""How many units in the last place of its type a result may be off: of itself, or where PyTorch's
own is off by more, of the result for magnitudes; or eight times what PyTorch's own is off. Two
units of the result for magnitudes are what another order of adding gives."""

OF_EQUAL_NUMBERS = frozenset(("sort", "argsort", "topk", "kthvalue", "median", "nanmedian"))
"""PyTorch names any of the places of equal numbers, the mode the first."""

OF_DIFFERENCES = frozenset(("nn.functional.tanhshrink",))
"""A number less a function of it that is almost the same: what is left has digits of the number."""

NAN_BY_PLACE = frozenset(("var_mean", "std_mean"))
"""PyTorch's mean beside a variance is NaN or infinite, by the place where an infinity stands."""


def database() -> list[Any]:
    """Every operation with its samples; the import takes seconds, so no file does it at its top."""
    with mock.patch.object(torch.backends, "disable_global_flags"), mock.patch("sys.argv", [""]):
        home = importlib.import_module("torch.testing._internal.common_methods_invocations")
    return list(home.op_db)


def optimizers() -> list[Any]:
    """Every optimizer of PyTorch with the settings that it is tested with there."""
    with mock.patch.object(torch.backends, "disable_global_flags"), mock.patch("sys.argv", [""]):
        home = importlib.import_module("torch.testing._internal.common_optimizers")
    return list(home.optim_db)


# -- changes of what an operation is given ---------------------------------------------------


def with_numbers(*numbers: float, every: int = 2) -> Callable[[torch.Tensor], torch.Tensor]:
    """Every second number, or each, replaced by these, in turns."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() == 0:
            return tensor
        flat = tensor.detach().flatten().clone()
        count = len(flat[::every])
        flat[::every] = (
            torch.tensor(numbers, dtype=torch.float64).repeat(count)[:count].to(flat.dtype)
        )
        return flat.reshape(tensor.shape)

    return changed


def scaled(*factors: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Numbers multiplied by these, in turns."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        numbers = torch.tensor(factors, dtype=torch.float64).repeat(tensor.numel())
        return (tensor * numbers[: tensor.numel()].reshape(tensor.shape)).to(tensor.dtype)

    return changed


def repeated_indices(tensor: torch.Tensor) -> torch.Tensor:
    """Whole numbers that occur twice."""
    is_index = tensor.dtype == torch.int64 and tensor.numel() > 1
    return tensor.div(2, rounding_mode="trunc") if is_index else tensor


def reversed_strides(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, lying in memory in the order of the reversed axes."""
    if tensor.layout is not torch.strided or tensor.dim() < 2:
        return tensor
    reverse = tuple(range(tensor.dim()))[::-1]
    return tensor.permute(reverse).contiguous().permute(reverse)


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in PyTorch's other order, of images and of stacks."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.layout is not torch.strided or tensor.dim() not in formats:
        return tensor
    return tensor.contiguous(memory_format=formats[tensor.dim()])


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers with others between them."""
    if tensor.layout is not torch.strided or tensor.dim() == 0:
        return tensor
    wide = tensor.new_zeros((*tensor.shape, 2))
    wide[..., 1] = tensor
    return wide[..., 1]


def of_one_number(tensor: torch.Tensor) -> torch.Tensor:
    """Copies of the first number, all in one place of memory."""
    if tensor.layout is not torch.strided or tensor.numel() < 2:
        return tensor
    return tensor.flatten()[:1].clone().expand(tensor.numel()).view(tensor.shape)


def ignored(tensor: torch.Tensor) -> torch.Tensor:
    """Whole numbers that losses pass over."""
    return torch.full_like(tensor, -100) if tensor.dtype == torch.int64 else tensor


def many(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers again and again along the first axis: more than one thread takes."""
    if tensor.layout is not torch.strided or tensor.dim() == 0 or tensor.numel() == 0:
        return tensor
    n_times = -(-_MANY // tensor.numel())
    return tensor.repeat(n_times, *[1] * (tensor.dim() - 1))


_MANY = 100_000


VALUES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "NaN": with_numbers(float("nan"), 1.0),
    "infinities": with_numbers(float("inf"), -1.0, -float("inf")),
    "zeros": with_numbers(0.0, -0.0),
    "only zeros": with_numbers(0.0, -0.0, every=1),
    "denormals": with_numbers(1e-41, -1e-45),
    "small": scaled(1e-7),
    "spread": scaled(4.0),
    "large": scaled(1e18),
    "huge": scaled(1e30),
    "tiny": scaled(1e-30),
    "sizes far apart": scaled(1e6, 1.0, 1e-6, 1e3, 1e-9),
    "repeated indices": repeated_indices,
    "ignored": ignored,
}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "reversed axes": reversed_strides,
    "channels last": channels_last,
    "gaps": with_gaps,
    "copies of one number": of_one_number,
}
PRECISE = (torch.float32, torch.float64)
"""Types in which every operation that has a portable form has one."""
DTYPES = (
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


# -- one call, compared ----------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """What one operation is called with."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "Sample":
        """Each tensor changed; made anew, as operations write into what they are given."""

        def of_leaf(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
                return leaf
            changed = change(leaf.detach())
            same_place = changed.untyped_storage().data_ptr() == leaf.untyped_storage().data_ptr()
            return changed.clone() if same_place else changed

        return Sample(*(tree_map(of_leaf, each) for each in (self.input, self.args, self.kwargs)))

    def fresh(self) -> "Sample":
        """The same in memory of its own, laid out as it is."""
        return self.changed(_copied)

    def tensors(self) -> list[torch.Tensor]:
        """All tensors, in the order of arguments."""
        return tensors_in((self.input, self.args, self.kwargs))


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with equal strides, also where several places are one."""
    if tensor.is_nested or tensor.numel() == 0:
        return tensor.clone()
    n_places = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.as_strided((n_places,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def samples_of(info: Any, dtype: torch.dtype, most: int) -> list[Sample]:
    """The first samples of an operation; none where PyTorch has none for this type.

    Taken from the function itself: what wraps it looks for a test in the stack, a second each time.
    """
    if dtype not in info.dtypes:
        return []
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    try:
        samples = info.sample_inputs_func(info, "cpu", dtype, requires_grad=False)
        taken = list(itertools.islice(samples, most))
    except Exception:  # of optional libraries
        return []
    return [Sample(each.input, tuple(each.args), dict(each.kwargs)) for each in taken]


Way = Callable[[Any, Sample], Any]
"""How an operation is called with a sample; what it returns is compared."""


def plainly(info: Any, sample: Sample) -> Any:
    return info(sample.input, *sample.args, **sample.kwargs)


def in_place(info: Any, sample: Sample) -> Any:
    result = info.get_inplace()(sample.input, *sample.args, **sample.kwargs)
    assert result is sample.input, "it does not return what it wrote into"
    return result


def into_given(info: Any, sample: Sample) -> Any:
    """Into ``out``: the results of the plain call, overwritten by numbers that nobody wants."""
    expected = sample.kwargs["out"]
    result = plainly(info, sample)
    for given, returned in zip(tensors_in(expected), tensors_in(result), strict=True):
        assert given is returned, "it does not return what it wrote into"
    return result


def gradients(info: Any, sample: Sample) -> Any:
    """Gradients of results, weighed unequally, with respect to every input with fractions."""
    inputs = [tensor for tensor in sample.tensors() if tensor.is_floating_point()]
    for tensor in inputs:
        tensor.requires_grad_()
    outputs = [
        tensor
        for tensor in tensors_in(plainly(info, sample))
        if tensor.requires_grad and tensor.is_floating_point()
    ]
    weights = [_weights(tensor) for tensor in outputs]
    return torch.autograd.grad(outputs, inputs, weights, allow_unused=True)


def _weights(tensor: torch.Tensor) -> torch.Tensor:
    """Eighths, made of whole numbers: the mode, in which they are made, too, must not refuse it."""
    numbers = torch.arange(tensor.numel()) * 7 % 11 + 1
    return (numbers.to(tensor.dtype) * 0.125).reshape(tensor.shape)


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings, and with memory that is filled before it is written."""
    is_on = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(is_on, warn_only=warns)


@contextmanager
def deterministically() -> Iterator[None]:
    """As mode portable has it: PyTorch refuses operations of its own that race."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True, warn_only=True)


REFUSED = object()


def portably(info: Any, sample: Sample, way: Way) -> Any:
    """What the mode gives, or REFUSED."""
    torch.default_generator.manual_seed(1)
    try:
        with deterministically(), PortableArithmetic():
            return way(info, sample.fresh())
    except NotPortable as refusal:
        if not (refusal.site.op and refusal.reason):
            raise AssertionError("a refusal says what and why") from refusal
        if refusal.__cause__ is not None:  # the form has failed where PyTorch's own has not
            raise refusal.__cause__ from refusal
        return REFUSED


def expected_of(info: Any, sample: Sample, way: Way) -> Any:
    torch.default_generator.manual_seed(1)
    return way(info, sample.fresh())


def fault_of(info: Any, sample: Sample, way: Way = plainly) -> str:
    """Why a result is not PyTorch's; empty where it is, or where either refuses it.

    The mode comes first: some libraries of linear algebra end the process where a number is NaN.
    """
    error = actual = None
    try:
        actual = portably(info, sample, way)
    except Exception as raised:
        error = raised
    if actual is REFUSED:
        return ""
    try:
        expected = expected_of(info, sample, way)
    except Exception:  # PyTorch itself refuses it, in whatever way
        return ""
    if error is not None:
        return f"{type(error).__name__}: {error}"[:200]
    pairs = list(zip(tensors_in(actual), tensors_in(expected), strict=False))
    if len(tensors_in(actual)) != len(tensors_in(expected)):
        return f"{len(tensors_in(actual))} tensors, not {len(tensors_in(expected))}"
    for one, other in pairs:
        if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
            return f"{one.dtype} {[*one.shape]}, not {other.dtype} {[*other.shape]}"
        if one.requires_grad != other.requires_grad:
            return f"requires_grad is {one.requires_grad}, not {other.requires_grad}"
        if way is plainly and _strides(one) != _strides(other) and _lies_as_usual(info, sample):
            return f"strides {one.stride()}, not {other.stride()}, of {[*one.shape]}"
    if not pairs:
        return "" if repr(actual) == repr(expected) else f"{actual!r}, not {expected!r}"
    fault = fault_of_numbers(info, sample, way, pairs)
    return "" if fault and _draws(info, sample, way) else fault


def _lies_as_usual(info: Any, sample: Sample) -> bool:
    """Whether all tensors are contiguous, or all images have their channels last, so that the
    strides of PyTorch's result do not follow from the machine."""
    by_library = info.name.startswith("nn.functional.conv_transpose")

    def is_usual(tensor: torch.Tensor) -> bool:
        is_last = tensor.stride() == channels_last(tensor.contiguous()).stride()
        return tensor.is_contiguous() or (is_last and not by_library)

    tensors = [each for each in sample.tensors() if each.layout is torch.strided]
    return all(map(is_usual, tensors))


def _strides(tensor: torch.Tensor) -> list[int]:
    """The steps between numbers, along axes that have more than one."""
    if tensor.layout is not torch.strided or tensor.numel() < 2:
        return []
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1]


def fault_in_doubles(info: Any, sample: Sample) -> str:
    """The fault of the same numbers in float64; it is one to refuse what float32 has."""
    wide = Sample(*tree_map(_widened, (sample.input, sample.args, sample.kwargs)))
    try:
        if portably(info, wide, plainly) is REFUSED:
            return (
                "" if portably(info, sample, plainly) is REFUSED else "is refused in float64 alone"
            )
    except Exception:  # a fault of either type, which the ways to try it tell
        return fault_of(info, wide)
    return fault_of(info, wide)


def _widened(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32:
        return leaf.double() if leaf.layout is torch.strided else leaf
    return torch.float64 if leaf == torch.float32 and isinstance(leaf, torch.dtype) else leaf


class _Draws(TorchDispatchMode):
    """Sees whether an operation draws from a generator: its numbers are not PyTorch's own."""

    seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.seen = self.seen or torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        return func(*args, **(kwargs or {}))


def _draws(info: Any, sample: Sample, way: Way) -> bool:
    with _Draws() as draws:
        expected_of(info, sample, way)
    return draws.seen


def fault_of_numbers(
    info: Any, sample: Sample, way: Way, pairs: list[tuple[torch.Tensor, torch.Tensor]]
) -> str:
    exact = magnitudes = None
    for index, (actual, expected) in enumerate(pairs):
        if expected.layout is not torch.strided or expected.is_quantized:
            continue
        a, b = real(actual), real(expected)
        if not b.is_floating_point():
            if not torch.equal(a, b) and info.name not in OF_EQUAL_NUMBERS:
                return f"{a.flatten()[:4].tolist()}, not {b.flatten()[:4].tolist()}"
            continue
        is_off = ~((a == b) | (a.isnan() & b.isnan()))
        if not is_off.any():
            continue
        if exact is None:
            exact = _as_doubles(info, sample, way, torch.Tensor.double)
            magnitudes = _as_doubles(info, sample, way, lambda tensor: tensor.double().abs())
        like = b.double()
        true = exact[index] if exact and exact[index].shape == b.shape else like
        true = torch.where(true.isfinite(), true, like)
        limits = _limits(b, true, magnitudes[index] if magnitudes else None)
        limits = limits + EPSILONS * torch.finfo(b.dtype).eps * _largest_copied(sample)
        if info.name in OF_DIFFERENCES:
            limits = limits + EPSILONS * torch.finfo(b.dtype).eps * sample.input.double().abs()
        within = (a.double() - true).abs() <= limits
        in_type = true.to(a.dtype)  # too large a number is infinite, a difference of two NaN
        within |= in_type.isinf() & ((a == in_type) | a.isnan())
        if info.name in NAN_BY_PLACE:
            within |= b.isnan()
        if not bool((~is_off | within | (a.isnan() & true.isnan())).all()):
            worst = int((is_off & ~within).flatten().int().argmax())
            return (
                f"{a.flatten()[worst].item()!r} at {worst}, PyTorch {b.flatten()[worst].item()!r}, "
                f"in float64 {true.flatten()[worst].item()!r}"
            )
    return ""


def real(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(plain) if plain.is_complex() else plain


def _as_doubles(
    info: Any, sample: Sample, way: Way, change: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor] | None:
    """The results for the same numbers in float64; none where PyTorch has none."""

    has_fractions = any(tensor.is_floating_point() for tensor in sample.tensors())

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        return change(tensor) if tensor.is_floating_point() or not has_fractions else tensor

    def of_kwarg(value: Any) -> Any:
        return torch.float64 if value in (torch.float32, torch.float16, torch.bfloat16) else value

    changed = sample.changed(wide)
    kwargs = {
        name: of_kwarg(value) if isinstance(value, torch.dtype) else value
        for name, value in changed.kwargs.items()
    }
    try:
        result = expected_of(info, Sample(changed.input, changed.args, kwargs), way)
    except Exception:
        return None
    return [real(tensor).double() for tensor in tensors_in(result)]


def _largest_copied(sample: Sample) -> float:
    """The largest of numbers that are all one: what is left of their differences is rounding."""
    copied = [
        abs(tensor.flatten()[0].item())
        for tensor in sample.tensors()
        if tensor.is_floating_point() and tensor.numel() > 1 and not any(tensor.stride())
    ]
    return max(filter(math.isfinite, copied), default=0.0)


def _limits(
    expected: torch.Tensor, true: torch.Tensor, magnitudes: torch.Tensor | None
) -> torch.Tensor:
    """The strictest bound that PyTorch's own result keeps four times over."""
    info = torch.finfo(expected.dtype)
    unit = EPSILONS * info.eps
    plain_error = torch.nan_to_num((expected.double() - true).abs(), nan=0.0, posinf=0.0)
    sizes = torch.zeros_like(true)
    if magnitudes is not None and magnitudes.shape == true.shape:
        sizes = torch.nan_to_num(magnitudes.abs(), nan=0.0, posinf=0.0)
    smallest = 4 * info.tiny * info.eps
    of_itself = unit * true.abs() + 2 * info.eps * sizes + smallest
    if bool((plain_error <= of_itself / 4).all()) and expected.dtype != torch.float64:
        return of_itself
    of_sizes = of_itself + unit * sizes
    if bool((plain_error <= of_sizes / 4).all()) and expected.dtype != torch.float64:
        return of_sizes
    of_largest = torch.where(true.isfinite(), true, 0.0).abs().amax()
    return of_sizes + 8 * plain_error.amax() + unit * of_largest


# -- bits ------------------------------------------------------------------------------------


class _Noting(PortableArithmetic):
    """Notes which operations come, and in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def observe(self, call: Any) -> Any:
        self.operations.append(str(call.func))
        return super().observe(call)


def bits_of(info: Any, sample: Sample) -> tuple[str, str] | None:
    """The operations, and a digest of what the mode gives, in which every NaN is the same.

    None where it refuses.
    """
    torch.default_generator.manual_seed(1)
    noting = _Noting()
    try:
        with noting:
            result = plainly(info, sample.fresh())
    except Exception:
        return None
    return " ".join(noting.operations), _digest(result)


def _digest(value: Any) -> str:
    digest = hashlib.sha256()
    for tensor in tensors_in(value):
        if tensor.layout is not torch.strided:
            continue
        numbers = real(tensor)
        if numbers.is_floating_point():
            numbers = torch.where(numbers.isnan(), torch.nan, numbers)
        digest.update(numbers.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def name_of(info: Any) -> str:
    variant = info.variant_test_name
    return f"{info.name}.{variant}" if variant else str(info.name)


def with_few_digits(sample: Sample) -> Sample:
    """The last digits follow from the instruction set with which PyTorch drew them."""

    def of_leaf(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            is_plain = leaf.is_floating_point() and leaf.layout is torch.strided
            return (leaf * 16).round() / 16 if is_plain else leaf
        return round(leaf * 16) / 16 if isinstance(leaf, float) and math.isfinite(leaf) else leaf

    return Sample(*(tree_map(of_leaf, each) for each in (sample.input, sample.args, sample.kwargs)))


def all_bits(most: int) -> dict[str, Any]:
    """Digests of all operations, with and without odd numbers.

    The names hold a digest of the inputs: instruction sets draw a few of them otherwise.
    """
    found = {}
    with quiet():
        for info in database():
            drawn = [sample for dtype in PRECISE for sample in samples_of(info, dtype, most)]
            for index, sample in enumerate(map(with_few_digits, drawn)):
                for change in ("as it is", "zeros", "sizes far apart"):
                    changed = sample.changed(VALUES.get(change, torch.clone))
                    name = f"{name_of(info)} {index} {change} {_digest(changed.tensors())}"
                    found[name] = bits_of(info, changed)
    return found


if __name__ == "__main__":
    json.dump(all_bits(int(sys.argv.pop())), sys.stdout)
