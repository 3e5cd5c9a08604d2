"""Drop-ins for single operations whose result depends on how threads interleave.

A substitute computes what an installed function computes, from operations that add in a fixed
order. `applied` puts the substitutes in the place of the function for one block, without editing
a file, and refuses if the function is not the one that they were tested against.

Both present ones serve ``get_rel_pos`` of segment-anything 1.0, which every attention block of
Cellpose's network calls twice:

- its gather, whose backward is ``index_put(accumulate=True)``: atomic adds on a CPU with two or
  more threads and on CUDA, unless PyTorch's deterministic switch is on;
- its linear interpolation, whose backward on CUDA adds atomically and has no deterministic path
  (torch 2.15).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput, NotPossibleHere

if TYPE_CHECKING:
    import torch

# -- the functions -------------------------------------------------------------------------


def toeplitz_gather(rel: torch.Tensor, k: int) -> torch.Tensor:
    """The rows ``rel[i - j + k - 1]`` for every query i and key j of a square attention.

    Neighbouring queries see the same rows, one further: windows of a view, whose backward adds
    in a fixed order. Equal to the gather bit for bit, NaN and the sign of zero included.

    Parameters
    ----------
    rel : Tensor of any dtype, shape (2 * k - 1, C)
        One row per relative position, from the most negative on.
    k : int
        Positions along one axis, of queries and of keys.

    Returns
    -------
    Tensor, shape (k, k, C)
    """
    if rel.shape[0] != 2 * k - 1:
        raise BadInput(
            f"toeplitz_gather was given {rel.shape[0]} rows for k={k}; expected 2 * k - 1 = "
            f"{2 * k - 1}, one for each relative position"
        )
    return rel.flip(0).unfold(0, k, 1).permute(0, 2, 1).flip(0)


def interpolate_linear(x: torch.Tensor, length: int) -> torch.Tensor:
    """Rows of ``x`` resampled to ``length``, as ``F.interpolate(mode="linear")`` resamples them.

    A product with a fixed matrix that holds PyTorch's own float32 coefficients. On CPU and CUDA
    it is taken in float64, so that TF32 and autocast do not touch it, and rounded once: every
    float32 product is exact there, and each row sums at most two, so no order of summation, no
    number of threads and no instruction set can change the result. MPS has no float64.

    A row that is not finite makes its whole column NaN; ``F.interpolate`` spreads it to the
    rows beside it only. Negative zero may come out as zero.

    Parameters
    ----------
    x : Tensor of a floating dtype, shape (N, C)
    length : int
        Rows wanted.

    Returns
    -------
    Tensor of the dtype of ``x``, shape (length, C)

    Examples
    --------
    >>> import torch
    >>> interpolate_linear(torch.tensor([[0.0], [1.0]]), 4)[:, 0]
    tensor([0.0000, 0.2500, 0.7500, 1.0000])
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

    held = coefficients(n_rows, length, np.float64 if double else np.float32)
    # made in inference mode, a cached tensor could never be trained with again
    with torch.inference_mode(False):
        return torch.from_numpy(held).to(device, dtype)


def coefficients(n_rows: int, length: int, dtype: Any = np.float32) -> np.ndarray:
    """What each row contributes to each resampled row: shape (length, n_rows), rows sum to 1.

    Positions and coefficients are computed in ``dtype``: PyTorch takes float64 for float64 tensors
    and float32 for all others (2.15, ``ATen/native/UpSample.h``,
    ``area_pixel_compute_source_index`` and ``compute_source_index_and_lambda``).

    Examples
    --------
    >>> coefficients(2, 3)
    array([[1. , 0. ],
           [0.5, 0.5],
           [0. , 1. ]], dtype=float32)
    """
    number = np.dtype(dtype).type
    wanted = np.arange(length)
    if n_rows == length:
        return np.eye(length, dtype=number)
    scale = number(n_rows) / number(length)
    position = scale * (wanted.astype(number) + number(0.5)) - number(0.5)
    lower = np.minimum(position.astype(np.int64), n_rows - 1)  # -0.4 becomes 0
    upper_share = np.clip(position - lower.astype(number), number(0), number(1))
    matrix = np.zeros((length, n_rows), number)
    np.add.at(matrix, (wanted, lower), number(1) - upper_share)
    np.add.at(matrix, (wanted, np.minimum(lower + 1, n_rows - 1)), upper_share)
    return matrix


