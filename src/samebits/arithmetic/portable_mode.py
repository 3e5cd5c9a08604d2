"""Mode portable: every operation of PyTorch in its portable form, or refused by name and line."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from samebits.arithmetic.functions_of_block import FUNCTIONS_OF_BLOCK
from samebits.arithmetic.kernels.registry import NoPortableForm
from samebits.arithmetic.layouts import laid_out
from samebits.arithmetic.library_choices import CHOICES_OF_LIBRARIES
from samebits.arithmetic.operation_forms import (
    FOREACH,
    Operation,
    form_for,
    kinds_of_call,
    operation_of,
    refuse_numbers,
    refuse_several_targets,
    why_missing,
)
from samebits.arithmetic.portable_numbers import PORTABLE_NUMBERS, why_not_portable
from samebits.arithmetic.proof import prove
from samebits.arithmetic.threads_of_block import (
    WAYS_TO_OTHER_THREADS,
    block_of_this_thread,
    computing_in,
)
from samebits.arithmetic.updates_in_a_row import UPDATES_IN_A_ROW
from samebits.call_site import Site
from samebits.errors import BadInput, NotPossibleHere
from samebits.modes import mode_in_force
from samebits.torch_internals import (
    compiler_paused,
    dispatch_mode_pushed,
    uncompiled,
    unfused,
)
from samebits.trace.observer import Call, Observer
from samebits.trace.source_lines import source_line

_USUAL_CHANCE = 0.5
"""The default of ``bernoulli_``: PyTorch's dispatcher leaves out an argument that equals it."""
_ELSEWHERE = "is called in a thread that was started before the block and computes outside of it"


@uncompiled
@contextmanager
def portable(device: torch.device | str = "cpu") -> Iterator[None]:
    """Compute with PyTorch in one block so that every machine gets the same bits.

    For networks and training steps of one's own: forward pass, loss, backward pass and update. The
    numbers must be float32 or float64, all of one operation of one type. A single function that a
    thread calls by itself, which was started before the block and waits at a queue, is not seen
    (docs/same_bits.md, "Threads").

    Parameters
    ----------
    device : torch.device or str
        On which is computed: a processor, or a GPU with float64 numbers.

    Yields
    ------
    None
        Once the device is proved.

    Raises
    ------
    NotPortable
        From an operation in the block that has no portable form, with its module and line.
    NotPossibleHere
        If the device does not compute as is assumed; nothing was computed then.

    Examples
    --------
    >>> import samebits
    >>> import torch
    >>> with samebits.portable():
    ...     print(torch.ones(2, 3) @ torch.full((3, 1), 0.5))
    tensor([[1.5000],
            [1.5000]])
    """
    kind = torch.device(device).type
    with compiler_paused(), mode_in_force("portable", device=kind), proved_arithmetic(device):
        yield


@contextmanager
def proved_arithmetic(device: torch.device | str) -> Iterator[PortableArithmetic]:
    """Compute in portable arithmetic for one block, on a device that is proved before."""
    prove(device)
    with PortableArithmetic() as arithmetic:
        yield arithmetic


class NotPortable(NotPossibleHere):
    """An operation was called that gives different bits on different machines."""

    def __init__(self, site: Site, reason: str) -> None:
        self.site = site
        self.reason = reason
        super().__init__(
            f"{site.op} ({site}) {reason}, so mode portable cannot promise the same bits on "
            "another machine; take it out of the network, write it with operations that are "
            "portable (samebits.portable_operations(step) lists them), or use mode strict, which "
            "holds on one machine"
        )

    def __reduce__(self) -> tuple[type[NotPortable], tuple[Site, str]]:
        """Pickle it so that it comes out of a process as it was raised."""
        return NotPortable, (self.site, self.reason)


class _Call(Call):
    """A call that looks for its site when it is asked for it: only a refusal says it, and to find
    it takes as long as a small operation."""

    __slots__ = ("_observer",)

    def __init__(
        self, observer: PortableArithmetic, func: Any, args: tuple, kwargs: dict[str, Any]
    ) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        """Python comes here for ``site`` while the slot of that name is empty."""
        if name != "site":
            raise AttributeError(name)
        self.site = self._observer.site_of(self.func)
        return self.site


class _Refusals(threading.local):
    """What was refused last in a thread."""

    last: NotPortable | None = None


_OF_SCRIPT = "TorchScript interpreter"
"""Stands in the message of every error that leaves a scripted function (torch 2.6 to 2.15)."""


