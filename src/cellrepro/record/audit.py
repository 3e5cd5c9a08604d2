"""Audit of a training step: which operations give other bits when asked the same thing twice.

Every dispatched operation is run again on equal inputs and its outputs are compared bit by bit.
In-place operations are run again on copies of what they overwrote; random ones with the generator
put back. What is left to move are races between threads, atomic additions, and hardware.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from cellrepro.control import knowledge, substitutes
from cellrepro.control.alerts import alert_in
from cellrepro.errors import BadInput
from cellrepro.record.operations import Call, Observer, Place, Step

_UNINITIALISED = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"),
        *("new_empty_strided", "empty_quantized", "_empty_affine_quantized"),
        *("_empty_per_channel_affine_quantized",),
    }
)
"""Operations that hand out memory nobody has written: equal bits are not promised."""

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

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class AuditedOp:
    """One operation at one place whose bits flip.

    Attributes
    ----------
    op : str
        As dispatched, with its overload.
    module, source, phase
        As in `Place`.
    calls : int
        How often it ran in the audited steps.
    flips : int
        Replays that gave other bits than the first run.
    replays : int
        Replays made.
    outputs : tuple of int
        Which outputs flipped; what it wrote in place counts as output 0, 1, … too.
    n_elements : int
        Most elements that differed in one replay.
    max_abs : float
        Largest difference between two runs, in the units of the output.
    warned : bool
        Whether PyTorch warns of it when asked to (deterministic algorithms, warn only).
    substitute : str or None
        Name of the substitute for it, see `cellrepro.control.substitutes`.
    reason, remedy : str
        From what PyTorch and cuDNN document, and what is known beyond it.
    """

    op: str
    module: str | None
    source: str | None
    phase: str
    calls: int
    flips: int
    replays: int
    outputs: tuple[int, ...]
    n_elements: int
    max_abs: float
    warned: bool
    substitute: str | None
    reason: str
    remedy: str

    def sentence(self) -> str:
        """What flips, where, and what helps."""
        warned = "PyTorch warns of it" if self.warned else "PyTorch does not warn of it"
        where = f"{self.phase} of {self.module or 'no module'}"
        line = f" ({self.source})" if self.source else ""
        helps = f"substitute: {self.substitute}" if self.substitute else self.remedy
        return (
            f"{self.op}, {where}{line}: {self.flips} of {self.replays} replays gave other bits, "
            f"largest difference {self.max_abs:.2g}; {warned}; {helps}"
        )


@dataclass(frozen=True)
class Audit:
    """What an audit found, and over how much.

    Attributes
    ----------
    ops : tuple of AuditedOp
        Those whose bits flip, most flips first; empty where every replay agreed.
    n_steps : int
    n_calls : int
        Operations dispatched.
    n_replayed : int
        Of these, the ones replayed; views and operations without output are not.
    n_replays : int
        Replays made, all together.
    kinds : dict of str to int
        Calls of each operation replayed.
    not_replayed : dict of str to int
        Calls of each operation that was not, uninitialised memory for example.
    threads : int
        CPU threads PyTorch used.
    seconds : float
    """

    ops: tuple[AuditedOp, ...]
    n_steps: int
    n_calls: int
    n_replayed: int
    n_replays: int
    kinds: dict[str, int]
    not_replayed: dict[str, int]
    threads: int
    seconds: float

    def sentence(self) -> str:
        """What was found, over how much."""
        over = (
            f"over {self.n_steps} steps: {self.n_replayed} operations of {len(self.kinds)} kinds, "
            f"{self.n_replays} replays at {self.threads} threads"
        )
        if self.n_replayed == 0 and not self.ops:
            return f"vacuous: nothing was replayed {over}"
        if not self.ops:
            return f"no operation flips, {over}"
        names = ", ".join(dict.fromkeys(found.op for found in self.ops))
        return f"{names}: other bits from equal inputs, {over}"


def audit(
    step: Step,
    *,
    steps: int = 1,
    replays: int = 2,
    suspects: int = 0,
    threads: int | None = None,
    model: torch.nn.Module | None = None,
) -> Audit:
    """Replay every operation of real training steps on equal inputs and compare the bits.

    The steps happen as without the audit: it works on copies and puts generators back.

    Parameters
    ----------
    step : callable
        One training step, without arguments: forward, backward, update. Called ``steps`` times.
    steps : int
        How many steps to watch.
    replays : int
        How often each operation is run again. A flip that comes once in a hundred calls needs
        many replays or many steps to be seen; no flip is no proof.
    suspects : int
        How often, if more, those operations that have a substitute or are documented to race on
        their device. A race shows when threads collide, on a busy machine in few replays.
    threads : int, optional
        CPU threads of PyTorch while auditing; put back afterwards.
    model : torch.nn.Module, optional
        Modules are named by their path in it; by default in whatever network the step calls.

    Returns
    -------
    Audit

    Raises
    ------
    BadInput
        If ``steps``, ``replays`` or ``threads`` is not a whole number above 0, ``suspects`` is
        none from 0, or ``step`` cannot be called.

    Examples
    --------
    >>> layer = torch.nn.Linear(3, 1)
    >>> found = audit(lambda: layer(torch.ones(2, 3)).sum().backward())
    >>> found.ops, found.n_replays > 0
    ((), True)
    """
    if not callable(step):
        raise BadInput(f"step is {step!r}; expected a function without arguments: one step")
    _checked("steps", steps)
    auditor = Auditor(replays=replays, suspects=suspects, model=model)
    if threads is not None:
        _checked("threads", threads, most=_MOST_THREADS)
    started = time.perf_counter()
    with _threads(threads):
        with auditor:
            for _ in range(steps):
                step()
        return auditor.result(n_steps=steps, seconds=time.perf_counter() - started)


_MOST_THREADS = 1024


def _checked(name: str, number: Any, *, least: int = 1, most: int | None = None) -> int:
    whole = isinstance(number, int) and not isinstance(number, bool) and number >= least
    if not whole or (most is not None and number > most):
        limits = f"{least} or more" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} is {number!r}; expected a whole number, {limits}")
    return number


class Auditor(Observer):
    """Replays what it sees; `audit` is the short way to use it.

    Parameters
    ----------
    replays : int
        How often each operation is run again.
    suspects : int
        How often, if more, the suspected ones; see `audit`.
    model : torch.nn.Module, optional
        See `Observer`.

    Raises
    ------
    BadInput
        If ``replays`` is not a whole number above 0, or ``suspects`` none from 0.
    """

    def __init__(
        self, *, replays: int = 2, suspects: int = 0, model: torch.nn.Module | None = None
    ) -> None:
        super().__init__(model)
        self._replays = _checked("replays", replays)
        self._suspects = max(replays, _checked("suspects", suspects, least=0))
        self._spots: dict[int, _Spot] = {}
        self._buffers = _Buffers()
        # The backward passes of several GPUs run at once, and share the processor's generator.
        self._lock = threading.RLock()

    def __exit__(self, *exception: Any) -> None:
        """Stop watching and give the memory back."""
        super().__exit__(*exception)
        self._buffers = _Buffers()

    def observe(self, call: Call) -> Any:
        """Run one operation as it is, then again on equal inputs."""
        spot = self._spots.get(id(call.place))
        if spot is None:  # the spot holds its place, so that no id is given twice
            spot = self._spots[id(call.place)] = _Spot(call.place, _Plan.of(call.func))
        plan = spot.plan
        with self._lock:
            spot.n_calls += 1
            if not plan.replayable:
                return call.run()
            if plan.non_blocking >= 0:
                _wait(call, plan)
            before = None if plan.leaves_no_trace else _Before(call, plan, self._buffers)
            if before is not None and not before.complete:
                return call.run()
            returned = call.run()
            expected = [_Bits(value) for value in plan.outputs(call.args, call.kwargs, returned)]
            for bits in expected:
                if bits.comparable:
                    with _quiet() if plan.guarded or _only_warns() else _AS_IT_IS:
                        self._replay(call, spot, before, expected)
                    break
            return returned

    def result(self, *, n_steps: int, seconds: float) -> Audit:
        """What was found so far."""
        spots = list(self._spots.values())
        kinds: Counter[str] = Counter()
        not_replayed: Counter[str] = Counter()
        for spot in spots:
            kinds[spot.place.op] += spot.n_replayed
            not_replayed[spot.place.op] += spot.n_calls - spot.n_replayed - spot.n_failed
            not_replayed[f"{spot.place.op}: {spot.failure}"] += spot.n_failed
        found = sorted((spot for spot in spots if spot.flips), key=lambda spot: -spot.flips)
        return Audit(
            ops=tuple(_audited(spot) for spot in found),
            n_steps=n_steps,
            n_calls=sum(spot.n_calls for spot in spots),
            n_replayed=kinds.total(),
            n_replays=sum(spot.n_replays for spot in spots),
            kinds={op: n for op, n in sorted(kinds.items()) if n},
            not_replayed={op: n for op, n in sorted(not_replayed.items()) if n},
            threads=torch.get_num_threads(),
            seconds=seconds,
        )

    def _replay(
        self, call: Call, spot: _Spot, before: _Before | None, expected: list[_Bits]
    ) -> None:
        func, args, kwargs, outputs = call.func, call.args, call.kwargs, spot.plan.outputs
        try:
            if spot.suspected is None:
                spot.suspected = _suspected(call.place, expected)
            n_replays = self._suspects if spot.suspected else self._replays
            for index in range(n_replays):
                if before is not None:
                    args, kwargs = before.again(last=index == n_replays - 1)
                replayed: Any = outputs(args, kwargs, func(*args, **kwargs))
                if spot.plan.non_blocking >= 0:
                    _wait(call, spot.plan)
                spot.n_replays += 1
                if not _all_same(expected, replayed):
                    spot.add(expected, replayed)
                    if spot.warned is None:
                        if before is not None:
                            before.generators_back()
                        spot.warned = _warns(func, args, kwargs)  # on the copies
                replayed = None  # so that the next one takes its memory
            spot.n_replayed += 1
        except Exception as error:
            # Out of memory, or an operation that cannot be asked twice: the step goes on.
            spot.n_failed += 1
            spot.failure = f"replay raised {type(error).__name__}"
        finally:
            if before is not None:
                before.finish()


class _Spot:
    """One operation at one place: how often it came and what its replays gave."""

    def __init__(self, place: Place, plan: _Plan) -> None:
        self.place, self.plan = place, plan
        self.n_calls = self.n_replayed = self.n_replays = self.n_failed = 0
        self.failure = ""
        self.flips = 0
        self.outputs: set[int] = set()
        self.n_elements = 0
        self.max_abs = 0.0
        self.warned: bool | None = None
        self.suspected: bool | None = None
        self.device = "cpu"

    def add(self, expected: list[_Bits], replayed: list[Any]) -> None:
        """A replay that gave other bits."""
        self.flips += 1
        for index, (bits, b) in enumerate(zip_longest(expected, replayed, fillvalue=None)):
            a = None if bits is None else bits.value
            if same_bits(a, b):
                continue
            self.outputs.add(index)
            n, largest = difference(a, b)
            self.n_elements = max(self.n_elements, n)
            self.max_abs = max(self.max_abs, largest)
            if isinstance(a, torch.Tensor):
                self.device = a.device.type


def _suspected(place: Place, outputs: list[_Bits]) -> bool:
    """Whether an operation is known to race: it has a substitute, or is documented to."""
    if substitutes.for_operation(place.op, place.source) is not None:
        return True
    tensors = (bits.value for bits in outputs if isinstance(bits.value, torch.Tensor))
    device = next((tensor.device.type for tensor in tensors), "cpu")
    known = knowledge.for_operation(place.op, device) if device in knowledge.DEVICES else None
    # On CUDA even products are listed, as held by a switch; on a CPU the list is short.
    return known is not None and (known.kind == "error" or device == "cpu")


def _all_same(expected: list[_Bits], replayed: list[Any]) -> bool:
    return len(expected) == len(replayed) and all(map(_Bits.same, expected, replayed))


def _audited(spot: _Spot) -> AuditedOp:
    place = spot.place
    known = None
    if spot.device in knowledge.DEVICES:
        known = knowledge.for_operation(place.op, spot.device)
    substitute = substitutes.for_operation(place.op, place.source)
    return AuditedOp(
        op=place.op,
        module=place.module,
        source=place.source,
        phase=place.phase,
        calls=spot.n_calls,
        flips=spot.flips,
        replays=spot.n_replays,
        outputs=tuple(sorted(spot.outputs)),
        n_elements=spot.n_elements,
        max_abs=spot.max_abs,
        warned=bool(spot.warned),
        substitute=None if substitute is None else substitute.name,
        reason="" if known is None else known.reason,
        remedy="no documented remedy; try one thread or another device"
        if known is None
        else known.remedy,
    )


# -- how an operation is run again ----------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
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

    @classmethod
    def of(cls, func: Any) -> _Plan:
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
        return cls(
            # Nothing is computed by a view or by reading a number out of a tensor.
            replayable=bool(written or fresh)
            and name not in _UNINITIALISED
            and name not in ("_local_scalar_dense", "item")
            and func.namespace not in _NEVER_AGAIN
            and torch.Tag.inplace_view not in func.tags,
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
        )

    def outputs(self, args: tuple, kwargs: dict[str, Any], returned: Any) -> list[Any]:
        """What an operation gave: its new values, then what it wrote in place."""
        if self.n_returns == 1:
            if self.fresh and not self.written and isinstance(returned, torch.Tensor):
                return [returned]
            values: Any = (returned,)
        else:
            values = () if returned is None else returned
        found = _leaves([values[index] for index in self.fresh])
        for position, name in self.written:
            value = args[position] if position < len(args) else kwargs.get(name)
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif value is not None:
                found += _leaves(value)
        return found


def _holds(argument: Any) -> bool:
    return "Tensor" in str(argument.type)


def _leaves(values: Any) -> list[Any]:
    """Whatever lies in lists and tuples, in order."""
    if isinstance(values, list | tuple):
        return [leaf for value in values for leaf in _leaves(value)]
    return [values]


_SMALL = 1 << 16  # bytes, up to which the allocator is faster than our own buffers
_LINE = 64  # bytes to which PyTorch aligns memory; libraries may add in another order off it


class _Before:
    """What an operation will overwrite and draw, kept so that it can be asked again.

    Attributes
    ----------
    complete : bool
        Whether everything could be kept; if not, running it again would change the training.
    """

    def __init__(self, call: Call, plan: _Plan, buffers: _Buffers) -> None:
        self._call, self._buffers = call, buffers
        self._taken: list[torch.Tensor] = []
        self._views: dict[int, _View] = {}
        self._spans: dict[int, _Span] = {}
        self._clones: dict[int, torch.Tensor] = {}
        self._single: torch.Tensor | None = None
        self._kept: torch.Tensor | None = None
        self.complete = True
        self._states = _generator_states(call, guarded=plan.guarded) if plan.draws else []
        self._after: list[_GeneratorState] | None = None
        if plan.alone >= 0:
            self._single = _alone(call, plan.alone)
        if self._single is not None:
            self._kept = self._copy(self._single)
        elif plan.written:
            self._keep_all(plan)

    def _keep_all(self, plan: _Plan) -> None:
        call = self._call
        tensors = [
            leaf
            for leaf in _leaves([*call.args, *call.kwargs.values()])
            if isinstance(leaf, torch.Tensor)
        ]
        written = [
            leaf
            for leaf in plan.outputs(call.args, call.kwargs, (None,) * max(plan.n_returns, 2))
            if isinstance(leaf, torch.Tensor)
        ]
        keys = set()
        for tensor in written:
            if is_traceable_wrapper_subclass(tensor):
                self.complete = self.complete and plan.guarded
            elif _spannable(tensor):
                keys.add(tensor.untyped_storage()._cdata)
            elif tensor.device.type != "meta":
                self._clones[id(tensor)] = tensor.clone()
        # An argument that shares memory with a written one has to share the copy too.
        for tensor in tensors:
            if is_traceable_wrapper_subclass(tensor) or not _spannable(tensor):
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


class _Buffers:
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


class _View:
    """How a tensor lies in its storage."""

    def __init__(self, span: _Span, tensor: torch.Tensor) -> None:
        self._span = span
        span.cover(*_extent(tensor))
        self._dtype, self._device = tensor.dtype, tensor.device
        self._offset, self._item = int(tensor.storage_offset()), tensor.element_size()
        self._size, self._stride = tensor.size(), tensor.stride()
        self._conj, self._neg = tensor.is_conj(), tensor.is_neg()

    def of_copy(self) -> torch.Tensor:
        """The same view of the copy."""
        offset = self._offset + self._span.moved // self._item
        tensor = torch.empty(0, dtype=self._dtype, device=self._device)
        tensor.set_(self._span.memory, max(0, offset), self._size, self._stride)
        if self._conj:
            tensor = tensor.conj()
        return torch._neg_view(tensor) if self._neg else tensor


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last byte (exclusive) of a tensor in its storage."""
    item, low = tensor.element_size(), int(tensor.storage_offset())
    if tensor.numel() == 0:
        return low * item, low * item
    steps = zip(tensor.size(), tensor.stride(), strict=True)
    return low * item, (low + 1 + sum((n - 1) * step for n, step in steps)) * item


