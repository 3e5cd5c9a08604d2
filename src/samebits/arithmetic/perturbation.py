"""What other machines would give: every rounded result one unit in the last place away, at random.

Machines differ in the order of a sum, in fused multiplications, in their functions: in the last
place of what is rounded. A few results computed so show how far that reaches (Monte Carlo
arithmetic: D. S. Parker, "Monte Carlo Arithmetic", UCLA (1997)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from samebits.arithmetic.operation_forms import (
    FOREACH,
    Operation,
    exact_operations,
    form_for,
    kinds_of_call,
    operation_of,
)
from samebits.seeds import check_seed
from samebits.torch_internals import dispatch_mode_pushed, hidden_from_modes, without_compiling
from samebits.trace.observer import DispatchMode, Invocation

_ROUNDED_TYPES = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
_CHOOSING = frozenset(
    [
        "amax",
        "amin",
        "aminmax",
        "clamp",
        "clamp_max",
        "clamp_min",
        "cummax",
        "cummin",
        "fmax",
        "fmin",
        "hardtanh",
        "kthvalue",
        "max",
        "maximum",
        "median",
        "min",
        "minimum",
        "mode",
        "nanmedian",
        "relu",
        "relu6",
        "sort",
        "topk",
        "frexp",
        "nextafter",
        "adaptive_max_pool1d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "max_pool1d_with_indices",
        "hardshrink",
        "hardshrink_backward",
        "softshrink_backward",
        "_unique",
        "_unique2",
        "unique_dim",
        "floor_divide",
        "fmod",
        "remainder",
        "histc",
    ]
)
"""They give a number that they are given, though not each of these the same place or sign of 0; or
a count, a whole quotient or what it leaves."""
_PLACING = frozenset(
    [
        "complex",
        "index_copy",
        "lu_unpack",
        "max_unpool2d",
        "max_unpool3d",
        "scatter",
        "slice_scatter",
        "_unsafe_masked_index",
        "upsample_nearest2d",
    ]
)
"""They put numbers elsewhere, and compute none."""
_SINGLE = frozenset(
    [
        "leaky_relu",
        "leaky_relu_backward",
        "native_dropout",
        "native_dropout_backward",
        "_prelu_kernel",
        "_prelu_kernel_backward",
        "rrelu_with_noise",
        "rrelu_with_noise_backward",
        "softshrink",
    ]
)
"""They add to a number or multiply it, once, or leave it."""
_DRAWING = frozenset(
    [
        "bernoulli",
        "binomial",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "random",
        "uniform",
    ]
)
"""What is drawn stays as it was drawn: chances of 1 and above, or a 0 that is 1 in 10 million,
would be no draws."""
_UPDATING = frozenset(
    [
        "add",
        "addcdiv",
        "addcmul",
        "lerp",
        "sub",
        "_fused_adagrad",
        "_fused_adam",
        "_fused_adamw",
        "_fused_sgd",
    ]
)
"""They add a product, such as an optimizer's update, to numbers. Machines differ in the last place
of the product, which for most sums is far behind their own."""
_NOT_COMPUTED = frozenset(("grads", "state_steps"))
"""Arguments of fused optimizers that count as written, with the exact numbers that they had."""
_PYTORCHS_OWN = frozenset(["aten", "prims"])

_CHUNK = 1 << 15
"""Numbers at a time, which stay in a core's cache: three times as fast as a large tensor."""
_CHUNK_ON_DEVICE = 1 << 24
_BITS = np.arange(256, dtype=np.uint8)[:, None] >> np.arange(8, dtype=np.uint8) & 1
_FACTORS = np.where(_BITS == 1, np.float32(2.0), np.float32(0.5))
"""Of eight numbers, by the eight bits of a byte: whether each is led away from 0 or towards it."""


