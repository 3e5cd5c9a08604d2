"""Portable forms of what Cellpose's training computes outside PyTorch: augmentation and diameters.

``cellpose.transforms.random_rotate_and_resize`` (4.2.1.1) takes sines and cosines from the system's
library and from NumPy, and a product of matrices and ``grid_sample`` from PyTorch. Here sines and
cosines are correctly rounded, positions are sums and products of single float64 numbers, and pixels
are interpolated by single operations of NumPy, each of which is rounded in one way.

The rest of ``cellpose/train.py`` (4.2.1.1) is portable already: the order of the images
(``permutation`` and ``choice`` of NumPy's generator of whole numbers; ``choice`` adds chances one
after the other), the schedule (``linspace``, halves), and sums of chances and diameters, whose
order in NumPy follows from their number (``loops_utils.h``, NumPy 1.9 to 2.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cellrepro.model.patching import replaced
from samebits import scalars
from samebits.errors import BadInput

_ROOT_OF_PI = math.sqrt(math.pi)  # a square root is correctly rounded everywhere; ``** 0.5`` is not
_RADIANS = math.pi / 180.0
_LABELS = 3
"""Channels of the target: cell or not, flows in y and x."""
_POINTS_AT_ONCE = 2**13


@contextmanager
def portable_training() -> Iterator[None]:
    """Replace Cellpose's augmentation and diameters by portable forms for one block.

    PyTorch's operations are left to `PortableArithmetic`, normalisation and flows to
    `portable_cellpose`.
    """
    import cellpose.train
    import cellpose.transforms
    import cellpose.utils

    with ExitStack() as stack:
        for home in (cellpose.train, cellpose.transforms):
            stack.enter_context(replaced(home, "random_rotate_and_resize", rotate_and_resize))
        stack.enter_context(replaced(cellpose.utils, "diameters", diameters))
        yield


def diameters(masks: NDArray[np.integer]) -> tuple[float, NDArray[np.float64]]:
    """The median diameter of cells, and what it is the median of, as ``cellpose.utils.diameters``.

    >>> median, roots = diameters(np.array([[0, 1, 1], [1, 0, 0], [1, 1, 0]]))
    >>> round(median, 3), roots.round(3).tolist()
    (2.523, [2.236])
    """
    _, areas = np.unique(masks.astype(np.int32), return_counts=True)
    roots = np.sqrt(areas[1:].astype(np.float64))
    if len(roots) == 0:
        return 0.0, roots
    ordered = np.sort(roots)
    middle = (ordered[(len(roots) - 1) // 2] + ordered[len(roots) // 2]) / 2.0
    return float(middle / (_ROOT_OF_PI / 2)), roots


# --- augmentation -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """How an image is resized, flipped, turned about its middle and moved, in this order."""

    scale: float
    degrees: float
    is_flipped: bool
    """Whether left and right change places."""
    moved: tuple[float, float]
    """Pixels by which the middle of the crop is moved, along the crop's X and Y."""

    @classmethod
    def drawn(
        cls, shape: tuple[int, int], crop: tuple[int, int], *, scale_range: float, size: float
    ) -> Turn:
        """Draw from NumPy's global generator what Cellpose draws, in its order."""
        scale = (1 - scale_range / 2) + scale_range * np.random.rand()
        scale *= 1.0 / size
        degrees = np.float32(360 * np.random.rand() - 180)
        room = [max(0.0, shape[axis] * scale - crop[axis]) for axis in range(2)]
        is_flipped = bool(np.random.rand() > 0.5)
        rooms = np.array(room).astype(np.float32)
        shares = np.random.rand(2).astype(np.float32)
        # Cellpose gives the room along Y to X, and that along X to Y
        moved = rooms * shares - rooms * np.float32(0.5)
        return cls(float(scale), float(degrees), is_flipped, (float(moved[0]), float(moved[1])))

    @property
    def sine(self) -> float:
        """Sine of the angle, correctly rounded."""
        return scalars.sin(self.degrees * _RADIANS)

    @property
    def cosine(self) -> float:
        """Cosine of the angle, correctly rounded."""
        return scalars.cos(self.degrees * _RADIANS)

    def positions(self, shape: tuple[int, int], crop: tuple[int, int]) -> list[NDArray[np.float32]]:
        """Where each pixel of the crop lies in the image: along Y, along X."""
        along = self.cosine / self.scale
        across = self.sine / self.scale
        x = np.arange(crop[1]) - (crop[1] - 1) / 2
        y = (np.arange(crop[0]) - (crop[0] - 1) / 2)[:, None]
        moved_x, moved_y = self.moved
        begin_y = (across * moved_x - along * moved_y) + (shape[0] - 1) / 2
        begin_x = (-along * moved_x - across * moved_y) + (shape[1] - 1) / 2
        in_y = (x * -across + y * along) + begin_y
        in_x = (x * along + y * across) + begin_x
        return [in_y.astype(np.float32), in_x.astype(np.float32)]


