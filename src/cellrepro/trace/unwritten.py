"""Memory that nobody has written, followed from where it is handed out to what reads it.

What such memory holds is left over from whoever had it before, so that a result computed from it
changes from run to run though every operation repeats. It is followed beside the training in a
second execution, in which it holds a pattern: what touches it is run there, too, and what then
differs from the training was computed from it. The training itself is not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.store.bits import difference, same_bits
from cellrepro.store.manifest import Place
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.observer import Call
from cellrepro.trace.reexecution import (
    Arguments,
    Copy,
    Plan,
    bytes_of,
    generator_states,
    inputs_of,
    is_plain,
    without_warnings,
)


@dataclass(eq=False)
class _Stretch:
    """Memory that was handed out once without being written."""

    place: Place
    """Of the operation that handed it out."""
    reader: Place | None = None
    """The first operation that computed something from it."""
    n_elements: int = 0
    """How many elements of what that gave differ between the two executions."""
    max_abs: float = 0.0


@dataclass(eq=False)
class _Result:
    """What one operation computed from unwritten memory."""

    stretches: frozenset[_Stretch]
    read: bool = False
    """Whether an operation was given it since: if it matters, what came of that differs too."""


class _Memory:
    """A storage whose content depends on unwritten memory: on these stretches, by these results.

    ``real`` and ``shadow`` are what it holds in the training and in the second execution: tensors
    of uint8, one axis.
    """

    def __init__(
        self,
        storage: Any,
        shadow: torch.Tensor,
        depends: Iterable[tuple[Iterable[_Stretch], Iterable[_Result]]],
    ) -> None:
        self._alive = StorageWeakRef(storage)  # while it is held no other has its address
        self.real, self.shadow = bytes_of(storage).clone(), shadow
        stretches, results = zip(*depends, strict=True)
        self.stretches: frozenset[_Stretch] = frozenset().union(*stretches)
        self.results: frozenset[_Result] = frozenset().union(*results)

    @property
    def expired(self) -> bool:
        return self._alive.expired()


class Unwritten:
    """Follows the unwritten memory of one audit.

    Attributes
    ----------
    n_followed : Counter of Place
        How often memory was handed out, by the operation that did it.
    """

    def __init__(self) -> None:
        self.n_followed: Counter[Place] = Counter()
        self._memories: dict[int, _Memory] = {}
        self._results: list[_Result] = []
        self._reached: set[_Stretch] = set()

    def found(self) -> list[NondeterministicOperation]:
        """The operations that handed out memory from which a result was computed."""
        by_place: dict[Place, list[_Stretch]] = {}
        for stretch in self._all_reached():
            by_place.setdefault(stretch.place, []).append(stretch)
        found = []
        for place, stretches in by_place.items():
            readers = [stretch.reader for stretch in stretches if stretch.reader is not None]
            read_by = ", ".join(dict.fromkeys(f"{reader.op}, {reader}" for reader in readers))
            found.append(
                NondeterministicOperation(
                    **vars(place),
                    flips=len(stretches),
                    replays=self.n_followed[place],
                    max_abs=max(stretch.max_abs for stretch in stretches),
                    n_elements=max(stretch.n_elements for stretch in stretches),
                    calls=self.n_followed[place],
                    reason="It hands out memory that nobody has written, and what that holds "
                    f"changes from run to run; read by {read_by}.",
                    remedy="Write all of it before it is read: torch.zeros, fill_ or copy_.",
                    read_by=read_by,
                )
            )
        return found

    def _all_reached(self) -> set[_Stretch]:
        """What reached a result so far.

        A result is what left PyTorch as a number, what is still held, and what no operation was
        given since. Where all that it was given to came out the same in both executions, as behind
        a mask, it did not matter.
        """
        alive = [memory for memory in self._memories.values() if not memory.expired]
        held = [result.stretches for memory in alive for result in memory.results]
        last = [result.stretches for result in self._results if not result.read]
        return self._reached.union(*held, *last)

    def close(self) -> None:
        """Give the memory back; what was found stays."""
        self._reached = self._all_reached()
        self._memories, self._results = {}, []

    def begin(self, call: Call, plan: Plan) -> _Second | int | None:
        """Before an operation runs: what `end` has to know of now."""
        if plan.resizes:
            return call.args[0].untyped_storage().nbytes() if is_plain(call.args[0]) else None
        if not self._memories or not plan.computes:
            return None
        memories = self._given_to(call)
        for memory in memories.values():
            for result in memory.results:
                result.read = True
        second = _Second(call, plan, memories) if memories else None
        return second if second is not None and second.matters else None

    def end(self, call: Call, plan: Plan, begun: _Second | int | None, returned: Any) -> None:
        """After an operation has run: follow what it handed out, or what it computed."""
        if plan.allocates:
            for tensor in plan.new_values(returned):
                self._hand_out(call.place, tensor, 0)
        elif isinstance(begun, int):
            self._hand_out(call.place, call.args[0], begun)
        elif begun is not None:
            self._compare(call, plan, begun, returned)

    def _hand_out(self, place: Place, tensor: Any, start: int) -> None:
        """Follow a tensor's memory from byte ``start`` on."""
        if not is_plain(tensor) or _filled_by_pytorch():
            return
        storage = tensor.untyped_storage()
        if storage.nbytes() <= start:
            return
        for key in [key for key, memory in self._memories.items() if memory.expired]:
            del self._memories[key]
        self.n_followed[place] += 1
        known = self._memories.get(storage._cdata)
        shadow = bytes_of(storage).clone()
        if known is not None:
            shadow[:start] = known.shadow[:start]
        _fill(shadow[start:], tensor.dtype, self.n_followed.total())
        depends: list[tuple[Any, Any]] = [({_Stretch(place)}, ())]
        if known is not None:
            depends.append((known.stretches, known.results))
        self._memories[storage._cdata] = _Memory(storage, shadow, depends)

    def _given_to(self, call: Call) -> dict[int, _Memory]:
        """The followed memories that an operation is given, by storage."""
        found = {}
        for leaf in inputs_of(call):
            if not is_plain(leaf):
                continue
            storage = leaf.untyped_storage()
            memory = self._memories.get(storage._cdata)
            if memory is None:
                continue
            if torch.equal(memory.real, bytes_of(storage)):
                found[storage._cdata] = memory
            else:  # written by what PyTorch does not dispatch: NumPy, Triton, another library
                del self._memories[storage._cdata]
        return found

    def _compare(self, call: Call, plan: Plan, second: _Second, returned: Any) -> None:
        """Carry an operation out in the second execution and follow what differs."""
        try:
            real, ran = second.real(returned), second.run()
        except (MemoryError, torch.OutOfMemoryError):
            return
        except Exception:  # it cannot take the pattern, though it took what was really there
            self._reached |= _read(second.stretches(), call.place, 1, float("inf"))
            return
        apart = [(x, y) for x, y in zip_longest(real.new, ran.new) if not same_bits(x, y)]
        changed = {key: _changed(real, ran, key, size) for key, size in second.sizes.items()}
        if apart or any(n for n, _ in changed.values()):
            sizes = [difference(x, y) for x, y in apart]
            sizes += [(n, float("inf")) for n, _ in changed.values()]
            n_elements, max_abs = (max(column) for column in zip(*sizes, strict=True))
            result = _Result(_read(second.stretches(), call.place, n_elements, max_abs))
            self._results.append(result)
        for x, y in apart:
            if not (is_plain(x) and _alike(x, y)):
                # A number for Python, or a tensor whose very size depends on it.
                self._reached |= result.stretches
                continue
            storage = x.untyped_storage()
            if storage._cdata not in self._memories:
                shadow = bytes_of(y.untyped_storage())
                memory = _Memory(storage, shadow, [(result.stretches, {result})])
                self._memories[storage._cdata] = memory
        for key, storage in second.written.items():
            before = self._memories.pop(key, None)
            n_changed, left = changed[key]
            depends: list[tuple[Any, Any]] = [(result.stretches, {result})] if n_changed else []
            if before is not None and left:
                depends.append((before.stretches, before.results))
            if depends:  # else what was followed has been overwritten
                self._memories[key] = _Memory(storage, ran.after[key], depends)


