"""How a dispatched operation is executed again on equal inputs without side effects.

What it overwrites is copied first, generators are put back, and what its schema does not say is
known from a list or guarded against.
"""

from __future__ import annotations

import ctypes
import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from cellrepro import torch_internals
from cellrepro.trace.observer import Call

# Names of operations that return uninitialised memory: equal bits are not promised.
_UNINITIALISED = re.compile(r"(new_)?empty(_like|_strided|_permuted)?|_?empty_\w*quantized")

_UNUSED_OUTPUTS = {
    # Outputs that hold a reserve, a random state nobody wrote when dropout is off, or are larger
    # than what is written (torch 2.15).
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

# Arguments that some operations write into though their schema does not say so (torch 2.15:
# ``native_batch_norm``, ``_cudnn_rnn``).
_WRITTEN_ARGUMENTS = frozenset({"running_mean", "running_var", "dropout_state", "noise"})

# Namespaces whose schemas say what an operation writes and draws, but for `_WRITTEN_ARGUMENTS`.
_TRUSTED = frozenset({"aten", "prims", "mkldnn", "mkl", "onednn", "quantized", "_quantized"})

# Namespaces of markers, of what waits for other processes, and of what moves generators itself.
_NOT_REPLAYED = frozenset(
    {
        *("prim", "profiler", "export", "debugprims", "debug_mode_ops", "inductor", "streams"),
        *("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp", "symm_mem"),
        *("cuda", "rngprims"),
    }
)


@dataclass(frozen=True)
class ReplayPlan:
    """What an operation's schema says about executing it again."""

    replayable: bool = False
    computes: bool = False
    """Whether it computes: it is replayable, or reads a number for Python."""
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


# By the operation's address, as its own hash is slow; held, so that the address is not used again.
_PLANS: dict[int, tuple[Any, ReplayPlan]] = {}


def plan_of(func: Any) -> ReplayPlan:
    """What an operation's schema says, read once."""
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


_ORDINARY = (torch.Tensor, torch.nn.Parameter)  # and no class that stands for several tensors


def is_plain(tensor: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor that is a plain view of memory."""
    if not isinstance(tensor, torch.Tensor):
        return False
    if type(tensor) not in _ORDINARY and is_traceable_wrapper_subclass(tensor):
        return False
    return (
        tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor._is_zerotensor()
    )


# -- copies --------------------------------------------------------------------------------

_LINE = 64  # bytes to which PyTorch aligns memory; libraries may add in a different order off it


def bytes_of(storage: Any) -> torch.Tensor:
    """A storage as a tensor of bytes: uint8, one axis."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def seen_on(view: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """The same view of a copy of its storage, given as bytes."""
    tensor = torch.empty(0, dtype=view.dtype, device=view.device)
    offset = int(view.storage_offset()) + memory.storage_offset() // view.element_size()
    tensor.set_(memory.untyped_storage(), offset, view.size(), view.stride())
    tensor = tensor.conj() if view.is_conj() else tensor
    return torch_internals.negative_view(tensor) if view.is_neg() else tensor


def _copy(memory: torch.Tensor) -> torch.Tensor:
    """The same bytes once more, as they lie to the lines of memory."""
    if not memory.is_cpu:
        return memory.clone()
    begin = memory.data_ptr() % _LINE // 16 * 16  # 16 bytes: the largest item
    copy = torch.empty(begin + memory.nbytes, dtype=torch.uint8, device="cpu")[begin:]
    # Not PyTorch's copy: waiting for its threads costs more than the second one brings.
    ctypes.memmove(copy.data_ptr(), memory.data_ptr(), memory.nbytes)
    return copy


class Before:
    """Memory that an operation will overwrite, and generator states, kept to execute it again.

    ``instead`` has other contents for some storages, by their number.
    """

    def __init__(
        self, call: Call, plan: ReplayPlan, instead: Mapping[int, torch.Tensor] | None = None
    ) -> None:
        self.complete = True  # if not, it writes into what cannot be copied as plain memory
        self.kept = dict(instead or {})  # bytes, by storage
        self.copies: dict[int, torch.Tensor] = {}  # given in its place by `again`
        self._call = call
        for tensor in plan.overwritten(call.args, call.kwargs):
            if is_plain(tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.kept:
                    self.kept[storage._cdata] = _copy(bytes_of(storage))
            elif isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                self.complete = False
        # An argument that shares memory with a written one has to share the copy too. Views are
        # those of now: an operation may make its output larger.
        self._views = {
            id(leaf): leaf.detach()
            for leaf in filter(is_plain, inputs_of(call))
            if leaf.untyped_storage()._cdata in self.kept
        }
        self._generators = list(_generators(call, plan)) if plan.draws else []
        self._states = [get() for get, _ in self._generators]
        self._after: list[Any] = []

    def again(self) -> tuple[tuple, dict[str, Any]]:
        """The same arguments, with fresh copies of what is written, and the generators put back."""
        self._after = self._after or [get() for get, _ in self._generators]
        self.copies = {key: _copy(kept) for key, kept in self.kept.items()}
        self._put(self._states)

        def copied(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [copied(item) for item in value]
            view = self._views.get(id(value))
            if view is None:
                return value
            return seen_on(view, self.copies[view.untyped_storage()._cdata])

        kwargs = {name: copied(value) for name, value in self._call.kwargs.items()}
        return tuple(map(copied, self._call.args)), kwargs

    def finish(self) -> None:
        """Leave the generators as the operation itself left them."""
        self._put(self._after)

    def _put(self, states: list[Any]) -> None:
        for (_, put), state in zip(self._generators, states, strict=False):
            put(state)


def _generators(
    call: Call, plan: ReplayPlan
) -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Getters and setters of the generators that an operation may draw from."""
    leaves = inputs_of(call)
    generators = [leaf for leaf in leaves if isinstance(leaf, torch.Generator)]
    if not generators:
        generators = [torch.default_generator]
        for device in devices_of(leaves):
            if device.type == "mps":
                generators.append(torch.mps._get_default_mps_generator())
            elif device.type not in ("cpu", "meta"):
                module = torch.get_device_module(device)  # cuda and xpu
                index = module.current_device() if device.index is None else device.index
                generators.append(module.default_generators[index])
    yield from ((generator.get_state, generator.set_state) for generator in generators)
    if plan.guarded:
        yield random.getstate, random.setstate
        yield np.random.get_state, np.random.set_state


def devices_of(leaves: Iterable[Any]) -> set[torch.device]:
    """The devices of tensors among the leaves, and the leaves that are devices."""
    devices = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
    return devices | {leaf for leaf in leaves if isinstance(leaf, torch.device)}


# -- warnings ------------------------------------------------------------------------------

_ONE = torch.zeros(1, device="cpu")


def saying_at_once(run: Callable[[], Any]) -> Any:
    """Call ``run``, and have PyTorch give out its warnings before this returns.

    An operation called inside another one keeps its warnings until the outer one is over (torch
    2.6). ``Tensor.apply_`` calls a function from C++ and gives the warnings out as it returns.
    """
    returned = []

    def call(element: float) -> float:
        returned.append(run())
        return element

    _ONE.apply_(call)
    return returned[0]


def without_warnings(run: Callable[[], Any]) -> Any:
    """Call ``run`` without PyTorch's warnings, which the operation itself has given before."""
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        return run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return saying_at_once(run)