# -- the table -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Substitute:
    """A drop-in for one operation of one installed function."""

    name: str
    """As recorded with a run."""
    replaces: tuple[str, ...]
    """The operations that no longer run, in the form of `known_operations.base_name`."""
    reason: str
    """Why the operation is not reproducible."""
    module: str
    attribute: str
    """With the module the function that is replaced."""
    source_digest: str
    """SHA-256 of that function's dedented source, as tested."""
    distribution: str
    version: str
    """The package that holds it, as tested."""
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Takes the function and returns one that does without the operation. Wraps of one target go
    around each other in the order of `SUBSTITUTES`."""


def _without_gather(function: Callable[..., Any]) -> Callable[..., Any]:
    def get_rel_pos(q_size: int, k_size: int, rel_pos: torch.Tensor) -> torch.Tensor:
        if q_size != k_size:  # never in Cellpose; PyTorch's switch makes that gather deterministic
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
    "distribution": "segment-anything",
    "version": "1.0",
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
"""Every substitute; of those with one target, the first is the innermost."""


# -- applying them -------------------------------------------------------------------------

_OURS = ("/cellrepro/determinism/substitutes.py", "/cellrepro/control/substitutes.py")
"""This file, as ledgers name it; the second in stores written before it moved."""

_in_force: list[tuple[Substitute, ...]] = []
_ours: dict[int, tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""By identity, what was put in place and the function it stands for."""


@contextmanager
def applied(*, without: Collection[str] = ()) -> Iterator[tuple[Substitute, ...]]:
    """Put the substitutes in place for one block; yields those in force.

    None are where the package they replace code of is not installed. Of nested blocks the innermost
    holds, with its own ``without``. A module's function belongs to the whole process: enter and
    leave blocks from one thread, and let no other thread run the network meanwhile that should
    run it unchanged. Child processes start without substitutes unless they are forked inside.

    Parameters
    ----------
    without : collection of str
        Operations left as they are, for example ``{"index_put"}``.

    Raises
    ------
    NotPossibleHere
        If a function to replace is not the one they were tested against, or if something else
        has replaced it already. Nothing is changed then.

    Examples
    --------
    >>> with applied(without={"index_put"}):
    ...     in_force()
    ('rel-pos-interpolation',)
    >>> in_force()
    ()
    """
    chosen = tuple(item for item in _chosen(without) if _installed(item.module))
    before: list[tuple[ModuleType, str, Callable[..., Any]]] = []
    replacements: dict[tuple[str, str], Callable[..., Any]] = {}
    # all targets are checked before the first is touched, those of the operations left loose too:
    # an inner block takes the outer one's substitutes back
    for item in SUBSTITUTES:
        target = (item.module, item.attribute)
        if not _installed(item.module):
            continue
        if target not in replacements:
            replacements[target] = _original(item)
        if item in chosen:
            replacements[target] = item.wrap(replacements[target])
    try:
        for (name, attribute), replacement in replacements.items():
            module = sys.modules[name]
            present = getattr(module, attribute)
            before.append((module, attribute, present))
            original = _stands_for(present)
            if replacement is not original:
                _ours[id(replacement)] = (replacement, original)
            setattr(module, attribute, replacement)
        _in_force.append(chosen)
        try:
            yield chosen
        finally:
            _in_force.pop()
    finally:
        for module, attribute, present in reversed(before):
            _ours.pop(id(replacements[module.__name__, attribute]), None)
            setattr(module, attribute, present)


def in_force() -> tuple[str, ...]:
    """The names of the substitutes now in place, for the record."""
    return tuple(item.name for item in _in_force[-1]) if _in_force else ()


