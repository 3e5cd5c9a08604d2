"""Images resampled between their pixels, by products and sums of single numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from samebits.arithmetic.kernels.products import product
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.memory import slices

FORMS = PortableForms()

_NUMBERS_OF_A_POINT = 8
"""What is computed of each point, beside the channels there."""
_BILINEAR = 0
_ZEROS = 0
"""How PyTorch writes the mode and the padding of ``grid_sample``."""


# -- resizing ------------------------------------------------------------------------------


@FORMS.of("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def _upsample_linear(
    a: torch.Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
) -> torch.Tensor:
    check_float32(a)
    values = a
    for axis, length in enumerate(output_size):
        matrix = _matrix(values.shape[axis + 2], length, align_corners, _scale(scales, axis))
        values = _multiplied(values, axis + 2, matrix.to(a.device))
    return values


@FORMS.of(
    "upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward"
)
def _upsample_linear_backward(
    gradient: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> torch.Tensor:
    del output_size  # that of the gradient
    check_float32(gradient)
    values = gradient
    for axis, length in enumerate(input_size[2:]):
        matrix = _matrix(length, values.shape[axis + 2], align_corners, _scale(scales, axis))
        values = _multiplied(values, axis + 2, matrix.T.to(gradient.device))
    return values


def _scale(scales: Sequence[float | None], axis: int) -> float | None:
    return scales[axis] if axis < len(scales) else None


def _multiplied(values: torch.Tensor, axis: int, matrix: torch.Tensor) -> torch.Tensor:
    """Each row along an axis multiplied by a matrix."""
    rows = values.movedim(axis, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    result = product(flat, matrix.T)
    return result.reshape(*rows.shape[:-1], matrix.shape[0]).movedim(-1, axis).contiguous()


def _matrix(n_rows: int, length: int, align_corners: bool, scale: float | None) -> torch.Tensor:
    """The share of each row in each resampled one: float32, shape (length, n_rows).

    Positions are computed in float64 and rounded to float32 as shares, so that the shares of a row
    sum to 1 within one rounding.
    """
    index = np.arange(length, dtype=np.float64)
    if align_corners:
        step = (n_rows - 1) / (length - 1) if length > 1 else 0.0
        position = index * step
    else:
        step = n_rows / length if scale is None else 1.0 / scale
        position = np.maximum((index + 0.5) * step - 0.5, 0.0)
    lower = np.minimum(np.floor(position).astype(np.int64), n_rows - 1)
    upper = np.minimum(lower + 1, n_rows - 1)
    share = np.clip(position - lower, 0.0, 1.0).astype(np.float32)
    matrix = np.zeros((length, n_rows), np.float32)
    rows = np.arange(length)
    np.add.at(matrix, (rows, lower), np.float32(1) - share)
    np.add.at(matrix, (rows, upper), share)
    return torch.from_numpy(matrix)


@FORMS.of("upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward")
def _upsample_nearest_backward(
    gradient: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> torch.Tensor:
    sizes = [(given, made) for given, made in zip(input_size[2:], output_size, strict=True)]
    factors = [made / given for given, made in sizes]
    is_uneven = any(made % given for given, made in sizes)
    if is_uneven or any(
        scale not in (None, of) for scale, of in zip(scales, factors, strict=False)
    ):
        raise NoPortableForm("has a portable form for enlarging by whole numbers only")
    (height, made_height), (width, made_width) = sizes
    parts = gradient.reshape(
        *input_size[:2], height, made_height // height, width, made_width // width
    )
    return pairwise_sum(parts, [3, 5])


# -- sampling at points --------------------------------------------------------------------


@FORMS.of("affine_grid_generator")
def _affine_grid(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    """Compute where the pixels of images come from under affine maps."""
    n_axes = len(size) - 2
    coordinates = [
        _normalised_middles(length, align_corners=align_corners).to(theta.device)
        for length in size[2:]
    ]
    on_grid = torch.meshgrid(*coordinates, indexing="ij")[::-1]
    points = []
    for row in theta.unbind(1):
        point = row[:, n_axes].reshape(-1, *[1] * n_axes)
        for axis, coordinate in enumerate(on_grid):
            point = point + coordinate * row[:, axis].reshape(-1, *[1] * n_axes)
        points.append(point)
    return torch.stack(points, dim=-1)


def _normalised_middles(length: int, *, align_corners: bool) -> torch.Tensor:
    """The middles of pixels along an axis, from -1 to 1; float32, shape (length,)."""
    index = torch.arange(length, dtype=torch.float64)
    if align_corners:
        middles = index * 2.0 / max(1, length - 1) - 1.0
    else:
        middles = (index * 2.0 + 1.0) / float(length) - 1.0
    return middles.float()


@FORMS.of("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(
    a: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> torch.Tensor:
    """Images at points between their pixels, by linear interpolation; 0 outside."""
    if interpolation_mode != _BILINEAR or padding_mode != _ZEROS:
        raise NoPortableForm("has a portable form for mode 'bilinear' with padding 'zeros' only")
    sizes = a.shape[2:]
    n_axes = len(sizes)
    positions = [
        _unnormalised(grid[..., n_axes - 1 - axis], sizes[axis], align_corners=align_corners)
        for axis in range(n_axes)
    ]
    return _at_positions(a, positions)


def _unnormalised(grid: torch.Tensor, length: int, *, align_corners: bool) -> torch.Tensor:
    """Points from -1 to 1 as positions in pixels along an axis of a length."""
    if align_corners:
        return (grid + 1.0) * 0.5 * float(length - 1)
    return ((grid + 1.0) * float(length) - 1.0) * 0.5


def _at_positions(images: torch.Tensor, positions: Sequence[torch.Tensor]) -> torch.Tensor:
    """Images at positions in pixels, by linear interpolation; 0 outside."""
    flat = images.flatten(2)
    points = [position.flatten(1) for position in positions]
    n_images, n_channels = images.shape[:2]
    n_points = points[0].shape[1]
    result = flat.new_empty((n_images, n_channels, n_points))
    n_numbers = n_images * (n_channels + _NUMBERS_OF_A_POINT)
    for part in slices(n_points, item_size=n_numbers, device=images.device):
        own = [point[:, part] for point in points]
        result[:, :, part] = _at_points(flat, images.shape[2:], own)
    return result.reshape(n_images, n_channels, *positions[0].shape[1:])


def _at_points(
    flat: torch.Tensor, sizes: Sequence[int], points: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Images, flat shape (B, C, pixels), at some points: float32, shape (B, C, points)."""
    lower = [point.floor() for point in points]
    upper_share = [point - below for point, below in zip(points, lower, strict=True)]
    lower_share = [1.0 - share for share in upper_share]
    n_channels = flat.shape[1]
    total: torch.Tensor | None = None
    for corner in itertools.product((False, True), repeat=len(sizes)):
        pixel: torch.Tensor | None = None
        weight: torch.Tensor | None = None
        for axis, is_upper in enumerate(corner):
            neighbour = lower[axis] + 1.0 if is_upper else lower[axis]
            share = upper_share[axis] if is_upper else lower_share[axis]
            is_inside = (neighbour >= 0) & (neighbour <= sizes[axis] - 1)
            share = share.masked_fill(~is_inside, 0.0)
            index = neighbour.clamp(0, sizes[axis] - 1).nan_to_num(0.0).long()
            pixel = index if pixel is None else pixel * sizes[axis] + index
            weight = share if weight is None else weight * share
        assert pixel is not None
        assert weight is not None
        values = flat.gather(2, pixel[:, None].expand(-1, n_channels, -1))
        values *= weight[:, None]
        total = values if total is None else total.add_(values)
    assert total is not None
    return total
