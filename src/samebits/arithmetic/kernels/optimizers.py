"""Updates of Adam and AdamW, whose scalars PyTorch computes by the system's power function.

``1 - beta ** step`` is a number of Python, and no operation that a mode of PyTorch could see. So
Adam's own update is put aside for the one that PyTorch calls fused, a single operation over all
parameters, which has a portable form here. States of optimizers stay PyTorch's: a training may go
on with or without it. Names of functions are those of torch 2.6 to 2.15.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from samebits.arithmetic.kernels.elementary import square_root
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type
from samebits.arithmetic.memory import slices, workspace
from samebits.scalars import power

FORMS = PortableForms()


class Moments(NamedTuple):
    """A parameter with what Adam keeps of it, all of one shape; an update writes into all of
    them."""

    parameter: torch.Tensor
    gradient: torch.Tensor
    """It is read only."""
    mean: torch.Tensor
    """Moving mean of gradients."""
    square: torch.Tensor
    """Moving mean of their squares."""
    highest_square: torch.Tensor | None
    """The highest one so far, of ``amsgrad``."""

    def each(self, taken: Callable[[torch.Tensor], torch.Tensor]) -> Moments:
        """Take something of each tensor, as a view of it."""
        highest_square = self.highest_square
        return Moments(
            taken(self.parameter),
            taken(self.gradient),
            taken(self.mean),
            taken(self.square),
            None if highest_square is None else taken(highest_square),
        )


@dataclass(frozen=True)
class AdamSettings:
    """Arguments of ``torch.optim.Adam`` and ``AdamW``."""

    learning_rate: float
    betas: tuple[float, float]
    """How much of the moving means stays at each step."""
    epsilon: float
    weight_decay: float
    is_decoupled: bool
    """Whether weights decay by themselves, as in AdamW, or through the gradient."""
    is_maximised: bool = False
    """Whether the parameters follow the gradient upwards."""


class Update(Protocol):
    """One step of an optimizer for all its parameters, as PyTorch's modules hold it."""

    def __call__(self, *arguments: object, **settings: object) -> None:
        """Do it."""


@functools.lru_cache(maxsize=64)
def bias_correction(beta: float, step: int) -> float:
    """Get the divisor of a moving mean that began with 0, after so many steps.

    >>> bias_correction(0.5, 1), bias_correction(0.5, 3)
    (0.5, 0.875)
    """
    return 1.0 - power(beta, step)


def _update(moments: Moments, settings: AdamSettings, step: int) -> None:
    """Do one step of Adam or AdamW, each operation by itself.

    With the formula of ``torch.optim.Adam``, in its order; parameters differ from PyTorch's by
    some roundings of a step, not more than 1e-6 of the learning rate.
    """
    tensors = [tensor for tensor in moments if tensor is not None]
    if not all(tensor.is_contiguous() for tensor in tensors):
        _update_block(moments, settings, step)
        return
    flat = moments.each(lambda tensor: tensor.view(-1))
    parameter = flat.parameter
    for part in slices(parameter.numel(), item_size=len(tensors), device=parameter.device):
        _update_block(flat.each(operator.itemgetter(part)), settings, step)


def _update_block(moments: Moments, settings: AdamSettings, step: int) -> None:
    parameter, gradient, mean, square, highest_square = moments
    beta, beta_of_square = settings.betas
    if settings.is_maximised:
        gradient = gradient.neg()
    if settings.weight_decay != 0:
        if settings.is_decoupled:
            parameter.mul_(1.0 - settings.learning_rate * settings.weight_decay)
        else:
            gradient = gradient + parameter * settings.weight_decay
    change = workspace.like(parameter, "change", dtype=parameter.dtype)
    torch.sub(gradient, mean, out=change)
    mean.add_(change.mul_(1.0 - beta))
    torch.mul(gradient, 1.0 - beta_of_square, out=change)
    square.mul_(beta_of_square)
    square.add_(change.mul_(gradient))
    if highest_square is not None:
        torch.maximum(highest_square, square, out=highest_square)
        square = highest_square
    deviation = square_root(square)
    _divide(deviation, math.sqrt(bias_correction(beta_of_square, step)))
    deviation.add_(settings.epsilon)
    torch.mul(mean, settings.learning_rate / bias_correction(beta, step), out=change)
    parameter.sub_(change.div_(deviation))


def _divide(numbers: torch.Tensor, divisor: float) -> None:
    """Divide by one number; CUDA would multiply by the reciprocal of one that is no tensor."""
    if numbers.device.type == "cpu":
        numbers.div_(divisor)
    else:
        numbers.div_(numbers.new_full((1,) * max(1, numbers.dim()), divisor))


@FORMS.of("_fused_adam")
def _fused_adam(*lists: Sequence[torch.Tensor], **settings: Any) -> None:
    _update_by_adam(lists, settings, is_decoupled=False)


@FORMS.of("_fused_adamw")
def _fused_adamw(*lists: Sequence[torch.Tensor], **settings: Any) -> None:
    _update_by_adam(lists, settings, is_decoupled=True)


