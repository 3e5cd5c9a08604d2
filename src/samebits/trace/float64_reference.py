"""Rounding errors: how far each operation is from the exact result, and how far it may be.

Each operation is run once more in float64, on copies of its inputs, and its error is counted in
units in the last place (ulp) of the dtype of its output. Where terms cancel, the question is: one
ulp of what?

- *Sums* (element by element arithmetic, sums, products of matrices, convolutions): of the exact
  result, element by element, or, if that is more, of what the same operation gives on the
  magnitudes of its inputs, divided by the root of the number of terms (for a product of matrices
  ``|A| |B|``: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
- *Functions* (normalisation, softmax, losses, and all that is not known): of the largest element
  of the exact result, or of what that result changes by, in proportion, when every input changes
  by a small part of itself, if that is more.

A worked example: the sum of 1e8, 1 and -1e8 is 1, and float32 gives 0, wrong by all of it. The
magnitudes add up to 2e8, and three terms are added, so the scale is 2e8 / sqrt(3), or 1.2e8. There
float32 has an ulp of 8, and the sum is off by 1/8 ulp, where sums of three terms may err by
4 + 8 sqrt(3), or 18: it is as good as float32 can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from samebits.trace.error_limits import (
    BY_TRANSFORM,
    CANCEL_INSIDE,
    CLASS_OF,
    EPS_OF_TF32,
    JUMPS,
    LIMITS,
    base_of,
    has_small_kernel,
    is_judged,
    is_real,
    n_terms_of,
    rounds_to_tf32,
)
from samebits.trace.observer import Call
from samebits.trace.quiet_calls import without_warnings
from samebits.trace.replay_plan import ReplayPlan, inputs_of

_STEP = 2.0**-23  # part of itself by which an input is moved: small, and far above float64's ulp
_FLUSHED = frozenset({torch.float32, torch.bfloat16})  # their subnormals may be taken for zero


@dataclass(frozen=True)
class RoundingError:
    """How far an operation is from the exact result of its inputs, and how far it may be."""

    ulp: float
    """The largest error; infinite where a shape is another, or NaN or infinity is where it should
    not be."""
    limit: float
    """The largest error that its class of operation may have, in ulp."""


@dataclass(frozen=True)
class _Scale:
    """The unit in which the error of one output is counted."""

    size: torch.Tensor
    """An ulp is that of this size: float64, one for each element or one for all."""
    reach: torch.Tensor
    """Sums on the way may be as large as this, and overflow: float64, likewise."""
    eps: float
    """Distance from 1 to the next number of the dtype that it rounds to."""


class Reference:
    """One operation about to run, with float64 copies of its inputs; made by `of`."""

    def __init__(self, call: Call, plan: ReplayPlan) -> None:
        self.problem: str | None = None
        self._call = call
        self._plan = plan
        self._base = base_of(call.site.op)
        self._kind = CLASS_OF.get(self._base, "function")
        tensors = [leaf for leaf in inputs_of(call) if isinstance(leaf, torch.Tensor)]
        floating = [tensor for tensor in tensors if tensor.is_floating_point()]
        self._input_eps = max((torch.finfo(tensor.dtype).eps for tensor in floating), default=0.0)
        copies: dict[int, torch.Tensor] = {}
        self._args = tuple(_in_float64(value, copies) for value in call.args)
        self._kwargs = {name: _in_float64(value, copies) for name, value in call.kwargs.items()}
        self._types = {a.name: str(a.type) for a in call.func._schema.arguments}
        self._least_eps = 0.0
        self._margin = 1
        if self._kind == "reduction" and any(tensor.is_cuda for tensor in floating):
            self._least_eps = EPS_OF_TF32 if rounds_to_tf32(self._base) else 0.0
            self._margin = BY_TRANSFORM if has_small_kernel(self._base, tensors) else 1

    @classmethod
    def of(cls, call: Call, plan: ReplayPlan) -> Reference | None:
        """Copy an operation's inputs, before it may overwrite them.

        None where nothing more exact can be had: views, uninitialised memory, random draws,
        operations nobody vouches for, results that jump, and inputs that are no plain numbers.
        """
        jumps = base_of(call.site.op).startswith(JUMPS) or call.kwargs.get("rounding_mode")
        if not plan.replayable or plan.guarded or plan.draws or jumps:
            return None
        return cls(call, plan) if all(map(is_real, inputs_of(call))) else None

    def error(self, outputs: list[object]) -> RoundingError | None:
        """Compare what the operation gave with the exact result of its inputs.

        To be called once: the operation may overwrite the copies of its inputs.

        None where no output is narrower than float64, or for a `problem`.
        """
        if not any(map(is_judged, outputs)):
            return None
        try:
            with torch.no_grad():
                others = self._run_otherwise()
                exact = self._run(self._args, self._kwargs)  # last: it may overwrite the copies
        except Exception as error:  # whatever it is, the step goes on, and the row says it
            self.problem = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return None
        n_terms = n_terms_of(self._call, outputs)
        errors = []
        for actual, precise, other in zip(outputs, exact, others or exact, strict=False):
            if is_judged(actual) and precise.dtype == torch.float64:
                scale = self._scale(actual.dtype, precise, other, n_terms)
                errors.append(_error(actual, precise, scale))
        if not errors:
            return None
        limit = self._margin * LIMITS[self._kind].for_terms(n_terms)
        return RoundingError(ulp=max(0.0, *errors), limit=limit)

    @property
    def _is_sum(self) -> bool:
        """Whether it is judged by the rule for sums, see the head of this file."""
        return self._kind in ("elementwise", "reduction") or self._base in CANCEL_INSIDE

    def _run_otherwise(self) -> list[torch.Tensor]:
        """The results of a sum on magnitudes, of a function on inputs that were moved a little."""
        if self._is_sum:
            return self._run(*self._magnitudes())
        if self._kind == "function":
            return self._run(*self._changed(_nudged, _nudged_number))
        return []

    def _scale(
        self, dtype: torch.dtype, exact: torch.Tensor, other: torch.Tensor, n_terms: int
    ) -> _Scale:
        """The unit for an output, by the rule for its kind of operation."""
        size = exact.abs()
        eps = max(torch.finfo(dtype).eps, self._least_eps)
        if self._is_sum:
            reach = size.maximum(_finite(other))
            return _Scale(size.maximum(reach / math.sqrt(n_terms)), reach, eps)
        if self._kind == "function" and size.numel():
            moves = _finite((other - exact) * (4 / _STEP))  # by a few parts, not by one
            largest = _finite(size).maximum(moves).max()
            # It may round to its inputs' dtype on the way.
            return _Scale(largest, largest, max(eps, self._input_eps))
        return _Scale(size, size, eps)

    def _run(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[torch.Tensor]:
        returned: object = without_warnings(lambda: self._call.func(*args, **kwargs))
        return self._plan.outputs(args, kwargs, returned)

    def _magnitudes(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments without their signs."""
        args, kwargs = self._changed(torch.abs, abs)
        if self._base in ("sub", "rsub"):  # the magnitude of what is subtracted is added
            at = 1 if self._base == "sub" else 0
            args = *args[:at], _negative(args[at]), *args[at + 1 :]
        return args, kwargs

    def _changed(
        self,
        change: Callable[[torch.Tensor], torch.Tensor],
        change_number: Callable[[float], float],
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments, with every tensor and number that is calculated with changed."""

        def changed(value: object, kind: str) -> object:
            if isinstance(value, list | tuple):
                return [changed(item, kind) for item in value]
            if isinstance(value, torch.Tensor):
                return change(value) if value.is_floating_point() else value.clone()
            # A dimension or a flag is not calculated with.
            if "number" not in kind or isinstance(value, bool):
                return value
            if isinstance(value, int):
                return int(change_number(value))
            return change_number(value) if isinstance(value, float) else value

        args = zip(self._args, self._types.values(), strict=False)
        kwargs = {name: changed(value, self._types[name]) for name, value in self._kwargs.items()}
        return tuple(changed(value, kind) for value, kind in args), kwargs


# -- arithmetic ----------------------------------------------------------------------------


def _in_float64(value: object, copies: dict[int, torch.Tensor]) -> object:
    """A copy for the replay; one tensor given twice stays one."""
    if isinstance(value, list | tuple):
        return [_in_float64(item, copies) for item in value]
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    if isinstance(value, torch.device):
        return _device_of_copy(value)
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) not in copies:
        dtype = torch.float64 if value.is_floating_point() else value.dtype
        device = _device_of_copy(value.device)
        copies[id(value)] = value.detach().to(device, copy=True).to(dtype)
    return copies[id(value)]


def _device_of_copy(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "mps" else device  # MPS has no float64


def _negative(value: object) -> object:
    """A number, a tensor or a list of them, with the other sign."""
    if isinstance(value, list):
        return [_negative(item) for item in value]
    return -value if isinstance(value, int | float | torch.Tensor) else value


def _nudged(tensor: torch.Tensor) -> torch.Tensor:
    """Every element up or down by a small part of itself, in no pattern that could cancel."""
    index = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
    scattered = (index * 2654435761).bitwise_and(0xFFFFFFFF).double() / 2**31 - 1
    return tensor * (1 + scattered * _STEP)


def _nudged_number(number: float) -> float:
    return torch.tensor(number).float().item()


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.abs().nan_to_num(nan=0.0)  # infinity becomes the largest number there is


def _error(actual: torch.Tensor, exact: torch.Tensor, scale: _Scale) -> float:
    """Largest error of one output in ulp of its scale."""
    if actual.shape != exact.shape:
        return math.inf
    if actual.numel() == 0:
        return 0.0
    limits = torch.finfo(actual.dtype)
    rounded = exact.to(actual.dtype)  # what is too large becomes infinite
    computed = actual.detach().to(exact.device)
    finite = rounded.isfinite() & computed.isfinite()
    same = (computed == rounded) | (computed.isnan() & rounded.isnan())
    may_overflow = scale.reach >= limits.max
    if not bool((finite | same | may_overflow).all()):
        return math.inf
    difference = torch.where(finite, (computed.double() - exact).abs(), 0.0)
    if actual.dtype in _FLUSHED:
        difference = torch.where(difference <= limits.tiny, 0.0, difference)
    _, exponent = torch.frexp(scale.size.clamp(min=limits.tiny, max=limits.max))
    return float((difference / torch.exp2(exponent.double()) / (scale.eps / 2)).max())
