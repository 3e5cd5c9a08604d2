"""How a dispatched operation is asked again with equal inputs, and nothing is moved by it.

What it overwrites is copied first, generators are put back, and what its schema does not say is
known from a list or guarded against.
"""

from __future__ import annotations

import ctypes
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from cellrepro.store.bits import in_one_stretch, is_alias
from cellrepro.trace.observer import Call

_UNINITIALISED = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"),
        *("new_empty_strided", "empty_quantized", "_empty_affine_quantized"),
        *("_empty_per_channel_affine_quantized",),
    }
)
"""Operations that hand out memory nobody has written: equal bits are not promised."""

_RESIZES = frozenset({"resize_", "resize_as_", "_resize_output_"})

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

_WRITES_UNSAID = frozenset({"running_mean", "running_var", "dropout_state", "noise"})
"""Arguments that some operations write into though their schema does not say so (torch 2.15:
``native_batch_norm``, ``_cudnn_rnn``)."""

_TRUSTED = frozenset({"aten", "prims", "mkldnn", "mkl", "onednn", "quantized", "_quantized"})
"""Namespaces whose schemas say what an operation writes and draws, but for `_WRITES_UNSAID`."""

_NEVER_AGAIN = frozenset(
    {
        *("prim", "profiler", "export", "debugprims", "debug_mode_ops", "inductor", "streams"),
        *("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp", "symm_mem"),
        *("cuda", "rngprims"),
    }
)
"""Namespaces of marks, and of what waits for other processes or moves generators by itself."""


