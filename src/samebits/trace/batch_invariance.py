"""Which operations give an item different bits in a batch than alone, from equal inputs.

With another batch size a matrix product may add in a different order, block by block. Every
operation of a forward pass over a batch is executed again on single items of its arguments, laid
out in memory as when the item is alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from samebits.bit_equality import LargestDifference, same_bits
from samebits.call_site import Site
from samebits.errors import BadInput
from samebits.results import Result
from samebits.trace.observer import Call, Observer
from samebits.trace.replay_plan import inputs_of, plan_of
from samebits.words import amount


@dataclass(frozen=True)
class BatchDependent:
    """An operation whose result for one item depends on the batch."""

    op: str
    """Its name in PyTorch, with its overload."""
    module: str | None
    """Path of the innermost module, or the class of the network; none outside of any."""
    source: str | None
    """``FILE:LINE in FUNCTION`` that called it; none if there is no line outside PyTorch."""
    calls: int
    """Calls in which an item, of the items looked at, had different bits than alone."""
    n_elements: int
    """Elements that differ, at most in one item of one call."""
    max_abs: float
    """Largest difference, in the units of the output."""


@dataclass(frozen=True, repr=False)
class BatchInvariance(Result):
    """The operations that depended on the batch, for one batch."""

    ops: tuple[BatchDependent, ...]
    """Most calls first."""
    n_items: int
    """Items of the batch."""
    n_compared: int
    """Calls of operations that were compared."""
    not_compared: dict[str, int]
    """Calls that could not be divided into items, by operation."""

    def sentence(self) -> str:
        """Say which operations depend on the batch, and how many were compared."""
        over = f"over {amount(self.n_compared, 'operation')} on batches of {self.n_items} and of 1"
        if self.not_compared:
            over += f"; {sum(self.not_compared.values())} that are other ones alone were left out"
        if not self.n_compared:
            return f"vacuous: nothing was compared {over}"
        names = ", ".join(dict.fromkeys(operation.op for operation in self.ops))
        if not names:
            return f"no operation depends on it, {over}"
        return f"{names}: different bits in a batch than alone, {over}"


def batch_invariance(
    forward: Callable[[torch.Tensor], object],
    batch: torch.Tensor,
    *,
    model: torch.nn.Module | None = None,
) -> BatchInvariance:
    """Compare every operation of a forward pass over a batch with the same on single items.

    Of the items the first, one in the middle and the last are looked at.

    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.Linear(512, 512)
    >>> dependent = batch_invariance(layer, torch.randn(16, 512)).ops
    >>> {operation.op for operation in dependent} <= {
    ...     "aten.addmm.default", "aten.linear.default"}
    True
    >>> batch_invariance(torch.relu, torch.randn(16, 512)).ops
    ()
    """
    if len(batch) < 2:
        raise BadInput(f"the batch has {amount(len(batch), 'item')}; expected 2 or more")
    item = batch[:1].clone()
    with torch.no_grad():
        with _Recorder(model) as alone:
            forward(item)
        with _Comparison(alone.calls, len(batch), model) as comparison:
            forward(batch)
    return comparison.result()


@dataclass(frozen=True)
class _Layout:
    """How a tensor lies in memory when an item is alone."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Layout:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def is_as_large_as(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor does not grow with the batch, as weights do not."""
        return tuple(tensor.shape) == self.shape

    def part_of(self, tensor: torch.Tensor, n_items: int, item: int) -> torch.Tensor:
        """The part of one item, with the strides that it has when the item is alone."""
        if self.is_as_large_as(tensor):
            return tensor
        axis = self._axis_of_items(tensor, n_items)
        size = self.shape[axis]
        part = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=tensor.device)
        return part.copy_(tensor.narrow(axis, item * size, size))

    def _axis_of_items(self, tensor: torch.Tensor, n_items: int) -> int:
        """The one axis in which a tensor is ``n_items`` times as long as of one item."""
        if tensor.ndim != len(self.shape):
            raise _NotDivisible
        longer = [axis for axis in range(tensor.ndim) if tensor.shape[axis] != self.shape[axis]]
        if len(longer) != 1 or tensor.shape[longer[0]] != n_items * self.shape[longer[0]]:
            raise _NotDivisible
        return longer[0]


class _NotDivisible(Exception):
    """A tensor that does not hold the items of the batch one after the other."""


@dataclass(frozen=True)
class _Arguments:
    """The arguments of an operation, in which tensors may stand as their `_Layout`."""

    args: tuple[object, ...]
    kwargs: dict[str, object]

    def mapped(self, function: Callable[[object], object]) -> _Arguments:
        """The same with a function applied to every value, also within lists."""
        args = tuple(_mapped(value, function) for value in self.args)
        kwargs = {name: _mapped(value, function) for name, value in self.kwargs.items()}
        return _Arguments(args, kwargs)


