"""Memory that nobody has written: which operation computed from it.

A result computed from it changes from run to run though every operation repeats. Beside the
training, which is not touched, such memory holds a pattern: what is given it is run with that, too,
and where its result differs it was computed from the pattern.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.store.bits import as_integers, difference, same_bits
from cellrepro.store.manifest import Place
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.observer import Call
from cellrepro.trace.reexecution import (
    Before,
    Buffers,
    Plan,
    bytes_of,
    inputs_of,
    is_plain,
    seen_on,
    without_warnings,
)


@dataclass
class _Memory:
    """A storage of which something is unwritten."""

    place: Place  # of what handed it out
    storage: StorageWeakRef  # while it is held no other storage has its number
    real: torch.Tensor  # what it holds in the training: bytes
    shadow: torch.Tensor  # and with the pattern


class Unwritten:
    """Follows the unwritten memory of one audit to the first operation that computes from it."""

    def __init__(self, buffers: Buffers) -> None:
        self.n_followed: Counter[Place] = Counter()  # memories, by what handed them out
        self._buffers = buffers
        self._memories: dict[int, _Memory] = {}
        # For each memory that was read: by what, how many elements changed by the pattern, how far.
        self._reads: dict[Place, list[tuple[Place, int, float]]] = {}

    def found(self) -> list[NondeterministicOperation]:
        """The operations that handed out memory from which something was computed."""
        found = []
        for place, reads in self._reads.items():
            readers, n_elements, max_abs = zip(*reads, strict=True)
            read_by = ", ".join(dict.fromkeys(f"{reader.op}, {reader}" for reader in readers))
            found.append(
                NondeterministicOperation(
                    **vars(place),
                    flips=len(reads),
                    replays=self.n_followed[place],
                    max_abs=max(max_abs),
                    n_elements=max(n_elements),
                    calls=self.n_followed[place],
                    reason="It hands out memory that nobody has written, and what that holds "
                    f"changes from run to run; read by {read_by}.",
                    remedy="Write all of it before it is read: torch.zeros, fill_ or copy_.",
                    read_by=read_by,
                )
            )
        return found

    def close(self) -> None:
        """Let go of all memory."""
        self._memories = {}

    def begin(self, call: Call, plan: Plan) -> _Second | None:
        """Before an operation runs: what `end` has to know of now."""
        if not self._memories or not plan.computes:
            return None
        given: dict[int, _Memory] = {}
        read: dict[int, _Memory] = {}
        for view in filter(is_plain, inputs_of(call)):
            key = view.untyped_storage()._cdata
            memory = self._memories.get(key)
            if memory is None:
                continue
            given[key] = memory
            if not torch.equal(memory.real, bytes_of(view.untyped_storage())):
                # Written by what PyTorch does not dispatch: NumPy, Triton, another library.
                del self._memories[key], given[key]
            elif not same_bits(seen_on(view, memory.real), seen_on(view, memory.shadow)):
                read[key] = memory
        if not given:
            return None
        shadows = {key: memory.shadow for key, memory in given.items()}
        written = [leaf for leaf in plan.overwritten(call.args, call.kwargs) if is_plain(leaf)]
        # What it only writes into counts where it reads no other.
        only_read = read.keys() - {leaf.untyped_storage()._cdata for leaf in written}
        blamed = [read[key] for key in only_read or read]
        return _Second(Before(call, plan, self._buffers, shadows), given, blamed, written)

    def end(self, call: Call, plan: Plan, second: _Second | None, returned: Any) -> None:
        """After an operation has run: follow what it handed out, or see what it computed from."""
        if plan.allocates:
            self._hand_out(call.place, returned)
        if second is None:
            return
        for key in second.given:
            del self._memories[key]
        try:
            apart = self._apart(call, plan, second, returned)
        finally:
            second.before.finish()
        if apart:
            n_elements, max_abs = (max(column) for column in zip(*apart, strict=True))
            for memory in second.blamed:
                read = call.place, n_elements, max_abs
                self._reads.setdefault(memory.place, []).append(read)

    def _apart(
        self, call: Call, plan: Plan, second: _Second, returned: Any
    ) -> list[tuple[int, float]]:
        """Elements of each result that differ with the pattern, and by how much; none if equal."""
        args, kwargs = second.before.again()
        other: Any = without_warnings(lambda: call.func(*args, **kwargs))
        both = zip_longest(plan.new_values(returned), plan.new_values(other))
        apart = [difference(x, y) for x, y in both if not same_bits(x, y)]
        left = dict(second.given)
        for view in second.written:
            key, now = view.untyped_storage()._cdata, bytes_of(view.untyped_storage())
            shadow, shadow_before = second.before.copies[key], second.before.kept[key]
            before = second.given[key].real if key in second.given else shadow_before
            if len(now) != len(before):  # resized
                left.pop(key, None)
                continue
            n_apart = _n_apart(*(seen_on(view, m) for m in (now, shadow, before, shadow_before)))
            apart += [(n_apart, float("inf"))] if n_apart else []
            if key in left:
                left[key] = replace(left[key], real=now.clone(), shadow=shadow.clone())
        if not apart:
            self._memories |= {
                key: memory
                for key, memory in left.items()
                if not torch.equal(memory.real, memory.shadow)  # else it has been overwritten
            }
        return apart

    def _hand_out(self, place: Place, tensor: Any) -> None:
        fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        filled = torch.are_deterministic_algorithms_enabled() and fills  # the same every time
        if filled or not is_plain(tensor) or not tensor.untyped_storage().nbytes():
            return
        held = self._memories.items()
        self._memories = {key: one for key, one in held if not one.storage.expired()}
        self.n_followed[place] += 1
        storage = tensor.untyped_storage()
        real, shadow = bytes_of(storage).clone(), bytes_of(storage).clone()
        _fill(shadow.view(tensor.dtype.to_real()), self.n_followed.total())
        self._memories[storage._cdata] = _Memory(place, StorageWeakRef(storage), real, shadow)


@dataclass
class _Second:
    """One operation that is given followed memory, to be run with the pattern in its place."""

    before: Before
    given: dict[int, _Memory]  # by storage
    blamed: list[_Memory]  # where its results then differ
    written: list[torch.Tensor]  # what it writes into


def _n_apart(
    a: torch.Tensor, b: torch.Tensor, a_before: torch.Tensor, b_before: torch.Tensor
) -> int:
    """How many elements have been written and differ."""
    a, b = as_integers(a), as_integers(b)
    written = (a != as_integers(a_before)) | (b != as_integers(b_before))
    return int(((a != b) & written).sum())


def _fill(values: torch.Tensor, number: int) -> None:
    """Write a pattern that differs from what is there in every element.

    Floating numbers are of the other sign; they differ among themselves, or a mean would take the
    pattern out, and with the number of the memory, or a copy into another would not be seen. Whole
    ones stay near, for they are indices too.
    """
    if values.dtype is torch.bool:
        values.logical_not_()
    elif values.is_floating_point() and values.dtype.itemsize > 1:
        steps = torch.arange(number, number + len(values), device=values.device)
        values.copy_((0.5 + steps % 251 / 256) * torch.where(values > 0, -1.0, 1.0))
    else:
        as_integers(values).bitwise_xor_(2)
