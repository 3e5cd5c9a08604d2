"""Memory that nobody has written, followed from where it is handed out to what reads it.

A result computed from it changes from run to run though every operation repeats. Beside the
training, which is not touched, goes a second execution in which such memory holds a pattern: what
touches it is run there, too, and what then differs from the training was computed from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.store.bits import difference, same_bits
from cellrepro.store.manifest import Place
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.observer import Call
from cellrepro.trace.reexecution import (
    Arguments,
    Generators,
    Plan,
    bytes_of,
    inputs_of,
    is_plain,
    seen_on,
    without_warnings,
)


@dataclass(eq=False)
class _Stretch:
    """Memory that was handed out once without being written, and what first computed from it."""

    place: Place
    reader: Place | None = None
    n_elements: int = 0  # of what that gave, differing between the two executions
    max_abs: float = 0.0


@dataclass(eq=False)
class _Result:
    """What an operation computed from unwritten memory; or that memory itself."""

    stretches: frozenset[_Stretch]
    computed: bool = True
    read: bool = False  # by an operation since: if it matters, what came of that differs too


class _Memory(NamedTuple):
    """A storage that depends on unwritten memory."""

    alive: StorageWeakRef  # while it is held no other storage has its address
    real: torch.Tensor  # what it holds in the training: bytes
    shadow: torch.Tensor  # and in the second execution
    results: frozenset[_Result]


class Unwritten:
    """Follows the unwritten memory of one audit."""

    def __init__(self) -> None:
        self.n_followed: Counter[Place] = Counter()  # memories, by what handed them out
        self._memories: dict[int, _Memory] = {}
        self._results: list[_Result] = []
        self._reached: set[_Stretch] = set()

    def found(self) -> list[NondeterministicOperation]:
        """After `close`: the operations that handed out memory from which a result was computed."""
        by_place: dict[Place, list[_Stretch]] = {}
        for stretch in self._reached:
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

    def close(self) -> None:
        """See what reached a result, and give the memory back.

        A result is what left PyTorch as a number, what is still held, and what no operation was
        given since. Where all that it was given to came out the same in both executions, as behind
        a mask, it did not matter.
        """
        alive = [memory for memory in self._memories.values() if not memory.alive.expired()]
        held = [result for memory in alive for result in memory.results if result.computed]
        last = [result for result in self._results if not result.read]
        self._reached.update(*(result.stretches for result in [*held, *last]))
        self._memories, self._results = {}, []

    def begin(self, call: Call, plan: Plan) -> _Second | None:
        """Before an operation runs: what `end` has to know of now."""
        if not self._memories or not plan.computes:
            return None
        memories = self._given_to(call)
        for memory in memories.values():
            for result in memory.results:
                result.read = True
        second = _Second(call, plan, memories) if memories else None
        return second if second is not None and second.matters else None

    def end(self, call: Call, plan: Plan, begun: _Second | None, returned: Any) -> None:
        """After an operation has run: follow what it handed out, or what it computed."""
        if plan.allocates:
            for tensor in plan.new_values(returned):
                self._hand_out(call.place, tensor)
        elif begun is not None:
            self._compare(call, begun, plan.new_values(returned))

    def _follow(self, storage: Any, shadow: torch.Tensor, results: Iterable[_Result]) -> None:
        self._memories[storage._cdata] = _Memory(
            StorageWeakRef(storage), bytes_of(storage).clone(), shadow, frozenset(results)
        )

    def _hand_out(self, place: Place, tensor: Any) -> None:
        fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        if torch.are_deterministic_algorithms_enabled() and fills:
            return  # PyTorch itself fills new memory: it is the same every time
        if not is_plain(tensor) or not tensor.untyped_storage().nbytes():
            return
        for key in [key for key, memory in self._memories.items() if memory.alive.expired()]:
            del self._memories[key]
        self.n_followed[place] += 1
        storage = tensor.untyped_storage()
        shadow = bytes_of(storage).clone()
        _fill(shadow, tensor.dtype, self.n_followed.total())
        self._follow(storage, shadow, {_Result(frozenset({_Stretch(place)}), computed=False)})

    def _given_to(self, call: Call) -> dict[int, _Memory]:
        """The followed memories that an operation is given, by storage."""
        found = {}
        for leaf in filter(is_plain, inputs_of(call)):
            storage = leaf.untyped_storage()
            memory = self._memories.get(storage._cdata)
            if memory is None:
                continue
            if torch.equal(memory.real, bytes_of(storage)):
                found[storage._cdata] = memory
            else:  # written by what PyTorch does not dispatch: NumPy, Triton, another library
                del self._memories[storage._cdata]
        return found

    def _compare(self, call: Call, second: _Second, new: list[Any]) -> None:
        """Carry an operation out in the second execution and follow what differs."""
        try:
            others, after = second.run()
        except (MemoryError, torch.OutOfMemoryError):
            return
        except Exception:  # it cannot take the pattern, though it took what was really there
            _read(second.stretches, call.place, 1, float("inf"))
            self._reached |= second.stretches
            return
        apart = [(x, y) for x, y in zip_longest(new, others) if not same_bits(x, y)]
        changed = {key: second.changed(key, held) for key, held in after.items()}
        sizes = [difference(x, y) for x, y in apart]
        sizes += [(n, float("inf")) for n, _ in changed.values() if n]
        result = _Result(second.stretches)
        if sizes:
            n_elements, max_abs = (max(column) for column in zip(*sizes, strict=True))
            _read(result.stretches, call.place, n_elements, max_abs)
            self._results.append(result)
        for x, y in apart:
            if not (is_plain(x) and is_plain(y) and _storage_size(x) == _storage_size(y)):
                # A number for Python, or a tensor whose very size depends on it.
                self._reached |= result.stretches
            elif x.untyped_storage()._cdata not in self._memories:
                self._follow(x.untyped_storage(), bytes_of(y.untyped_storage()), {result})
        for key, (n_changed, left) in changed.items():
            before = self._memories.pop(key, None)
            results = {result} if n_changed else set()
            if before is not None and left:
                results |= before.results
            if results:  # else what was followed has been overwritten
                self._follow(second.written[key][0], after[key], results)


class _Second:
    """One operation that is given followed memory, to be run in the second execution."""

    def __init__(self, call: Call, plan: Plan, memories: dict[int, _Memory]) -> None:
        self._call, self._plan = call, plan
        self._arguments = Arguments(call)
        written = [leaf for leaf in plan.overwritten(call.args, call.kwargs) if is_plain(leaf)]
        # Storages that it writes into, with the bytes of one element there.
        self.written = {
            leaf.untyped_storage()._cdata: (leaf.untyped_storage(), leaf.element_size())
            for leaf in written
        }
        reads = {
            key: memories[key]
            for key, view in self._arguments.views.values()
            if key in memories
            and not same_bits(*(seen_on(view, held) for held in memories[key][1:3]))
        }
        # What it only writes into counts where it reads no other.
        only_read = [memory for key, memory in reads.items() if key not in self.written]
        results = [one for memory in only_read or reads.values() for one in memory.results]
        self.stretches = frozenset[_Stretch]().union(*(result.stretches for result in results))
        # Whether the executions may come apart by it, or together.
        self.matters = bool(reads or self.written.keys() & memories.keys())
        if self.matters:
            self._generators = Generators(call, plan)
            others = self.written.keys() - memories.keys()
            kept = {key: bytes_of(self.written[key][0]).clone() for key in others}
            self._real = kept | {key: memory.real for key, memory in memories.items()}
            self._shadow = kept | {key: memory.shadow for key, memory in memories.items()}

    def run(self) -> tuple[list[Any], dict[int, torch.Tensor]]:
        """Its new values in the second execution, and what it wrote into; generators stay."""
        given = {
            key: held.clone() if key in self.written else held for key, held in self._shadow.items()
        }
        args, kwargs = self._arguments.on(given)
        now = self._generators.now()
        try:
            self._generators.put(self._generators.before)
            returned = without_warnings(lambda: self._call.func(*args, **kwargs), anyhow=True)
        finally:
            self._generators.put(now)
        after = {key: bytes_of(given[key].untyped_storage()) for key in self.written}
        return self._plan.new_values(returned), after

    def changed(self, key: int, shadow: torch.Tensor) -> tuple[int, bool]:
        """Elements of a storage that were written and differ now, and whether others differ."""
        storage, size = self.written[key]
        real, before = bytes_of(storage), self._real[key]
        if not len(real) == len(shadow) == len(before):
            return 1, True  # resized
        differ = _apart(real, shadow, size)
        written = _apart(real, before, size) | _apart(shadow, self._shadow[key], size)
        return int((differ & written).sum()), bool((differ & ~written).any())


def _storage_size(tensor: torch.Tensor) -> tuple[torch.Size, int]:
    return tensor.shape, tensor.untyped_storage().nbytes()


def _apart(a: torch.Tensor, b: torch.Tensor, size: int) -> torch.Tensor:
    """Which elements of so many bytes differ, the bytes behind the last whole one as one more."""
    differ = a != b
    n_bytes = len(differ) // size * size
    return torch.cat([differ[:n_bytes].view(-1, size).any(1), differ[n_bytes:].any()[None]])


def _fill(memory: torch.Tensor, dtype: torch.dtype, number: int) -> None:
    """Write a pattern that differs from what is there in every element.

    Floating numbers are of the other sign, every third NaN where all are finite; they differ among
    themselves, or a mean would take the pattern out, and with the number of the memory, or a copy
    into another would not be seen. Whole ones stay near, for they are indices too.
    """
    real = dtype.to_real()
    size = real.itemsize
    if real.is_floating_point and size == 1:
        memory.bitwise_not_()
        return
    values = memory[: len(memory) // size * size].view(real)
    if real is torch.bool:
        values.fill_(not bool(values.any()))
    elif not real.is_floating_point:
        values.bitwise_xor_(2)
    else:
        steps = torch.arange(number, number + len(values), device=memory.device)
        pattern = (0.5 + steps % 251 / 256) * torch.where(values > 0, -1.0, 1.0)
        nan = (steps % 3 == 0) & values.isfinite().all() & (len(values) > 1)
        values.copy_(torch.where(nan, torch.nan, pattern))


def _read(stretches: Iterable[_Stretch], place: Place, n_elements: int, max_abs: float) -> None:
    """Note who read them first, and how far its results came apart."""
    for stretch in stretches:
        if stretch.reader is None:
            stretch.reader, stretch.n_elements, stretch.max_abs = place, n_elements, max_abs
