"""Drop-ins for single operations whose result depends on how threads interleave.

A substitute computes what an installed function computes, from operations that add in a fixed
order; `applied` puts it in that function's place for one block. Both present ones serve
``get_rel_pos`` of segment-anything 1.0, which every attention block of its encoder calls.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from samebits.errors import BadInput, NotPossibleHere
from samebits.known_operations import base_name
from samebits.replaced_functions import GivenBack

if TYPE_CHECKING:
    import torch

# -- the functions -------------------------------------------------------------------------


def toeplitz_gather(rel: torch.Tensor, k: int) -> torch.Tensor:
    """The rows ``rel[i - j + k - 1]`` for every query i and key j: shape (k, k, C).

    ``rel`` has the shape (2 * k - 1, C). Neighbouring queries see the same rows, one further:
    windows of a view, whose backward adds in a fixed order. Equal to the gather bit for bit.
    """
    if rel.shape[0] != 2 * k - 1:
        raise BadInput(
            f"toeplitz_gather was given {rel.shape[0]} rows for k={k}; expected 2 * k - 1 = "
            f"{2 * k - 1}, one for each relative position"
        )
    return rel.flip(0).unfold(0, k, 1).permute(0, 2, 1).flip(0)


def interpolate_linear(x: torch.Tensor, length: int) -> torch.Tensor:
    """Rows of ``x``, shape (N, C), resampled to ``length`` as ``F.interpolate`` resamples them.

    A product with a fixed matrix that holds PyTorch's own float32 coefficients. On CPU and CUDA
    it is taken in float64, so that TF32 and autocast do not touch it, and rounded once: every
    float32 product is exact there, and each row sums at most two, so no order of summation, no
    number of threads and no instruction set can change the result. MPS has no float64.
    """
    import torch

    dtype = torch.float32 if x.device.type == "mps" else torch.float64
    matrix = _matrix(x.shape[0], length, x.dtype == torch.float64, dtype, x.device)
    # autocast would round a float32 product to half precision; it passes float64 over
    full = nullcontext() if dtype == torch.float64 else torch.autocast(x.device.type, enabled=False)
    with full:
        return (matrix @ x.to(dtype)).to(x.dtype)


@functools.lru_cache(maxsize=64)  # CPSAM needs two per image size; 63 x 127 numbers are 64 kB
def _matrix(
    n_rows: int, length: int, double: bool, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """The interpolation as a matrix of shape (length, n_rows)."""
    import torch

    shares = coefficients(n_rows, length, np.float64 if double else np.float32)
    # made in inference mode, a cached tensor could never be trained with again
    with torch.inference_mode(False):
        return torch.from_numpy(shares).to(device, dtype)


def coefficients(n_rows: int, length: int, dtype: Any = np.float32) -> np.ndarray:
    """Give the share of each row in each resampled row: shape (length, n_rows), rows sum to 1.

    Computed in ``dtype`` as by PyTorch 2.15 (``ATen/native/UpSample.h``), which takes float64 for
    float64 tensors and float32 for all others.
    """
    number = np.dtype(dtype).type
    index = np.arange(length)
    if n_rows == length:
        return np.eye(length, dtype=number)
    scale = number(n_rows) / number(length)
    position = scale * (index.astype(number) + number(0.5)) - number(0.5)
    lower = np.minimum(position.astype(np.int64), n_rows - 1)  # -0.4 becomes 0
    upper_share = np.clip(position - lower.astype(number), number(0), number(1))
    matrix = np.zeros((length, n_rows), number)
    np.add.at(matrix, (index, lower), number(1) - upper_share)
    np.add.at(matrix, (index, np.minimum(lower + 1, n_rows - 1)), upper_share)
    return matrix


# -- the table -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Substitute:
    """A drop-in for one operation of one installed function."""

    name: str
    """Its name, as recorded with a run."""
    replaces: tuple[str, ...]
    """The operations that no longer run, as `base_name` gives them."""
    reason: str
    module: str
    attribute: str
    """The function of the module that is replaced."""
    source_digest: str
    """SHA-256 of that function's dedented source, as tested."""
    tested: str
    """The distribution that holds it, with its version."""
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Gives the installed function without the operation."""

    @property
    def file(self) -> str:
        """How the path of the function's file ends."""
        return f"/{self.module.replace('.', '/')}.py"


def _without_gather(function: Callable[..., Any]) -> Callable[..., Any]:
    def get_rel_pos(q_size: int, k_size: int, rel_pos: torch.Tensor) -> torch.Tensor:
        if q_size != k_size:  # rare; PyTorch's switch makes that gather deterministic
            return function(q_size, k_size, rel_pos)
        length = 2 * k_size - 1
        if rel_pos.shape[0] != length:  # its interpolation was left loose
            from torch.nn import functional

            rel_pos = functional.interpolate(rel_pos.T[None], size=length, mode="linear")[0].T
        return toeplitz_gather(rel_pos, k_size)

    return get_rel_pos


def _without_interpolation(function: Callable[..., Any]) -> Callable[..., Any]:
    def get_rel_pos(q_size: int, k_size: int, rel_pos: torch.Tensor) -> torch.Tensor:
        length = 2 * max(q_size, k_size) - 1
        if rel_pos.shape[0] != length:
            rel_pos = interpolate_linear(rel_pos, length)
        return function(q_size, k_size, rel_pos)  # which finds nothing left to interpolate

    return get_rel_pos


_GET_REL_POS = {
    "module": "segment_anything.modeling.image_encoder",
    "attribute": "get_rel_pos",
    "source_digest": "c8793beed55c9b8a7451388eb572ccc3e150db6653dd42687e578341afc31255",
    "tested": "segment-anything 1.0",
}