def _update_by_adam(
    lists: Sequence[Sequence[torch.Tensor]], settings: dict[str, Any], *, is_decoupled: bool
) -> None:
    parameters, gradients, means, squares, highest_squares, steps = lists
    check_type(*parameters, *gradients)
    _refuse_scaler(settings)
    of_all = AdamSettings(
        learning_rate=float(settings["lr"]),
        betas=(float(settings["beta1"]), float(settings["beta2"])),
        epsilon=float(settings["eps"]),
        weight_decay=float(settings["weight_decay"]),
        is_decoupled=is_decoupled,
        is_maximised=settings["maximize"],
    )
    is_small = small_and_apart(parameters)
    small: dict[int, list[Moments]] = {}
    for i, parameter in enumerate(parameters):
        highest_square = highest_squares[i] if settings["amsgrad"] else None
        moments = Moments(parameter, gradients[i], means[i], squares[i], highest_square)
        step = int(steps[i].item())
        if is_small[i]:
            small.setdefault(step, []).append(moments)
        else:
            _update(moments, of_all, step)
    for step, each in small.items():
        _update_together(each, of_all, step)


MOST_TOGETHER = 2**13
"""Numbers of a parameter up to which calls cost more than to copy it and back."""


def small_and_apart(parameters: Sequence[torch.Tensor]) -> list[bool]:
    """Which parameters can be updated together: small ones that share their memory with none."""
    places = [parameter.untyped_storage().data_ptr() for parameter in parameters]
    n_at = Counter(places)
    return [
        parameter.numel() <= MOST_TOGETHER and n_at[place] == 1
        for parameter, place in zip(parameters, places, strict=True)
    ]


def in_a_row(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All numbers of tensors in one row."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def write_back(tensors: Sequence[torch.Tensor], row: torch.Tensor) -> None:
    """Write a row into the tensors that it was made of."""
    parts = row.split([tensor.numel() for tensor in tensors])
    in_shape = [part.view(tensor.shape) for tensor, part in zip(tensors, parts, strict=True)]
    torch._foreach_copy_(list(tensors), in_shape)


def _update_together(each: Sequence[Moments], settings: AdamSettings, step: int) -> None:
    """Update small parameters as one, which has the same bits as number by number."""
    parameters, gradients, means, squares, highest = zip(*each, strict=True)
    highest_squares = tuple(square for square in highest if square is not None)
    together = Moments(
        in_a_row(parameters),
        in_a_row(gradients),
        in_a_row(means),
        in_a_row(squares),
        in_a_row(highest_squares) if highest_squares else None,
    )
    _update(together, settings, step)
    write_back(parameters, together.parameter)
    write_back(means, together.mean)
    write_back(squares, together.square)
    if together.highest_square is not None:
        write_back(highest_squares, together.highest_square)


def _refuse_scaler(settings: dict[str, Any]) -> None:
    if settings.get("grad_scale") is not None or settings.get("found_inf") is not None:
        raise NoPortableForm("has a portable form beside a GradScaler without fused=True only")


# -- fused updates, by the operations of those that are not ----------------------------------


@FORMS.of("_fused_sgd")
def _fused_sgd(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    buffers: Sequence[torch.Tensor],
    **settings: Any,
) -> None:
    check_type(*parameters, *gradients)
    _refuse_scaler(settings)
    momentum = float(settings["momentum"])
    for i, parameter in enumerate(parameters):
        gradient = _decayed(parameter, gradients[i], settings)
        if momentum != 0:
            buffer = buffers[i]
            if settings["is_first_step"]:
                buffer.copy_(gradient)
            else:
                share = 1 - float(settings["dampening"])
                buffer.mul_(momentum).add_(gradient if share == 1 else gradient * share)
            gradient = gradient + buffer * momentum if settings["nesterov"] else buffer
        parameter.add_(gradient * -float(settings["lr"]))


@FORMS.of("_fused_adagrad")
def _fused_adagrad(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    sums: Sequence[torch.Tensor],
    steps: Sequence[torch.Tensor],
    **settings: Any,
) -> None:
    check_type(*parameters, *gradients)
    _refuse_scaler(settings)
    for i, parameter in enumerate(parameters):
        gradient = _decayed(parameter, gradients[i], settings)
        rate = float(settings["lr"]) / (1 + (steps[i].item() - 1) * float(settings["lr_decay"]))
        sums[i].add_(gradient * gradient)
        deviation = square_root(sums[i]).add_(float(settings["eps"]))
        parameter.add_((gradient * -rate) / deviation)


def _decayed(
    parameter: torch.Tensor, gradient: torch.Tensor, settings: dict[str, Any]
) -> torch.Tensor:
    """The gradient in the direction that was asked for, with the decay of weights added."""
    gradient = -gradient if settings["maximize"] else gradient
    decay = float(settings["weight_decay"])
    return gradient + parameter * decay if decay != 0 else gradient


def as_one_operation(function: Update) -> Update:
    """Adam or AdamW of PyTorch as its fused operation, on any device."""

    @functools.wraps(function)
    def updated(*arguments: object, **settings: object) -> None:
        function(*arguments, **{**settings, "foreach": False, "fused": True})

    return updated
