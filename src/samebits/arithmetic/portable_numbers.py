"""What PyTorch's optimizers and schedules compute with numbers of Python.

``beta ** step`` and ``math.cos`` come from the system's library, and no mode of PyTorch sees them.
Inside of a block the numbers that an update is given compute their powers by themselves.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import torch

from samebits import scalars
from samebits.arithmetic.kernels.optimizers import Update, as_one_operation
from samebits.replaced_functions import Replacement, SharedByBlocks, replaced

_BY_ONE_OPERATION = ("adam", "adamw")
"""Functions of ``torch.optim``, in modules of the same names, that have one operation for it."""
_UPDATES = ("adamax", "asgd", "nadam", "radam")
"""Functions of ``torch.optim``, in modules of the same names, all of whose powers have an argument
of the function in the base or in the exponent."""
_SCHEDULES = ("lr_scheduler", "swa_utils")
"""Modules of ``torch.optim`` that compute cosines."""
_BY_THE_SYSTEM = (
    "computes numbers by the system's power function, which is not the same everywhere; SGD, "
    "Adam and most others of PyTorch have a portable form"
)
_WITHOUT_FORM = {
    "Adafactor": _BY_THE_SYSTEM,
    "SparseAdam": _BY_THE_SYSTEM,
    "Muon": "computes in bfloat16, and portable forms of products are for float32 and float64",
}
"""PyTorch's optimizers that have no portable form, and why."""


class PortableNumber(float):
    """A float whose powers are correctly rounded; what is computed of it is such a number, too.

    >>> 2 * PortableNumber(0.9) ** 3.0, 0.96 ** (3.0 * PortableNumber(0.004))
    (1.4580000000000002, 0.9995102560295045)
    """

    __slots__ = ()

    def __neg__(self) -> PortableNumber:
        return PortableNumber(float.__neg__(self))

    def __add__(self, other: float) -> PortableNumber:
        return _of_the_kind(float.__add__(self, other))

    def __radd__(self, other: float) -> PortableNumber:
        return _of_the_kind(float.__radd__(self, other))

    def __sub__(self, other: float) -> PortableNumber:
        return _of_the_kind(float.__sub__(self, other))

    def __rsub__(self, other: float) -> PortableNumber:
        return _of_the_kind(float.__rsub__(self, other))

    def __mul__(self, other: float) -> PortableNumber:
        return _of_the_kind(float.__mul__(self, other))

    def __rmul__(self, other: float) -> PortableNumber:
        return _of_the_kind(float.__rmul__(self, other))

    def __truediv__(self, other: float) -> PortableNumber:
        return _of_the_kind(float.__truediv__(self, other))

    def __rtruediv__(self, other: float) -> PortableNumber:
        return _of_the_kind(float.__rtruediv__(self, other))

    def __pow__(self, exponent: float, modulus: None = None) -> PortableNumber:
        if not isinstance(exponent, float | int):
            return NotImplemented
        return PortableNumber(scalars.real_power(float(self), float(exponent)))

    def __rpow__(self, base: float, modulus: None = None) -> PortableNumber:
        if not isinstance(base, float | int):
            return NotImplemented
        return PortableNumber(scalars.real_power(float(base), float(self)))


def _of_the_kind(value: float) -> PortableNumber:
    """The same as such a number; what float does not compute, as with a tensor, as it is."""
    return PortableNumber(value) if isinstance(value, float) else value


def _functions_of_optimizers() -> Iterator[Replacement]:
    for name in _BY_ONE_OPERATION:
        yield Replacement(_in_optim(name), name, as_one_operation)
    for name in _UPDATES:
        yield Replacement(_in_optim(name), name, _with_portable_numbers)
    for name in _SCHEDULES:
        yield Replacement(_in_optim(name), "math", _with_portable_cosine)


PORTABLE_NUMBERS = SharedByBlocks(lambda: replaced(_functions_of_optimizers()))
"""Updates of PyTorch that compute powers, and its schedules cosines, portably."""


def _in_optim(name: str) -> ModuleType:
    return importlib.import_module(f"torch.optim.{name}")


def _with_portable_cosine(math: ModuleType) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(math), "cos": scalars.cos})


def why_not_portable(optimizer: torch.optim.Optimizer) -> str:
    """The reason for which an optimizer's update may differ between systems; else empty."""
    kinds = [kind for kind in type(optimizer).__mro__ if kind.__module__.startswith("torch.optim")]
    for kind in kinds:
        if kind.__name__ in _WITHOUT_FORM:
            return _WITHOUT_FORM[kind.__name__]
    is_adam = any(kind.__name__ in ("Adam", "AdamW") for kind in kinds)
    if is_adam and any(group.get("differentiable") for group in optimizer.param_groups):
        return (
            "with differentiable=True asks for a gradient of the update; its portable form has none"
        )
    if torch.optim.LBFGS not in kinds:
        return ""
    searches = [group.get("line_search_fn") for group in optimizer.param_groups]
    return f"with line_search_fn={searches[0]!r} {_BY_THE_SYSTEM}" if any(searches) else ""


def _with_portable_numbers(update: Update) -> Update:
    @functools.wraps(update)
    def updated(*arguments: object, **settings: object) -> None:
        numbers = {
            name: PortableNumber(value) if isinstance(value, float) else value
            for name, value in settings.items()
        }
        update(*arguments, **{**numbers, "foreach": False})

    return updated
