"""Which operations give an item other bits in a batch than alone, from equal inputs.

A matrix product of another height may be cut into other blocks and add in another order. Every
operation of a forward pass over a batch is executed again on the slices of single items, laid out
in memory as when the item is alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cellrepro.bits.same import difference, same_bits
from cellrepro.bits.site import Site
from cellrepro.errors import BadInput
from cellrepro.results import Result
from cellrepro.trace.observer import Call, Observer
from cellrepro.trace.reexecution import leaves_of, plan_of


@dataclass(frozen=True)
class BatchDependent:
    """An operation whose result for one item depends on the batch."""

    op: str
    module: str | None
    source: str | None
    calls: int  # in which an item, of those looked at, came out otherwise
    n_elements: int  # differing, at most in one call
    max_abs: float


@dataclass(frozen=True, repr=False)
class BatchInvariance(Result):
    """What one batch showed."""

    ops: tuple[BatchDependent, ...]  # most calls first
    n_items: int
    n_compared: int  # calls
    not_compared: dict[str, int]  # calls that could not be cut into items, by operation

    def sentence(self) -> str:
        """What was found, over how much."""
        over = f"over {self.n_compared} operations on batches of {self.n_items} and of 1"
        if self.not_compared:
            over += f"; {sum(self.not_compared.values())} that are other ones alone were left out"
        if not self.n_compared:
            return f"vacuous: nothing was compared {over}"
        names = ", ".join(dict.fromkeys(operation.op for operation in self.ops))
        if not names:
            return f"no operation depends on it, {over}"
        return f"{names}: other bits in a batch than alone, {over}"


def batch_invariance(
    forward: Callable[[torch.Tensor], Any],
    batch: torch.Tensor,
    *,
    model: torch.nn.Module | None = None,
) -> BatchInvariance:
    """Compare every operation of a forward pass over a batch with the same on single items.

    Parameters
    ----------
    forward : callable
        Takes a tensor whose first axis is the batch; without gradients and random numbers.
    batch : torch.Tensor
        Two items or more.
    model : torch.nn.Module, optional
        Modules are named by their path in it.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.Linear(512, 512)
    >>> {one.op for one in batch_invariance(layer, torch.randn(16, 512)).ops} <= {
    ...     "aten.addmm.default", "aten.linear.default"}
    True
    >>> batch_invariance(torch.relu, torch.randn(16, 512)).ops
    ()
    """
    if len(batch) < 2:
        raise BadInput(f"the batch has {len(batch)} items; expected 2 or more")
    item = batch[:1].clone()
    with torch.no_grad():
        with _Alone(model) as alone:
            forward(item)
        with _Batch(alone.calls, len(batch), model) as watched:
            forward(batch)
    dependent = []
    for site, n_calls in watched.n_differing.most_common():
        n_elements, max_abs = watched.largest[site]
        dependent.append(
            BatchDependent(
                op=site.op,
                module=site.module,
                source=site.source,
                calls=n_calls,
                n_elements=n_elements,
                max_abs=max_abs,
            )
        )
    return BatchInvariance(
        ops=tuple(dependent),
        n_items=len(batch),
        n_compared=watched.n_compared,
        not_compared=dict(watched.not_compared),
    )


@dataclass(frozen=True)
class _Laid:
    """How a tensor lies when an item is alone."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Laid:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def axis_in(self, tensor: torch.Tensor, n: int) -> int | None:
        """The axis along which a tensor holds n of them; -1 if it is as large; none if neither."""
        if tuple(tensor.shape) == self.shape:
            return -1
        if tensor.ndim != len(self.shape):
            return None
        sizes = enumerate(zip(tensor.shape, self.shape, strict=True))
        axes = [axis for axis, (many, one) in sizes if many != one]
        fits = len(axes) == 1 and tensor.shape[axes[0]] == n * self.shape[axes[0]]
        return axes[0] if fits else None

    def cut(self, tensor: torch.Tensor, axis: int, item: int) -> torch.Tensor:
        """The part of one item, laid out as when it is alone."""
        if axis < 0:
            return tensor
        size = self.shape[axis]
        part = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=tensor.device)
        return part.copy_(tensor.narrow(axis, item * size, size))


