"""The mode of PyTorch in which every operation is portable, or refused by name and line."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import resources
from typing import Any, Literal

import torch
import yaml
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from cellrepro.arithmetic import lists_of_tensors, optimizers
from cellrepro.arithmetic.kernels.registry import NoPortableForm
from cellrepro.arithmetic.kernels.table import FORMS
from cellrepro.arithmetic.not_portable import NotPortable
from cellrepro.digests.site import Site
from cellrepro.trace.observer import Call, Observer, source_line

Form = Literal["exact", "replaced", "missing"]
"""How an operation becomes portable: it is so by nature, another form stands for it, or it has
none."""

_USUAL_CHANCE = 0.5  # of ``bernoulli_``: the dispatcher drops what equals the schema's default
_NAMESPACES = frozenset(("aten", "prims", "c10d", "_c10d_functional"))
_HALF = (torch.float16, torch.bfloat16)
_OF_FRACTIONS = frozenset(
    [
        "sqrt",
        "rsqrt",
        "pow",
        "affine_grid_generator",
        "grid_sampler",
        "grid_sampler_2d",
        "grid_sampler_3d",
    ]
)
"""They make fractions, also of whole numbers, as gradients do."""
_ALONG_AXES = frozenset(
    [
        "convolution",
        "_convolution",
        "convolution_backward",
        "softmax",
        "_softmax",
        "_safe_softmax",
        "log_softmax",
        "_log_softmax",
        "avg_pool2d",
        "index_add",
        "kthvalue",
        "topk",
        "unfold_backward",
    ]
)
"""Their forms need an axis, and numbers along it."""
_COMPUTES_SCALARS = (
    "computes numbers by the system's power function, which is not the same everywhere (AdamW, "
    "Adam, SGD, RMSprop, Adagrad, Adadelta and Rprop have a portable form)"
)


def name_of(func: Any) -> str:
    """An operation's name without namespace, overload and the ``_`` of writing in place.

    >>> name_of(torch.ops.aten.add_.Tensor)
    'add'
    """
    name = str(func).split(".")[1]
    if name.endswith("_") and not name.endswith("__"):
        return name[:-1]
    return name.strip("_") if name.startswith("__") else name


def decomposes(func: Any) -> bool:
    """Whether PyTorch itself makes an operation of simpler ones (``linear`` of ``addmm``)."""
    return bool(func._can_decompose()) if hasattr(func, "_can_decompose") else False


class PortableArithmetic(Observer):
    """Carries out every operation of a ``with`` block in its portable form."""

    def _begin(self, way_back: ExitStack) -> None:
        """Have attention computed from single operations, and Adam's update by one alone."""
        way_back.callback(
            torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
        )
        torch.backends.mha.set_fastpath_enabled(False)
        way_back.enter_context(sdpa_kernel(SDPBackend.MATH))
        way_back.enter_context(optimizers.adam_as_one_operation())

    def observe(self, call: Call) -> Any:
        """Carry out one operation."""
        form = form_of(call)
        if form == "missing" and name_of(call.func).startswith(lists_of_tensors.PREFIX):
            with self._at_work_again():
                return lists_of_tensors.each_by_itself(call.func, call.args, call.kwargs)
        if form == "missing" and decomposes(call.func):
            with self._at_work_again():
                return call.func.decompose(*call.args, **call.kwargs)
        if form == "missing":
            return self.without_form(call, "has no portable form")
        try:
            return call.run() if form == "exact" else self._replaced(call)
        except NoPortableForm as missing:
            return self.without_form(call, str(missing))

    def without_form(self, call: Call, reason: str) -> Any:
        """Refuse an operation; overridden by who only wants to know."""
        raise NotPortable(call.place, reason) from None

    @contextmanager
    def _at_work_again(self) -> Iterator[None]:
        """Within an operation, in which PyTorch has put this mode aside."""
        TorchDispatchMode.__enter__(self)
        try:
            yield
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)

    def _replaced(self, call: Call) -> Any:
        kernel = FORMS[name_of(call.func)]
        _refuse_numbers(call)
        arguments = dict(call.kwargs)
        if str(call.func) == "aten.bernoulli_.float" and len(call.args) == 1:
            arguments["chance"] = arguments.pop("p", _USUAL_CHANCE)
        target = arguments.pop("out", None)
        result = kernel(*call.args, **arguments)
        if target is None and _writes_into_first(call.func):
            target = call.args[0]
        if target is None or result is None:  # none from an update, which writes by itself
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