@contextmanager
def perturbed(seed: int) -> Iterator[None]:
    """Move every rounded floating-point result of a block by one unit in the last place, at random.

    Forward and backward, in float32, float64, float16 and bfloat16, each by a unit of its own type.
    What is exact, and so the same on every machine, stays: whatever moves, compares, chooses or
    counts numbers, single additions and products, sums of one number, whole numbers. So do zeros,
    infinities and NaN.

    Parameters
    ----------
    seed : int
        Equal seeds give equal results. Up or down is drawn by a generator of its own (Philox); the
        generators of Python, NumPy and PyTorch are as they were, and what they draw in the block is
        not moved.

    Yields
    ------
    None
        Once operations are moved.

    Raises
    ------
    BadInput
        If the seed is none.

    Notes
    -----
    The spread of a few such results is about as large as what other processors, instruction sets
    and numbers of threads change. It says nothing of other algorithms (another version of a
    library, a convolution by transforms) or of other types (bfloat16, TF32), which change more. An
    operation that computes many steps (a recurrent layer, fused attention) is moved once, at its
    end. Where a product is added to a number, as an optimizer's update to a weight, machines round
    the product otherwise, and seldom the sum: so many sums are moved as the product is large beside
    them. The largest finite number of a type may become infinite.

    Examples
    --------
    >>> import samebits
    >>> import torch
    >>> numbers = torch.linspace(0, 1, 1000)
    >>> with samebits.perturbed(0):
    ...     roots = numbers.sqrt()
    ...     doubled = numbers * 2
    >>> (roots != numbers.sqrt()).sum().item(), (doubled != numbers * 2).sum().item()
    (999, 0)
    """
    with without_compiling(), _Perturbation(check_seed(seed)):
        yield


@dataclass(frozen=True, slots=True)
class _Rounding:
    """What of how an operation rounds depends on nothing that it is called with."""

    operation: Operation
    is_exact: bool
    """Whether it is exact, whatever it is called with."""
    is_exact_if: Callable[[Invocation], bool] | None
    """Whether it is exact with what it is called with; None if that does not depend on it."""
    decomposes: bool
    """Whether PyTorch makes it of simpler ones, as ``linear`` of ``addmm``."""
    computed_results: tuple[bool, ...]
    """Of each result whether it was computed; else it is a view of an argument."""
    written_arguments: tuple[tuple[str, int | None], ...]
    """Name and position of arguments that it writes into; those given by name alone have none."""


_ROUNDINGS: dict[int, _Rounding] = {}
"""By the address of the function, which each holds."""


def _rounding_of(func: Any) -> _Rounding:
    """Look an operation up, once."""
    known = _ROUNDINGS.get(id(func))
    if known is None:
        known = _ROUNDINGS[id(func)] = _look_up(func)
    return known


def _look_up(func: Any) -> _Rounding:
    operation = operation_of(func)
    schema = getattr(func, "_schema", None)  # an operation that takes functions has none
    arguments = schema.arguments if schema else ()
    return _Rounding(
        operation=operation,
        is_exact=operation.always == "exact"
        or (operation.always is None and operation.is_moving)
        or _is_exact_always(operation.name, func, [argument.name for argument in arguments]),
        is_exact_if=_EXACT_IF.get(operation.name) if func.namespace in _PYTORCHS_OWN else None,
        decomposes=getattr(func, "_can_decompose", bool)(),
        computed_results=tuple(_is_written(each) for each in (schema.returns if schema else ())),
        written_arguments=tuple(
            (argument.name, None if argument.kwarg_only else index)
            for index, argument in enumerate(arguments)
            if argument.alias_info is not None
            and argument.alias_info.is_write
            and argument.name not in _NOT_COMPUTED
        ),
    )


def _is_exact_always(name: str, func: Any, arguments: Sequence[str]) -> bool:
    if func.namespace not in _PYTORCHS_OWN or "decimals" in arguments or "reduce" in arguments:
        return False
    exact = (_CHOOSING, _DRAWING, _PLACING, _SINGLE, exact_operations()["comparing"])
    return any(name in names for names in exact)


def _is_written(returned: Any) -> bool:
    return returned.alias_info is None or returned.alias_info.is_write


