"""Updates of parameters by an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cellrepro.arithmetic import optimizers
from cellrepro.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32

FORMS = PortableForms()


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
    check_float32("adam", *parameters, *gradients)
    if settings.get("grad_scale") is not None or settings.get("found_inf") is not None:
        raise NoPortableForm("has a portable form for float32 without a GradScaler only")
    optimizers.update_all(
        parameters,
        gradients,
        means,
        squares,
        highest_squares if settings["amsgrad"] else (),
        steps,
        optimizers.AdamSettings(
            learning_rate=float(settings["lr"]),
            betas=(float(settings["beta1"]), float(settings["beta2"])),
            epsilon=float(settings["eps"]),
            weight_decay=float(settings["weight_decay"]),
            is_decoupled=is_decoupled,
            is_maximised=settings["maximize"],
        ),
    )