def for_operation(op: str, source: str | None) -> Substitute | None:
    """The substitute for an operation that was called, or whose forward was, at ``source``.

    Parameters
    ----------
    op : str
        In any form that `base_name` takes.
    source : str or None
        ``FILE:LINE in FUNCTION``.

    Examples
    --------
    >>> place = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"
    >>> for_operation("aten.index_put.default", place).name
    'rel-pos-gather'
    """
    file, function = _file_and_function(source)
    for item in SUBSTITUTES:
        here = file.endswith((_file(item.module), *_OURS))  # ours: one is left loose
        if here and function == item.attribute and base_name(op) in item.replaces:
            return item
    return None


def stands_in(source: str | None) -> str | None:
    """The function that has substitutes and to which a line belongs: ``FILE in FUNCTION``.

    Its own lines and those that stand for it here; None for any other line.

    Examples
    --------
    >>> stands_in("cellrepro/determinism/substitutes.py:73 in toeplitz_gather")
    'segment_anything/modeling/image_encoder.py in get_rel_pos'
    """
    file, function = _file_and_function(source)
    for item in SUBSTITUTES:
        # All present ones stand for one function, so any line of ours belongs to it.
        there = file.endswith(_file(item.module)) and function == item.attribute
        if there or file.endswith(_OURS):
            return f"{_file(item.module)[1:]} in {item.attribute}"
    return None


def _file_and_function(source: str | None) -> tuple[str, str]:
    """Of ``FILE:LINE in FUNCTION``, the file from ``/`` on; empty where it is nothing such."""
    place = re.fullmatch(r"(?P<file>.+):\d+ in (?P<function>\S+)", source or "")
    if place is None:
        return "", ""
    return f"/{place['file']}".replace("\\", "/"), place["function"].rpartition(".")[2]


def _file(module: str) -> str:
    return f"/{module.replace('.', '/')}.py"


def _chosen(without: Collection[str]) -> Iterator[Substitute]:
    known = sorted({op for item in SUBSTITUTES for op in item.replaces})
    loose = set() if isinstance(without, str) else {base_name(op) for op in without}
    if isinstance(without, str) or not loose <= set(known):
        raise BadInput(
            f"without is {without!r}; expected a set of operations that have a substitute: "
            f"{', '.join(known)}"
        )
    return (item for item in SUBSTITUTES if not loose.intersection(item.replaces))


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def _stands_for(function: Any) -> Any:
    """The function that one of ours was put in place of; any other, as it is."""
    ours, original = _ours.get(id(function), (None, None))
    return original if ours is function and ours is not None else function


def _original(item: Substitute) -> Callable[..., Any]:
    """The installed function, if it is the one that the substitute was tested against."""
    try:
        installed = f"{item.distribution} {importlib.metadata.version(item.distribution)}"
    except importlib.metadata.PackageNotFoundError:
        installed = f"{item.distribution} (no version found)"
    replaces = f"substitute {item.name!r} replaces {item.module}.{item.attribute} of {installed}"
    remedy = (
        f"install {item.distribution} {item.version}, or run in mode fast or warn or without "
        "substitutes, and report it to cellrepro"
    )
    try:
        module = importlib.import_module(item.module)
        function = _stands_for(getattr(module, item.attribute))
    except (ImportError, AttributeError) as error:
        raise NotPossibleHere(f"{replaces}, which is not there ({error}); {remedy}") from error
    if not _belongs(function, module):
        other = (
            f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', function)}"
        )
        raise NotPossibleHere(
            f"{replaces}, but something else has replaced it already, by {other}; undo that, or "
            "run in mode fast or warn or without substitutes"
        )
    digest = _digest(function)
    if digest != item.source_digest:
        raise NotPossibleHere(
            f"{replaces} in {module.__file__}, but that is not the code it was tested against: "
            f"expected source digest {item.source_digest[:12]}, found "
            f"{digest[:12] if digest else 'no source to read'}; {remedy}"
        )
    return function


def _digest(function: Callable[..., Any]) -> str | None:
    """SHA-256 of a function's dedented source; none where the source is not at hand."""
    try:
        source = inspect.getsource(function)
    except OSError:
        return None
    return hashlib.sha256(textwrap.dedent(source).encode()).hexdigest()


def _belongs(function: Any, module: ModuleType) -> bool:
    """Whether a function was defined by this module, at its top."""
    return (
        isinstance(function, FunctionType)
        and function.__globals__ is vars(module)
        and not hasattr(function, "__wrapped__")
    )
