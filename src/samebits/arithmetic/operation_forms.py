"""How each operation of PyTorch becomes portable: by nature, by another form, or not at all."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import torch
import yaml

from samebits.arithmetic.kernels.registry import IN_ANY_TYPE, IN_PLACE, NoPortableForm, PortableForm
from samebits.arithmetic.kernels.table import FORMS
from samebits.trace.observer import Invocation

Form = Literal["exact", "replaced", "missing"]
"""An operation is portable by nature, it is replaced by a portable form, or it has none."""

_NAMESPACES = frozenset(("aten", "prims", "c10d", "_c10d_functional"))
"""Those whose names the tables know."""
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
    return operation_of(func).name


@dataclass(frozen=True, slots=True)
class Operation:
    """What of an operation depends on nothing that it is called with."""

    func: Any
    """PyTorch's function; held, so that nothing else gets its address."""
    name: str
    """Without namespace, overload and the ``_`` of writing in place."""
    writes_in_place: bool
    """Whether it writes into its first argument, as an ``_`` behind its name says."""
    always: Form | None
    """Its form where no argument can change it."""
    is_moving: bool
    is_comparing: bool
    is_of_whole_numbers: bool
    """Whether it computes whole numbers of whole numbers; a quotient is a fraction."""
    is_single: bool
    kernel: PortableForm | None
    """The form that replaces it."""
    is_in_any_type: bool
    """Whether that form is made for float16 and bfloat16, too."""
    makes_fractions: bool
    """Whether it makes fractions of whole numbers, too."""
    is_along_axes: bool
    is_typed_by_target: bool
    """Whether it creates numbers of the type of what it writes into with ``out=``."""
    several_targets: tuple[str, ...]
    """Names of what it writes into with ``out=``, if that is more than one tensor."""
    on_one: Operation | None
    """The operation on one tensor that one on lists does for each of them."""


_OPERATIONS: dict[int, Operation] = {}
"""By the function's address, as its own hash is slow."""


def operation_of(func: Any) -> Operation:
    """Look an operation up, once."""
    known = _OPERATIONS.get(id(func))
    if known is None:
        known = _OPERATIONS[id(func)] = _operation_of(func)
    return known


def _operation_of(func: Any) -> Operation:
    schema = getattr(func, "_schema", None)  # an operation that takes functions has none
    name = func.__name__ if schema is None else schema.name.partition("::")[2]
    writes_in_place = name.endswith("_") and not name.endswith("__")
    if writes_in_place:
        base = name if name in IN_PLACE else name[:-1]
    else:
        base = name.strip("_") if name.startswith("__") else name
    targets = () if schema is None else tuple(a.name for a in schema.arguments if a.is_out)
    exact = exact_operations()
    is_known = func.namespace in _NAMESPACES
    always: Form | None = None if is_known else "missing"
    if func.namespace in ("profiler", "prim"):  # they measure, or tell layout and device
        always = "exact"
    return Operation(
        func=func,
        name=base,
        writes_in_place=writes_in_place,
        always=always,
        is_moving=base in exact["moving"],
        is_comparing=base in exact["comparing"],
        is_of_whole_numbers=base in exact["whole_numbers"] or base in exact["single"] - {"div"},
        is_single=base in exact["single"],
        kernel=FORMS.get(base),
        is_in_any_type=base in IN_ANY_TYPE,
        makes_fractions=base in _OF_FRACTIONS or base.endswith("_backward"),
        is_along_axes=base in _ALONG_AXES,
        is_typed_by_target=len(targets) == 1 and _creates(func) and not _has(func, "dtype"),
        several_targets=targets if len(targets) > 1 else (),
        on_one=_on_one(base),
    )


def _creates(func: Any) -> bool:
    """Whether an operation creates a tensor, of a type and layout that it is told."""
    packet = func.overloadpacket
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return any(_has(each, "dtype") and _has(each, "layout") for each in overloads)


def _has(func: Any, name: str) -> bool:
    return any(argument.name == name for argument in func._schema.arguments)


FOREACH = "_foreach_"
"""With it begin the names of operations on lists of tensors, which PyTorch's optimizers use on GPUs
(torch 2.6 to 2.15)."""


def _on_one(name: str) -> Operation | None:
    """Where it has the same name."""
    packet = getattr(torch.ops.aten, name.removeprefix(FOREACH), None)
    if packet is None or not name.startswith(FOREACH):
        return None
    return operation_of(getattr(packet, packet.overloads()[0]))


@functools.cache
def exact_operations() -> Mapping[str, frozenset[str]]:
    """Operations that are exact by nature, by the kinds that ``exact_operations.yaml`` explains."""
    text = resources.files("samebits.arithmetic").joinpath("exact_operations.yaml").read_text()
    return {kind: frozenset(names.split()) for kind, names in yaml.safe_load(text).items()}


# -- what an operation is called with --------------------------------------------------------

_FRACTIONS = 1
"""A number with a fraction, or a type of such numbers."""
_COMPLEX = 2
_HALVES = 4
"""float16 or bfloat16."""
_OTHERWISE = 8
"""A tensor that is no plain table of numbers: sparse, nested, quantised."""

_KINDS = {
    torch.float32: _FRACTIONS,
    torch.float64: _FRACTIONS,
    torch.float16: _FRACTIONS | _HALVES,
    torch.bfloat16: _FRACTIONS | _HALVES,
    torch.complex32: _FRACTIONS | _COMPLEX,
    torch.complex64: _FRACTIONS | _COMPLEX,
    torch.complex128: _FRACTIONS | _COMPLEX,
    **dict.fromkeys((torch.bool, torch.uint8, torch.int8, torch.int16), 0),
    **dict.fromkeys((torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64), 0),
}
"""What is said of a type of numbers; nothing is known of the others."""