def _spannable(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a plain view of memory."""
    return (
        tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor._is_zerotensor()
    )


def _alone(call: Call, position: int) -> torch.Tensor | None:
    """The argument written into, if a copy of it alone is an equal input."""
    written: Any = call.args[position] if position < len(call.args) else None
    if not _in_one_stretch(written) or written.data_ptr() % _LINE:
        return None
    for value in (*call.args, *call.kwargs.values()) if call.kwargs else call.args:
        if (
            value is not written
            and isinstance(value, torch.Tensor)
            and (value.layout is not torch.strided or _is_alias(value, written))
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


def _generator_states(call: Call, *, guarded: bool) -> list[_GeneratorState]:
    leaves = _leaves([*call.args, *call.kwargs.values()])
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


def _wait(call: Call, plan: _Plan) -> None:
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


_AS_IT_IS = nullcontext()
_only_warns = torch.is_deterministic_algorithms_warn_only_enabled


@contextmanager
def _quiet() -> Iterator[None]:
    """No warning of a replay: the operation itself has warned already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _warns(func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether PyTorch, asked for determinism, warns of this operation."""
    mode = torch.get_deterministic_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.set_deterministic_debug_mode("warn")
            func(*args, **kwargs)
        finally:
            torch.set_deterministic_debug_mode(mode)
    return any(alert_in(str(warning.message)) for warning in caught)


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if number is not None:
            torch.set_num_threads(before)


# -- bits ----------------------------------------------------------------------------------


class _Bits:
    """A result, ready to be compared with several others."""

    __slots__ = ("_dtype", "_n_bytes", "_pointer", "_shape", "_stride", "comparable", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.comparable = not isinstance(value, torch.Tensor) or (
            value.numel() > 0 and not value.is_meta
        )
        self._pointer = 0
        if _in_one_stretch(value):
            self._pointer, self._n_bytes = value.data_ptr(), value.nbytes
            self._dtype, self._shape, self._stride = value.dtype, value.shape, value.stride()

    def same(self, other: Any) -> bool:
        """Whether another value holds the `same_bits`."""
        if (
            self._pointer
            and type(other) in _PLAIN
            and other.dtype is self._dtype
            and other.layout is torch.strided
            and other.shape == self._shape
            and other.stride() == self._stride
            and other.is_cpu
            and not other.is_neg()
        ):
            return _memcmp(self._pointer, other.data_ptr(), self._n_bytes) == 0
        return same_bits(self.value, other)


def _in_one_stretch(value: Any) -> bool:
    """Whether a value is a tensor whose elements fill one stretch of the processor's memory."""
    return (
        _memcmp is not None
        and type(value) in _PLAIN
        and value.is_cpu
        and value.dtype in _REAL
        and value.layout is torch.strided
        and (value.is_contiguous() or _is_dense(value))
        and not value.is_neg()
        and not value.is_nested
        and value.data_ptr() != 0
    )


_is_alias = torch._C._is_alias_of  # type: ignore[attr-defined]
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_REAL = frozenset(
    {
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    }
)
_is_dense = torch.ops.aten.is_non_overlapping_and_dense.default


def same_bits(a: Any, b: Any) -> bool:
    """Whether two values hold the same bits: NaN equals itself, 0 and -0 differ.

    Parameters
    ----------
    a, b : Tensor or plain value
        Of any dtype, device and layout.

    Examples
    --------
    >>> same_bits(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    True
    >>> same_bits(torch.tensor(0.0), torch.tensor(-0.0))
    False
    """
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and _plain_bits(a) == _plain_bits(b)
    if not _same_kind(a, b) or a.device != b.device:
        return False
    x, y = _parts(a), _parts(b)
    if x is None or y is None:
        return torch.equal(_as_integers(a), _as_integers(b))
    return len(x) == len(y) and all(map(same_bits, x, y))


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.layout != b.layout or a.is_nested != b.is_nested:
        return False
    return a.is_nested or a.shape == b.shape  # a nested tensor has no shape of its own


def _plain_bits(value: Any) -> Any:
    """A number's bits, anything else as it is."""
    if isinstance(value, float):
        return struct.pack("d", value)
    if isinstance(value, complex):
        return struct.pack("dd", value.real, value.imag)
    return value


def _parts(tensor: torch.Tensor) -> list[Any] | None:
    """What a tensor is made of that is not itself a plain view of memory; None if it is one."""
    if is_traceable_wrapper_subclass(tensor):
        names, context = tensor.__tensor_flatten__()
        return [repr(context), *(getattr(tensor, name) for name in names)]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values(), tensor.is_coalesced()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.layout != torch.strided:
        return [tensor.to_dense()]
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.is_quantized:
        return [tensor.int_repr(), repr(tensor.qscheme())]
    if tensor._is_zerotensor():
        return []
    return None


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(_INTEGERS[tensor.element_size()])


def difference(a: Any, b: Any) -> tuple[int, float]:
    """How many elements differ in their bits, and by how much at most.

    Parameters
    ----------
    a, b : Tensor or plain value
        Two results that do not hold the `same_bits`.

    Returns
    -------
    n_elements : int
    max_abs : float
        Infinite where no difference can be given: other shapes, a number beside NaN.

    Examples
    --------
    >>> difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))
    (1, 0.5)
    """
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return (0, 0.0) if same_bits(a, b) else (1, _distance(a, b))
    if not _same_kind(a, b):
        return max(a.numel(), b.numel()), float("inf")
    one, other = _parts(a), _parts(b)
    if one is not None and other is not None:
        if len(one) != len(other):
            return max(a.numel(), b.numel()), float("inf")
        both = [difference(x, y) for x, y in zip(one, other, strict=True)]
        return sum(n for n, _ in both), max((largest for _, largest in both), default=0.0)
    moved = _as_integers(a).cpu() != _as_integers(b).cpu()
    real = [torch.view_as_real(t) if t.is_complex() else t for t in map(_resolved, (a, b))]
    x, y = (t.cpu()[moved].to(torch.float64) for t in real)
    largest = torch.nan_to_num((x - y).abs(), nan=float("inf"), posinf=float("inf"))
    largest[torch.isnan(x) & torch.isnan(y)] = 0.0
    return int(moved.sum()), float(largest.max()) if largest.numel() else 0.0


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg()


def _distance(a: Any, b: Any) -> float:
    numbers = isinstance(a, int | float | complex) and isinstance(b, int | float | complex)
    if not numbers:
        return float("inf")
    if a != a and b != b:
        return 0.0
    return float(abs(a - b)) if a == a and b == b else float("inf")


def _load_memcmp() -> Any:
    """The C library's comparison, several times as fast as a comparison of tensors."""
    if os.name != "posix":
        return None
    function = ctypes.CDLL(None).memcmp
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    function.restype = ctypes.c_int
    return function


_memcmp = _load_memcmp()
