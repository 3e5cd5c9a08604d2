"""Images resampled between their pixels, by products and sums of single numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from samebits.arithmetic.kernels.finite import all_finite
from samebits.arithmetic.kernels.indexing import added_at
from samebits.arithmetic.kernels.products import multiplied
from samebits.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_type
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.arithmetic.memory import Block, slices

FORMS = PortableForms()

_NUMBERS_OF_A_POINT = 8
"""What is computed of each point, beside the channels there."""
_BILINEAR = 0
_NEAREST = 1
_BICUBIC = 2
_ZEROS = 0
_REFLECTION = 2
"""How PyTorch writes the mode and the padding of ``grid_sample``."""
_FAR = 2.0**24


# -- resizing ------------------------------------------------------------------------------


_Scales: TypeAlias = Sequence[float | Sequence[float] | None]
"""One scale for each axis, or in place of them one list of scales; None where a size was given."""
_SharesOf: TypeAlias = "Callable[[int, int, bool, float | None, torch.dtype], _Shares]"
"""How rows are resampled: by `_linear_shares`, or as that does."""


@FORMS.of("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def _upsample_linear(
    a: torch.Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,
    *scales: float | Sequence[float] | None,
) -> torch.Tensor:
    return _resized(a, output_size, align_corners, scales, _linear_shares)


@FORMS.of("upsample_bicubic2d")
def _upsample_bicubic(
    a: torch.Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,
    *scales: float | Sequence[float] | None,
) -> torch.Tensor:
    return _resized(a, output_size, align_corners, scales, _cubic_shares)


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
    return _resized_backward(gradient, input_size, align_corners, scales, _linear_shares)


@FORMS.of("upsample_bicubic2d_backward")
def _upsample_bicubic_backward(
    gradient: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> torch.Tensor:
    is_copied = list(input_size[2:]) == list(output_size)  # by PyTorch, in this direction alone
    shares_of = _linear_shares if is_copied else _cubic_shares
    return _resized_backward(gradient, input_size, align_corners, scales, shares_of)


def _resized(
    a: torch.Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scales: _Scales,
    shares_of: _SharesOf,
) -> torch.Tensor:
    check_type(a)
    values = a
    is_finite = all_finite(a)
    size, by_axis = _size_and_scales(a, output_size, scales)
    for axis, length in enumerate(size):
        scale = _scale(by_axis, axis)
        shares = shares_of(values.shape[axis + 2], length, align_corners, scale, a.dtype)
        matrix = shares.matrix(a.dtype).to(a.device)
        if is_finite:
            values = _multiplied(values, axis + 2, matrix)
        else:
            finite = _multiplied(values.where(values.isfinite(), 0.0), axis + 2, matrix)
            values = finite + shares.not_finite(values, axis + 2)
    return values


def _resized_backward(
    gradient: torch.Tensor,
    input_size: Sequence[int],
    align_corners: bool,
    scales: Sequence[float | None],
    shares_of: _SharesOf,
) -> torch.Tensor:
    check_type(gradient)
    values = gradient
    is_finite = all_finite(gradient)
    for axis, length in enumerate(input_size[2:]):
        scale = _scale(scales, axis)
        shares = shares_of(length, values.shape[axis + 2], align_corners, scale, gradient.dtype)
        matrix = shares.matrix(gradient.dtype).T.to(gradient.device)
        if is_finite:
            values = _multiplied(values, axis + 2, matrix)
        else:
            finite = _multiplied(values.where(values.isfinite(), 0.0), axis + 2, matrix)
            values = finite + shares.not_finite_backward(values, axis + 2)
    return values


def _size_and_scales(
    a: torch.Tensor, output_size: Sequence[int] | None, scales: _Scales
) -> tuple[Sequence[int], list[float | None]]:
    """The size and the scale of each axis; a size is given, or follows from the scales."""
    by_axis: list[float | None] = []
    for scale in scales:
        by_axis += [scale] if scale is None or isinstance(scale, int | float) else scale
    if output_size is not None:
        return output_size, by_axis
    lengths = zip(a.shape[2:], by_axis, strict=True)
    return [int(length * scale) for length, scale in lengths if scale is not None], by_axis


def _scale(scales: Sequence[float | None], axis: int) -> float | None:
    return scales[axis] if axis < len(scales) else None


def _multiplied(values: torch.Tensor, axis: int, matrix: torch.Tensor) -> torch.Tensor:
    """Each row along an axis multiplied by a matrix."""
    rows = values.movedim(axis, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    result = multiplied(flat, matrix.T)
    return result.reshape(*rows.shape[:-1], matrix.shape[0]).movedim(-1, axis).contiguous()


class _Shares(NamedTuple):
    """Of which rows each resampled one is made, and to which shares: shapes (rows, length)."""

    rows: NDArray[Any]
    weights: NDArray[Any]
    """In the type in which they are added where rows are one."""
    n_rows: int

    def matrix(self, dtype: torch.dtype) -> torch.Tensor:
        """The share of each row in each resampled one: shape (length, n_rows)."""
        length = self.rows.shape[1]
        matrix = np.zeros((length, self.n_rows), self.weights.dtype)
        for row, weight in zip(self.rows, self.weights, strict=True):
            np.add.at(matrix, (np.arange(length), row), weight)
        return torch.from_numpy(matrix).to(dtype)

    def not_finite(self, values: torch.Tensor, axis: int) -> torch.Tensor:
        """What of the rows is infinite or NaN, resampled: 0 where nothing is.

        A product with the matrix would carry it to every row.
        """
        size = [*values.shape]
        size[axis] = self.rows.shape[1]
        total = values.new_zeros(size)
        rest = values.where(~values.isfinite(), 0.0)
        for row, weight in self._along(values, axis):
            total += rest.index_select(axis, row) * weight
        return total

    def not_finite_backward(self, gradient: torch.Tensor, axis: int) -> torch.Tensor:
        """The same of a gradient, for the rows."""
        size = [*gradient.shape]
        size[axis] = self.n_rows
        total = gradient.new_zeros(size)
        rest = gradient.where(~gradient.isfinite(), 0.0)
        for row, weight in self._along(gradient, axis):
            total.index_add_(axis, row, rest * weight)
        return total

    def _along(
        self, values: torch.Tensor, axis: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        shape = [1] * values.dim()
        shape[axis] = -1
        for row, weight in zip(self.rows, self.weights, strict=True):
            yield (
                torch.from_numpy(row).to(values.device),
                torch.from_numpy(weight).reshape(shape).to(values.device, values.dtype),
            )


def _linear_shares(
    n_rows: int, length: int, align_corners: bool, scale: float | None, dtype: torch.dtype
) -> _Shares:
    """Those of the two rows around each resampled one.

    Positions are computed in float64 and rounded to that type as shares, so that the shares of a
    row sum to 1 within one rounding. As many rows as before are the same ones, whatever the scale.
    """
    number = np.float64 if dtype == torch.float64 else np.float32
    index = np.arange(length)
    if n_rows == length:
        zeros = np.zeros(length, number)
        return _Shares(np.stack([index, index]), np.stack([zeros + 1, zeros]), n_rows)
    position = np.maximum(_positions(n_rows, length, align_corners, scale), 0.0)
    lower = np.minimum(np.floor(position).astype(np.int64), n_rows - 1)
    upper = np.minimum(lower + 1, n_rows - 1)
    share = np.clip(position - lower, 0.0, 1.0).astype(number)
    return _Shares(np.stack([lower, upper]), np.stack([number(1) - share, share]), n_rows)


def _positions(n_rows: int, length: int, align_corners: bool, scale: float | None) -> np.ndarray:
    """Where resampled rows lie among the rows, in float64."""
    index = np.arange(length, dtype=np.float64)
    if align_corners:
        return index * ((n_rows - 1) / (length - 1) if length > 1 else 0.0)
    step = n_rows / length if scale is None or scale <= 0 else 1.0 / scale
    return (index + 0.5) * step - 0.5


_CUBIC = -0.75
"""The parameter of PyTorch's cubic convolution (R. G. Keys, IEEE Transactions on Acoustics, Speech
and Signal Processing 29, 1153-1160 (1981))."""


def _cubic_shares(
    n_rows: int,
    length: int,
    align_corners: bool,
    scale: float | None,
    dtype: torch.dtype,
) -> _Shares:
    """Those of the four rows around each resampled one."""
    position = _positions(n_rows, length, align_corners, scale)
    lower = np.floor(position)
    share = position - lower
    rows = [np.clip(lower + step, 0, n_rows - 1).astype(np.int64) for step in _CUBIC_STEPS]
    return _Shares(np.stack(rows), np.stack(_cubic(share)), n_rows)


_CUBIC_STEPS = (-1, 0, 1, 2)


def _cubic(share: Block) -> list[Block]:
    """The weights of the four rows around a place, from its distance from the second one."""

    def near(distance: Block) -> Block:
        return ((_CUBIC + 2.0) * distance - (_CUBIC + 3.0)) * distance * distance + 1.0

    def far(distance: Block) -> Block:
        weight = ((_CUBIC * distance - 5.0 * _CUBIC) * distance + 8.0 * _CUBIC) * distance
        return weight - 4.0 * _CUBIC

    return [far(share + 1.0), near(share), near(1.0 - share), far(2.0 - share)]


def _cubic_slopes(share: torch.Tensor) -> list[torch.Tensor]:
    """By how much these weights grow with the distance."""

    def near(distance: torch.Tensor) -> torch.Tensor:
        return (3.0 * (_CUBIC + 2.0) * distance - 2.0 * (_CUBIC + 3.0)) * distance

    def far(distance: torch.Tensor) -> torch.Tensor:
        return (3.0 * _CUBIC * distance - 10.0 * _CUBIC) * distance + 8.0 * _CUBIC

    return [far(share + 1.0), near(share), -near(1.0 - share), -far(2.0 - share)]


_NEAREST_FORWARD = {
    (is_exact, n_axes): getattr(
        torch.ops.aten, f"{'_upsample_nearest_exact' if is_exact else 'upsample_nearest'}{n_axes}d"
    ).default
    for is_exact in (False, True)
    for n_axes in (1, 2, 3)
}


@FORMS.of(
    "upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward"
)
def _upsample_nearest_backward(
    gradient: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> torch.Tensor:
    return _nearest_backward(gradient, output_size, input_size, scales, is_exact=False)


@FORMS.of(
    "_upsample_nearest_exact1d_backward",
    "_upsample_nearest_exact2d_backward",
    "_upsample_nearest_exact3d_backward",
)
def _upsample_nearest_exact_backward(
    gradient: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> torch.Tensor:
    return _nearest_backward(gradient, output_size, input_size, scales, is_exact=True)


def _nearest_backward(
    gradient: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales: Sequence[float | None],
    *,
    is_exact: bool,
) -> torch.Tensor:
    """Gradients added up at the pixel that each came from: in halves where every pixel was
    repeated as often, else exactly."""
    sizes = list(zip(input_size[2:], output_size, strict=True))
    factors = [made / given for given, made in sizes]
    is_even = not any(made % given for given, made in sizes) and all(
        scale in (None, of) for scale, of in zip(scales, factors, strict=False)
    )
    if is_even:
        parts = [length for given, made in sizes for length in (given, made // given)]
        axes = [3 + 2 * axis for axis in range(len(sizes))]
        return pairwise_sum(gradient.reshape(*input_size[:2], *parts), axes)
    forward = _NEAREST_FORWARD[is_exact, len(sizes)]
    sources = forward(_numbered(input_size[2:]), list(output_size), *scales)[0, 0].long()
    values = gradient
    for axis, (given, _) in enumerate(sizes):
        along_axis = sources[tuple(slice(None) if at == axis else 0 for at in range(len(sizes)))]
        stride = math.prod(input_size[axis + 3 :])
        values = _summed_by_source(values, axis + 2, along_axis // stride % given, given)
    return values.contiguous()


def _summed_by_source(
    values: torch.Tensor, axis: int, sources: torch.Tensor, n_sources: int
) -> torch.Tensor:
    """Rows that came from one row are added, one after the other; sources are in order."""
    counts = torch.bincount(sources, minlength=n_sources)
    begins = counts.cumsum(0) - counts
    total: torch.Tensor | None = None
    shape = [1] * values.dim()
    shape[axis] = -1
    for place in range(int(counts.max())):
        rows = (begins + place).clamp(max=len(sources) - 1).to(values.device)
        is_none = (counts <= place).reshape(shape).to(values.device)
        part = values.index_select(axis, rows).masked_fill_(is_none, 0.0)
        total = part if total is None else total.add_(part)
    return torch.zeros_like(values) if total is None else total


def _numbered(size: Sequence[int]) -> torch.Tensor:
    """An image whose pixels say their place; to be moved as images are."""
    return torch.arange(math.prod(size), dtype=torch.float64).reshape(1, 1, *size)


# -- padding -----------------------------------------------------------------------------------


@FORMS.of("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward")
def _reflection_backward(
    gradient: torch.Tensor, a: torch.Tensor, padding: Sequence[int]
) -> torch.Tensor:
    return _padding_backward(gradient, a, padding, mode="reflect")


@FORMS.of("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def _replication_backward(
    gradient: torch.Tensor, a: torch.Tensor, padding: Sequence[int]
) -> torch.Tensor:
    return _padding_backward(gradient, a, padding, mode="replicate")


def _padding_backward(
    gradient: torch.Tensor, a: torch.Tensor, padding: Sequence[int], *, mode: str
) -> torch.Tensor:
    """What lies before an axis is added to it, then what lies behind: the last axis first."""
    check_type(gradient, a)
    total = gradient
    if min(padding) < 0:
        total = torch.constant_pad_nd(gradient, [max(0, -margin) for margin in padding])
    for at in range(len(padding) // 2):
        axis = a.dim() - 1 - at
        before, behind = (max(0, margin) for margin in padding[2 * at : 2 * at + 2])
        length = a.shape[axis]
        inside = total.narrow(axis, before, length).clone()
        outside = (total.narrow(axis, 0, before), total.narrow(axis, before + length, behind))
        for margin, begin in zip(outside, (1, length - 1 - behind), strict=True):
            if margin.shape[axis] and mode == "reflect":
                inside.narrow(axis, begin, margin.shape[axis]).add_(margin.flip(axis))
        for margin, edge in zip(outside, (0, length - 1), strict=True):
            if margin.shape[axis] and mode == "replicate":
                inside.narrow(axis, edge, 1).add_(pairwise_sum(margin, [axis], keepdim=True))
        total = inside
    return total.contiguous()


# -- sampling at points --------------------------------------------------------------------


@FORMS.of("affine_grid_generator")
def _affine_grid(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    """Compute where the pixels of images come from under affine maps."""
    n_axes = len(size) - 2
    coordinates = [
        _normalised_middles(length, align_corners=align_corners).to(theta) for length in size[2:]
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
    """The middles of pixels along an axis, from -1 to 1; float64, shape (length,)."""
    index = torch.arange(length, dtype=torch.float64)
    if length == 1:
        middles = index
    elif align_corners:
        middles = index * 2.0 / float(length - 1) - 1.0
    else:
        middles = (index * 2.0 + 1.0) / float(length) - 1.0
    return middles


@FORMS.of("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(
    a: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> torch.Tensor:
    """Images at points between their pixels, interpolated or of the nearest pixel."""
    check_type(a, grid)
    sampling = _Sampling(a.shape[2:], interpolation_mode, padding_mode, align_corners)
    positions = [place.position for place in sampling.places(grid)]
    flat = a.flatten(2)
    points = [position.flatten(1) for position in positions]
    n_images, n_channels = a.shape[:2]
    n_points = points[0].shape[1]
    result = flat.new_empty((n_images, n_channels, n_points))
    is_finite = all_finite(a)
    n_numbers = n_images * (n_channels + _NUMBERS_OF_A_POINT)
    for part in slices(n_points, item_size=n_numbers, device=a.device):
        total: torch.Tensor | None = None
        for corner in sampling.corners([point[:, part] for point in points]):
            values = flat.gather(2, corner.pixel[:, None].expand(-1, n_channels, -1))
            if not is_finite:
                corner.leave_out(values)
            values *= corner.weight[:, None]
            total = values if total is None else total.add_(values)
        if total is not None:
            result[:, :, part] = total
    if sampling.is_nan_outside and not all_finite(grid):
        result.masked_fill_(~grid.isfinite().all(-1).flatten(1)[:, None], torch.nan)
    return result.reshape(n_images, n_channels, *positions[0].shape[1:])


@FORMS.of("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def _grid_sampler_backward(
    gradient: torch.Tensor,
    a: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Of images, shares added up at their pixels; of points, sums over the channels."""
    check_type(gradient, a, grid)
    sampling = _Sampling(a.shape[2:], interpolation_mode, padding_mode, align_corners)
    places = sampling.places(grid)
    points = [place.position.flatten(1) for place in places]
    n_images, n_channels = a.shape[:2]
    flat = a.flatten(2)
    of_points = gradient.flatten(2)
    are_finite = all_finite(a) and all_finite(gradient)
    images = torch.arange(n_images * n_channels, device=a.device).reshape(n_images, n_channels, 1)
    pixels = []
    shares = []
    of_axes = [torch.zeros_like(point) for point in points]
    for corner in sampling.corners(points, with_slopes=output_mask[1]):
        if output_mask[0]:
            pixels.append(images * flat.shape[2] + corner.pixel[:, None])
            shares.append(of_points * corner.weight[:, None])
            if not are_finite:
                corner.leave_out(shares[-1])
        if output_mask[1] and interpolation_mode != _NEAREST:
            values = flat.gather(2, corner.pixel[:, None].expand(-1, n_channels, -1))
            if not are_finite:
                corner.leave_out(values)
            together = pairwise_sum(values * of_points, [1])
            for of_axis, slope in zip(of_axes, corner.slopes, strict=True):
                of_axis += together * slope
    of_images: torch.Tensor | None = None
    if output_mask[0]:
        positions = torch.cat([pixel.reshape(-1) for pixel in pixels])
        values = torch.cat([share.reshape(-1) for share in shares])
        of_images = added_at(a.new_zeros(a.numel()), positions, values).reshape(a.shape)
    scaled = [
        of_axis.reshape(place.slope.shape) * place.slope
        for of_axis, place in zip(of_axes, places, strict=True)
    ]
    if sampling.is_nan_outside and not all_finite(grid):
        for of_axis, other in zip(scaled, (grid[..., 0], grid[..., 1]), strict=True):
            of_axis.masked_fill_(~other.isfinite(), torch.nan)
    return of_images, torch.stack(scaled[::-1], dim=-1)