def kinds_of(arguments: Iterable[Any]) -> int:
    """What kinds of numbers are among the arguments of an operation, each a bit."""
    kinds = 0
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            kinds |= _KINDS.get(argument.dtype, _OTHERWISE)
            if argument.layout is not torch.strided or argument.is_nested:
                kinds |= _OTHERWISE
        elif isinstance(argument, float):
            kinds |= _FRACTIONS
        elif isinstance(argument, complex):
            kinds |= _COMPLEX
        elif isinstance(argument, torch.dtype):
            kinds |= _KINDS.get(argument, _OTHERWISE)
        elif isinstance(argument, list | tuple) and argument and not isinstance(argument[0], int):
            kinds |= kinds_of(argument)
    return kinds


def kinds_of_call(call: Invocation) -> int:
    """The kinds of numbers that an operation is called with."""
    kinds = kinds_of(call.args)
    return kinds | kinds_of(call.kwargs.values()) if call.kwargs else kinds


def form_of(call: Invocation) -> Form:
    """The form in which an operation with its arguments is portable."""
    return form_for(operation_of(call.func), call, kinds_of_call(call))


def form_for(operation: Operation, call: Invocation, kinds: int) -> Form:
    """The same, for an operation that was looked up and arguments that were looked at."""
    if operation.always is not None:
        return operation.always
    if kinds & (_COMPLEX | _OTHERWISE):
        return "missing"
    if operation.is_moving:
        return "exact"
    if operation.is_comparing and "decimals" not in call.kwargs:
        return "exact"
    if operation.is_of_whole_numbers and not kinds & _FRACTIONS:
        return "exact"
    if operation.is_single and _is_single(operation.name, call):
        return "exact"
    on_one = operation.on_one
    if on_one is not None and _is_one_by_one(call) and form_for(on_one, call, kinds) == "exact":
        return "exact"
    return "missing" if operation.kernel is None else "replaced"


NO_FORM = "has no portable form"
_OWN_REASONS = {
    "_new_zeros_with_same_feature_meta": "is called by torch.func.linearize, whose recorded graph "
    "does not hold what portable forms compute; torch.func.jvp has a portable form",
}
"""By the name of the operation: it computes nothing, and what it is part of is not portable."""


def why_missing(operation: Operation, kinds: int) -> str:
    """Why an operation has no portable form, as the end of a sentence about it."""
    if operation.always is not None:
        if operation.func.namespace == "higher_order":
            return "calls functions in a way of its own, and has no portable form"
        return (
            "is not one of PyTorch's own, so what it computes is not known, and has no portable "
            "form; call it as a function of PyTorch's operations"
        )
    if kinds & _OTHERWISE:
        return "has a portable form for plain tensors only, and got a sparse or another one"
    if kinds & _COMPLEX:
        return "has no portable form for complex numbers"
    return _OWN_REASONS.get(operation.name, NO_FORM)


def refuse_numbers(operation: Operation, call: Invocation, kinds: int) -> None:
    """Refuse numbers and shapes for which the replacing forms are not made."""
    if operation.is_in_any_type:
        return
    if kinds & _HALVES:
        raise NoPortableForm(
            f"has a portable form for float32 and float64, and got {_half_among(call)}"
        )
    if not (operation.makes_fractions or operation.is_along_axes):
        return
    first = _first_of(call)
    if not isinstance(first, torch.Tensor):
        return
    if operation.makes_fractions and not first.is_floating_point():
        raise NoPortableForm(f"has a portable form for float32 and float64, and got {first.dtype}")
    if operation.is_along_axes and (first.dim() == 0 or first.numel() == 0):
        raise NoPortableForm(
            f"has a portable form for tensors with numbers along axes, and got {[*first.shape]}"
        )


def _half_among(call: Invocation) -> str:
    """The first type of 16 bits that an operation was called with."""
    for argument in (*call.args, *call.kwargs.values()):
        for leaf in argument if isinstance(argument, list | tuple) else (argument,):
            dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else leaf
            if isinstance(dtype, torch.dtype) and _KINDS.get(dtype, 0) & _HALVES:
                return str(dtype)
    return "numbers of 16 bits"


def _first_of(call: Invocation) -> Any:
    """The first argument, or the first item of the first one that is a list."""
    for argument in (*call.args, *call.kwargs.values()):
        if not isinstance(argument, list | tuple):
            return argument
        if argument:
            return argument[0]
    return None


def refuse_several_targets(operation: Operation, call: Invocation) -> None:
    """Refuse several tensors to write into, as ``torch.sort`` takes them: forms return theirs."""
    if call.kwargs and operation.several_targets:
        raise NoPortableForm(
            f"has no portable form that writes into out=({', '.join(operation.several_targets)}); "
            "take what it returns without out="
        )


def _is_one_by_one(call: Invocation) -> bool:
    """Whether PyTorch takes the tensors of lists one by one, as it does on processors."""
    lists = [argument for argument in call.args if isinstance(argument, list | tuple)]
    return all(
        not isinstance(item, torch.Tensor) or item.device.type == "cpu"
        for items in lists
        for item in items
    )


def _is_single(name: str, call: Invocation) -> bool:
    """Whether PyTorch carries out one rounded operation, without a factor beside it."""
    if name == "div":  # on a GPU, a division by one number is a product with its inverse
        tensors = [each for each in call.args if isinstance(each, torch.Tensor)]
        divides_by_one_number = len(tensors) < 2 or tensors[1].dim() == 0
        on_processor = all(tensor.device.type == "cpu" for tensor in tensors)
        return "rounding_mode" not in call.kwargs and (on_processor or not divides_by_one_number)
    return len(call.args) <= 2 and call.kwargs.get("alpha", 1) == 1
