"""A Python function as a segmenter; its key holds its file and what that imports from beside it."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from cellrepro.images.folder import LabelledImage
from cellrepro.model.weight_sources import ModelSource
from cellrepro.process.child import NeedOfCellpose
from cellrepro.process.process_ends import ended_with
from cellrepro.run.imported_files import ScriptContent
from cellrepro.run.options import WrapOptions
from cellrepro.run.plan import Plan
from cellrepro.run.plan_sources import PlanInputs
from cellrepro.run.segmenter import WrappedRequest, plan_wrapped
from samebits.errors import BadInput

T = TypeVar("T")
_WHOLE_UP_TO = 2**53  # beyond it a float64 cannot hold every integer


def plan_function(options: WrapOptions, function: str, *, inputs: PlanInputs | None = None) -> Plan:
    """Plan runs of a function, which is not imported for it."""
    content = ScriptContent.of(_file_of(function))
    source = ModelSource(function.rpartition("/")[2], "function", digest=content.digest())
    return plan_wrapped(options, source, (function,), inputs=inputs, request_type=FunctionRequest)


@dataclass(frozen=True)
class FunctionRequest(WrappedRequest):
    """A request to run a Python function instead of Cellpose's network."""

    @property
    def cellpose(self) -> NeedOfCellpose:
        """Whether the child process imports Cellpose."""
        return "welcome"

    def segmenter(self, staged: Path) -> Callable[[LabelledImage], np.ndarray]:
        """The function, imported; it takes the pixels of each image."""
        assert self.spec.program is not None
        (reference,) = self.spec.program
        label = f"{self.model.label}, when imported,"
        function = _tried(label, lambda: load_function(reference))
        self.setup.seed_all()  # random numbers that its import drew change nothing

        def masks_of(image: LabelledImage) -> np.ndarray:
            label = self.label_on(image)
            returned = _tried(label, lambda: function(image.image.copy()))
            masks = _tried(label, lambda: _array_of(returned, label))
            return _without_axis_of_one(masks, n_axes=3 if image.stack else 2)

        return masks_of


def _array_of(returned: object, label: str) -> np.ndarray:
    """Convert what a function returned to an array, of integers where all numbers are whole."""
    if returned is None or isinstance(returned, tuple | dict):
        several = "" if returned is None else f" of {len(returned)}"
        raise BadInput(
            f"{label} returned {type(returned).__name__}{several}; return the label image alone, "
            "such as the masks of (masks, flows, styles)"
        )
    masks = np.asarray(returned)
    if masks.dtype.kind == "f" and np.abs(masks).max(initial=0) < _WHOLE_UP_TO:  # NaN is not
        whole = masks.astype(np.int64)
        return whole if np.array_equal(whole, masks) else masks
    return masks


def _without_axis_of_one(masks: np.ndarray, *, n_axes: int) -> np.ndarray:
    """Remove the one axis too many that a batch or a channel of size 1 leaves."""
    if masks.ndim == n_axes + 1 and 1 in (masks.shape[0], masks.shape[-1]):
        return masks[0] if masks.shape[0] == 1 else masks[..., 0]
    return masks


def _tried(label: str, work: Callable[[], T]) -> T:
    """Run foreign code; an error of it names its file and line."""
    try:
        return work()
    except BadInput:
        raise
    except SystemExit as error:
        raise BadInput(
            f"{label} ended itself with code {error.code!r} (sys.exit); have it return its masks, "
            "or raise an error that says what is wrong"
        ) from error
    except Exception as error:
        ending = ended_with(repr(error), label=label)
        if ending.status != "failed":
            raise ending from error
        last_frame = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{last_frame.filename}:{last_frame.lineno}"
        raise BadInput(f"{label} failed with {error!r}, in {line}") from error


def load_function(reference: str) -> Callable[[np.ndarray], object]:
    """Import the function that ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION`` names.

    Its folder (of a module: the current one) comes first on ``sys.path`` while it is imported and
    at each call.
    """
    file = _file_of(reference)
    module_or_file, name = _parts_of(reference)
    is_by_file = module_or_file.endswith(".py")
    folder = file.parent if is_by_file else Path.cwd()
    with _importing_from(folder):
        module = importlib.import_module(file.stem if is_by_file else module_or_file)
    function = getattr(module, name, None)
    if not callable(function) or not file.samefile(str(module.__file__)):
        raise BadInput(
            f"{module.__file__} was imported for {reference!r} and has no function {name!r} of "
            f"{file}; give the function's name, and the file one that no other module has"
        )

    @functools.wraps(function)
    def importing_function(image: np.ndarray) -> object:
        with _importing_from(folder):
            return function(image)

    return importing_function


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Put a folder first on ``sys.path`` for one block."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with suppress(ValueError):  # the foreign code has removed it itself
            sys.path.remove(entry)


class _Parts(NamedTuple):
    """The parts of a reference to a function."""

    module_or_file: str
    name: str


def _parts_of(reference: str) -> _Parts:
    module_or_file, _, name = reference.rpartition(":")
    return _Parts(module_or_file, name)


def _file_of(reference: str) -> Path:
    """Find the file of a function without an import."""
    module_or_file, name = _parts_of(reference)
    if module_or_file.endswith(".py"):
        candidates = [module_or_file]
    else:
        inside = module_or_file.replace(".", "/")
        candidates = [
            f"{root}/{inside}{ending}"
            for root in (Path.cwd(), *sys.path)
            for ending in (".py", "/__init__.py")
        ]
    for path in candidates:
        if name.isidentifier() and Path(path).is_file():
            return Path(path).absolute()
    raise BadInput(
        f"{reference!r} names no function; expected MODULE:FUNCTION, the module in this folder or "
        "installed, or FILE.py:FUNCTION, a file that exists"
    )