class _Place(NamedTuple):
    """Positions along one axis, in pixels, and what they move by for each unit of the grid."""

    position: torch.Tensor
    slope: torch.Tensor


class _Corner(NamedTuple):
    """One of the pixels around points: shapes (B, points)."""

    pixel: torch.Tensor
    """Its number, counted through the image."""
    weight: torch.Tensor
    """Its share; 0 where it lies outside of the image."""
    slopes: list[torch.Tensor]
    """By how much the share grows along each axis."""
    insides: list[torch.Tensor]
    """Along each axis, whether it lies inside of the image."""

    def leave_out(self, values: torch.Tensor) -> None:
        """Make infinities and NaN of pixels that lie outside 0; shapes (B, channels, points)."""
        is_inside = torch.stack(self.insides).all(0)
        values.masked_fill_(~is_inside[:, None] & ~values.isfinite(), 0.0)


class _Sampling(NamedTuple):
    """How PyTorch was asked to sample images of a size."""

    sizes: Sequence[int]
    mode: int
    padding_mode: int
    align_corners: bool

    @property
    def is_nan_outside(self) -> bool:
        """Whether points that are infinite or NaN give NaN, as in PyTorch on processors; else they
        lie outside, or at an edge."""
        of_zeros = self.mode == _BILINEAR and self.padding_mode == _ZEROS
        return len(self.sizes) == 2 and (of_zeros or self.mode == _BICUBIC)

    def places(self, grid: torch.Tensor) -> list[_Place]:
        """Where the points of a grid, from -1 to 1, lie along each axis."""
        n_axes = len(self.sizes)
        if self.mode == _BICUBIC and n_axes > 2:
            raise NoPortableForm("has a portable form of mode 'bicubic' for images in two axes")
        return [
            self._place(grid[..., n_axes - 1 - axis], self.sizes[axis]) for axis in range(n_axes)
        ]

    def _place(self, coordinates: torch.Tensor, length: int) -> _Place:
        position = _unnormalised(coordinates, length, align_corners=self.align_corners)
        unit = float(length - 1 if self.align_corners else length) * 0.5
        place = _Place(position, torch.full_like(position, unit))
        if self.mode != _BICUBIC:
            return self._padded(place, length)
        if bool((position.abs() >= _FAR).any()):  # PyTorch's whole numbers end before
            raise NoPortableForm(
                f"has a portable form of mode 'bicubic' for points less than {_FAR:.0f} pixels away"
            )
        return place

    def _padded(self, place: _Place, length: int) -> _Place:
        """Where a position is looked for that lies outside."""
        position, slope = place
        if self.padding_mode == _REFLECTION:
            position, slope = self._reflected(position, slope, length)
        if self.padding_mode != _ZEROS:
            is_outside = (position <= 0) | (position >= length - 1)
            slope = slope.masked_fill(is_outside, 0.0)
            position = torch.where(position <= 0, torch.zeros_like(position), position)
            position = position.clamp(max=float(length - 1))
            at_nan = 0.0 if len(self.sizes) == 2 else float(length - 1)  # as PyTorch on processors
            position = position.nan_to_num_(at_nan)
        return _Place(position, slope)

    def _reflected(
        self, position: torch.Tensor, slope: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions folded back at the first and last pixel, or at their outer edges."""
        low = 0.0 if self.align_corners else -0.5
        span = float(length - 1 if self.align_corners else length)
        if span == 0:
            return torch.zeros_like(position), torch.zeros_like(slope)
        distance = position - low
        slope = torch.where(distance < 0, -slope, slope)
        distance = distance.abs()
        flips = (distance / torch.full_like(distance, span)).floor()
        extra = torch.fmod(distance, span)
        is_odd = torch.fmod(flips, 2.0) != 0
        return (
            torch.where(is_odd, span - extra, extra) + low,
            torch.where(is_odd, -slope, slope),
        )

    def corners(
        self, points: Sequence[torch.Tensor], *, with_slopes: bool = False
    ) -> Iterator[_Corner]:
        """The pixels around points, or the nearest one, with their shares."""
        lower = [point.round() if self.mode == _NEAREST else point.floor() for point in points]
        rest = [point - below for point, below in zip(points, lower, strict=True)]
        steps: tuple[int, ...] = (0, 1)
        if self.mode == _NEAREST:
            steps = (0,)
            shares = [[torch.ones_like(share)] for share in rest]
            slopes = [[torch.zeros_like(share)] for share in rest]
        elif self.mode == _BILINEAR:
            shares = [[1.0 - share, share] for share in rest]
            slopes = [[torch.full_like(share, -1.0), torch.ones_like(share)] for share in rest]
        else:
            steps = _CUBIC_STEPS
            shares = [_cubic(share) for share in rest]
            slopes = [_cubic_slopes(share) for share in rest]
        for choice in itertools.product(range(len(steps)), repeat=len(points)):
            neighbours = []
            for below, place, length in zip(lower, choice, self.sizes, strict=True):
                neighbour = _Place(below + float(steps[place]), below)
                is_padded_before = self.mode != _BICUBIC
                padded = neighbour if is_padded_before else self._padded(neighbour, length)
                neighbours.append(padded.position)
            yield self._corner(
                neighbours,
                [of[place] for of, place in zip(shares, choice, strict=True)],
                [of[place] for of, place in zip(slopes, choice, strict=True)]
                if with_slopes
                else [],
            )

    def _corner(
        self,
        neighbours: list[torch.Tensor],
        shares: list[torch.Tensor],
        slopes: list[torch.Tensor],
    ) -> _Corner:
        pixel: torch.Tensor | None = None
        insides = []
        for neighbour, length in zip(neighbours, self.sizes, strict=True):
            insides.append((neighbour >= 0) & (neighbour <= length - 1))
            index = neighbour.clamp(0, length - 1).nan_to_num(0.0).long()
            pixel = index if pixel is None else pixel * length + index
        assert pixel is not None
        masked = [
            share.masked_fill(~inside, 0.0) for share, inside in zip(shares, insides, strict=True)
        ]
        of_axes = []
        for axis, slope in enumerate(slopes):
            along_axis = slope.masked_fill(~insides[axis], 0.0)
            of_axes.append(_product([*masked[:axis], along_axis, *masked[axis + 1 :]]))
        return _Corner(pixel, _product(masked), of_axes, insides)


def _product(factors: Sequence[torch.Tensor]) -> torch.Tensor:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def _unnormalised(grid: torch.Tensor, length: int, *, align_corners: bool) -> torch.Tensor:
    """Points from -1 to 1 as positions in pixels along an axis of a length."""
    if align_corners:
        return (grid + 1.0) * 0.5 * float(length - 1)
    return ((grid + 1.0) * float(length) - 1.0) * 0.5