def rotate_and_resize(
    imgs: Sequence[NDArray[np.float32]],
    lbls: Sequence[NDArray[np.float32]] | None = None,
    scale_range: float = 1.0,
    bsize: int | tuple[int, int] = 256,
    rescale: NDArray[np.float64] | None = None,
    device: torch.device | str = "cpu",
) -> tuple[torch.Tensor, torch.Tensor | None, NDArray[np.float32]]:
    """Crop, turn, flip and resize images, as Cellpose's function of these arguments does.

    Pixels differ from Cellpose's by what its float32 positions are wrong, about 1e-7 of the
    image's width, times the slope of the image there.
    """
    if scale_range is None:
        raise BadInput("scale_range is None; expected a number from 0 to 2, as in train_seg")
    kept_range = max(0.0, min(2.0, float(scale_range)))
    crop = (bsize, bsize) if isinstance(bsize, int) else (bsize[0], bsize[1])
    n_channels = imgs[0].shape[0]
    n_labels = 0 if lbls is None else _LABELS
    shown = np.empty((len(imgs), n_channels + n_labels, *crop), np.float32)
    scales = np.ones(len(imgs), np.float32)
    for index, image in enumerate(imgs):
        shape = (image.shape[-2], image.shape[-1])
        size = 1.0 if rescale is None else float(rescale[index])
        turn = Turn.drawn(shape, crop, scale_range=kept_range, size=size)
        scales[index] = turn.scale
        arrays = [image] if lbls is None else [image, lbls[index][-_LABELS:]]
        _show(arrays, turn, into=shown[index])
        if lbls is not None:
            _turn_flows(shown[index, -2:], turn)
    images = torch.from_numpy(shown[:, :n_channels].copy()).to(device)
    if lbls is None:
        return images, None, scales
    return images, torch.from_numpy(shown[:, n_channels:].copy()).to(device), scales


def _show(arrays: Sequence[NDArray[np.float32]], turn: Turn, *, into: NDArray[np.float32]) -> None:
    """Crop the channels of some arrays into one, shape (channels, *crop).

    A channel of ones becomes the share of each pixel that lies within the image; as in torchvision,
    pixels are multiplied by it, so that they fade to 0 at the border.
    """
    height, width = arrays[0].shape[-2:]
    crop = (into.shape[-2], into.shape[-1])
    framed = np.zeros((len(into) + 1, height + 2, width + 2), np.float32)
    inside = framed[:, 1:-1, 1:-1]
    np.concatenate(arrays, out=inside[:-1])
    inside[-1] = 1.0
    if turn.is_flipped:
        inside[:] = inside[..., ::-1].copy()
    rows, columns = turn.positions((height, width), crop)
    n_rows = max(1, _POINTS_AT_ONCE // crop[1])  # so that all of them stay in the cache
    for begin in range(0, crop[0], n_rows):
        part = slice(begin, begin + n_rows)
        sampled = _sampled(framed, rows[part], columns[part])
        np.multiply(sampled[:-1], sampled[-1], out=into[:, part])


def _sampled(
    framed: NDArray[np.float32], rows: NDArray[np.float32], columns: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Interpolate arrays with a frame of zeros, at positions counted from inside the frame."""
    height, width = framed.shape[-2:]
    flat = framed.reshape(len(framed), -1)
    upper = np.floor(rows)
    left = np.floor(columns)
    share_below = rows - upper
    share_right = columns - left
    one = np.float32(1)
    total: NDArray[np.float32] | None = None
    for row, of_row in ((upper, one - share_below), (upper + one, share_below)):
        first = np.clip(row + one, 0, height - 1).astype(np.int64) * width
        for column, of_column in ((left, one - share_right), (left + one, share_right)):
            index = first + np.clip(column + one, 0, width - 1).astype(np.int64)
            values = flat.take(index, axis=1, mode="clip")
            values *= of_row * of_column
            total = values if total is None else np.add(total, values, out=total)
    assert total is not None
    return total


def _turn_flows(flows: NDArray[np.float32], turn: Turn) -> None:
    """Let flows, in y and x, point where they pointed before the image was flipped and turned."""
    flow_y, flow_x = flows.copy()
    if turn.is_flipped:
        flow_x = -flow_x
    sine = np.float32(turn.sine)
    cosine = np.float32(turn.cosine)
    flows[0] = flow_x * sine + flow_y * cosine
    flows[1] = flow_x * cosine - flow_y * sine
