"""Uninitialised memory, which nobody has written, and the operations that computed from it.

A result that is computed from such memory changes from run to run, though every operation repeats.
The training itself is not touched. Beside it, a copy of the memory holds a pattern. An operation
that is given the memory is executed again on that copy. Where its result differs, it was computed
from what nobody has written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from samebits.bit_equality import as_integers, difference, same_bits
from samebits.call_site import Site
from samebits.trace.kept_inputs import Before, bytes_of, seen_on
from samebits.trace.nondeterministic_operation import NondeterministicOperation
from samebits.trace.observer import Call
from samebits.trace.quiet_calls import without_warnings
from samebits.trace.replay_plan import ReplayPlan, inputs_of, is_plain


@dataclass(frozen=True)
class _Memory:
    """A storage that is partly unwritten, with its contents as bytes: uint8, one axis."""

    site: Site
    """The operation that handed it out."""
    storage: StorageWeakRef
    """While it is referred to, no other storage has its number."""
    real: torch.Tensor
    """The content in the training."""
    shadow: torch.Tensor
    """The content with the pattern."""
    carried: _Read | None = None
    """How it came here, if it was copied from where the operation had handed it out."""


@dataclass(frozen=True)
class _Read:
    """An operation that computed from unwritten memory, or copied it."""

    reader: Site
    n_elements: int
    """Elements of one of its results that changed with the pattern."""
    max_abs: float
    """The largest difference."""


@dataclass(frozen=True)
class _Write:
    """Contents of a storage that an operation wrote into, as bytes: uint8, one axis."""

    view: torch.Tensor
    """The argument through which it was written."""
    real: torch.Tensor
    """The output in the training, after the operation."""
    real_before: torch.Tensor
    """The output in the training, before the operation."""
    shadow: torch.Tensor
    """The output with the pattern, after the operation on the copy."""
    shadow_before: torch.Tensor
    """The output with the pattern, before the operation."""

    @property
    def is_resized(self) -> bool:
        return len(self.real) != len(self.real_before)

    def n_differing(self) -> int:
        """How many elements of the view have been written and differ with the pattern."""
        real = self._bits(self.real)
        shadow = self._bits(self.shadow)
        written = (real != self._bits(self.real_before)) | (
            shadow != self._bits(self.shadow_before)
        )
        return int(((real != shadow) & written).sum())

    def _bits(self, content: torch.Tensor) -> torch.Tensor:
        return as_integers(seen_on(self.view, content))


class UnwrittenMemory:
    """Follows the unwritten memory of one audit to the first operation that computes from it."""

    def __init__(self, problems: Counter[str]) -> None:
        self.n_followed: Counter[Site] = Counter()
        self._problems = problems
        self._memories: dict[int, _Memory] = {}  # by the number of their storage
        self._reads: dict[Site, list[_Read]] = {}  # by the operation that handed the memory out

    def operations(self) -> list[NondeterministicOperation]:
        """The operations that handed out memory from which something was computed, or of which a
        copy is left."""
        reads = {site: list(found) for site, found in self._reads.items()}
        for memory in self._memories.values():
            if memory.carried is not None and not memory.storage.expired():
                reads.setdefault(memory.site, []).append(memory.carried)
        return [self._operation(site, found) for site, found in reads.items()]

    def _operation(self, site: Site, reads: list[_Read]) -> NondeterministicOperation:
        readers = dict.fromkeys(f"{read.reader.op}, {read.reader}" for read in reads)
        read_by = ", ".join(readers)
        return NondeterministicOperation(
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

    def run(self, call: Call, plan: ReplayPlan, run: Callable[[], object]) -> object:
        """Carry out an operation; follow memory that it hands out, or compare what it reads."""
        memories = self._memories_given_to(call) if plan.computes and self._memories else {}
        if not memories and not plan.allocates:
            return run()
        shadows = {number: memory.shadow for number, memory in memories.items()}
        before = Before(call, plan, shadows)
        sources = self._sites_read(call, plan, memories)
        returned = run()
        try:
            if plan.allocates:
                self._follow(call.site, returned)
            else:
                read = self._compared(call, plan, before, memories, returned, sources)
                if read is not None:
                    for site in sources:
                        self._reads.setdefault(site, []).append(read)
        except Exception as error:  # a kind of tensor unknown here: the step goes on
            why = f"{call.site.op}: its memory was not followed, {type(error).__name__}"
            self._problems[why] += 1
        finally:
            before.finish()
        return returned

    def _memories_given_to(self, call: Call) -> dict[int, _Memory]:
        """The memories among the arguments of an operation, by the number of their storage."""
        memories = {}
        for view in filter(is_plain, inputs_of(call)):
            storage = view.untyped_storage()
            memory = self._memories.get(storage._cdata)
            if memory is not None and torch.equal(memory.real, bytes_of(storage)):
                memories[storage._cdata] = memory
            else:  # written by what PyTorch does not dispatch: NumPy, Triton, a different library
                self._memories.pop(storage._cdata, None)
        return memories

    @staticmethod
    def _sites_read(call: Call, plan: ReplayPlan, memories: dict[int, _Memory]) -> list[Site]:
        """The sites that handed out the memories whose pattern lies in an argument.

        A memory that the operation writes into counts only where it is given no other one.
        """
        given = {}
        for view in filter(is_plain, inputs_of(call)):
            number = view.untyped_storage()._cdata
            memory = memories.get(number)
            if memory and not same_bits(seen_on(view, memory.real), seen_on(view, memory.shadow)):
                given[number] = memory.site
        written = filter(is_plain, plan.overwritten(call.args, call.kwargs))
        only_read = given.keys() - {view.untyped_storage()._cdata for view in written}
        return [given[number] for number in only_read or given]

    def _compared(
        self,
        call: Call,
        plan: ReplayPlan,
        before: Before,
        memories: dict[int, _Memory],
        returned: object,
        sources: list[Site],
    ) -> _Read | None:
        """Execute an operation again on the pattern; how its results differ, or None.

        Memories from which nothing was computed are followed on, with what was written into them,
        and so is what they were copied into.
        """
        for number in memories:
            del self._memories[number]
        args, kwargs = before.again()
        replayed: object = without_warnings(lambda: call.func(*args, **kwargs))
        reads = []
        followed = dict(memories)
        results = zip_longest(plan.new_values(returned), plan.new_values(replayed))
        for result, with_pattern in results:
            if not same_bits(result, with_pattern):
                read = _Read(call.site, *difference(result, with_pattern))
                if plan.carries and is_plain(result) and is_plain(with_pattern):
                    storage = result.untyped_storage()
                    followed[storage._cdata] = _Memory(
                        site=sources[0],
                        storage=StorageWeakRef(storage),
                        real=bytes_of(storage).clone(),
                        shadow=bytes_of(with_pattern.untyped_storage()),
                        carried=read,
                    )
                else:
                    reads.append(read)
        for view in filter(is_plain, plan.overwritten(call.args, call.kwargs)):
            storage = view.untyped_storage()
            memory = memories.get(storage._cdata)
            write = _write_into(view, before, memory)
            if write.is_resized:
                followed.pop(storage._cdata, None)
                continue
            n_differing = write.n_differing()
            read = _Read(call.site, n_differing, float("inf"))
            if n_differing and not plan.carries:
                reads.append(read)
            elif n_differing or memory is not None:
                followed[storage._cdata] = _Memory(
                    site=sources[0] if n_differing or memory is None else memory.site,
                    storage=StorageWeakRef(storage) if memory is None else memory.storage,
                    real=write.real.clone(),
                    shadow=write.shadow.clone(),
                    carried=read if memory is None else memory.carried,
                )
        if reads:
            return _Read(
                reader=call.site,
                n_elements=max(read.n_elements for read in reads),
                max_abs=max(read.max_abs for read in reads),
            )
        for number, memory in followed.items():
            if not torch.equal(memory.real, memory.shadow):  # else all of it has been overwritten
                self._memories[number] = memory
        return None

    def _follow(self, site: Site, tensor: object) -> None:
        """Follow the memory of a tensor that an operation handed out, unless PyTorch fills it."""
        fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        is_filled = torch.are_deterministic_algorithms_enabled() and fills  # the same every time
        if is_filled or not isinstance(tensor, torch.Tensor) or not is_plain(tensor):
            return
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return
        self._memories = {
            number: memory
            for number, memory in self._memories.items()
            if not memory.storage.expired()
        }
        self.n_followed[site] += 1
        real = bytes_of(storage).clone()
        shadow = bytes_of(storage).clone()
        _fill(shadow.view(tensor.dtype.to_real()), self.n_followed.total())
        self._memories[storage._cdata] = _Memory(site, StorageWeakRef(storage), real, shadow)


def _write_into(view: torch.Tensor, before: Before, memory: _Memory | None) -> _Write:
    """Compare what was written through a view, in the training and on the copies of ``before``."""
    storage = view.untyped_storage()
    shadow_before = before.kept[storage._cdata]
    return _Write(
        view=view,
        real=bytes_of(storage),
        real_before=shadow_before if memory is None else memory.real,
        shadow=before.copies[storage._cdata],
        shadow_before=shadow_before,
    )


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