@functools.cache
def exact_operations() -> Mapping[str, frozenset[str]]:
    """The names of operations that are exact by nature: of each kind of the table."""
    text = resources.files("cellrepro.arithmetic").joinpath("exact_operations.yaml").read_text()
    return {kind: frozenset(names.split()) for kind, names in yaml.safe_load(text).items()}


def form_of(call: Call) -> Form:
    """How an operation becomes portable."""
    if call.func.namespace == "profiler":
        return "exact"
    if call.func.namespace not in _NAMESPACES:  # of another library, whatever its last name
        return "missing"
    name = name_of(call.func)
    leaves = list(_leaves((*call.args, *call.kwargs.values())))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(tensor.is_complex() for tensor in tensors):
        return "missing"
    exact = exact_operations()
    if name in exact["moving"] or (name in exact["comparing"] and "decimals" not in call.kwargs):
        return "exact"
    if not any(_has_fractions(leaf) for leaf in leaves) and _is_exact_in_whole_numbers(name):
        return "exact"
    if name in exact["single"] and _is_single(name, call, tensors):
        return "exact"
    return "replaced" if name in FORMS else "missing"


def _refuse_numbers(call: Call) -> None:
    """Refuse types and shapes that no form but the exact ones is made for."""
    leaves = list(_leaves((*call.args, *call.kwargs.values())))
    for leaf in leaves:
        dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else leaf
        if dtype in _HALF:
            raise NoPortableForm(f"has a portable form for float32, and got {dtype}")
    first = leaves[0] if leaves else None
    if not isinstance(first, torch.Tensor):
        return
    name = name_of(call.func)
    makes_fractions = name in _OF_FRACTIONS or name.endswith("_backward")
    if makes_fractions and not first.is_floating_point():
        raise NoPortableForm(f"has a portable form for float32, and got {first.dtype}")
    if name in _ALONG_AXES and (first.dim() == 0 or first.numel() == 0):
        raise NoPortableForm(
            f"has a portable form for tensors with numbers along axes, and got {[*first.shape]}"
        )


def _leaves(arguments: Iterable[Any]) -> Iterator[Any]:
    """Arguments of an operation, and what is in those that are lists: they hold no deeper ones."""
    for argument in arguments:
        if isinstance(argument, list | tuple):
            yield from argument
        else:
            yield argument


def _has_fractions(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype.is_floating_point or leaf.dtype.is_complex
    if isinstance(leaf, torch.dtype):
        return leaf.is_floating_point
    return isinstance(leaf, float)


def _is_exact_in_whole_numbers(name: str) -> bool:
    exact = exact_operations()
    return name in exact["whole_numbers"] or name in exact["single"] - {"div"}


def _is_single(name: str, call: Call, tensors: list[torch.Tensor]) -> bool:
    """Whether PyTorch carries out one operation, and nothing beside it."""
    if name == "div":
        divides_by_one_number = len(tensors) < 2 or tensors[1].dim() == 0
        on_processor = all(tensor.device.type == "cpu" for tensor in tensors)
        return "rounding_mode" not in call.kwargs and (on_processor or not divides_by_one_number)
    return call.kwargs.get("alpha", 1) == 1 and len(call.args) <= 2


def _writes_into_first(func: Any) -> bool:
    name = str(func).split(".")[1]
    return name.endswith("_") and not name.endswith("__")


@contextmanager
def portable_arithmetic() -> Iterator[PortableArithmetic]:
    """Carry out every operation of PyTorch in its portable form for one block."""
    with PortableArithmetic() as arithmetic:
        yield arithmetic