@dataclass
class _Ran:
    """One execution of an operation: its new values, and what its memory held, by storage."""

    new: list[Any]
    before: dict[int, torch.Tensor]
    after: dict[int, torch.Tensor]


class _Second:
    """One operation that is given followed memory, to be run in the second execution.

    ``written`` holds the storages that it writes into, ``sizes`` the bytes of one element there,
    and ``matters`` whether the executions may come apart by it, or together.
    """

    def __init__(self, call: Call, plan: Plan, memories: dict[int, _Memory]) -> None:
        self._call, self._plan, self._memories = call, plan, memories
        self._arguments = Arguments(call)
        self._reading: dict[int, _Memory] = {}  # those of which it is given what differs
        for layout in self._arguments.layouts.values():
            memory = memories.get(layout.key)
            if memory is not None and not same_bits(
                layout.on(_whole(memory.real)), layout.on(_whole(memory.shadow))
            ):
                self._reading[layout.key] = memory
        written = [leaf for leaf in plan.overwritten(call.args, call.kwargs) if is_plain(leaf)]
        self.written = {t.untyped_storage()._cdata: t.untyped_storage() for t in written}
        self.sizes = {t.untyped_storage()._cdata: t.element_size() for t in written}
        self.matters = bool(self._reading or self.written.keys() & memories.keys())
        if self.matters:
            others = self.written.keys() - memories.keys()
            self._kept = {key: bytes_of(self.written[key]).clone() for key in others}
            self._states = generator_states(call, guarded=plan.guarded) if plan.draws else []

    def real(self, returned: Any) -> _Ran:
        """What the training had and has of it."""
        before = self._kept | {key: memory.real for key, memory in self._memories.items()}
        after = {key: bytes_of(storage) for key, storage in self.written.items()}
        return _Ran(self._plan.new_values(returned), before, after)

    def run(self) -> _Ran:
        """Run it in the second execution; generators stay."""
        before = self._kept | {key: memory.shadow for key, memory in self._memories.items()}
        given = {
            key: _whole(held.clone() if key in self.written else held)
            for key, held in before.items()
        }
        args, kwargs = self._arguments.on(given)
        now = [state.now() for state in self._states]
        try:
            for state in self._states:
                state.put_back()
            returned = without_warnings(lambda: self._call.func(*args, **kwargs), anyhow=True)
        finally:
            for state in now:
                state.put_back()
        after = {key: bytes_of(given[key].memory.untyped_storage()) for key in self.written}
        return _Ran(self._plan.new_values(returned), before, after)

    def stretches(self) -> frozenset[_Stretch]:
        """On what its result depends: what it only writes into counts where it reads no other."""
        only_read = [memory for key, memory in self._reading.items() if key not in self.written]
        memories = only_read or self._reading.values()
        return frozenset().union(*(memory.stretches for memory in memories))