@dataclass(frozen=True)
class Plan:
    """What an operation's schema says about running it again."""

    replayable: bool
    draws: bool
    """Whether it may draw from a generator."""
    written: tuple[tuple[int, str], ...]
    """Position and name of the arguments it writes into, or may."""
    guarded: bool
    """Whether nobody vouches for its schema: it may write into any argument and draw from any
    generator."""
    alone: int
    """Position of the argument it writes into, if it is the only one and no list; else -1."""
    fresh: tuple[int, ...]
    """Returned values to compare: not (views of) arguments, nor memory that nobody wrote."""
    n_returns: int
    leaves_no_trace: bool = True
    """Whether running it moves nothing."""
    non_blocking: int = -1
    """Position of the argument that lets it return before it is done; -1 if there is none."""
    allocates: bool = False
    """Whether it hands out memory nobody has written."""
    resizes: bool = False
    """Whether it may add such memory to its argument."""
    computes: bool = False
    """Whether it can be asked again and its results come from what its arguments hold."""

    @classmethod
    def of(cls, func: Any) -> Plan:
        """Read an operation's schema."""
        schema = getattr(func, "_schema", None)
        if schema is None:  # an operation that takes functions
            return cls(False, False, (), True, -1, (), 0)
        name = schema.name.removeprefix("aten::")
        arguments = list(enumerate(schema.arguments))
        written = [
            (position, argument.name)
            for position, argument in arguments
            if (argument.alias_info is not None and argument.alias_info.is_write)
            or (argument.name in _WRITES_UNSAID and not name.endswith("backward"))
        ]
        guarded = func.namespace not in _TRUSTED
        if guarded:
            # What it may write into without saying so comes after what it says.
            said = set(written)
            written += [
                (position, argument.name)
                for position, argument in arguments
                if "Tensor" in str(argument.type) and (position, argument.name) not in said
            ]
        lists = any("List" in str(argument.type) for _, argument in arguments if _holds(argument))
        fresh = tuple(
            index
            for index, returned in enumerate(schema.returns)
            if returned.alias_info is None and index not in _UNUSED_OUTPUTS.get(name, ())
        )
        draws = (
            guarded
            or torch.Tag.nondeterministic_seeded in func.tags
            or any("Generator" in str(argument.type) for _, argument in arguments)
        )
        of_pytorch = func.namespace == "aten"
        allocates = of_pytorch and name in _UNINITIALISED
        again = (
            bool(written or fresh)  # nothing is computed by a view
            and not allocates
            and func.namespace not in _NEVER_AGAIN
            and torch.Tag.inplace_view not in func.tags
        )
        return cls(
            replayable=again and name not in ("_local_scalar_dense", "item"),
            draws=draws,
            written=tuple(written),
            guarded=guarded,
            alone=written[0][0] if len(written) == 1 and not lists else -1,
            fresh=fresh,
            n_returns=len(schema.returns),
            leaves_no_trace=not written and not draws,
            non_blocking=next(
                (i for i, argument in arguments if argument.name == "non_blocking"), -1
            ),
            allocates=allocates,
            resizes=of_pytorch and name in _RESIZES,
            # Of what zeros_like or new_full are given only shape and dtype count.
            computes=again and not (of_pytorch and (name.endswith("_like") or name[:4] == "new_")),
        )

    def outputs(self, args: tuple, kwargs: dict[str, Any], returned: Any) -> list[Any]:
        """What an operation gave: its new values, then what it wrote in place."""
        if self.n_returns == 1 and not self.written and isinstance(returned, torch.Tensor):
            return [returned] if self.fresh else []
        return [*self.new_values(returned), *self.overwritten(args, kwargs)]

    def new_values(self, returned: Any) -> list[Any]:
        """What an operation gave that was not there before."""
        values: Any = (returned,) if self.n_returns == 1 else () if returned is None else returned
        return leaves_of([values[index] for index in self.fresh])

    def overwritten(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """What an operation writes into, or may."""
        found = []
        for position, name in self.written:
            value = args[position] if position < len(args) else kwargs.get(name)
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif value is not None:
                found += leaves_of(value)
        return found


def _holds(argument: Any) -> bool:
    return "Tensor" in str(argument.type)


def leaves_of(values: Any) -> list[Any]:
    """Whatever lies in lists and tuples, in order."""
    if isinstance(values, list | tuple):
        return [leaf for value in values for leaf in leaves_of(value)]
    return [values]


_SMALL = 1 << 16  # bytes, up to which the allocator is faster than our own buffers
_LINE = 64  # bytes to which PyTorch aligns memory; libraries may add in another order off it


class Before:
    """What an operation will overwrite and draw, kept so that it can be asked again.

    Attributes
    ----------
    complete : bool
        Whether everything could be kept; if not, running it again would change the training.
    """

    def __init__(self, call: Call, plan: Plan, buffers: Buffers) -> None:
        self._call, self._buffers = call, buffers
        self._taken: list[torch.Tensor] = []
        self._views: dict[int, _View] = {}
        self._spans: dict[int, _Span] = {}
        self._clones: dict[int, torch.Tensor] = {}
        self._single: torch.Tensor | None = None
        self._kept: torch.Tensor | None = None
        self.complete = True
        self._states = generator_states(call, guarded=plan.guarded) if plan.draws else []
        self._after: list[_GeneratorState] | None = None
        if plan.alone >= 0:
            self._single = _alone(call, plan.alone)
        if self._single is not None:
            self._kept = self._copy(self._single)
        elif plan.written:
            self._keep_all(plan)

    def _keep_all(self, plan: Plan) -> None:
        call = self._call
        tensors = [
            leaf
            for leaf in leaves_of([*call.args, *call.kwargs.values()])
            if isinstance(leaf, torch.Tensor)
        ]
        written = [
            leaf
            for leaf in plan.overwritten(call.args, call.kwargs)
            if isinstance(leaf, torch.Tensor)
        ]
        keys = set()
        for tensor in written:
            if is_traceable_wrapper_subclass(tensor):
                self.complete = self.complete and plan.guarded
            elif is_plain(tensor):
                keys.add(tensor.untyped_storage()._cdata)
            elif tensor.device.type != "meta":
                self._clones[id(tensor)] = tensor.clone()
        # An argument that shares memory with a written one has to share the copy too.
        for tensor in tensors:
            if not is_plain(tensor):
                continue
            storage = tensor.untyped_storage()
            if storage._cdata in keys:
                span = self._spans.setdefault(storage._cdata, _Span(storage))
                self._views[id(tensor)] = _View(span, tensor)
        for span in self._spans.values():
            span.keep()

    def again(self, *, last: bool) -> tuple[tuple, dict[str, Any]]:
        """The same arguments, with fresh copies of what is written; generators as they were."""
        call = self._call
        if self._states:
            if self._after is None:
                self._after = [state.now() for state in self._states]
            self.generators_back()
        if self._single is not None:
            copy = self._kept if last else self._copy(self._kept)
            single = self._single
            return (
                tuple([copy if value is single else value for value in call.args]),
                {name: copy if value is single else value for name, value in call.kwargs.items()}
                if call.kwargs
                else call.kwargs,
            )
        if not self._views and not self._clones:
            return call.args, call.kwargs
        for span in self._spans.values():
            span.copy(last=last)
        clones = {key: kept if last else kept.clone() for key, kept in self._clones.items()}

        def fresh(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [fresh(item) for item in value]
            if id(value) in clones:
                return clones[id(value)]
            view = self._views.get(id(value))
            return value if view is None else view.of_copy()

        kwargs = {name: fresh(value) for name, value in call.kwargs.items()}
        return tuple(fresh(value) for value in call.args), kwargs

    def generators_back(self) -> None:
        """Put the generators where the operation found them."""
        for state in self._states:
            state.put_back()

    def finish(self) -> None:
        """Leave the generators as the operation itself left them, and give buffers back."""
        for state in self._after or ():
            state.put_back()
        for buffer in self._taken:
            self._buffers.give_back(buffer)

    def _copy(self, tensor: Any) -> torch.Tensor:
        if tensor.nbytes <= _SMALL:
            return tensor.clone()
        buffer = self._buffers.take(tensor.nbytes)
        self._taken.append(buffer)
        copy = torch.as_strided(buffer.view(tensor.dtype), tensor.shape, tensor.stride())
        # Not PyTorch's copy: waiting for its threads costs more than the second thread brings.
        ctypes.memmove(copy.data_ptr(), tensor.data_ptr(), tensor.nbytes)
        return copy


class Buffers:
    """Memory that was used before: fresh memory costs more than copying into it."""

    def __init__(self) -> None:
        self._free: dict[int, list[torch.Tensor]] = {}

    def take(self, n_bytes: int) -> torch.Tensor:
        """Memory for at least so many bytes."""
        size = 1 << (n_bytes - 1).bit_length()
        free = self._free.get(size)
        return free.pop() if free else torch.empty(size, dtype=torch.uint8)

    def give_back(self, buffer: torch.Tensor) -> None:
        """Use it for another operation."""
        self._free.setdefault(buffer.nbytes, []).append(buffer)


class _Span:
    """The stretch of a storage that an operation's arguments lie in, and a copy of it.

    The copy lies as the storage lies to the lines of memory.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._low, self._high = storage.nbytes(), 0
        self._kept: Any = None
        self.moved = 0
        """Bytes by which the copy starts later in its memory than the storage does."""
        self.memory: Any = None

    def cover(self, low: int, high: int) -> None:
        """Be no shorter than from byte ``low`` to before byte ``high``."""
        self._low, self._high = min(self._low, low), max(self._high, high)

    def keep(self) -> None:
        """Remember what is in it."""
        storage = self._storage
        low = self._low - self._low % _LINE
        shift = storage.data_ptr() % _LINE if storage.device.type == "cpu" else 0
        shift -= shift % 16  # the largest item
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        part = whole[low : self._high]
        self._kept = torch.empty(shift + len(part), dtype=torch.uint8, device=storage.device)
        self._kept[shift:].copy_(part)
        self.moved = shift - low
        self._storage = None

    def copy(self, *, last: bool) -> None:
        """Give ``memory`` what was kept; the last one may have the original."""
        self.memory = (self._kept if last else self._kept.clone()).untyped_storage()


class Layout:
    """How a tensor lies in its storage."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._dtype, self._device = tensor.dtype, tensor.device
        self._offset, self._item = int(tensor.storage_offset()), tensor.element_size()
        self._size, self._stride = tensor.size(), tensor.stride()
        self._conj, self._neg = tensor.is_conj(), tensor.is_neg()

    def on(self, storage: Any, *, moved: int = 0) -> torch.Tensor:
        """The same view of another storage, in which all lies so many bytes further."""
        offset = self._offset + moved // self._item
        tensor = torch.empty(0, dtype=self._dtype, device=self._device)
        tensor.set_(storage, max(0, offset), self._size, self._stride)
        if self._conj:
            tensor = tensor.conj()
        return torch._neg_view(tensor) if self._neg else tensor


class _View:
    """An argument as a view of a span's copy."""

    def __init__(self, span: _Span, tensor: torch.Tensor) -> None:
        self._span, self._layout = span, Layout(tensor)
        span.cover(*_extent(tensor))

    def of_copy(self) -> torch.Tensor:
        """The same view of the copy."""
        return self._layout.on(self._span.memory, moved=self._span.moved)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last byte (exclusive) of a tensor in its storage."""
    item, low = tensor.element_size(), int(tensor.storage_offset())
    if tensor.numel() == 0:
        return low * item, low * item
    steps = zip(tensor.size(), tensor.stride(), strict=True)
    return low * item, (low + 1 + sum((n - 1) * step for n, step in steps)) * item


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


def _alone(call: Call, position: int) -> torch.Tensor | None:
    """The argument written into, if a copy of it alone is an equal input."""
    written: Any = call.args[position] if position < len(call.args) else None
    if not in_one_stretch(written) or written.data_ptr() % _LINE:
        return None
    for value in (*call.args, *call.kwargs.values()) if call.kwargs else call.args:
        if (
            value is not written
            and isinstance(value, torch.Tensor)
            and (value.layout is not torch.strided or is_alias(value, written))
        ):
            return None
    return written


class _GeneratorState:
    """The state of one generator."""

    def __init__(self, get: Callable[[], Any], put: Callable[[Any], Any]) -> None:
        self._get, self._put, self._state = get, put, get()

    def put_back(self) -> None:
        self._put(self._state)

    def now(self) -> _GeneratorState:
        return _GeneratorState(self._get, self._put)


def generator_states(call: Call, *, guarded: bool) -> list[_GeneratorState]:
    """The generators that an operation may draw from, as they are now."""
    leaves = leaves_of([*call.args, *call.kwargs.values()])
    generators = [leaf for leaf in leaves if isinstance(leaf, torch.Generator)]
    if not generators:
        generators = [torch.default_generator]
        devices = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
        devices |= {leaf for leaf in leaves if isinstance(leaf, torch.device)}
        for device in devices:
            generators += _default_generators(device)
    states = [_GeneratorState(g.get_state, g.set_state) for g in generators]
    if guarded:
        states.append(_GeneratorState(random.getstate, random.setstate))
        states.append(_GeneratorState(np.random.get_state, np.random.set_state))
    return states


def _default_generators(device: torch.device) -> list[torch.Generator]:
    if device.type in ("cpu", "meta"):
        return []
    if device.type == "mps":
        return [torch.mps._get_default_mps_generator()]
    module = torch.get_device_module(device)  # cuda and xpu
    index = module.current_device() if device.index is None else device.index
    return [module.default_generators[index]]


def wait(call: Call, plan: Plan) -> None:
    """Until copies between devices are done, if this one need not be."""
    position = plan.non_blocking
    given = call.args[position] if position < len(call.args) else call.kwargs.get("non_blocking")
    if not given:
        return
    leaves = [*call.args, *call.kwargs.values()]
    devices = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
    devices |= {leaf for leaf in leaves if isinstance(leaf, torch.device)}
    for kind in {device.type for device in devices} - {"cpu", "meta"}:
        torch.get_device_module(kind).synchronize()


AS_IT_IS = nullcontext()
only_warns = torch.is_deterministic_algorithms_warn_only_enabled


@contextmanager
def quiet() -> Iterator[None]:
    """No warning of a replay: the operation itself has warned already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