SUBSTITUTES: tuple[Substitute, ...] = (
    Substitute(
        name="rel-pos-gather",
        replaces=("index_put",),
        reason="its accumulation adds atomically, on a CPU with two or more threads and on CUDA",
        wrap=_without_gather,
        **_GET_REL_POS,
    ),
    Substitute(
        name="rel-pos-interpolation",
        replaces=("upsample_linear1d_backward",),
        reason="it adds atomically on CUDA, with no deterministic path (torch 2.15)",
        wrap=_without_interpolation,
        **_GET_REL_POS,
    ),
)
"""Every substitute; of those for one function, the first is the innermost."""


# -- applying them -------------------------------------------------------------------------


class _Placed(NamedTuple):
    """What stands in the place of installed functions."""

    substitutes: tuple[Substitute, ...] = ()
    functions: Mapping[tuple[str, str], Callable[..., Any]] = MappingProxyType({})
    """By module and attribute."""


_placed = _Placed()
_originals: dict[Any, Callable[..., Any]] = {}
"""What was put in place, and the function it stands for."""


def _place(placed: _Placed) -> None:
    global _placed
    _placed = placed
    for (module, attribute), function in placed.functions.items():
        setattr(sys.modules[module], attribute, function)


def _in_place() -> _Placed:
    """What is there now, whoever has put it there."""
    modules = {(each.module, each.attribute): sys.modules.get(each.module) for each in SUBSTITUTES}
    functions = {place: getattr(home, place[1]) for place, home in modules.items() if home}
    return _placed._replace(functions=functions)


_PLACES = GivenBack(_in_place, _place)


@contextmanager
def applied(*, without: Collection[str] = ()) -> Iterator[tuple[Substitute, ...]]:
    """Monkeypatch the substitutes in for one block, but for those of some operations.

    Of nested blocks the innermost holds. A module's function belongs to the whole process, so of
    blocks of several threads the one that began last does.
    """
    known = sorted({op for item in SUBSTITUTES for op in item.replaces})
    loose = {base_name(op) for op in without}
    if not loose <= set(known):
        raise BadInput(
            f"without is {without!r}; expected a set of operations that have a substitute: "
            f"{', '.join(known)}"
        )
    # Nothing to replace where the package is not installed.
    needed = [item for item in SUBSTITUTES if find_spec(item.module.partition(".")[0])]
    chosen = tuple(item for item in needed if not loose.intersection(item.replaces))
    # All functions are checked before the first is touched, those left loose too: an inner block
    # takes the outer one's substitutes back.
    originals = {(item.module, item.attribute): _original(item) for item in needed}
    functions = {}
    for place, original in originals.items():
        functions[place] = original
        for item in chosen:
            if (item.module, item.attribute) == place:
                functions[place] = item.wrap(functions[place])
    with _PLACES.after_block(), ExitStack() as stack:
        for place, original in originals.items():
            _originals[functions[place]] = original
            stack.callback(_originals.pop, functions[place], None)
        _place(_Placed(chosen, functions))
        yield chosen


def in_force() -> tuple[str, ...]:
    """The names of the substitutes now in place, for the record."""
    return tuple(item.name for item in _placed.substitutes)


def _original(item: Substitute) -> Callable[..., Any]:
    """The installed function, if it is the one that the substitute was tested against."""
    try:
        function = getattr(importlib.import_module(item.module), item.attribute)
        function = _originals.get(function, function)
        source = textwrap.dedent(inspect.getsource(function.__code__))  # a wrapper's own
    except (ImportError, AttributeError, OSError) as error:
        source = f"{error}"
    digest = hashlib.sha256(source.encode()).hexdigest()
    if digest != item.source_digest:
        raise NotPossibleHere(
            f"substitute {item.name!r} replaces {item.module}.{item.attribute} of {item.tested}, "
            "but what is there is not the code it was tested against: expected source digest "
            f"{item.source_digest[:12]}, found {digest[:12]}; install that version and undo what "
            "replaced it, or run in mode fast or warn, and report it"
        )
    return function


# -- which one serves an operation ---------------------------------------------------------

_THIS_FILE = (
    "/samebits/substitutes.py",
    "/cellrepro/determinism/substitutes.py",
    "/cellrepro/control/substitutes.py",
)
"""As ledgers name it; the other paths stand in stores written before the file moved."""


def for_operation(op: str, source: str | None) -> Substitute | None:
    """The substitute for an operation that was called, or its forward, at a ``FILE:LINE in NAME``.

    Also where it was left loose, so that the installed function itself was called.
    """
    file, function = _file_and_function(source)
    of_function = [item for item in SUBSTITUTES if item.attribute == function]
    fitting = [item for item in of_function if file.endswith((item.file, *_THIS_FILE))]
    return next((item for item in fitting if base_name(op) in item.replaces), None)


def stands_in(source: str | None) -> str | None:
    """``FILE in NAME`` of the function with substitutes, if a line is in it or in one of them."""
    file, function = _file_and_function(source)
    item = SUBSTITUTES[0]  # all present ones stand for one function
    is_its_own = file.endswith(item.file) and function == item.attribute
    is_of_it = is_its_own or file.endswith(_THIS_FILE)
    return f"{item.file[1:]} in {item.attribute}" if is_of_it else None


def _file_and_function(source: str | None) -> tuple[str, str]:
    """File, from ``/`` on, and function of a ``FILE:LINE in NAME``; empty for another text."""
    match = re.fullmatch(r"(.+):\d+ in (?:\S+\.)?([^\s.]+)", (source or "").replace("\\", "/"))
    return (f"/{match[1]}", match[2]) if match else ("", "")