@dataclass(frozen=True)
class _CallAlone:
    """One operation on a single item, every tensor as its `_Layout`."""

    arguments: _Arguments
    outputs: list[object]


def _mapped(value: object, function: Callable[[object], object]) -> object:
    if isinstance(value, list):
        return [_mapped(item, function) for item in value]
    if isinstance(value, tuple):
        return tuple(_mapped(item, function) for item in value)
    return function(value)


def _layout_or_value(value: object) -> object:
    return _Layout.of(value) if isinstance(value, torch.Tensor) else value


class _Recorder(Observer):
    """Records how every tensor lies in memory in a pass over one item."""

    def __init__(self, model: torch.nn.Module | None) -> None:
        super().__init__(model)
        self.calls: dict[Site, deque[_CallAlone]] = defaultdict(deque)

    def observe(self, call: Call) -> object:
        arguments = _Arguments(call.args, call.kwargs).mapped(_layout_or_value)
        returned = call.run()
        outputs = plan_of(call.func).outputs(call.args, call.kwargs, returned)
        layouts = [_layout_or_value(output) for output in outputs]
        self.calls[call.site].append(_CallAlone(arguments, layouts))
        return returned


class _Comparison(Observer):
    """Executes each operation of a batch again on single items, and compares."""

    def __init__(
        self,
        alone: dict[Site, deque[_CallAlone]],
        n_items: int,
        model: torch.nn.Module | None,
    ) -> None:
        super().__init__(model)
        self._alone = alone
        self._n_items = n_items
        self._items = sorted({0, n_items // 2, n_items - 1})
        self._n_compared = 0
        self._n_differing: Counter[Site] = Counter()  # calls
        self._largest: dict[Site, LargestDifference] = defaultdict(LargestDifference)
        self._not_compared: Counter[str] = Counter()

    def result(self) -> BatchInvariance:
        dependent = [
            BatchDependent(
                op=site.op,
                module=site.module,
                source=site.source,
                calls=n_calls,
                n_elements=self._largest[site].n_elements,
                max_abs=self._largest[site].max_abs,
            )
            for site, n_calls in self._n_differing.most_common()
        ]
        return BatchInvariance(
            ops=tuple(dependent),
            n_items=self._n_items,
            n_compared=self._n_compared,
            not_compared=dict(self._not_compared),
        )

    def observe(self, call: Call) -> object:
        plan = plan_of(call.func)
        if not plan.computes or plan.draws:
            return call.run()
        calls_alone = self._alone.get(call.site)
        if not calls_alone:  # alone, another operation stands there: a view where a batch is copied
            self._not_compared[call.site.op] += 1
            return call.run()
        alone = calls_alone.popleft()
        try:  # before the call: it may overwrite its arguments
            of_items = [self._arguments_of(item, alone, call) for item in self._items]
        except _NotDivisible:
            self._not_compared[call.site.op] += 1
            return call.run()
        returned = call.run()
        outputs = plan.outputs(call.args, call.kwargs, returned)
        differs = False
        for item, arguments in zip(self._items, of_items, strict=True):
            args, kwargs = arguments.args, arguments.kwargs
            outputs_alone = plan.outputs(args, kwargs, call.func(*args, **kwargs))
            differs |= self._item_differs(item, call.site, alone.outputs, outputs, outputs_alone)
        self._n_compared += 1
        if differs:
            self._n_differing[call.site] += 1
        return returned

    def _arguments_of(self, item: int, alone: _CallAlone, call: Call) -> _Arguments:
        """The arguments of the operation, of one item alone."""
        values = iter(inputs_of(call))

        def part(layout: object) -> object:
            value = next(values)
            if not isinstance(layout, _Layout):
                return layout
            if not isinstance(value, torch.Tensor):
                raise _NotDivisible
            return layout.part_of(value, self._n_items, item)

        return alone.arguments.mapped(part)

    def _item_differs(
        self,
        item: int,
        site: Site,
        layouts: list[object],
        outputs: list[object],
        outputs_alone: list[object],
    ) -> bool:
        """Whether one item came out with different bits than alone, in any output of one call."""
        differs = False
        for layout, output, alone in zip(layouts, outputs, outputs_alone, strict=False):
            if not isinstance(layout, _Layout) or not isinstance(output, torch.Tensor):
                continue
            if layout.is_as_large_as(output):
                continue
            try:
                part = layout.part_of(output, self._n_items, item)
            except _NotDivisible:
                continue
            if same_bits(part, alone):
                continue
            differs = True
            self._largest[site].include(part, alone)
        return differs