class _Perturbation(DispatchMode):
    """Carries out every operation of a ``with`` block, and moves what it rounded."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random_bits = np.random.Philox(key=seed)
        self._factors: dict[torch.device, torch.Tensor] = {}  # `_FACTORS` on each device

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rounding = _rounding_of(func)
        call = Invocation(func, args, kwargs or {})
        if rounding.is_exact or _is_exact(rounding, call):
            return call.run()
        if rounding.decomposes:
            with dispatch_mode_pushed(self):
                return func.decompose(*call.args, **call.kwargs)
        name = rounding.operation.name
        if name in _ADDING_AT_PLACES:
            return self._added_at_places(call)
        if name.removeprefix(FOREACH) in _UPDATING:
            return self._updated(call)
        result = call.run()
        with hidden_from_modes():
            for tensor in _written(call, result):
                self._move(tensor)
        return result

    def _added_at_places(self, call: Invocation) -> Any:
        """Move the numbers that are sums of several, and leave the others."""
        result = call.run()
        with hidden_from_modes():
            for tensor in filter(_can_move, _written(call, result)):
                are_sums = _are_sums(call)
                numbers = tensor[are_sums]
                self._move(numbers)
                tensor[are_sums] = numbers
        return result

    def _updated(self, call: Invocation) -> Any:
        """Move of the sums as large a share as what was added is of them, at random."""
        into = () if "out" in call.kwargs else _written(call, ())
        with hidden_from_modes():
            before = [tensor.clone() for tensor in [*into] or _tensors_of(call.args[0])]
        result = call.run()
        with hidden_from_modes():
            for tensor, base in zip(_written(call, result), before, strict=True):
                if not _can_move(tensor):
                    continue
                after = tensor.clone()
                self._move(tensor)
                stays = self._drawn_shares(after) * after.abs() >= (after - base).abs()
                tensor.copy_(torch.where(stays, after, tensor))
        return result

    def _drawn_shares(self, like: torch.Tensor) -> torch.Tensor:
        """Draw for each number one from 0 to 1."""
        shares = np.random.Generator(self._random_bits).random(like.numel(), np.float32)
        return torch.from_numpy(shares).to(like.device).view(like.shape)

    def _move(self, tensor: torch.Tensor) -> None:
        """Move all numbers of a tensor, in place."""
        if not _can_move(tensor):
            return
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        in_memory = tensor.permute(order)
        if in_memory.is_contiguous():
            self._move_flat(in_memory.view(-1))
        else:
            numbers = tensor.contiguous()
            self._move_flat(numbers.view(-1))
            tensor.copy_(numbers)

    def _move_flat(self, numbers: torch.Tensor) -> None:
        size = _CHUNK if numbers.device.type == "cpu" else _CHUNK_ON_DEVICE
        for begin in range(0, numbers.numel(), size):
            chunk = numbers[begin : begin + size]
            # Half or twice of 0, of an infinity and of NaN is the same again: these stay.
            towards = chunk * self._drawn_factors(chunk)
            torch.nextafter(chunk, towards, out=chunk)

    def _drawn_factors(self, like: torch.Tensor) -> torch.Tensor:
        """Draw for each number 0.5 or 2."""
        n = like.numel()
        random_bytes = self._random_bits.random_raw(-(-n // 64)).view(np.uint8)
        if like.device.type == "cpu":
            factors = torch.from_numpy(_FACTORS.take(random_bytes, axis=0, mode="clip"))
        else:
            table = self._factors.setdefault(
                like.device, torch.from_numpy(_FACTORS).to(like.device)
            )
            factors = table[torch.from_numpy(random_bytes).to(like.device).int()]
        return factors.view(-1)[:n].to(like.dtype)


def _can_move(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds numbers that are rounded."""
    is_plain = tensor.layout is torch.strided and tensor.device.type != "meta"
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    return dtype in _ROUNDED_TYPES and is_plain and tensor.numel() > 0


