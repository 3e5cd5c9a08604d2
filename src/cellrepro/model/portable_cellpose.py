"""Portable forms in the place of those functions of Cellpose whose bits depend on the machine.

What is left of Cellpose 4.2.1.1 is portable as it is. NumPy carries out additions, products,
quotients, square roots, comparisons and roundings one by one, and IEEE 754 rounds each in one way:
so the averages of tiles, thresholds, ``lowhigh``, inversion, sums of planes in 3-D. Whole numbers
are exact: places of tiles, centres of masks, sizes, overlaps of planes (``stitch_threshold``).
``mean`` over planes, for ``tile_norm_blocksize`` with ``norm3D``, adds one plane after the other.
PyTorch's operations, those of the network and of ``get_masks_torch``, are `PortableArithmetic`'s.

The functions of a few lines stand below, the others in files of their own.
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

from cellrepro.model.cellpose_generation import TRAINED_WITH, installed_version
from cellrepro.model.network import import_cellpose
from cellrepro.model.patching import replaced
from cellrepro.model.portable_dynamics import Histogram, follow_flows
from cellrepro.model.portable_flows import flow_error, masks_to_flows
from cellrepro.model.portable_normalisation import (
    exponentials,
    gaussian_filter,
    gaussian_filter1d,
    percentile,
    smooth_sharpen_img,
)
from cellrepro.model.portable_resizing import resize
from samebits import one_slice
from samebits.errors import NotPossibleHere
from samebits.torch_internals import modes_suspended_if_any
from samebits.words import joined

_LEAST_TILE = 224
"""Pixels: the weights of a smaller tile are the middle of these."""
_TILE_EDGE = 20
"""Pixels from the edge of a tile, where its weight is one half."""
_DIRECTIONS = ((1.0, 0.0), (-0.5, 0.8660254037844386), (-0.5, -0.8660254037844386))
"""Cosine and sine of the directions that are red, green and blue: 0, 120 and 240 degrees."""


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
    with ExitStack() as stack:
        stack.enter_context(replaced(transforms, "normalize_img", normalize_img))
        for replacement in REPLACEMENTS:
            module = importlib.import_module(replacement.module)
            stack.enter_context(replaced(module, replacement.name, replacement.stand_in))
        # These functions are replaced for one module of Cellpose alone, not where they are defined.
        opencv = _ModuleWith(transforms.cv2, resize=resize)
        numpy = _ModuleWith(transforms.np, percentile=percentile)
        stack.enter_context(replaced(transforms, "cv2", opencv))
        stack.enter_context(replaced(transforms, "np", numpy))
        torch = _ModuleWith(dynamics.torch, sparse_coo_tensor=Histogram)
        stack.enter_context(replaced(dynamics, "torch", torch))
        stack.enter_context(one_slice())  # as in all bits that were published
        yield


class _ModuleWith:
    """A module with some of its functions replaced."""

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
    if version not in TRAINED_WITH:
        raise NotPossibleHere(
            f"Cellpose {version or '(none)'} is installed, and mode portable has portable forms of "
            f"the functions of Cellpose {joined(TRAINED_WITH)} only: `cellrepro setup FOLDER` "
            "makes a lab with one of them in an environment of its own; or use mode strict, which "
            "holds on one machine"
        )


# --- functions of a few lines -----------------------------------------------------------------


@functools.lru_cache(maxsize=32)
def taper_mask(ly: int = 224, lx: int = 224, sig: float = 7.5) -> NDArray[np.float64]:
    """The weight of each pixel of a tile, as ``cellpose.transforms._taper_mask`` gives it."""
    size = max(_LEAST_TILE, ly, lx)
    from_middle = np.abs(np.arange(size) - (size - 1) / 2)
    along_axis = 1 / (1 + exponentials((from_middle - (size / 2 - _TILE_EDGE)) / sig))
    weights = along_axis * along_axis[:, np.newaxis]
    top = size // 2 - ly // 2
    left = size // 2 - lx // 2
    weights = weights[top : top + ly, left : left + lx]
    weights.flags.writeable = False
    return weights


def dx_to_circ(flows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Colour flows by their direction, as ``cellpose.plot.dx_to_circ`` does.

    The cosine of an angle between two directions is their product: no arc tangent is needed.
    """
    from cellpose.transforms import normalize99

    squares = [flow * flow for flow in flows]
    total = squares[0].copy()
    for square in squares[1:]:
        total += square
    brightness = 255 * np.clip(normalize99(np.sqrt(total), downsample=True), 0, 1.0)
    brightness /= 2
    length = np.sqrt(squares[0] + squares[1])
    has_direction = length > 0
    length[~has_direction] = 1
    picture = np.zeros((*flows.shape[1:], 3), "uint8")
    for colour, (cosine, sine) in enumerate(_DIRECTIONS):
        along = flows[0] * np.float32(cosine) - flows[1] * np.float32(sine)
        # Cellpose turns all directions by half a circle, and counts none as the first
        of_angle = np.where(has_direction, -(along / length), np.float32(-cosine))
        shade = brightness * (of_angle + 1)
        picture[..., colour] = np.clip(shade, 0, 255).astype("uint8")
    return picture


# --- what replaces what ------------------------------------------------------------------------


class Replacement(NamedTuple):
    """A function of Cellpose, by the module that looks it up, and what stands in its place."""

    module: str
    name: str
    stand_in: object
    """Has the same parameters."""


REPLACEMENTS = (
    Replacement("cellpose.transforms", "_taper_mask", taper_mask),
    Replacement("cellpose.transforms", "smooth_sharpen_img", smooth_sharpen_img),
    Replacement("cellpose.transforms", "gaussian_filter1d", gaussian_filter1d),
    Replacement("cellpose.models", "gaussian_filter", gaussian_filter),
    Replacement("cellpose.dynamics", "steps_interp", follow_flows),
    Replacement("cellpose.dynamics", "masks_to_flows_gpu", masks_to_flows),
    Replacement("cellpose.dynamics", "flow_error", flow_error),
    Replacement("cellpose.plot", "dx_to_circ", dx_to_circ),
)
