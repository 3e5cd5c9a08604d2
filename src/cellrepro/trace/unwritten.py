"""Memory that nobody has written, followed from where it is handed out to what reads it.

What such memory holds is left over from whoever had it before, so that a result computed from it
changes from run to run though every operation repeats. It is followed in two executions that fill
it with different patterns: what touches it is run in both, and what then differs was computed from
it. The training goes on with its own memory, which is not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.store.bits import difference, same_bits
from cellrepro.store.manifest import Place
from cellrepro.trace.observer import Call
from cellrepro.trace.reexecution import Layout, Plan, generator_states, is_plain, leaves_of, quiet


@dataclass(eq=False)
class Stretch:
    """Memory that was handed out once without being written.

    Attributes
    ----------
    place : Place
        The operation that handed it out.
    reader : Place or None
        The first operation that computed something from it.
    n_elements : int
        How many elements of what that gave differ between the two executions.
    max_abs : float
        By how much at most; infinite where one of them is NaN.
    """

    place: Place
    reader: Place | None = None
    n_elements: int = 0
    max_abs: float = 0.0


_Stretches = frozenset[Stretch]


@dataclass(eq=False)
class _Result:
    """What one operation computed from unwritten memory."""

    stretches: _Stretches
    read: bool = False
    """Whether an operation was given it since: if it matters, what came of that differs too."""


class _Memory:
    """A storage whose content depends on unwritten memory.

    Attributes
    ----------
    held : list of Tensor of uint8, shape (bytes,)
        What it holds in the two executions, and really.
    stretches : frozenset of Stretch
    results : frozenset of _Result
        What was computed in it from them.
    """

    def __init__(
        self,
        storage: Any,
        held: list[torch.Tensor],
        stretches: _Stretches,
        results: frozenset[_Result],
    ) -> None:
        self._alive = StorageWeakRef(storage)  # while it is held no other has its address
        self.held, self.stretches, self.results = held, stretches, results

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
        self._reached: set[Stretch] = set()

    def reached(self) -> list[Stretch]:
        """What reached a result so far.

        A result is what left PyTorch as a number, what is still held, and what no operation was
        given since. Where all that it was given to came out the same in both executions, as behind
        a mask, it did not matter.
        """
        found = set(self._reached)
        for result in self._results:
            if not result.read:
                found |= result.stretches
        for memory in self._memories.values():
            if not memory.expired:
                found.update(*(result.stretches for result in memory.results))
        return list(found)

    def close(self) -> None:
        """Give the memory back; what was found stays."""
        self._reached = set(self.reached())
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
        if not memories:
            return None
        twice = _Twice(call, plan, memories)
        return twice if twice.matters else None

    def end(self, call: Call, plan: Plan, begun: _Twice | int | None, returned: Any) -> None:
        """After an operation has run: follow what it handed out, or what it computed."""
        if plan.allocates:
            for tensor in plan.outputs(call.args, call.kwargs, returned):
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
        real = _bytes_of(storage).clone()
        held = [real.clone(), real.clone(), real]
        for which in (0, 1):
            if known is not None:
                held[which][:start] = known.held[which][:start]
            _fill(held[which][start:], tensor.dtype, which, self.n_followed.total())
        parts: list[tuple[Any, Any]] = [({Stretch(place)}, ())]
        if known is not None:
            parts.append((known.stretches, known.results))
        self._follow(storage, held, parts)

    def _given_to(self, call: Call) -> dict[int, _Memory]:
        """The followed memories that an operation is given, by storage."""
        found = {}
        for leaf in leaves_of([*call.args, *call.kwargs.values()]):
            if not is_plain(leaf):
                continue
            storage = leaf.untyped_storage()
            memory = self._memories.get(storage._cdata)
            if memory is None:
                continue
            if torch.equal(memory.held[2], _bytes_of(storage)):
                found[storage._cdata] = memory
            else:  # written by what PyTorch does not dispatch: NumPy, Triton, another library
                del self._memories[storage._cdata]
        return found

    def _compare(self, call: Call, plan: Plan, twice: _Twice, returned: Any) -> None:
        """Carry an operation out in both executions and follow what differs."""
        a, b = twice.carry_out()
        if a is None or b is None:
            if twice.refused:
                self._reached |= _read(_all_of(twice.reading), call.place, [(1, float("inf"))])
            return
        news = zip_longest(plan.new_values(returned), a.new, b.new)
        parted = [(value, x, y) for value, x, y in news if not same_bits(x, y)]
        moved = {key: int(_moved(a, b, key, n).sum()) for key, n in twice.sizes.items()}
        result = _Result(frozenset())
        if parted or any(moved.values()):
            apart = [difference(x, y) for _, x, y in parted]
            apart += [(n, float("inf")) for n in moved.values()]
            result.stretches = _read(twice.stretches(a), call.place, apart)
            self._results.append(result)
        for value, x, y in parted:
            if not (is_plain(value) and _alike(value, x, y)):
                # A number for Python, or a tensor whose very size depends on it.
                self._reached |= result.stretches
                continue
            storage = value.untyped_storage()
            if storage._cdata not in self._memories:
                held = [_bytes_of(tensor.untyped_storage()) for tensor in (x, y)]
                held.append(_bytes_of(storage).clone())
                self._follow(storage, held, [(result.stretches, {result})])
        for key, storage in twice.written.items():
            before = self._memories.pop(key, None)
            held = [a.after[key], b.after[key], _bytes_of(storage).clone()]
            if torch.equal(held[0], held[1]):
                continue  # what was followed has been overwritten
            parts: list[tuple[Any, Any]] = []
            if moved[key]:
                parts.append((result.stretches, {result}))
            if before is not None and _left(a, b, key, twice.sizes[key]):
                parts.append((before.stretches, before.results))
            self._follow(storage, held, parts)

    def _follow(
        self, storage: Any, held: list[torch.Tensor], parts: Sequence[tuple[Any, Any]]
    ) -> None:
        """Follow a storage, given what its parts depend on and what computed them."""
        stretches = frozenset().union(*(stretches for stretches, _ in parts))
        results = frozenset().union(*(results for _, results in parts))
        self._memories[storage._cdata] = _Memory(storage, held, stretches, results)


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
        self.reading: dict[int, _Memory] = {}
        self.refused = False
        tensors = [
            leaf for leaf in leaves_of([*call.args, *call.kwargs.values()]) if is_plain(leaf)
        ]
        # The layouts of now: an operation may make its output larger.
        self._layouts = {id(t): (t.untyped_storage()._cdata, Layout(t)) for t in tensors}
        for key, layout in self._layouts.values():
            if key in memories:
                views = [layout.on(held.untyped_storage()) for held in memories[key].held[:2]]
                if not same_bits(*views):
                    self.reading[key] = memories[key]
        written = [leaf for leaf in plan.overwritten(call.args, call.kwargs) if is_plain(leaf)]
        self.written = {t.untyped_storage()._cdata: t.untyped_storage() for t in written}
        self.sizes = {t.untyped_storage()._cdata: t.element_size() for t in written}
        self.matters = bool(self.reading or self.written.keys() & memories.keys())
        if self.matters:
            self._kept = {
                key: _bytes_of(storage).clone()
                for key, storage in self.written.items()
                if key not in memories
            }
            self._states = generator_states(call, guarded=plan.guarded) if plan.draws else []

    def carry_out(self) -> tuple[_Ran, _Ran] | tuple[None, None]:
        """Run it in both executions; none where it cannot be asked again."""
        after = [state.now() for state in self._states]
        try:
            return self._run(lambda key: 0), self._run(lambda key: 1)
        except (MemoryError, torch.OutOfMemoryError):
            return None, None
        except Exception:
            try:
                self._run(lambda key: 2)
                self.refused = True
            except Exception:
                self.refused = False
            return None, None
        finally:
            for state in after:
                state.put_back()

    def stretches(self, first: _Ran) -> _Stretches:
        """Those on which its result depends: where it reads several, each is asked by itself."""
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
            bool(_moved(first, ran, written, size).any()) for written, size in self.sizes.items()
        )

    def _run(self, which: Callable[[int], int]) -> _Ran:
        """Run it, each memory as it is in the execution named."""
        for state in self._states:
            state.put_back()
        before = {
            key: self._memories[key].held[which(key)] if key in self._memories else self._kept[key]
            for key in {*self.written, *self._memories}
        }
        given = {
            key: (held.clone() if key in self.written else held).untyped_storage()
            for key, held in before.items()
        }
        args, kwargs = self._on(given, self._call.args), self._on(given, self._call.kwargs)
        with quiet():
            returned = self._call.func(*args, **kwargs)
        after = {key: _bytes_of(given[key]) for key in self.written}
        return _Ran(self._plan.new_values(returned), before, after)

    def _on(self, given: dict[int, Any], value: Any) -> Any:
        """The same arguments, on these storages."""
        if isinstance(value, tuple | list):
            return type(value)(self._on(given, item) for item in value)
        if isinstance(value, dict):
            return {name: self._on(given, item) for name, item in value.items()}
        key, layout = self._layouts.get(id(value), (None, None))
        return value if layout is None or key not in given else layout.on(given[key])


def _moved(a: _Ran, b: _Ran, key: int, size: int) -> torch.Tensor:
    """Which elements of a storage differ between two executions and were written: bool."""
    if _resized(a, b, key):
        return torch.ones(1, dtype=torch.bool)
    written = _apart(a.after[key], a.before[key], size) | _apart(b.after[key], b.before[key], size)
    return _apart(a.after[key], b.after[key], size) & written


def _left(a: _Ran, b: _Ran, key: int, size: int) -> bool:
    """Whether something differs that was not written."""
    if _resized(a, b, key):
        return True
    return bool((_apart(a.after[key], b.after[key], size) & ~_moved(a, b, key, size)).any())


def _resized(a: _Ran, b: _Ran, key: int) -> bool:
    return len({len(held) for held in (a.after[key], b.after[key], a.before[key])}) > 1


def _apart(a: torch.Tensor, b: torch.Tensor, size: int) -> torch.Tensor:
    """Which elements of so many bytes differ, the bytes behind the last whole one as one more."""
    differ = a != b
    whole = len(differ) // size * size
    return torch.cat([differ[:whole].view(-1, size).any(1), differ[whole:].any()[None]])


def _all_of(memories: dict[int, _Memory]) -> _Stretches:
    return frozenset().union(*(memory.stretches for memory in memories.values()))


def _bytes_of(storage: Any) -> torch.Tensor:
    """A storage as a tensor of bytes: uint8, one axis."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


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


def _read(stretches: _Stretches, place: Place, apart: Sequence[tuple[int, float]]) -> _Stretches:
    """Note who read them first, and how far its results came apart."""
    for stretch in stretches:
        if stretch.reader is None:
            stretch.reader = place
            stretch.n_elements = max(n for n, _ in apart)
            stretch.max_abs = max(largest for _, largest in apart)
    return stretches
