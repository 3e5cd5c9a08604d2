"""How a dispatched operation is executed again on equal inputs without side effects.

What it overwrites is copied first, generators are put back, and what its schema does not say is
known from a list or guarded against.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from samebits.bit_equality import PLAIN_TYPES
from samebits.trace.observer import Call

_UNINITIALISED = re.compile(r"(new_)?empty(_like|_strided|_permuted)?|_?empty_\w*quantized")
"""Names of operations that return uninitialised memory, of which no equal bits are promised."""

_UNUSED_OUTPUTS = {
    "_ctc_loss": {1},
    "mkldnn_rnn_layer": {3},
    "cudnn_batch_norm": {3},
    "_cudnn_rnn": {3, 4},
    "_scaled_dot_product_flash_attention": {6, 7, 8},
    "_scaled_dot_product_efficient_attention": {2, 3},
    "_scaled_dot_product_cudnn_attention": {6, 7, 8},
    "_efficient_attention_forward": {2, 3},
    "_flash_attention_forward": {2, 3, 4},
}
"""Indices of outputs that hold a reserve or a random state which nobody writes when dropout is off,
or that are larger than what is written (torch 2.15)."""

_WRITTEN_ARGUMENTS = frozenset({"running_mean", "running_var", "dropout_state", "noise"})
"""Arguments that some operations write into though their schema does not say so (torch 2.15:
``native_batch_norm``, ``_cudnn_rnn``)."""

_TRUSTED = frozenset({"aten", "prims", "mkldnn", "mkl", "onednn", "quantized", "_quantized"})
"""Namespaces whose schemas say what an operation writes and draws, but for `_WRITTEN_ARGUMENTS`."""

_CARRYING = frozenset({"cat", "clone", "copy", "stack", "_foreach_copy", "_to_copy"})
"""Names, without the ``_`` of writing in place, of operations that put all numbers that they are
given elsewhere: nothing is computed of them."""

_NOT_REPLAYED = frozenset(
    {
        *("prim", "profiler", "export", "debugprims", "debug_mode_ops", "inductor", "streams"),
        *("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp", "symm_mem"),
        *("cuda", "rngprims"),
    }
)
"""Namespaces of markers, of operations that wait for other processes, and of those that move
generators themselves."""


@dataclass(frozen=True)
class ReplayPlan:
    """How an operation is executed again, by its schema."""

    replayable: bool = False
    computes: bool = False
    """Whether it computes: it is replayable, or reads a number for Python."""
    carries: bool = False
    """Whether it only puts numbers elsewhere."""
    draws: bool = False
    """Whether it may draw from a generator."""
    guarded: bool = True
    """Whether its schema is not to be trusted: it may write and draw anything."""
    written: tuple[tuple[int, str], ...] = ()
    """Position and name of arguments it may write into."""
    fresh: tuple[int, ...] = ()
    """Indices of returned values that are neither (views of) arguments nor unused."""
    n_returns: int = 0
    copies: bool = False
    """Whether it may return before it is done, if it copies between devices."""
    allocates: bool = False
    """Whether it returns uninitialised memory."""
    resizes: bool = False
    """Whether it may enlarge its first argument by uninitialised memory."""

    def outputs(self, args: tuple, kwargs: dict[str, Any], returned: Any) -> list[Any]:
        """The results of an operation: new values, then what it wrote in place."""
        if not self.written:
            return self.new_values(returned)
        return [*self.new_values(returned), *self.overwritten(args, kwargs)]

    def new_values(self, returned: Any) -> list[Any]:
        """The results that are no views of arguments."""
        if self.n_returns == 1:
            return leaves_of(returned) if self.fresh else []
        return leaves_of([returned[index] for index in self.fresh])

    def overwritten(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """The arguments that an operation writes into, or may."""
        values = [args[at] if at < len(args) else kwargs.get(name) for at, name in self.written]
        return leaves_of([value for value in values if value is not None])


_PLANS: dict[int, tuple[Any, ReplayPlan]] = {}
"""Plans with their operations, by the operation's address, as its own hash is slow; while it is
held, no other object gets that address."""


def plan_of(func: Any) -> ReplayPlan:
    """Get the plan of an operation; its schema is read once."""
    known = _PLANS.get(id(func))
    if known is None:
        known = _PLANS[id(func)] = (func, _read_plan(func))
    return known[1]


def _read_plan(func: Any) -> ReplayPlan:
    schema = getattr(func, "_schema", None)
    if schema is None:  # an operation that takes functions
        return ReplayPlan()
    name = schema.name.removeprefix("aten::")
    guarded = func.namespace not in _TRUSTED
    arguments = list(enumerate(schema.arguments))
    written = [
        (position, argument.name)
        for position, argument in arguments
        if (argument.alias_info is not None and argument.alias_info.is_write)
        or (argument.name in _WRITTEN_ARGUMENTS and not name.endswith("backward"))
    ]
    tensors = [(position, arg.name) for position, arg in arguments if "Tensor" in str(arg.type)]
    # What it may write into without saying so comes after what it says.
    written += [one for one in tensors if guarded and one not in written]
    fresh = tuple(
        index
        for index, returned in enumerate(schema.returns)
        if returned.alias_info is None and index not in _UNUSED_OUTPUTS.get(name, ())
    )
    allocates = func.namespace == "aten" and _UNINITIALISED.fullmatch(name) is not None
    again = (
        bool(written or fresh)  # nothing is computed by a view
        and not allocates
        and func.namespace not in _NOT_REPLAYED
        and torch.Tag.inplace_view not in func.tags
    )
    return ReplayPlan(
        replayable=again and name not in ("_local_scalar_dense", "item"),
        computes=again,
        carries=func.namespace == "aten" and name.removesuffix("_") in _CARRYING,
        draws=guarded
        or torch.Tag.nondeterministic_seeded in func.tags
        or any("Generator" in str(argument.type) for _, argument in arguments),
        guarded=guarded,
        written=tuple(written),
        fresh=fresh,
        n_returns=len(schema.returns),
        copies=any(argument.name == "non_blocking" for _, argument in arguments),
        allocates=allocates,
        resizes=func.namespace == "aten" and name in ("resize_", "resize_as_"),
    )


_NESTED = (list, tuple)


def leaves_of(values: Any) -> list[Any]:
    """The items of nested lists and tuples, in order."""
    leaves: list[Any] = []
    _add_leaves([values], leaves)
    return leaves


def inputs_of(call: Call) -> list[Any]:
    """The arguments of an operation, those in lists one by one, in order."""
    leaves: list[Any] = []
    _add_leaves(call.args, leaves)
    if call.kwargs:
        _add_leaves(call.kwargs.values(), leaves)
    return leaves


def _add_leaves(values: Iterable[Any], leaves: list[Any]) -> None:
    for value in values:
        if isinstance(value, _NESTED):
            _add_leaves(value, leaves)
        else:
            leaves.append(value)


def is_plain(tensor: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor that is a plain view of memory."""
    if not isinstance(tensor, torch.Tensor):
        return False
    if type(tensor) not in PLAIN_TYPES and is_traceable_wrapper_subclass(tensor):
        return False
    return (
        tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor._is_zerotensor()
    )
