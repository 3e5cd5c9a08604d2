"""Mode portable: every operation of PyTorch in its portable form, or refused by name and line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from cellrepro.arithmetic.kernels import optimizers
from cellrepro.arithmetic.kernels.registry import NoPortableForm
from cellrepro.arithmetic.kernels.table import FORMS
from cellrepro.arithmetic.library_choices import choices_of_libraries_made
from cellrepro.arithmetic.operation_forms import (
    form_of,
    name_of,
    refuse_numbers,
    refuse_several_targets,
    writes_in_place,
)
from cellrepro.arithmetic.proof import prove
from cellrepro.call_site import Site
from cellrepro.determinism.modes import mode_in_force
from cellrepro.errors import NotPossibleHere
from cellrepro.trace.observer import Call, Observer
from cellrepro.trace.source_lines import source_line

_USUAL_CHANCE = 0.5
"""The default of ``bernoulli_``: PyTorch's dispatcher leaves out an argument that equals it."""
_COMPUTES_SCALARS = (
    "computes numbers by the system's power function, which is not the same everywhere (AdamW, "
    "Adam, SGD, RMSprop, Adagrad, Adadelta and Rprop have a portable form)"
)


@contextmanager
def portable(device: torch.device | str = "cpu") -> Iterator[None]:
    """Compute with PyTorch in one block so that every machine gets the same bits.

    For networks and training steps of one's own: forward pass, loss, backward pass and update. The
    numbers must be float32.

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
    >>> import cellrepro
    >>> import torch
    >>> with cellrepro.portable():
    ...     print(torch.ones(2, 3) @ torch.full((3, 1), 0.5))
    tensor([[1.5000],
            [1.5000]])
    """
    kind = torch.device(device).type
    with mode_in_force("portable", device=kind), proved_arithmetic(device):
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
            "portable (cellrepro.portable_operations(step) lists them), or use mode strict, which "
            "holds on one machine"
        )

    def __reduce__(self) -> tuple[type[NotPortable], tuple[Site, str]]:
        """Pickle it so that it comes out of a process as it was raised."""
        return NotPortable, (self.site, self.reason)


class PortableArithmetic(Observer):
    """Carries out every operation of a ``with`` block in its portable form."""

    def _begin(self, way_back: ExitStack) -> None:
        """Make PyTorch compute attention by single operations, and Adam's update by one."""
        way_back.callback(
            torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
        )
        torch.backends.mha.set_fastpath_enabled(False)
        way_back.enter_context(sdpa_kernel(SDPBackend.MATH))
        way_back.enter_context(optimizers.adam_as_one_operation())
        way_back.enter_context(choices_of_libraries_made())

    def observe(self, call: Call) -> Any:
        """Carry out one operation, or those of which it is made."""
        form = form_of(call)
        if form == "missing" and name_of(call.func).startswith(_FOREACH):
            with self._dispatching_again():
                return _each_by_itself(call.func, call.args, call.kwargs)
        if form == "missing" and _decomposes(call.func):
            with self._dispatching_again():
                return call.func.decompose(*call.args, **call.kwargs)
        if form == "missing":
            return self.without_form(call, "has no portable form")
        try:
            return call.run() if form == "exact" else self._replaced(call)
        except NoPortableForm as missing:
            return self.without_form(call, str(missing))

    def without_form(self, call: Call, reason: str) -> Any:
        """Refuse an operation; a subclass that only takes note of it overrides this."""
        raise NotPortable(call.site, reason) from None

    @contextmanager
    def _dispatching_again(self) -> Iterator[None]:
        """Enter this mode again: PyTorch suspends a dispatch mode inside its own handler."""
        TorchDispatchMode.__enter__(self)
        try:
            yield
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)

    def _replaced(self, call: Call) -> Any:
        """The result of the portable form, where the operation itself would have put it."""
        kernel = FORMS[name_of(call.func)]
        refuse_numbers(call)
        refuse_several_targets(call)
        arguments = dict(call.kwargs)
        if str(call.func) == "aten.bernoulli_.float" and len(call.args) == 1:
            arguments["chance"] = arguments.pop("p", _USUAL_CHANCE)
        target = arguments.pop("out", None)
        result = kernel(*call.args, **arguments)
        if target is None and writes_in_place(call.func):
            target = call.args[0]
        if target is None or result is None:  # an update returns nothing: it has written already
            return result
        return target.copy_(result)

    # -- optimizers ------------------------------------------------------------------------

    def _enter_update(self, optimizer: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Refuse an optimizer that computes with numbers no operation shows."""
        name = type(optimizer).__name__
        is_of_torch = type(optimizer).__module__.startswith("torch.optim")
        if is_of_torch and name in optimizers.COMPUTING_SCALARS:
            site = Site(f"torch.optim.{name}.step", None, source_line(), "update")
            raise NotPortable(site, _COMPUTES_SCALARS)
        return super()._enter_update(optimizer, args, kwargs)


def _decomposes(func: Any) -> bool:
    """Whether PyTorch itself makes an operation of simpler ones (``linear`` of ``addmm``)."""
    return bool(func._can_decompose()) if hasattr(func, "_can_decompose") else False


# -- operations on lists of tensors, which PyTorch's optimizers use on GPUs --------------------

_FOREACH = "_foreach_"
"""The names of these operations begin with it (torch 2.6 to 2.15)."""

_OTHER_NAMES = {"norm": "linalg_vector_norm", "max": "amax"}
"""Operations on one tensor that have another name."""
_WITH_VALUE = ("addcdiv", "addcmul")
"""Operations on one tensor that take the last argument by its name, ``value``."""


def _each_by_itself(
    func: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[torch.Tensor] | None:
    """Carry out an operation on lists of tensors as one operation for each tensor.

    None from one that writes into the tensors it is given.
    """
    name = str(func).split(".")[1].removeprefix(_FOREACH)
    is_in_place = name.endswith("_")
    base = name.rstrip("_")
    operation = getattr(torch.ops.aten, _OTHER_NAMES.get(base, base) + "_" * is_in_place)
    n_tensors = max(len(argument) for argument in args if isinstance(argument, list | tuple))
    results = []
    for index in range(n_tensors):
        own = [_own(argument, index) for argument in args]
        named = {key: _own(argument, index) for key, argument in kwargs.items()}
        if base in _WITH_VALUE and len(own) > 3:
            value = own.pop()
            named["value"] = value.item() if isinstance(value, torch.Tensor) else value
        results.append(operation(*own, **named))
    return None if is_in_place else results


def _own(argument: object, index: int) -> object:
    """The part of an argument that belongs to one of the tensors."""
    return argument[index] if isinstance(argument, list | tuple) else argument
