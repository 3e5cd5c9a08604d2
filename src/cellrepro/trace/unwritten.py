"""Memory that nobody has written, followed from where it is handed out to what reads it.

What such memory holds is left over from whoever had it before, so that a result computed from it
changes from run to run though every operation repeats. It is followed in two executions that fill
it with different patterns: what touches it is run in both, and what then differs was computed from
it. The training goes on with its own memory, which is not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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

    stretches: frozenset[_Stretch] = frozenset()
    read: bool = False
    """Whether an operation was given it since: if it matters, what came of that differs too."""


class _Memory:
    """A storage whose content depends on unwritten memory: on these stretches, by these results.

    ``held`` is what it holds in the two executions, and really: tensors of uint8, one axis.
    """

    def __init__(
        self,
        storage: Any,
        held: list[torch.Tensor],
        depends: Iterable[tuple[Iterable[_Stretch], Iterable[_Result]]],
    ) -> None:
        self._alive = StorageWeakRef(storage)  # while it is held no other has its address
        self.held = held
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

    def begin(self, call: Call, plan: Plan) -> _Twice | int | None:
        """Before an operation runs: what `end` has to know of now."""
        if plan.resizes:
            return call.args[0].untyped_storage().nbytes() if is_plain(call.args[0]) else None
        if not self._memories or not plan.computes:
            return None
        memories = self._given_to(call)
        for memory in memories.values():
            for result in memory.results:
                result.read = True
        twice = _Twice(call, plan, memories) if memories else None
        return twice if twice is not None and twice.matters else None

    def end(self, call: Call, plan: Plan, begun: _Twice | int | None, returned: Any) -> None:
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
        real = bytes_of(storage).clone()
        held = [real.clone(), real.clone(), real]
        for which in (0, 1):
            if known is not None:
                held[which][:start] = known.held[which][:start]
            _fill(held[which][start:], tensor.dtype, which, self.n_followed.total())
        depends: list[tuple[Any, Any]] = [({_Stretch(place)}, ())]
        if known is not None:
            depends.append((known.stretches, known.results))
        self._memories[storage._cdata] = _Memory(storage, held, depends)

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
            if torch.equal(memory.held[2], bytes_of(storage)):
                found[storage._cdata] = memory
            else:  # written by what PyTorch does not dispatch: NumPy, Triton, another library
                del self._memories[storage._cdata]
        return found

    def _compare(self, call: Call, plan: Plan, twice: _Twice, returned: Any) -> None:
        """Carry an operation out in both executions and follow what differs."""
        runs = twice.carry_out()
        if runs is None:
            if twice.refused:
                self._reached |= _read(_all_of(twice.reading), call.place, [(1, float("inf"))])
            return
        a, b = runs
        news = zip_longest(plan.new_values(returned), a.new, b.new)
        apart = [(value, x, y) for value, x, y in news if not same_bits(x, y)]
        changed = {key: _changed(a, b, key, size) for key, size in twice.sizes.items()}
        result = _Result()
        if apart or any(n for n, _ in changed.values()):
            sizes = [difference(x, y) for _, x, y in apart]
            sizes += [(n, float("inf")) for n, _ in changed.values()]
            result.stretches = _read(twice.stretches(a), call.place, sizes)
            self._results.append(result)
        for value, x, y in apart:
            if not (is_plain(value) and _alike(value, x, y)):
                # A number for Python, or a tensor whose very size depends on it.
                self._reached |= result.stretches
                continue
            storage = value.untyped_storage()
            if storage._cdata not in self._memories:
                held = [bytes_of(tensor.untyped_storage()) for tensor in (x, y)]
                held.append(bytes_of(storage).clone())
                depends: list[tuple[Any, Any]] = [(result.stretches, {result})]
                self._memories[storage._cdata] = _Memory(storage, held, depends)
        for key, storage in twice.written.items():
            before = self._memories.pop(key, None)
            n_changed, left = changed[key]
            depends = [(result.stretches, {result})] if n_changed else []
            if before is not None and left:
                depends.append((before.stretches, before.results))
            if depends:  # else what was followed has been overwritten
                held = [a.after[key], b.after[key], bytes_of(storage).clone()]
                self._memories[key] = _Memory(storage, held, depends)


@dataclass
class _Ran:
    """One execution of an operation: its new values, and what its memory held, by storage."""

    new: list[Any]
    before: dict[int, torch.Tensor]
    after: dict[int, torch.Tensor]


class _Twice:
    """One operation that is given followed memory, to be run in both executions.

    Attributes
    ----------
    reading : dict of int to _Memory
        By storage, the memories of which it is given something that differs.
    written : dict of int to storage
        What it writes into.
    sizes : dict of int to int
        Bytes of one element of it.
    matters : bool
        Whether the executions may come apart by it, or together.
    refused : bool
        Whether it cannot take what the memory holds, though it took what was really there.
    """

    def __init__(self, call: Call, plan: Plan, memories: dict[int, _Memory]) -> None:
        self._call, self._plan, self._memories = call, plan, memories
        self.refused = False
        self._arguments = Arguments(call)
        self.reading: dict[int, _Memory] = {}
        for layout in self._arguments.layouts.values():
            if layout.key in memories:
                held = memories[layout.key].held
                if not same_bits(layout.on(_whole(held[0])), layout.on(_whole(held[1]))):
                    self.reading[layout.key] = memories[layout.key]
        written = [leaf for leaf in plan.overwritten(call.args, call.kwargs) if is_plain(leaf)]
        self.written = {t.untyped_storage()._cdata: t.untyped_storage() for t in written}
        self.sizes = {t.untyped_storage()._cdata: t.element_size() for t in written}
        self.matters = bool(self.reading or self.written.keys() & memories.keys())
        if self.matters:
            others = self.written.keys() - memories.keys()
            self._kept = {key: bytes_of(self.written[key]).clone() for key in others}
            self._states = generator_states(call, guarded=plan.guarded) if plan.draws else []

    def carry_out(self) -> tuple[_Ran, _Ran] | None:
        """Run it in both executions; none where it cannot be executed again."""
        after = [state.now() for state in self._states]
        try:
            return self._run(lambda key: 0), self._run(lambda key: 1)
        except (MemoryError, torch.OutOfMemoryError):
            return None
        except Exception:
            try:
                self._run(lambda key: 2)
                self.refused = True
            except Exception:
                self.refused = False
            return None
        finally:
            for state in after:
                state.put_back()

    def stretches(self, first: _Ran) -> frozenset[_Stretch]:
        """Those on which its result depends: where it reads several, each is tried by itself."""
        found = self.reading
        if len(found) > 1:
            after = [state.now() for state in self._states]
            found = {key: found[key] for key in found if self._depends_on(key, first)} or found
            for state in after:
                state.put_back()
        return _all_of(found)

    def _depends_on(self, key: int, first: _Ran) -> bool:
        try:
            ran = self._run(lambda other: int(other == key))
        except Exception:
            return True
        return not all(map(same_bits, first.new, ran.new)) or any(
            _changed(first, ran, written, size)[0] for written, size in self.sizes.items()
        )

    def _run(self, which: Callable[[int], int]) -> _Ran:
        """Run it, each memory as it is in the execution named."""
        for state in self._states:
            state.put_back()
        before = self._kept | {
            key: memory.held[which(key)] for key, memory in self._memories.items()
        }
        given = {
            key: _whole(held.clone() if key in self.written else held)
            for key, held in before.items()
        }
        args, kwargs = self._arguments.on(given)
        returned = without_warnings(lambda: self._call.func(*args, **kwargs), anyhow=True)
        after = {key: bytes_of(given[key].memory.untyped_storage()) for key in self.written}
        return _Ran(self._plan.new_values(returned), before, after)


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


def _all_of(memories: dict[int, _Memory]) -> frozenset[_Stretch]:
    return frozenset().union(*(memory.stretches for memory in memories.values()))


def _fill(memory: torch.Tensor, dtype: torch.dtype, which: int, number: int) -> None:
    """Write one of two patterns, which differ in every element.

    Of floating numbers finite ones of both signs, and NaN; of whole ones small ones, which are
    indices too. The finite ones differ among themselves, or a mean would take the pattern out, and
    with the number of the memory, or a copy into another would not be seen.
    """
    memory.fill_(17 + 17 * which)
    real = dtype.to_real() if dtype.is_complex else dtype
    if real not in _PATTERNED or memory.storage_offset() % real.itemsize:
        return
    values = memory[: len(memory) // real.itemsize * real.itemsize].view(real)
    steps = torch.arange(number, number + len(values), device=memory.device)
    if real is torch.bool:
        values.fill_(bool(which))
    elif not real.is_floating_point:
        values.copy_(steps % 2 + 2 * which)
    elif which:
        values.fill_(float("nan"))
    else:
        values.copy_((0.5 + steps % 251 / 256) * (1 - 2 * (steps % 2)))


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


def _alike(*tensors: Any) -> bool:
    """Whether tensors lie in the same way in storages of one size."""
    first, *others = (
        (t.shape, t.stride(), t.storage_offset(), t.dtype, t.untyped_storage().nbytes())
        for t in tensors
    )
    return all(other == first for other in others)


def _read(
    stretches: frozenset[_Stretch], place: Place, apart: Sequence[tuple[int, float]]
) -> frozenset[_Stretch]:
    """Note who read them first, and how far its results came apart."""
    for stretch in stretches:
        if stretch.reader is None:
            stretch.reader = place
            stretch.n_elements = max(n for n, _ in apart)
            stretch.max_abs = max(largest for _, largest in apart)
    return stretches