def _is_exact(rounding: _Rounding, call: Invocation) -> bool:
    """Whether an operation's numbers, with what it is called with, are the same everywhere."""
    operation = rounding.operation
    if form_for(operation, call, kinds_of_call(call)) == "exact":
        return True
    if rounding.is_exact_if is not None:
        return rounding.is_exact_if(call)
    name = operation.name
    return name.startswith(FOREACH) and _is_exact_on_lists(name.removeprefix(FOREACH), call)


def _is_exact_on_lists(name: str, call: Invocation) -> bool:
    """The same of an operation on lists, which is the operation ``name`` on each tensor."""
    exact = exact_operations()
    is_single = name in exact["single"] and call.kwargs.get("alpha", 1) == 1 and len(call.args) <= 2
    return is_single or name in _CHOOSING or name in exact["moving"] | exact["comparing"]


# -- exact with some of what an operation is called with ---------------------------------------


def _argument(call: Invocation, place: int, name: str = "") -> Any:
    return call.args[place] if place < len(call.args) else call.kwargs.get(name)


def _has(place: int, name: str, *values: object) -> Callable[[Invocation], bool]:
    """Whether an argument has one of the values."""
    return lambda call: _argument(call, place, name) in values


def _is_of_one_each(call: Invocation) -> bool:
    """Whether each sum, product or mean along axes is of one number."""
    axes = _argument(call, 1, "dim")
    shape = call.args[0].shape
    if isinstance(axes, int):
        axes = [axes]
    return all(shape[axis] <= 1 for axis in axes or range(len(shape)) if shape)


def _keeps_the_size(call: Invocation) -> bool:
    return [*call.args[0].shape[-len(call.args[1]) :]] == [*call.args[1]]


def _is_outer(call: Invocation) -> bool:
    """Whether each number of a product of matrices is one product."""
    return bool(call.args[0].shape[-1] == 1)


def _do_not_overlap(call: Invocation) -> bool:
    """Whether no two windows of a pooling share a place."""
    kernel, stride, _, dilation = call.args[2:6]
    sizes = (kernel, stride or kernel, dilation)
    is_plain = len(set(map(len, sizes))) == 1
    return is_plain and all((n - 1) * gap < step for n, step, gap in zip(*sizes, strict=True))


_OF_POOLS = ("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
_NEAREST = 1
_OF_LARGEST = 2
_NOT_REDUCED, _MEAN, _SUM = range(3)
"""How PyTorch writes the ways to sample, to make one row of a bag, and one number of a loss."""
_ORDERS = (float("inf"), -float("inf"), 0)
"""Norms that are the largest or smallest magnitude, or a count."""

_EXACT_IF: dict[str, Callable[[Invocation], bool]] = {
    "arange": lambda call: all(float(bound).is_integer() for bound in call.args),
    "div": lambda call: call.kwargs.get("rounding_mode") is not None,
    "round": _has(1, "decimals", 0),
    "histogram": lambda call: not (call.kwargs.get("weight") or call.kwargs.get("density")),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), _has(2, "", _NEAREST)),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _has(4, "", _OF_LARGEST)),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _has(3, "", _NOT_REDUCED)),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _has(4, "", _NOT_REDUCED, _SUM)),
    **dict.fromkeys(("norm", "linalg_vector_norm", "_foreach_norm"), _has(1, "", *_ORDERS)),
    **dict.fromkeys(("dist", "_cdist_forward"), _has(2, "p", *_ORDERS)),
    "_pdist_forward": _has(1, "p", *_ORDERS),
    **dict.fromkeys(("scatter_reduce", "index_reduce"), _has(4, "reduce", "amax", "amin")),
    "segment_reduce": _has(1, "reduce", "max", "min"),
    "_segment_reduce_backward": _has(3, "reduce", "max", "min"),
    "_sparse_mm_reduce_impl": _has(2, "reduce", "amax", "amin"),
    **dict.fromkeys(("sum", "nansum", "mean", "prod", "cumsum", "cumprod"), _is_of_one_each),
    **dict.fromkeys(("logsumexp", "logcumsumexp", "_softmax", "_log_softmax"), _is_of_one_each),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _keeps_the_size),
    **dict.fromkeys(("mm", "bmm"), _is_outer),
    **dict.fromkeys(_OF_POOLS, _do_not_overlap),
    **dict.fromkeys(
        ("index_put", "_index_put_impl", "_unsafe_index_put", "put"),
        lambda call: not _argument(call, 3, "accumulate"),
    ),
}