class PortableArithmetic(Observer):
    """Carries out every operation of a ``with`` block in its portable form.

    Also in threads that are started in the block, and in what pools are given there.
    """

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        super().__init__(model)
        self._refusals = _Refusals()

    def _begin(self, way_back: ExitStack) -> None:
        """Make PyTorch compute attention and recurrent layers by single operations, products of
        several matrices in the order in which they are written, and Adam's update by one."""
        way_back.enter_context(unfused())
        way_back.enter_context(CHOICES_OF_LIBRARIES.in_force())
        way_back.enter_context(FUNCTIONS_OF_BLOCK.in_force())
        way_back.enter_context(PORTABLE_NUMBERS.in_force())
        way_back.enter_context(UPDATES_IN_A_ROW.in_force())
        way_back.enter_context(WAYS_TO_OTHER_THREADS.in_force())
        way_back.enter_context(computing_in(self, PortableArithmetic))

    @contextmanager
    def in_this_thread(self) -> Iterator[None]:
        """Compute in the block in a thread that did not enter it; plainly, once it is over."""
        with unfused(), dispatch_mode_pushed(self):
            yield

    def refuse(self, name: str, reason: str, phase: str = "forward") -> None:
        """Refuse a network, an optimizer or a function that no operation shows."""
        self.refuse_at(Site(name, None, source_line(), phase), reason)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._way_back is None:  # of a thread that goes on after the block
            return func(*args, **(kwargs or {}))
        self.learn_nodes()
        return self.observe(_Call(self, func, args, kwargs or {}))

    def observe(self, call: Call) -> Any:
        """Carry out one operation, or those of which it is made."""
        operation = operation_of(call.func)
        kinds = kinds_of_call(call)
        form = form_for(operation, call, kinds)
        if form == "exact":
            return call.run()
        if form == "replaced":
            try:
                refuse_numbers(operation, call, kinds)
                refuse_several_targets(operation, call)
                return _replaced(operation, call)
            except NoPortableForm as missing:
                return self.without_form(call, str(missing))
            except Exception as error:
                _refuse_without_numbers(call)
                _raise_as_pytorch_does(call)
                return self.without_form(call, _failed(error), cause=error)
        if operation.name.startswith(FOREACH) and _is_on_lists(operation):
            with dispatch_mode_pushed(self):
                return _each_by_itself(call.func, call.args, call.kwargs)
        if _decomposes(call.func):
            with dispatch_mode_pushed(self):
                return call.func.decompose(*call.args, **call.kwargs)
        return self.without_form(call, why_missing(operation, kinds))

    def without_form(self, call: Call, reason: str, cause: Exception | None = None) -> Any:
        """Refuse an operation; a subclass that only takes note of it overrides this."""
        return self.refuse_at(call.site, reason, cause)

    def refuse_at(self, site: Site, reason: str, cause: Exception | None = None) -> None:
        """Refuse what is done at a site; a subclass that only takes note of it overrides this."""
        self._refusals.last = NotPortable(site, reason)
        raise self._refusals.last from cause

    def __exit__(self, *exception: Any) -> None:
        """Raise a refusal that TorchScript has made an error of its own of."""
        refusal = self._refusals.last
        super().__exit__(*exception)
        error = exception[1] if len(exception) > 1 else None
        if refusal is not None and type(error) is RuntimeError and _OF_SCRIPT in str(error):
            raise refusal from error

    def _enter_module(self, module: torch.nn.Module, inputs: Any) -> None:
        """Refuse a network in a thread that no block was handed to: it would compute plainly."""
        self._refuse_elsewhere(type(module).__name__)
        super()._enter_module(module, inputs)

    def _refuse_elsewhere(self, name: str) -> None:
        """Refuse what a thread does that was started before the block."""
        if block_of_this_thread() is None:
            self.refuse(name, _ELSEWHERE)

    # -- optimizers ------------------------------------------------------------------------

    def _enter_update(self, optimizer: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Refuse an optimizer that computes with numbers no operation shows."""
        name = type(optimizer).__name__
        self._refuse_elsewhere(name)
        reason = why_not_portable(optimizer)
        if reason:
            self.refuse(f"torch.optim.{name}.step", reason, "update")
        return super()._enter_update(optimizer, args, kwargs)


def _decomposes(func: Any) -> bool:
    """Whether PyTorch itself makes an operation of simpler ones (``linear`` of ``addmm``)."""
    return bool(func._can_decompose()) if hasattr(func, "_can_decompose") else False


def _replaced(operation: Operation, call: Call) -> Any:
    """The result of the portable form, where the operation itself would have put it."""
    assert operation.kernel is not None
    arguments = call.kwargs
    target = None
    if operation.writes_in_place:
        target = call.args[0]
        if str(call.func) == "aten.bernoulli_.float" and len(call.args) == 1:
            arguments = dict(arguments)
            arguments["chance"] = arguments.pop("p", _USUAL_CHANCE)
    elif "out" in arguments:
        arguments = dict(arguments)
        target = arguments.pop("out")
        if operation.is_typed_by_target:
            arguments["dtype"] = target.dtype
    result = operation.kernel(*call.args, **arguments)
    if result is None:  # an update returns nothing: it has written already
        return result
    if target is None:
        return laid_out(operation, call, result)
    if not torch.can_cast(result.dtype, target.dtype):
        raise RuntimeError(
            f"result type {result.dtype} can't be cast to the desired output type {target.dtype}"
        )
    if target.shape != result.shape:
        if operation.writes_in_place:
            _raise_as_pytorch_does(call)
            raise NoPortableForm(
                "has a portable form that writes as many numbers as there are, and would make "
                f"{[*result.shape]} of {[*target.shape]}"
            )
        target.resize_(result.shape)
    return target.copy_(result)


def _refuse_without_numbers(call: Call) -> None:
    """Refuse tensors that have a shape and no numbers, of which no number can be computed."""
    for leaf in tree_leaves((call.args, call.kwargs)):
        if isinstance(leaf, FakeTensor) or (isinstance(leaf, torch.Tensor) and leaf.is_meta):
            kind = "a FakeTensor" if isinstance(leaf, FakeTensor) else "a tensor on device meta"
            raise BadInput(
                f"{call.site.op} ({call.site}) got {kind}, which has a shape and no numbers; "
                "expected tensors with numbers: in a block of mode portable they are computed. "
                "Export or trace a network, or ask for its shapes, outside of the block"
            )


def _raise_as_pytorch_does(call: Call) -> None:
    """Raise the error of PyTorch's own operation, where it has one: wrong shapes, for example."""

    def copied(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf

    args, kwargs = tree_map(copied, (call.args, call.kwargs))
    call.func(*args, **kwargs)


def _failed(error: Exception) -> str:
    """The reason where only the portable form has failed."""
    text = str(error).strip().partition("\n")[0]
    return f"has a portable form that does not take what it was given ({text})"


# -- operations on lists of tensors, which PyTorch's optimizers use on GPUs --------------------

_OTHER_NAMES = {"norm": "linalg_vector_norm", "max": "amax"}
"""Operations on one tensor that have another name."""
_LIMITS = {"maximum": "clamp_min", "minimum": "clamp_max"}
_WITH_VALUE = ("addcdiv", "addcmul")
"""Operations on one tensor that take the last argument by its name, ``value``."""


def _is_on_lists(operation: Operation) -> bool:
    """Whether there is an operation on one tensor for one on lists."""
    return hasattr(torch.ops.aten, _name_on_one(operation.name.removeprefix(FOREACH), ()))


def _name_on_one(base: str, arguments: Sequence[object]) -> str:
    """The operation on one tensor; a largest number of a tensor and a number has another."""
    is_limit = len(arguments) > 1 and not isinstance(arguments[1], torch.Tensor)
    return _LIMITS[base] if is_limit and base in _LIMITS else _OTHER_NAMES.get(base, base)


def _each_by_itself(
    func: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[torch.Tensor] | None:
    """Carry out an operation on lists of tensors as one operation for each tensor.

    None from one that writes into the tensors it is given.
    """
    name = str(func).split(".")[1].removeprefix(FOREACH)
    base = name.rstrip("_")
    n_tensors = max(len(argument) for argument in args if isinstance(argument, list | tuple))
    results = []
    for index in range(n_tensors):
        own = [_own(argument, index) for argument in args]
        named = {key: _own(argument, index) for key, argument in kwargs.items()}
        if base in _WITH_VALUE and len(own) > 3:
            value = own.pop()
            if isinstance(value, torch.Tensor):
                value = value[index].item() if value.dim() else value.item()
            named["value"] = value
        on_one = _name_on_one(base, own)
        in_place = getattr(torch.ops.aten, f"{on_one}_", None) if name.endswith("_") else None
        result = (in_place or getattr(torch.ops.aten, on_one))(*own, **named)
        if name.endswith("_") and in_place is None:
            result = args[0][index].copy_(result)  # type: ignore[index]
        results.append(result)
    return None if name.endswith("_") else results


def _own(argument: object, index: int) -> object:
    """The part of an argument that belongs to one of the tensors."""
    return argument[index] if isinstance(argument, list | tuple) else argument
