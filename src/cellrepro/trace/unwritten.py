"""Memory that nobody has written: which operation computed from it.

A result computed from it changes from run to run though every operation repeats. Beside the
training, which is not touched, such memory holds a pattern: what is given it is run with that, too,
and where its result differs it was computed from the pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.bits.same import as_integers, difference, same_bits
from cellrepro.bits.site import Site
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.observer import Call
from cellrepro.trace.reexecution import (
    Before,
    ReplayPlan,
    bytes_of,
    inputs_of,
    is_plain,
    seen_on,
    without_warnings,
)


@dataclass
class _Memory:
    """A storage of which something is unwritten."""

    place: Site  # of what handed it out
    storage: StorageWeakRef  # while it is held no other storage has its number
    real: torch.Tensor  # what it holds in the training: bytes
    shadow: torch.Tensor  # and with the pattern


@dataclass(frozen=True)
class _Read:
    """An operation that computed from unwritten memory."""

    reader: Site
    n_elements: int  # of its results that changed with the pattern
    max_abs: float  # by how much at most


class Unwritten:
    """Follows the unwritten memory of one audit to the first operation that computes from it."""

    def __init__(self, problems: Counter[str]) -> None:
        self.n_followed: Counter[Site] = Counter()  # memories, by what handed them out
        self._problems = problems  # calls whose memory could not be followed, by why
        self._memories: dict[int, _Memory] = {}  # by storage
        self._reads: dict[Site, list[_Read]] = {}  # by what handed the memory out

    def found(self) -> list[NondeterministicOperation]:
        """The operations that handed out memory from which something was computed."""
        operations = []
        for site, reads in self._reads.items():
            readers = dict.fromkeys(f"{read.reader.op}, {read.reader}" for read in reads)
            read_by = ", ".join(readers)
            operations.append(
                NondeterministicOperation(
                    op=site.op,
                    module=site.module,
                    source=site.source,
                    phase=site.phase,
                    flips=len(reads),
                    replays=self.n_followed[site],
                    max_abs=max(read.max_abs for read in reads),
                    n_elements=max(read.n_elements for read in reads),
                    calls=self.n_followed[site],
                    reason="It hands out memory that nobody has written, and what that holds "
                    f"changes from run to run; read by {read_by}.",
                    remedy="Write all of it before it is read: torch.zeros, fill_ or copy_.",
                    read_by=read_by,
                )
            )
        return operations

    def run(self, call: Call, plan: ReplayPlan, run: Callable[[], Any]) -> Any:
        """Carry out an operation: follow what it hands out, see what it computes from."""
        given = self._given(call) if plan.computes and self._memories else {}
        if not given and not plan.allocates:
            return run()
        shadows = {key: memory.shadow for key, memory in given.items()}
        before = Before(call, plan, shadows)
        blamed = self._blamed(call, plan, given)
        returned = run()
        try:
            if plan.allocates:
                self._hand_out(call.place, returned)
            else:
                differences = self._apart(call, plan, before, given, returned)
                if differences:
                    read = _Read(
                        reader=call.place,
                        n_elements=max(n_elements for n_elements, _ in differences),
                        max_abs=max(max_abs for _, max_abs in differences),
                    )
                    for memory in blamed:
                        self._reads.setdefault(memory.place, []).append(read)
        except Exception as error:  # a kind of tensor unknown here: the step goes on
            why = f"{call.place.op}: its memory was not followed, {type(error).__name__}"
            self._problems[why] += 1
        finally:
            before.finish()
        return returned

    def _given(self, call: Call) -> dict[int, _Memory]:
        """The memories that an operation is given."""
        given = {}
        for storage in (view.untyped_storage() for view in filter(is_plain, inputs_of(call))):
            memory = self._memories.get(storage._cdata)
            if memory is not None and torch.equal(memory.real, bytes_of(storage)):
                given[storage._cdata] = memory
            else:  # written by what PyTorch does not dispatch: NumPy, Triton, another library
                self._memories.pop(storage._cdata, None)
        return given

    @staticmethod
    def _blamed(call: Call, plan: ReplayPlan, given: dict[int, _Memory]) -> list[_Memory]:
        """Whose pattern it is given; what it only writes into counts where it reads no other."""
        read = {}
        for view in filter(is_plain, inputs_of(call)):
            key = view.untyped_storage()._cdata
            memory = given.get(key)
            if memory and not same_bits(seen_on(view, memory.real), seen_on(view, memory.shadow)):
                read[key] = memory
        written = filter(is_plain, plan.overwritten(call.args, call.kwargs))
        only_read = read.keys() - {view.untyped_storage()._cdata for view in written}
        return [read[key] for key in only_read or read]

    def _apart(
        self, call: Call, plan: ReplayPlan, before: Before, given: dict[int, _Memory], returned: Any
    ) -> list[tuple[int, float]]:
        """Elements of each result that differ with the pattern, and by how much; none if equal."""
        for key in given:
            del self._memories[key]
        args, kwargs = before.again()
        other: Any = without_warnings(lambda: call.func(*args, **kwargs))
        both = zip_longest(plan.new_values(returned), plan.new_values(other))
        apart = [difference(x, y) for x, y in both if not same_bits(x, y)]
        left = dict(given)
        for view in filter(is_plain, plan.overwritten(call.args, call.kwargs)):
            key = view.untyped_storage()._cdata
            real = bytes_of(view.untyped_storage())
            shadow = before.copies[key]
            shadow_before = before.kept[key]
            real_before = given[key].real if key in given else shadow_before
            if len(real) != len(real_before):  # resized
                left.pop(key, None)
                continue
            n_apart = _n_apart(
                seen_on(view, real),
                seen_on(view, shadow),
                seen_on(view, real_before),
                seen_on(view, shadow_before),
            )
            if n_apart:
                apart.append((n_apart, float("inf")))
            if key in left:
                left[key] = replace(left[key], real=real.clone(), shadow=shadow.clone())
        if not apart:
            self._memories |= {
                key: memory
                for key, memory in left.items()
                if not torch.equal(memory.real, memory.shadow)  # else it has been overwritten
            }
        return apart

    def _hand_out(self, place: Site, tensor: Any) -> None:
        fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        filled = torch.are_deterministic_algorithms_enabled() and fills  # the same every time
        if filled or not is_plain(tensor) or not tensor.untyped_storage().nbytes():
            return
        self._memories = {
            key: memory for key, memory in self._memories.items() if not memory.storage.expired()
        }
        self.n_followed[place] += 1
        storage = tensor.untyped_storage()
        real = bytes_of(storage).clone()
        shadow = bytes_of(storage).clone()
        _fill(shadow.view(tensor.dtype.to_real()), self.n_followed.total())
        self._memories[storage._cdata] = _Memory(place, StorageWeakRef(storage), real, shadow)


def _n_apart(
    a: torch.Tensor, b: torch.Tensor, a_before: torch.Tensor, b_before: torch.Tensor
) -> int:
    """How many elements have been written and differ."""
    bits_a = as_integers(a)
    bits_b = as_integers(b)
    written = (bits_a != as_integers(a_before)) | (bits_b != as_integers(b_before))
    return int(((bits_a != bits_b) & written).sum())


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
