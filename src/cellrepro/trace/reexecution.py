"""How a dispatched operation is executed again on equal inputs, and nothing is changed by it.

What it overwrites is copied first, generators are put back, and what its schema does not say is
known from a list or guarded against.
"""

from __future__ import annotations

import ctypes
import functools
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from cellrepro.trace.observer import Call

_UNINITIALISED = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"),
        *("new_empty_strided", "empty_quantized", "_empty_affine_quantized"),
        *("_empty_per_channel_affine_quantized",),
    }
)  # they hand out memory nobody has written: equal bits are not promised

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
_WRITES_UNSAID = frozenset({"running_mean", "running_var", "dropout_state", "noise"})

# Namespaces whose schemas say what an operation writes and draws, but for `_WRITES_UNSAID`.
_TRUSTED = frozenset({"aten", "prims", "mkldnn", "mkl", "onednn", "quantized", "_quantized"})

# Namespaces of marks, and of what waits for other processes or moves generators by itself.
_NEVER_AGAIN = frozenset(
    {
        *("prim", "profiler", "export", "debugprims", "debug_mode_ops", "inductor", "streams"),
        *("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp", "symm_mem"),
        *("cuda", "rngprims"),
    }
)


@dataclass(frozen=True)
class Plan:
    """What an operation's schema says about executing it again."""

    replayable: bool = False
    computes: bool = False  # it is, and its results come from what its arguments hold
    draws: bool = False  # it may draw from a generator
    guarded: bool = True  # nobody vouches for its schema: it may write and draw anything
    written: tuple[tuple[int, str], ...] = ()  # position and name of arguments it may write into
    fresh: tuple[int, ...] = ()  # returned values that are neither (views of) arguments nor unused
    n_returns: int = 0
    copies: bool = False  # it may return before it is done, if it copies between devices
    allocates: bool = False  # it hands out memory nobody has written

    def outputs(self, args: tuple, kwargs: dict[str, Any], returned: Any) -> list[Any]:
        """What an operation gave: its new values, then what it wrote in place."""
        # Nearly every operation gives one tensor, or writes into its first argument.
        if not self.written:
            if self.n_returns == 1 and isinstance(returned, torch.Tensor):
                return [returned] if self.fresh else []
            return self.new_values(returned)
        if not self.fresh and len(self.written) == 1 and self.written[0][0] == 0 and args:
            return [args[0]] if isinstance(args[0], torch.Tensor) else leaves_of(args[0])
        return [*self.new_values(returned), *self.overwritten(args, kwargs)]

    def new_values(self, returned: Any) -> list[Any]:
        """What an operation gave that was not there before."""
        values: Any = (returned,) if self.n_returns == 1 else () if returned is None else returned
        return leaves_of([values[index] for index in self.fresh])

    def overwritten(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """What an operation writes into, or may."""
        values = [args[at] if at < len(args) else kwargs.get(name) for at, name in self.written]
        return leaves_of([value for value in values if value is not None])


@functools.cache
def plan_of(func: Any) -> Plan:
    """Read an operation's schema."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # an operation that takes functions
        return Plan()
    name = schema.name.removeprefix("aten::")
    of_pytorch, guarded = func.namespace == "aten", func.namespace not in _TRUSTED
    arguments = list(enumerate(schema.arguments))
    written = [
        (position, argument.name)
        for position, argument in arguments
        if (argument.alias_info is not None and argument.alias_info.is_write)
        or (argument.name in _WRITES_UNSAID and not name.endswith("backward"))
    ]
    tensors = [(position, arg.name) for position, arg in arguments if "Tensor" in str(arg.type)]
    # What it may write into without saying so comes after what it says.
    written += [one for one in tensors if guarded and one not in written]
    fresh = tuple(
        index
        for index, returned in enumerate(schema.returns)
        if returned.alias_info is None and index not in _UNUSED_OUTPUTS.get(name, ())
    )
    allocates = of_pytorch and name in _UNINITIALISED
    again = (
        bool(written or fresh)  # nothing is computed by a view
        and not allocates
        and func.namespace not in _NEVER_AGAIN
        and torch.Tag.inplace_view not in func.tags
    )
    return Plan(
        replayable=again and name not in ("_local_scalar_dense", "item"),
        # Of what zeros_like or new_full are given only shape and dtype count.
        computes=again and not (of_pytorch and (name.endswith("_like") or name[:4] == "new_")),
        draws=guarded
        or torch.Tag.nondeterministic_seeded in func.tags
        or any("Generator" in str(argument.type) for _, argument in arguments),
        guarded=guarded,
        written=tuple(written),
        fresh=fresh,
        n_returns=len(schema.returns),
        copies=any(argument.name == "non_blocking" for _, argument in arguments),
        allocates=allocates,
    )


def leaves_of(values: Any) -> list[Any]:
    """Whatever lies in lists and tuples, in order."""
    if isinstance(values, list | tuple):
        return [leaf for value in values for leaf in leaves_of(value)]
    return [values]


def inputs_of(call: Call) -> list[Any]:
    """Whatever an operation is given, in order."""
    return leaves_of([*call.args, *call.kwargs.values()] if call.kwargs else call.args)


def is_plain(tensor: Any) -> bool:
    """Whether a value is a tensor that is a plain view of memory."""
    return (
        isinstance(tensor, torch.Tensor)
        and not is_traceable_wrapper_subclass(tensor)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor._is_zerotensor()
    )


# -- copies --------------------------------------------------------------------------------

_SMALL = 1 << 16  # bytes, up to which the allocator is faster than our own buffers
_LINE = 64  # bytes to which PyTorch aligns memory; libraries may add in another order off it


def bytes_of(storage: Any) -> torch.Tensor:
    """A storage as a tensor of bytes: uint8, one axis."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def seen_on(view: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """The same view of a copy of its storage, given as bytes."""
    tensor = torch.empty(0, dtype=view.dtype, device=view.device)
    offset = int(view.storage_offset()) + memory.storage_offset() // view.element_size()
    tensor.set_(memory.untyped_storage(), offset, view.size(), view.stride())
    tensor = tensor.conj() if view.is_conj() else tensor
    return torch._neg_view(tensor) if view.is_neg() else tensor


class Buffers:
    """Copies of storages, in memory used before: fresh memory costs more than copying into it."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[torch.Tensor]] = defaultdict(list)
        self._lent: dict[int, torch.Tensor] = {}  # by the address of the copy in it

    def copy(self, memory: torch.Tensor) -> torch.Tensor:
        """The same bytes once more; the copy lies as they do to the lines of memory."""
        if not memory.is_cpu:
            return memory.clone()
        begin = memory.data_ptr() % _LINE // 16 * 16  # 16 bytes: the largest item
        n_bytes, free = memory.nbytes, []
        size = begin + n_bytes
        if size > _SMALL:
            size = 1 << (size - 1).bit_length()
            free = self._free[size]
        buffer = free.pop() if free else torch.empty(size, dtype=torch.uint8)
        copy = buffer if size == n_bytes else buffer[begin : begin + n_bytes]
        if n_bytes:
            # Not PyTorch's copy: waiting for its threads costs more than the second one brings.
            ctypes.memmove(copy.data_ptr(), memory.data_ptr(), n_bytes)
        if size > _SMALL:
            self._lent[copy.data_ptr()] = buffer
        return copy

    def give_back(self, copies: Iterable[torch.Tensor]) -> None:
        """Use their memory for another operation."""
        for copy in copies:
            buffer = self._lent.pop(copy.data_ptr(), None)
            if buffer is not None:
                self._free[buffer.nbytes].append(buffer)


class Arguments:
    """The arguments of an operation, to be given to it again on other memory."""

    def __init__(self, call: Call, keys: Collection[int] | None = None) -> None:
        self._call = call
        self.views: dict[int, tuple[int, torch.Tensor]] = {}  # with their storage, of those keys
        for leaf in inputs_of(call):
            if is_plain(leaf):
                key = leaf.untyped_storage()._cdata
                if keys is None or key in keys:
                    # The views of now: an operation may make its output larger.
                    self.views[id(leaf)] = key, leaf.detach()

    def on(
        self, copies: Mapping[int, torch.Tensor], clones: Mapping[int, Any] | None = None
    ) -> tuple[tuple, dict[str, Any]]:
        """The same on copies of their storages, and clones of other tensors."""

        def other(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [other(item) for item in value]
            if clones and id(value) in clones:
                return clones[id(value)]
            known = self.views.get(id(value))
            if known is None or known[0] not in copies:
                return value
            return seen_on(known[1], copies[known[0]])

        kwargs = {name: other(value) for name, value in self._call.kwargs.items()}
        return tuple([other(value) for value in self._call.args]), kwargs


class Before:
    """What an operation will overwrite and draw, kept so that it can be executed again."""

    def __init__(self, call: Call, plan: Plan, buffers: Buffers) -> None:
        self.complete = True  # if not, executing it again would change the training
        self._call, self._buffers = call, buffers
        self._kept: dict[int, torch.Tensor] = {}
        self._clones: dict[int, torch.Tensor] = {}
        self._generators = Generators(call, plan)
        self._after: list[Any] | None = None
        for tensor in plan.overwritten(call.args, call.kwargs):
            if is_plain(tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._kept:
                    self._kept[storage._cdata] = buffers.copy(bytes_of(storage))
            elif isinstance(tensor, torch.Tensor) and is_traceable_wrapper_subclass(tensor):
                self.complete = self.complete and plan.guarded
            elif isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                self._clones[id(tensor)] = tensor.clone()
        # An argument that shares memory with a written one has to share the copy too.
        self._arguments = Arguments(call, self._kept) if self._kept or self._clones else None
        self._taken = [*self._kept.values()]

    def again(self, *, last: bool) -> tuple[tuple, dict[str, Any]]:
        """The same arguments, with fresh copies of what is written; generators as they were."""
        if self._after is None:
            self._after = self._generators.now()
        self.generators_back()
        if self._arguments is None:
            return self._call.args, self._call.kwargs
        if last:  # it may have what was kept
            return self._arguments.on(self._kept, self._clones)
        copies = {key: self._buffers.copy(kept) for key, kept in self._kept.items()}
        self._taken += copies.values()
        return self._arguments.on(copies, {key: t.clone() for key, t in self._clones.items()})

    def generators_back(self) -> None:
        """Put the generators where the operation found them."""
        self._generators.put(self._generators.before)

    def finish(self) -> None:
        """Leave the generators as the operation itself left them, and give buffers back."""
        if self._after is not None:
            self._generators.put(self._after)
        self._buffers.give_back(self._taken)


class Generators:
    """The generators that an operation may draw from, and where they stood ``before`` it."""

    def __init__(self, call: Call, plan: Plan) -> None:
        leaves = inputs_of(call) if plan.draws else []
        generators = [leaf for leaf in leaves if isinstance(leaf, torch.Generator)]
        if plan.draws and not generators:
            generators = [torch.default_generator]
            for device in devices_of(leaves):
                if device.type == "mps":
                    generators.append(torch.mps._get_default_mps_generator())
                elif device.type not in ("cpu", "meta"):
                    module = torch.get_device_module(device)  # cuda and xpu
                    index = module.current_device() if device.index is None else device.index
                    generators.append(module.default_generators[index])
        self._each: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
            (generator.get_state, generator.set_state) for generator in generators
        ]
        if plan.draws and plan.guarded:
            self._each.append((random.getstate, random.setstate))
            self._each.append((np.random.get_state, np.random.set_state))
        self.before = self.now()

    def now(self) -> list[Any]:
        """Where they stand."""
        return [get() for get, _ in self._each]

    def put(self, states: list[Any]) -> None:
        """Put them there."""
        for (_, put), state in zip(self._each, states, strict=True):
            put(state)


def devices_of(leaves: Iterable[Any]) -> set[torch.device]:
    """Those of tensors, and those that are named."""
    devices = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
    return devices | {leaf for leaf in leaves if isinstance(leaf, torch.device)}


# -- warnings ------------------------------------------------------------------------------

_ONE = torch.zeros(1, device="cpu")


def saying_at_once(run: Callable[[], Any]) -> Any:
    """What ``run`` returns; what PyTorch warned of in it has been said when it does.

    An operation called inside another one keeps its warnings until the outer one is over (torch
    2.6). ``Tensor.apply_`` calls a function from C++ and gives the warnings out as it returns.
    """
    returned = []

    def call(element: float) -> float:
        returned.append(run())
        return element

    _ONE.apply_(call)
    return returned[0]


def without_warnings(run: Callable[[], Any], *, anyhow: bool = False) -> Any:
    """What ``run`` returns, none of its warnings shown: the operation itself has warned already.

    PyTorch's own come only where it is asked to warn; ``anyhow`` is for others' operations.
    """
    if not anyhow and not torch.is_deterministic_algorithms_warn_only_enabled():
        return run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return saying_at_once(run)