# -- sums of numbers that come to one place ----------------------------------------------------

_BY_INDEX = {
    "index_add": ("index_add", 3),
    "index_put": ("index_put", 2),
    "index_reduce": ("index_add", 3),
    "_index_put_impl": ("index_put", 2),
    "put": ("put", 2),
    "scatter": ("scatter_add", 3),
    "scatter_add": ("scatter_add", 3),
    "scatter_reduce": ("scatter_add", 3),
    "_unsafe_index_put": ("index_put", 2),
}
"""Operations that add to numbers of their first argument, or multiply them: the one that counts how
many, and the place of the argument with what is added."""
_OF_GRADIENTS = frozenset(
    [
        "adaptive_max_pool2d_backward",
        "adaptive_max_pool3d_backward",
        "col2im",
        "embedding_dense_backward",
        "fractional_max_pool2d_backward",
        "fractional_max_pool3d_backward",
        *_OF_POOLS,
        *(f"{way}_pad{n}d_backward" for way in ("reflection", "replication") for n in (1, 2, 3)),
        *(f"upsample_nearest{n}d_backward" for n in (1, 2, 3)),
        *(f"_upsample_nearest_exact{n}d_backward" for n in (1, 2, 3)),
        "unfold_backward",
    ]
)
"""Operations that add the numbers of their first argument at places."""
_ADDING_AT_PLACES = _OF_GRADIENTS | _BY_INDEX.keys()


def _are_sums(call: Invocation) -> torch.Tensor:
    """Which numbers of a result, or rows of an embedding, are sums of several that are not 0, or of
    one and a product."""
    name = _rounding_of(call.func).operation.name
    counting, source = _BY_INDEX.get(name, (name, 0))
    args = [*call.args]
    if name in _BY_INDEX:
        args = args[:4]
        args[0] = torch.zeros_like(args[0])
        is_number = not isinstance(args[source], torch.Tensor)
        args[source] = args[0].new_ones(args[2].shape) if is_number else args[source]
    added = args[source] != 0
    if name == "embedding_dense_backward":
        args[4] = False  # dividing by the counts
        added = added.any(-1, keepdim=True)
    args[source] = added.to(args[source].dtype)
    counts = getattr(torch.ops.aten, counting)(*args)
    if name == "embedding_dense_backward":
        counts = counts[:, 0]
    return counts.abs() > (1 if call.kwargs.get("alpha", 1) == 1 else 0)


def _written(call: Invocation, result: Any) -> Iterator[torch.Tensor]:
    """The tensors that an operation wrote, each once: its results, and arguments it writes into."""
    rounding = _rounding_of(call.func)
    written: dict[int, torch.Tensor] = {}
    computed = rounding.computed_results
    for index, value in enumerate(result if isinstance(result, tuple | list) else (result,)):
        if not computed or computed[min(index, len(computed) - 1)]:
            written.update(_by_address(value))
    for name, place in rounding.written_arguments:
        if place is None or place >= len(call.args):
            value = call.kwargs.get(name)
        else:
            value = call.args[place]
        written.update(_by_address(value))
    yield from written.values()


def _tensors_of(value: Any) -> Iterator[torch.Tensor]:
    return (tensor for _, tensor in _by_address(value))


def _by_address(value: Any) -> Iterator[tuple[int, torch.Tensor]]:
    for item in value if isinstance(value, tuple | list) else (value,):
        if isinstance(item, torch.Tensor):
            yield id(item), item