def _whole(held: torch.Tensor) -> Copy:
    return Copy(held, 0, held.nbytes)


def _changed(a: _Ran, b: _Ran, key: int, size: int) -> tuple[int, bool]:
    """Elements of a storage that were written and differ now, and whether others differ."""
    if len({len(held) for held in (a.after[key], b.after[key], a.before[key])}) > 1:
        return 1, True  # resized
    differ = _apart(a.after[key], b.after[key], size)
    written = _apart(a.after[key], a.before[key], size) | _apart(b.after[key], b.before[key], size)
    return int((differ & written).sum()), bool((differ & ~written).any())


def _apart(a: torch.Tensor, b: torch.Tensor, size: int) -> torch.Tensor:
    """Which elements of so many bytes differ, the bytes behind the last whole one as one more."""
    differ = a != b
    whole = len(differ) // size * size
    return torch.cat([differ[:whole].view(-1, size).any(1), differ[whole:].any()[None]])


def _fill(memory: torch.Tensor, dtype: torch.dtype, number: int) -> None:
    """Write a pattern that differs from what is there in every element.

    Floating numbers are of the other sign, every third NaN; they differ among themselves, or a mean
    would take the pattern out, and with the number of the memory, or a copy into another would not
    be seen. Whole ones stay near, for they are indices too.
    """
    real = dtype.to_real() if dtype.is_complex else dtype
    if real not in _PATTERNED or memory.storage_offset() % real.itemsize:
        memory.bitwise_not_()
        return
    values = memory[: len(memory) // real.itemsize * real.itemsize].view(real)
    if real is torch.bool:
        values.fill_(not bool(values.any()))
    elif not real.is_floating_point:
        values.bitwise_xor_(2)
    else:
        steps = torch.arange(number, number + len(values), device=memory.device)
        pattern = (0.5 + steps % 251 / 256) * torch.where(values > 0, -1.0, 1.0)
        nan = (steps % 3 == 0) & ~values.isnan() & (len(values) > 1)
        values.copy_(torch.where(nan, torch.nan, pattern))


_PATTERNED = frozenset(
    {
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    }
)


def _filled_by_pytorch() -> bool:
    """Whether PyTorch itself fills new memory: then it is the same every time."""
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    return torch.are_deterministic_algorithms_enabled() and fills


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors lie in the same way in storages of one size."""
    first, second = (
        (t.shape, t.stride(), t.storage_offset(), t.dtype, t.untyped_storage().nbytes())
        for t in (a, b)
    )
    return first == second


def _read(
    stretches: frozenset[_Stretch], place: Place, n_elements: int, max_abs: float
) -> frozenset[_Stretch]:
    """Note who read them first, and how far its results came apart."""
    for stretch in stretches:
        if stretch.reader is None:
            stretch.reader, stretch.n_elements, stretch.max_abs = place, n_elements, max_abs
    return stretches
