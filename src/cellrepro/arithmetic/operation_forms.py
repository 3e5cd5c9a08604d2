"""How each operation of PyTorch becomes portable: by nature, by another form, or not at all."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Any, Literal

import torch
import yaml

from cellrepro.arithmetic.kernels.registry import IN_ANY_TYPE, IN_PLACE, NoPortableForm
from cellrepro.arithmetic.kernels.table import FORMS
from cellrepro.trace.observer import Call

Form = Literal["exact", "replaced", "missing"]
"""An operation is portable by nature, it is replaced by a portable form, or it has none."""

_NAMESPACES = frozenset(("aten", "prims", "c10d", "_c10d_functional"))
"""Those whose names the tables know."""
_HALF = (torch.float16, torch.bfloat16)
_OF_FRACTIONS = frozenset(
    [
        "sqrt",
        "rsqrt",
        "pow",
        "affine_grid_generator",
        "grid_sampler",
        "grid_sampler_2d",
        "grid_sampler_3d",
    ]
)
"""Replaced operations that make fractions of whole numbers, too, as those of gradients do."""
_ALONG_AXES = frozenset(
    [
        "convolution",
        "_convolution",
        "convolution_backward",
        "unfold_backward",
    ]
)
"""Replaced operations whose portable form works along an axis, which must have numbers."""


def name_of(func: Any) -> str:
    """An operation's name without namespace, overload and the ``_`` of writing in place.

    >>> name_of(torch.ops.aten.add_.Tensor)
    'add'
    """
    name = _whole_name(func)
    if writes_in_place(func):
        return name if name in IN_PLACE else name[:-1]
    return name.strip("_") if name.startswith("__") else name


def writes_in_place(func: Any) -> bool:
    """Whether an operation writes into its first argument, as an ``_`` behind its name says."""
    name = _whole_name(func)
    return name.endswith("_") and not name.endswith("__")


def _whole_name(func: Any) -> str:
    return str(func).split(".")[1]


@functools.cache
def exact_operations() -> Mapping[str, frozenset[str]]:
    """Operations that are exact by nature, by the kinds that ``exact_operations.yaml`` explains."""
    text = resources.files("cellrepro.arithmetic").joinpath("exact_operations.yaml").read_text()
    return {kind: frozenset(names.split()) for kind, names in yaml.safe_load(text).items()}


def form_of(call: Call) -> Form:
    """The form in which an operation with its arguments is portable."""
    if call.func.namespace == "profiler":
        return "exact"
    if call.func.namespace not in _NAMESPACES:  # of another library, whatever its last name
        return "missing"
    name = name_of(call.func)
    leaves = list(_leaves((*call.args, *call.kwargs.values())))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(tensor.is_complex() for tensor in tensors):
        return "missing"
    exact = exact_operations()
    if name in exact["moving"] or (name in exact["comparing"] and "decimals" not in call.kwargs):
        return "exact"
    if not any(_has_fractions(leaf) for leaf in leaves) and _is_exact_in_whole_numbers(name):
        return "exact"
    if name in exact["single"] and _is_single(name, call, tensors):
        return "exact"
    return "replaced" if name in FORMS else "missing"


def refuse_numbers(call: Call) -> None:
    """Refuse numbers and shapes for which the replacing forms are not made."""
    name = name_of(call.func)
    if name in IN_ANY_TYPE:
        return
    leaves = list(_leaves((*call.args, *call.kwargs.values())))
    for leaf in leaves:
        dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else leaf
        if dtype in _HALF:
            raise NoPortableForm(f"has a portable form for float32, and got {dtype}")
    first = leaves[0] if leaves else None
    if not isinstance(first, torch.Tensor):
        return
    makes_fractions = name in _OF_FRACTIONS or name.endswith("_backward")
    if makes_fractions and not first.is_floating_point():
        raise NoPortableForm(f"has a portable form for float32, and got {first.dtype}")
    if name in _ALONG_AXES and (first.dim() == 0 or first.numel() == 0):
        raise NoPortableForm(
            f"has a portable form for tensors with numbers along axes, and got {[*first.shape]}"
        )


def refuse_several_targets(call: Call) -> None:
    """Refuse several tensors to write into, as ``torch.sort`` takes them: forms return theirs."""
    if not call.kwargs:
        return
    targets = [argument.name for argument in call.func._schema.arguments if argument.is_out]
    if len(targets) > 1:
        raise NoPortableForm(
            f"has no portable form that writes into out=({', '.join(targets)}); take what it "
            "returns without out="
        )


def _leaves(arguments: Iterable[Any]) -> Iterator[Any]:
    """The arguments of an operation, and the items of those that are lists, which hold no lists."""
    for argument in arguments:
        if isinstance(argument, list | tuple):
            yield from argument
        else:
            yield argument


def _has_fractions(leaf: Any) -> bool:
    """Whether an argument is of a floating-point type, or asks for one."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype.is_floating_point or leaf.dtype.is_complex
    if isinstance(leaf, torch.dtype):
        return leaf.is_floating_point
    return isinstance(leaf, float)


def _is_exact_in_whole_numbers(name: str) -> bool:
    """Whether an operation computes whole numbers of whole numbers; a quotient is a fraction."""
    exact = exact_operations()
    return name in exact["whole_numbers"] or name in exact["single"] - {"div"}


def _is_single(name: str, call: Call, tensors: list[torch.Tensor]) -> bool:
    """Whether PyTorch carries out one rounded operation, without a factor beside it."""
    if name == "div":  # on a GPU, a division by one number is a product with its inverse
        divides_by_one_number = len(tensors) < 2 or tensors[1].dim() == 0
        on_processor = all(tensor.device.type == "cpu" for tensor in tensors)
        return "rounding_mode" not in call.kwargs and (on_processor or not divides_by_one_number)
    return call.kwargs.get("alpha", 1) == 1 and len(call.args) <= 2
