"""Portable forms in the place of those functions of Cellpose whose bits depend on the machine.

What is left of Cellpose 4.2.1.1 is portable as it is. NumPy carries out additions, products,
quotients, square roots, comparisons and roundings one by one, and IEEE 754 rounds each in one way:
so the averages of tiles, thresholds, ``lowhigh``, inversion, sums of planes in 3-D. Whole numbers
are exact: places of tiles, centres of masks, sizes, overlaps of planes (``stitch_threshold``).
``mean`` over planes, for ``tile_norm_blocksize`` with ``norm3D``, adds one plane after the other.
PyTorch's operations, those of the network and of ``get_masks_torch``, are `PortableArithmetic`'s.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cellrepro.errors import NotPossibleHere
from cellrepro.model import (
    portable_dynamics,
    portable_filters,
    portable_flows,
    portable_percentiles,
    portable_picture,
    portable_resizing,
    portable_tiles,
)
from cellrepro.model.cellpose_generation import installed_version
from cellrepro.model.network import import_cellpose
from cellrepro.model.patching import replaced
from cellrepro.torch_internals import modes_suspended_if_any

_VERSION = "4.2"
"""Of Cellpose, whose functions are replaced: 4.2.0, 4.2.1 and 4.2.1.1 were read."""


class Replacement(NamedTuple):
    """A function that Cellpose calls, and what stands in its place."""

    module: str
    """Of Cellpose."""
    name: str
    """Under which the module has the function."""
    stand_in: object
    """With the same parameters."""


REPLACEMENTS = (
    Replacement("cellpose.transforms", "_taper_mask", portable_tiles.taper_mask),
    Replacement("cellpose.transforms", "smooth_sharpen_img", portable_filters.smooth_sharpen_img),
    Replacement("cellpose.transforms", "gaussian_filter1d", portable_filters.gaussian_filter1d),
    Replacement("cellpose.models", "gaussian_filter", portable_filters.gaussian_filter),
    Replacement("cellpose.dynamics", "steps_interp", portable_dynamics.follow_flows),
    Replacement("cellpose.dynamics", "masks_to_flows_gpu", portable_flows.masks_to_flows),
    Replacement("cellpose.dynamics", "flow_error", portable_flows.flow_error),
    Replacement("cellpose.plot", "dx_to_circ", portable_picture.dx_to_circ),
)
"""Functions that are replaced as they are; of OpenCV and NumPy ``transforms`` gets what differs."""


@contextmanager
def portable_cellpose() -> Iterator[None]:
    """Put portable forms in the place of Cellpose's functions for one block.

    Together with ``PortableArithmetic()`` it gives ``CellposeModel.eval`` the same bits on every
    machine with IEEE 754 arithmetic, for every argument.
    """
    _refuse_other_versions()
    with modes_suspended_if_any():  # its import calls operations of torchvision
        import_cellpose()
    transforms = importlib.import_module("cellpose.transforms")
    dynamics = importlib.import_module("cellpose.dynamics")
    normalize_img = functools.partial(_normalize_img, transforms.normalize_img)
    own = (
        *REPLACEMENTS,
        Replacement("cellpose.transforms", "normalize_img", normalize_img),
    )
    with ExitStack() as stack:
        for replacement in own:
            module = importlib.import_module(replacement.module)
            stack.enter_context(replaced(module, replacement.name, replacement.stand_in))
        opencv = _ModuleWith(transforms.cv2, resize=portable_resizing.resize)
        numpy = _ModuleWith(transforms.np, percentile=portable_percentiles.percentile)
        stack.enter_context(replaced(transforms, "cv2", opencv))
        stack.enter_context(replaced(transforms, "np", numpy))
        torch = _ModuleWith(dynamics.torch, sparse_coo_tensor=portable_dynamics.Histogram)
        stack.enter_context(replaced(dynamics, "torch", torch))
        yield


class _ModuleWith:
    """A module as it is, but for some of its functions."""

    def __init__(self, module: ModuleType, **functions: object) -> None:
        self._module = module
        self._functions = functions

    def __getattr__(self, name: str) -> object:
        if name in self._functions:
            return self._functions[name]
        return getattr(self._module, name)


class _Normalisation(Protocol):
    """Cellpose's ``normalize_img``."""

    def __call__(
        self, img: NDArray[np.float32], *, lowhigh: NDArray[np.float32] | None, **options: object
    ) -> NDArray[np.float32]: ...


def _normalize_img(
    normalize_img: _Normalisation,
    img: NDArray[np.float32],
    lowhigh: Sequence[float] | Sequence[Sequence[float]] | None = None,
    **options: object,
) -> NDArray[np.float32]:
    """Normalise an image, with limits in the type of its pixels.

    Cellpose subtracts them from float32 pixels: in float64 with NumPy 2, in float32 with NumPy 1.
    """
    limits = None if lowhigh is None else np.asarray(lowhigh, dtype=np.float32)
    return normalize_img(img, lowhigh=limits, **options)


def _refuse_other_versions() -> None:
    version = installed_version()
    if version is None or not version.startswith(_VERSION):
        raise NotPossibleHere(
            f"Cellpose {version or '(none)'} is installed, and mode portable has portable forms of "
            f"the functions of Cellpose {_VERSION} only: `cellrepro setup FOLDER` makes a lab with "
            "it in an environment of its own; or use mode strict, which holds on one machine"
        )
