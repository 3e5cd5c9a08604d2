"""Functions of one number, activations among them, and softmax."""

from __future__ import annotations

from typing import Any

import torch

from cellrepro.arithmetic import activations, elementary
from cellrepro.arithmetic.kernels.registry import (
    NoPortableForm,
    PortableForm,
    PortableForms,
    check_float32,
)

FORMS = PortableForms()


_OF_FLOAT32 = {
    "exp": elementary.exp,
    "log": elementary.log,
    "erf": elementary.erf,
    "sigmoid": elementary.sigmoid,
    "tanh": elementary.tanh,
    "silu": activations.silu,
}


def _of_float32(name: str, function: PortableForm) -> PortableForm:
    def kernel(a: torch.Tensor) -> torch.Tensor:
        check_float32(name, a)
        return function(a)

    return kernel


for _name, _function in _OF_FLOAT32.items():
    FORMS[_name] = _of_float32(_name, _function)


@FORMS.of("sqrt")
def _sqrt(a: torch.Tensor) -> torch.Tensor:
    return elementary.square_root(a)


@FORMS.of("rsqrt")
def _rsqrt(a: torch.Tensor) -> torch.Tensor:
    root = elementary.square_root(a)
    return torch.ones_like(root) / root


@FORMS.of("pow")
def _pow(a: Any, exponent: Any) -> torch.Tensor:
    if not isinstance(a, torch.Tensor) or isinstance(exponent, torch.Tensor):
        raise NoPortableForm("has a portable form for exponents that are numbers only")
    if exponent == 0.5:
        return elementary.square_root(a)
    if exponent == -0.5:
        return _rsqrt(a)
    if exponent not in range(-4, 5):
        raise NoPortableForm(
            f"has a portable form for the exponents -4 to 4, 0.5 and -0.5, and got {exponent}"
        )
    power = torch.ones_like(a)
    for _ in range(abs(int(exponent))):
        power = power * a
    return torch.ones_like(power) / power if exponent < 0 else power


@FORMS.of("gelu")
def _gelu(a: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    _check_gelu(approximate, a)
    return activations.gelu(a)


@FORMS.of("gelu_backward")
def _gelu_backward(
    gradient: torch.Tensor, a: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    _check_gelu(approximate, a)
    return activations.gelu_backward(gradient, a)


def _check_gelu(approximate: str, a: torch.Tensor) -> None:
    check_float32("gelu", a)
    if approximate != "none":
        raise NoPortableForm(f"has a portable form for approximate='none', and got {approximate!r}")


@FORMS.of("sigmoid_backward")
def _sigmoid_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return activations.sigmoid_backward(gradient, output)


@FORMS.of("tanh_backward")
def _tanh_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return (output * output).neg_().add_(1.0).mul_(gradient)


@FORMS.of("silu_backward")
def _silu_backward(gradient: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    check_float32("silu_backward", gradient, a)
    return activations.silu_backward(gradient, a)


@FORMS.of("_softmax", "softmax")
def _softmax(a: torch.Tensor, dim: int, half_to_float: Any = False) -> torch.Tensor:
    check_float32("softmax", a)
    return activations.softmax(a, dim)


@FORMS.of("_safe_softmax")
def _safe_softmax(a: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Rows in which everything is masked are 0."""
    check_float32("softmax", a)
    is_masked = (a == -torch.inf).all(dim=dim, keepdim=True)
    return activations.softmax(a, dim).masked_fill(is_masked, 0.0)


@FORMS.of("_softmax_backward_data")
def _softmax_backward(
    gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    check_float32("softmax", output)
    return activations.softmax_backward(gradient, output, dim)


@FORMS.of("_log_softmax", "log_softmax")
def _log_softmax(a: torch.Tensor, dim: int, half_to_float: Any = False) -> torch.Tensor:
    check_float32("log_softmax", a)
    return activations.log_softmax(a, dim)


@FORMS.of("_log_softmax_backward_data")
def _log_softmax_backward(
    gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    check_float32("log_softmax", output)
    return activations.log_softmax_backward(gradient, output, dim)
