"""Images resampled between their pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cellrepro.arithmetic.interpolation import affine_grid, resampled, resampled_backward, sampled
from cellrepro.arithmetic.kernels.registry import NoPortableForm, PortableForms, check_float32
from cellrepro.arithmetic.sums import pairwise_sum

FORMS = PortableForms()


@FORMS.of("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def _upsample_linear(
    a: torch.Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
) -> torch.Tensor:
    check_float32("interpolate", a)
    return resampled(a, tuple(output_size), align_corners=align_corners, scales=scales)


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
    check_float32("interpolate", gradient)
    return resampled_backward(
        gradient, tuple(input_size[2:]), align_corners=align_corners, scales=scales
    )


@FORMS.of("upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward")
def _upsample_nearest_backward(
    gradient: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> torch.Tensor:
    sizes = [(given, made) for given, made in zip(input_size[2:], output_size, strict=True)]
    if any(made % given for given, made in sizes):
        raise NoPortableForm("has a portable form for enlarging by whole numbers only")
    (height, made_height), (width, made_width) = sizes
    parts = gradient.reshape(
        *input_size[:2], height, made_height // height, width, made_width // width
    )
    return pairwise_sum(parts, [3, 5])


@FORMS.of("affine_grid_generator")
def _affine_grid_generator(
    theta: torch.Tensor, size: Sequence[int], align_corners: bool
) -> torch.Tensor:
    return affine_grid(theta, tuple(size[2:]), align_corners=align_corners)


_BILINEAR = 0
_ZEROS = 0


@FORMS.of("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(
    a: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> torch.Tensor:
    if interpolation_mode != _BILINEAR or padding_mode != _ZEROS:
        raise NoPortableForm("has a portable form for mode 'bilinear' with padding 'zeros' only")
    return sampled(a, grid, align_corners=align_corners)