@dataclass(frozen=True)
class _Seen:
    """One operation on a single item."""

    args: Any  # tensors as `_Laid`
    kwargs: Any
    outputs: list[Any]


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, function) for item in value)
    if isinstance(value, dict):
        return {name: _mapped(item, function) for name, item in value.items()}
    return function(value)


def _laid(value: Any) -> Any:
    return _Laid.of(value) if isinstance(value, torch.Tensor) else value


class _Alone(Observer):
    """Writes down how everything lies."""

    def __init__(self, model: torch.nn.Module | None) -> None:
        super().__init__(model)
        self.calls: dict[Site, deque[_Seen]] = defaultdict(deque)

    def observe(self, call: Call) -> Any:
        args = _mapped(call.args, _laid)
        kwargs = _mapped(call.kwargs, _laid)
        returned = call.run()
        outputs = plan_of(call.func).outputs(call.args, call.kwargs, returned)
        self.calls[call.place].append(_Seen(args, kwargs, _mapped(outputs, _laid)))
        return returned


class _Batch(Observer):
    """Executes each operation again on single items, and compares."""

    def __init__(
        self, alone: dict[Site, deque[_Seen]], n: int, model: torch.nn.Module | None
    ) -> None:
        super().__init__(model)
        self.n_compared = 0
        self.n_differing: Counter[Site] = Counter()  # calls
        self.largest: dict[Site, tuple[int, float]] = {}
        self.not_compared: Counter[str] = Counter()
        self._alone = alone
        self._n = n
        self._items = sorted({0, n // 2, n - 1})  # the first, one in the middle, the last

    def observe(self, call: Call) -> Any:
        plan = plan_of(call.func)
        calls_alone = self._alone.get(call.place)
        if not plan.computes or plan.draws:
            return call.run()
        if not calls_alone:  # alone, another operation stands there: a view where a batch is copied
            self.not_compared[call.place.op] += 1
            return call.run()
        seen = calls_alone.popleft()
        try:
            items = [self._item(seen, call, item) for item in self._items]
        except _NotCut:
            self.not_compared[call.place.op] += 1
            return call.run()
        returned = call.run()
        expected = leaves_of(plan.outputs(call.args, call.kwargs, returned))
        laid = leaves_of(seen.outputs)
        differs = False
        for item, (args, kwargs) in zip(self._items, items, strict=True):
            again = leaves_of(plan.outputs(args, kwargs, call.func(*args, **kwargs)))
            differs |= self._item_differs(call.place, laid, expected, again, item)
        self.n_compared += 1
        if differs:
            self.n_differing[call.place] += 1
        return returned

    def _item(self, seen: _Seen, call: Call, item: int) -> tuple[Any, Any]:
        """The arguments of the operation on one item alone."""
        given = iter(leaves_of([*call.args, *call.kwargs.values()]))

        def cut(as_alone: Any) -> Any:
            value = next(given)
            if not isinstance(as_alone, _Laid):
                return as_alone
            axis = as_alone.axis_in(value, self._n) if isinstance(value, torch.Tensor) else None
            if axis is None:
                raise _NotCut
            return as_alone.cut(value, axis, item)

        return _mapped(seen.args, cut), _mapped(seen.kwargs, cut)

    def _item_differs(
        self, place: Site, laid: list[Any], expected: list[Any], again: list[Any], item: int
    ) -> bool:
        """Whether one item came out otherwise than alone, in any output of one call."""
        differs = False
        for as_alone, many, alone in zip(laid, expected, again, strict=False):
            axis = as_alone.axis_in(many, self._n) if isinstance(as_alone, _Laid) else None
            if axis is None or axis < 0:
                continue
            part = as_alone.cut(many, axis, item)
            if same_bits(part, alone):
                continue
            differs = True
            n_elements, largest = difference(part, alone)
            most_elements, largest_so_far = self.largest.get(place, (0, 0.0))
            self.largest[place] = max(most_elements, n_elements), max(largest_so_far, largest)
        return differs


class _NotCut(Exception):
    """An argument that does not hold items one after the other."""
