"""Losses with their gradients."""

from __future__ import annotations

from typing import Any

import torch

from samebits.arithmetic.kernels.elementary import (
    exp_at_most_one,
    log,
    log1p,
    log1p_of_unit,
    sigmoid,
)
from samebits.arithmetic.kernels.finite import all_finite
from samebits.arithmetic.kernels.registry import (
    NoPortableForm,
    PortableForm,
    PortableForms,
    check_type,
)
from samebits.arithmetic.kernels.sums import pairwise_mean, pairwise_sum
from samebits.arithmetic.memory import mapped

FORMS = PortableForms()

_MEAN = 1
_SUM = 2
"""How PyTorch writes the ways to make one number of a loss; 0 leaves it as it is."""


def _reduced(loss: torch.Tensor, reduction: int) -> torch.Tensor:
    if reduction == _MEAN:
        return pairwise_mean(loss)
    if reduction == _SUM:
        return pairwise_sum(loss)
    return loss


@FORMS.of("mse_loss")
def _mse_loss(a: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN) -> torch.Tensor:
    difference = a - target
    return _reduced(difference * difference, reduction)


@FORMS.of("mse_loss_backward")
def _mse_loss_backward(
    gradient: torch.Tensor, a: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    difference = (a - target) * 2.0
    if reduction == _MEAN:
        difference = difference / torch.full_like(difference, a.numel())
    return difference * gradient


@FORMS.of("binary_cross_entropy_with_logits")
def _cross_entropy_with_logits(
    a: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    check_type(a, target, weight, pos_weight)
    if pos_weight is None and all_finite(a):
        loss = mapped(_cross_entropy_of_block, a, target.expand_as(a).contiguous())
    else:
        loss = mapped(_softplus_of_negative, a)
        if pos_weight is not None:
            loss = loss * (pos_weight - 1.0).mul(target).add(1.0)
        loss = loss + (1.0 - target) * a
    return _reduced(loss if weight is None else loss * weight, reduction)


def _cross_entropy_of_block(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss of each logit: max(x, 0) - x t + log(1 + exp(-abs(x)))."""
    loss = log1p_of_unit(exp_at_most_one(logits.abs().neg_()))
    loss += logits.clamp(min=0.0)
    loss -= logits * targets
    return loss


def _softplus_of_negative(logits: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(-x)) as max(-x, 0) + log(1 + exp(-abs(x)))."""
    loss = log1p_of_unit(exp_at_most_one(logits.abs().neg_()))
    return loss.sub_(logits.clamp(max=0.0))


_LEAST_LOGARITHM = -100.0
_LEAST_PRODUCT = 1e-12
"""Bounds by which PyTorch keeps the loss of chances, and its gradient, finite."""


@FORMS.of("binary_cross_entropy")
def _cross_entropy(
    a: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    """-t log(x) - (1 - t) log(1 - x), of chances."""
    check_type(a, target, weight)
    if a.numel() and not bool(((a >= 0) & (a <= 1)).all()):
        raise NoPortableForm("takes chances from 0 to 1, and got others")
    of_none = log1p(-a).clamp_(min=_LEAST_LOGARITHM)
    of_one = log(a).clamp_(min=_LEAST_LOGARITHM)
    loss = (target - 1.0) * of_none - target * of_one
    return _reduced(loss if weight is None else loss * weight, reduction)


@FORMS.of("binary_cross_entropy_backward")
def _cross_entropy_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    check_type(gradient, a, target, weight)
    slope = (a - target) / ((1.0 - a) * a).clamp_(min=_LEAST_PRODUCT)
    if weight is not None:
        slope = slope * weight
    return _shared(slope, reduction) * gradient


@FORMS.of("soft_margin_loss")
def _soft_margin_loss(
    a: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN
) -> torch.Tensor:
    """log(1 + exp(-t x)) of targets -1 and 1."""
    check_type(a, target)
    return _reduced(mapped(_softplus_of_negative, a * target), reduction)


@FORMS.of("soft_margin_loss_backward")
def _soft_margin_loss_backward(
    gradient: torch.Tensor, a: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    check_type(gradient, a, target)
    slope = -target * sigmoid(-(a * target))
    return _shared(slope, reduction) * gradient


@FORMS.of("xlogy")
def _xlogy(a: Any, b: Any) -> torch.Tensor:
    return _times_logarithm(a, b, log)


@FORMS.of("special_xlog1py")
def _xlog1py(a: Any, b: Any) -> torch.Tensor:
    return _times_logarithm(a, b, log1p)


@FORMS.of("special_entr")
def _entropy(a: torch.Tensor) -> torch.Tensor:
    """-x log(x), and minus infinity of what is below 0."""
    check_type(a)
    return (-_times_logarithm(a, a, log)).masked_fill(a < 0, float("-inf"))


def _times_logarithm(a: Any, b: Any, logarithm: PortableForm) -> torch.Tensor:
    """x log(y), and 0 where x is 0, unless y is NaN."""
    dtype = torch.result_type(a, b)
    numbers = b.to(dtype) if isinstance(b, torch.Tensor) else torch.full_like(a, b, dtype=dtype)
    product = a * logarithm(numbers)
    is_zero = (a == 0) & ~numbers.isnan()
    return torch.where(is_zero, torch.zeros_like(product), product)


@FORMS.of("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    a: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    check_type(a, weight)
    classes, weights = _classes(a, target, weight, ignore_index)
    loss = (-a.gather(_class_axis(a), classes) * weights).masked_fill_(
        (target == ignore_index).unsqueeze(_class_axis(a)), 0.0
    )
    loss = loss.squeeze(_class_axis(a))
    if reduction not in (_MEAN, _SUM) and a.dim() > 1:
        return loss, a.new_zeros(())
    total_weight = pairwise_sum(weights)
    total = pairwise_sum(loss)
    return (total / total_weight if reduction == _MEAN else total), total_weight


@FORMS.of("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    classes, weights = _classes(a, target, weight, ignore_index)
    if reduction == _MEAN:
        weights = weights / total_weight.expand_as(weights)
    of_loss = gradient if reduction in (_MEAN, _SUM) else gradient.unsqueeze(_class_axis(a))
    slopes = -(weights * of_loss)
    slopes.masked_fill_((target == ignore_index).unsqueeze(_class_axis(a)), 0.0)
    return torch.zeros_like(a).scatter(_class_axis(a), classes, slopes)


def _class_axis(a: torch.Tensor) -> int:
    """The axis of the classes: the second, or of a single sample the only one."""
    return 0 if a.dim() == 1 else 1


def _classes(
    a: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The class of each pixel and its weight, which is 0 where the class is ignored."""
    is_ignored = target == ignore_index
    classes = target.masked_fill(is_ignored, 0)
    weights = torch.ones_like(classes, dtype=a.dtype) if weight is None else weight[classes]
    axis = _class_axis(a)
    return classes.unsqueeze(axis), weights.masked_fill(is_ignored, 0.0).unsqueeze(axis)


@FORMS.of("smooth_l1_loss")
def _smooth_l1_loss(
    a: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, beta: float = 1.0
) -> torch.Tensor:
    distance = (a - target).abs()
    loss = distance - 0.5 * beta
    if beta > 0:
        near = (distance * distance * 0.5) / torch.full_like(distance, beta)
        loss = torch.where(distance < beta, near, loss)
    return _reduced(loss, reduction)


@FORMS.of("smooth_l1_loss_backward")
def _smooth_l1_loss_backward(
    gradient: torch.Tensor, a: torch.Tensor, target: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    difference = a - target
    slope = difference.sgn()
    if beta > 0:
        near = difference / torch.full_like(difference, beta)
        slope = torch.where(difference.abs() < beta, near, slope)
    return _shared(slope, reduction) * gradient


@FORMS.of("huber_loss")
def _huber_loss(
    a: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, delta: float = 1.0
) -> torch.Tensor:
    distance = (a - target).abs()
    near = distance * distance * 0.5
    far = (distance - 0.5 * delta) * delta
    return _reduced(torch.where(distance < delta, near, far), reduction)


@FORMS.of("huber_loss_backward")
def _huber_loss_backward(
    gradient: torch.Tensor, a: torch.Tensor, target: torch.Tensor, reduction: int, delta: float
) -> torch.Tensor:
    difference = a - target
    slope = difference.clamp(-delta, delta)
    return _shared(slope, reduction) * gradient


# -- margins between classes -----------------------------------------------------------------


@FORMS.of("multi_margin_loss")
def _multi_margin_loss(
    a: torch.Tensor,
    target: torch.Tensor,
    p: float = 1,
    margin: float = 1,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    """By how much other classes reach into the margin below the right one, as p-th powers."""
    check_type(a, weight)
    if p not in (1, 2):
        raise ValueError(f"p is {p}; expected 1 or 2")
    within, weights, _ = _within_margin(a, target, margin, weight)
    each = (within if p == 1 else within * within) * weights
    loss = pairwise_sum(each, [1]) / torch.full_like(each[:, 0], each.shape[1])
    return _reduced(loss.reshape(target.shape), reduction)


@FORMS.of("multi_margin_loss_backward")
def _multi_margin_loss_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    target: torch.Tensor,
    p: float,
    margin: float,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    check_type(gradient, a, weight)
    within, weights, classes = _within_margin(a, target, margin, weight)
    slopes = ((within > 0).to(a.dtype) if p == 1 else within * 2.0) * weights
    slopes = slopes / torch.full_like(slopes, slopes.shape[1])
    slopes = slopes.scatter(1, classes, -pairwise_sum(slopes, [1], keepdim=True))
    n_samples = slopes.shape[0] if reduction == _MEAN else 1
    of_samples = gradient.reshape(-1, 1) / torch.full_like(gradient.reshape(-1, 1), n_samples)
    return (slopes * of_samples).reshape(a.shape)


def _within_margin(
    a: torch.Tensor, target: torch.Tensor, margin: float, weight: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """How far each class reaches into the margin of its sample, the weights, the right classes."""
    rows = _rows_of(a)
    classes = target.reshape(-1, 1)
    within = margin - rows.gather(1, classes) + rows
    within = torch.where(within > 0, within, 0.0).scatter(1, classes, 0.0)
    weights = torch.ones_like(within[:, :1]) if weight is None else weight[classes]
    return within, weights, classes


@FORMS.of("multilabel_margin_loss_forward")
def _multilabel_margin_loss(
    a: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """By how much other classes reach into the margin of 1 below each of the right ones."""
    check_type(a)
    is_right = _right_classes(a, target)
    within, _ = _within_margins(a, target, is_right)
    loss = pairwise_sum(within, [1, 2]) / torch.full_like(within[:, 0, 0], within.shape[2])
    loss = loss.reshape(a.shape[:1] if a.dim() > 1 else ())
    return _reduced(loss, reduction), is_right.to(a.dtype).reshape(target.shape)


@FORMS.of("multilabel_margin_loss_backward")
def _multilabel_margin_loss_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    is_target: torch.Tensor,
) -> torch.Tensor:
    check_type(gradient, a)
    within, classes = _within_margins(a, target, is_target.reshape(target.shape) != 0)
    reaches = (within > 0).long()
    counts = reaches.sum(1).scatter_add(1, classes, -reaches.sum(2))
    n_samples = counts.shape[0] if reduction == _MEAN else 1
    of_samples = gradient.reshape(-1, 1)
    of_samples = of_samples / torch.full_like(of_samples, counts.shape[1] * n_samples)
    return (counts.to(a.dtype) * of_samples).reshape(a.shape)


def _right_classes(a: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Which classes are right: those that are named before the first -1."""
    classes, is_given = _given_classes(_rows_of(a), target)
    return torch.zeros_like(classes).scatter_add(1, classes, is_given.long()) > 0


def _given_classes(rows: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    given = target.reshape(rows.shape)
    is_given = (given < 0).cumsum(1) == 0
    return torch.where(is_given, given, 0), is_given


def _rows_of(a: torch.Tensor) -> torch.Tensor:
    """Samples by classes."""
    if a.numel() == 0:
        raise NoPortableForm("has a portable form of at least one number; PyTorch writes none then")
    return a if a.dim() > 1 else a.reshape(1, -1)


def _within_margins(
    a: torch.Tensor, target: torch.Tensor, is_right: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """How far each class (third axis) reaches into the margin of each right one (second); and the
    right ones, up to the first -1."""
    rows = _rows_of(a)
    classes, is_given = _given_classes(rows, target)
    is_right = is_right.reshape(rows.shape)
    within = 1.0 - rows.gather(1, classes)[:, :, None] + rows[:, None, :]
    counts = (within > 0) & is_given[:, :, None] & ~is_right[:, None, :]
    return torch.where(counts, within, 0.0), classes


def _shared(slopes: torch.Tensor, reduction: int) -> torch.Tensor:
    """Slopes of each number's loss as those of the mean, if that is taken."""
    if reduction != _MEAN:
        return slopes
    return slopes / torch.full_like(slopes, slopes.numel())
