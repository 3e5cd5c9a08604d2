"""Every portable form gives what PyTorch gives, of its type and shape, or is refused by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from samebits.arithmetic.kernels.table import FORMS
from samebits.arithmetic.portable_mode import NotPortable, PortableArithmetic

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

N_IMAGES = 3  # no other axis is as long, so the first axis is known by its length
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.bool,
)


def a_tensor(*shape):
    """Different positive numbers, in no order."""
    n = torch.Size(shape).numel()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(n))
    return ((order + 1) / (n + 1)).reshape(shape)


IMAGES = a_tensor(N_IMAGES, 2, 4, 6)
ROWS = a_tensor(N_IMAGES, 4)
OTHER = ROWS.flip(0) * 0.7
FIRST = torch.tensor([0, 1, 0])
PLACES = torch.tensor([[0, 1, 2, 0], [1, 1, 0, 2], [2, 0, 1, 1]])
LABELS = torch.tensor([[0, 2, -1, 1], [3, -1, 0, 0], [1, 2, 3, 0]])
TWO = a_tensor(2)
KERNEL = a_tensor(4, 2, 3, 3)
WINDOW = ([2, 2], [2, 2], [0, 0])
CONVOLUTION = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
VOLUMES = a_tensor(N_IMAGES, 2, 2, 4, 6)
VOLUME_KERNEL = a_tensor(4, 1, 1, 3, 2)
VOLUME_CONVOLUTION = ([1], [0, 1, 1], [1, 1, 2], False, [0], 2)
MOMENTS = (IMAGES.mean((0, 2, 3)), IMAGES.var((0, 2, 3), correction=0).rsqrt())
ALL = [True, True, True]
TABLE = a_tensor(5, 4)
FIVE = torch.tensor([0, 2, 1, 2, 4])
BAGS = torch.tensor([0, 2, 2, 5])
SIZES = torch.tensor([2, 0, 3, 0])
OF_BAGS = (a_tensor(4, 4), FIVE, BAGS, torch.tensor([0, 0, 2, 2, 2]))
MEAN = 1
PROBABILITIES = torch.softmax(ROWS, 1)
MAXIMA, MAXIMAL_PLACES = torch.nn.functional.max_pool2d(IMAGES, 2, return_indices=True)
MAXIMA_3D, PLACES_3D = torch.nn.functional.max_pool3d(IMAGES[:, None], 2, return_indices=True)
OVERLAPPING, SHARED_PLACES = torch.nn.functional.max_pool2d(IMAGES, 3, 2, 1, return_indices=True)
SHARED = (OVERLAPPING, IMAGES)
OF_ROWS = (ROWS.mean(1, keepdim=True), ROWS.var(1, correction=0, keepdim=True).rsqrt())
GROUPS = IMAGES.reshape(N_IMAGES, 1, -1)
OF_GROUPS = (GROUPS.mean(2), GROUPS.var(2, correction=0).rsqrt())

_OF_TWO = ((ROWS, OTHER),)
_OF_ONE = ((ROWS,), (ROWS - 0.5,))
_AROUND = ((ROWS - 0.5) * 9, OTHER)
_SLOPES = (OTHER, (ROWS - 0.5) * 9)
_OF_AXES = ((ROWS,), (ROWS, [1]), (ROWS, [0], True), (IMAGES, [2, 3]))
_LOSS = ((ROWS, OTHER), (ROWS, OTHER, 0), (ROWS, OTHER, 2))
_NLL = (ROWS, FIRST, a_tensor(4), MEAN, -100)
_NLL_2D = (IMAGES, (IMAGES[:, 0] > 0.5).long(), TWO, MEAN, -100)
_NORMALISED = (IMAGES, TWO, TWO.flip(0), MOMENTS[0], MOMENTS[1], True, 0.1, 1e-5)
_SAMPLED = (IMAGES, a_tensor(N_IMAGES, 5, 2, 2) - 0.3, 0, 0, False)
_UP = ([N_IMAGES, 2, 4, 6],)

ARGUMENTS: dict[str, Sequence[tuple[Any, ...]]] = {
    **dict.fromkeys(("add", "sub", "rsub", "div"), (*_OF_TWO, (ROWS, 3), (ROWS, 0.5))),
    **dict.fromkeys(("exp", "erf", "sigmoid", "tanh", "silu", "gelu"), _OF_ONE),
    **dict.fromkeys(("log", "sqrt", "rsqrt", "reciprocal"), ((ROWS,),)),
    **dict.fromkeys(("sigmoid_backward", "tanh_backward", "silu_backward"), _OF_TWO),
    **dict.fromkeys(("addcmul", "addcdiv"), ((ROWS, OTHER, ROWS + 1),)),
    **dict.fromkeys(("sum", "mean"), (*_OF_AXES, (ROWS, [1], False))),
    **dict.fromkeys(("var", "std"), (*_OF_AXES, (ROWS, [0], False))),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss"), _LOSS),
    **dict.fromkeys(("_softmax", "_log_softmax"), ((ROWS, 1, False), (ROWS, 0, False))),
    **dict.fromkeys(("softmax", "log_softmax", "_safe_softmax"), ((ROWS, 1), (ROWS, 0))),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), ()),
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d"), (_SAMPLED, (*_SAMPLED[:2], 2, 2, False))),
    "convolution": (
        (IMAGES, KERNEL, a_tensor(4), *CONVOLUTION),
        (VOLUMES, VOLUME_KERNEL, a_tensor(4), *VOLUME_CONVOLUTION),
    ),
    **dict.fromkeys(("dot", "vdot"), ((ROWS[0], OTHER[0]),)),
    **dict.fromkeys(
        ("upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward"),
        (
            (a_tensor(N_IMAGES, 2, 8, 12), [8, 12], *_UP),
            (a_tensor(N_IMAGES, 2, 7, 9), [7, 9], *_UP),
        ),
    ),
    **dict.fromkeys(("native_batch_norm",), (_NORMALISED, (*_NORMALISED[:5], False, 0.1, 1e-5))),
    **dict.fromkeys(
        ("index_put", "_index_put_impl", "_unsafe_index_put"),
        ((ROWS, [FIRST], OTHER, True), (ROWS, [FIRST[1:]], OTHER[1:])),
    ),
    "_native_batch_norm_legit": (_NORMALISED,),
    "_convolution": ((IMAGES, KERNEL, a_tensor(4), *CONVOLUTION, False, True, True, True),),
    "convolution_backward": (
        (a_tensor(N_IMAGES, 4, 4, 6), IMAGES, KERNEL, [4], *CONVOLUTION, ALL),
        (a_tensor(N_IMAGES, 4, 2, 4, 6), VOLUMES, VOLUME_KERNEL, [4], *VOLUME_CONVOLUTION, ALL),
    ),
    "pow": (
        *((ROWS, power) for power in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.0, 1.3, 7, -1.5)),
        (ROWS, OTHER),
        (2.0, ROWS),
    ),
    "lerp": ((ROWS, OTHER, 0.25), (ROWS, OTHER, OTHER)),
    "leaky_relu": ((ROWS - 0.5,), (ROWS - 0.5, 0.2)),
    "leaky_relu_backward": ((OTHER, ROWS - 0.5, 0.2, False),),
    "rrelu_with_noise": ((ROWS - 0.5, ROWS),),
    "rrelu_with_noise_backward": ((OTHER, ROWS - 0.5, ROWS, 0.1, 0.4, False, False),),
    "gelu_backward": ((OTHER, ROWS - 0.5),),
    "_softmax_backward_data": ((OTHER, PROBABILITIES, 1, torch.float32),),
    "_log_softmax_backward_data": ((OTHER, PROBABILITIES.log(), 1, torch.float32),),
    "mse_loss_backward": ((torch.tensor(0.5), ROWS, OTHER, MEAN), (OTHER, ROWS, OTHER, 0)),
    "smooth_l1_loss_backward": ((torch.tensor(0.5), ROWS, OTHER, MEAN, 0.1),),
    "huber_loss_backward": ((torch.tensor(0.5), ROWS, OTHER, MEAN, 0.1),),
    "binary_cross_entropy_with_logits": ((ROWS, OTHER), (ROWS, OTHER, OTHER, None, 0)),
    "nll_loss_forward": (_NLL, (*_NLL[:3], 0, 1)),
    "nll_loss2d_forward": (_NLL_2D,),
    "nll_loss_backward": ((torch.tensor(0.5), *_NLL, torch.tensor(1.5)),),
    "nll_loss2d_backward": ((torch.tensor(0.5), *_NLL_2D, torch.tensor(1.5)),),
    "linalg_vector_norm": ((ROWS,), (ROWS, 1), (ROWS, float("inf")), (ROWS, 2, [1])),
    "prod": ((ROWS,), (ROWS, 1), (ROWS, 0, True)),
    "mm": ((ROWS, ROWS.T),),
    "bmm": ((IMAGES[:, 0], IMAGES[:, 1].mT),),
    "mv": ((ROWS, OTHER[0]),),
    "addmm": ((OTHER[:, :3], ROWS, ROWS.T),),
    "addbmm": ((OTHER[:, :3], ROWS[None], ROWS.T[None]),),
    "addmv": ((TWO, ROWS[:2], OTHER[0]),),
    "baddbmm": ((a_tensor(N_IMAGES, 4, 4), IMAGES[:, 0], IMAGES[:, 1].mT),),
    "sort": ((ROWS,), (ROWS, 0, True)),
    "topk": ((ROWS, 2), (ROWS, 1, 0)),
    "kthvalue": ((ROWS, 2), (ROWS, 1, 0, True)),
    "median": ((ROWS,), (ROWS, 1)),
    "scatter": ((ROWS, 0, PLACES, 2.0), (ROWS, 0, PLACES.argsort(0), OTHER)),
    "scatter_add": ((ROWS, 0, PLACES, OTHER), (ROWS, 1, PLACES, OTHER)),
    "index_copy": ((ROWS, 1, FIRST[:2], OTHER[:, :2]), (ROWS, 0, FIRST[:1], OTHER[:1])),
    "index_add": ((ROWS, 1, FIRST, OTHER[:, :3]), (ROWS, 0, FIRST[:2], OTHER[:2])),
    "embedding_dense_backward": ((a_tensor(N_IMAGES, 4), FIRST, 5, -1, False),),
    **dict.fromkeys(
        ("_embedding_bag", "_embedding_bag_forward_only"),
        (
            (TABLE, FIVE, BAGS),
            (TABLE, FIVE, BAGS, False, 1, False, None, True, 2),
            (TABLE, FIVE, BAGS, False, 2),
            (TABLE, FIVE, BAGS, False, 0, False, a_tensor(5)),
        ),
    ),
    "_embedding_bag_backward": (
        (*OF_BAGS, SIZES, SIZES, 5, False, 0, False, a_tensor(5)),
        (*OF_BAGS, SIZES, SIZES, 5, True, 1, False, None, 2),
    ),
    "_embedding_bag_per_sample_weights_backward": (
        (OF_BAGS[0], TABLE, *OF_BAGS[1:], 0),
        (OF_BAGS[0], TABLE, *OF_BAGS[1:], 0, 2),
    ),
    "embedding_renorm": ((TABLE, FIVE, 0.9, 2.0),),
    "renorm": ((ROWS, 2, 0, 0.9), (IMAGES, 1, 1, 0.9)),
    "_trilinear": (
        (ROWS, a_tensor(2, 4, 5), a_tensor(N_IMAGES, 5), [1, 3], [0], [1, 2], [2, 3]),
        (ROWS, a_tensor(N_IMAGES, 2), a_tensor(N_IMAGES, 5), [1, 3], [2, 3], [1, 2], [0]),
    ),
    "col2im": ((a_tensor(N_IMAGES, 8, 6), [4, 6], [2, 2], [1, 1], [0, 0], [2, 2]),),
    "unfold_backward": ((a_tensor(N_IMAGES, 2, 2), [N_IMAGES, 4], 1, 2, 2),),
    "avg_pool2d": (
        (IMAGES, [2, 2]),
        (IMAGES, *WINDOW),
        (IMAGES, [3, 3], [1, 1], [1, 1]),
        (IMAGES, [3, 3], [2, 2], [1, 1], True, False),
        (IMAGES, [3, 3], [2, 2], [1, 1], True, True, 5),
    ),
    "avg_pool2d_backward": (
        (MAXIMA, IMAGES, *WINDOW, False, True, None),
        (a_tensor(N_IMAGES, 2, 3, 4), IMAGES, [3, 3], [2, 2], [1, 1], True, False, None),
    ),
    "max_pool2d_with_indices_backward": (
        (MAXIMA, IMAGES, *WINDOW, [1, 1], False, MAXIMAL_PLACES),
        (*SHARED, [3, 3], [2, 2], [1, 1], [1, 1], False, SHARED_PLACES),
    ),
    "native_layer_norm": ((ROWS, [4], a_tensor(4), None, 1e-5), (ROWS, [4], None, None, 1e-5)),
    "native_layer_norm_backward": ((OTHER, ROWS, [4], *OF_ROWS, a_tensor(4), a_tensor(4), ALL),),
    "native_group_norm": ((IMAGES, TWO, TWO, N_IMAGES, 2, 24, 1, 1e-5),),
    "native_group_norm_backward": (
        (IMAGES.flip(0), IMAGES, *OF_GROUPS, TWO, N_IMAGES, 2, 24, 1, ALL),
    ),
    "native_batch_norm_backward": (
        (IMAGES.flip(0), IMAGES, TWO, None, None, *MOMENTS, True, 1e-5, ALL),
    ),
    "upsample_linear1d": ((IMAGES[:, 0], [9], False), (IMAGES[:, 0], [9], True)),
    "upsample_bilinear2d": ((IMAGES, [7, 9], False), (IMAGES, [7, 9], True)),
    "upsample_trilinear3d": ((IMAGES[:, None], [3, 7, 9], False),),
    "upsample_linear1d_backward": ((a_tensor(N_IMAGES, 2, 9), [9], [N_IMAGES, 2, 6], False),),
    "upsample_bilinear2d_backward": ((a_tensor(N_IMAGES, 2, 7, 9), [7, 9], *_UP, False),),
    "upsample_trilinear3d_backward": (
        (a_tensor(N_IMAGES, 1, 3, 7, 9), [3, 7, 9], [N_IMAGES, 1, 2, 4, 6], False),
    ),
    "affine_grid_generator": ((a_tensor(N_IMAGES, 2, 3), [N_IMAGES, 2, 4, 6], False),),
    "grid_sampler_3d": ((IMAGES[:, None], a_tensor(N_IMAGES, 2, 3, 2, 3) - 0.3, 0, 0, False),),
    **dict.fromkeys(("sinc", "sin", "cos", "tan", "atan", "expm1", "exp2", "log1p"), _OF_ONE),
    **dict.fromkeys(("erfinv", "log2", "log10", "logit", "asin", "acos", "atanh"), ((ROWS,),)),
    **dict.fromkeys(("sinh", "cosh", "frac", "deg2rad", "rad2deg", "asinh", "erfc"), _OF_ONE),
    **dict.fromkeys(("fmod", "remainder", "floor_divide"), (*_OF_TWO, (-ROWS, OTHER), (ROWS, 0.3))),
    **dict.fromkeys(("hypot",), _OF_TWO),
    "acosh": ((ROWS + 1,),),
    "logit_backward": ((OTHER, ROWS), (OTHER, ROWS, 0.2)),
    "linalg_cross": ((a_tensor(4, 3), a_tensor(1, 3)),),
    "dist": ((ROWS, OTHER), (ROWS, OTHER, 1)),
    "nansum": ((ROWS,), (ROWS, [1])),
    "trace": ((ROWS,),),
    "_unique": ((ROWS,),),
    **dict.fromkeys(("elu", "selu", "celu", "mish", "softplus", "log_sigmoid_forward"), _OF_ONE),
    **dict.fromkeys(("hardsigmoid", "hardswish", "hardshrink", "softshrink"), (_AROUND[:1],)),
    **dict.fromkeys(("mish_backward", "hardsigmoid_backward", "hardswish_backward"), (_SLOPES,)),
    **dict.fromkeys(("hardshrink_backward", "softshrink_backward"), ((*_SLOPES, 0.5),)),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin", "atan2", "logaddexp"), _OF_TWO),
    **dict.fromkeys(("relu", "relu6"), (_AROUND[:1],)),
    **dict.fromkeys(("amax", "amin"), ((ROWS,), (ROWS, [1]), (ROWS, [0], True))),
    **dict.fromkeys(("max", "min"), ((ROWS,), (ROWS, 1), (ROWS, OTHER))),
    **dict.fromkeys(("cummax", "cummin", "cumsum", "cumprod"), ((ROWS, 0), (ROWS, 1))),
    **dict.fromkeys(("var_mean", "std_mean"), ((ROWS,), (ROWS, [1]), (ROWS, [0], False))),
    **dict.fromkeys(
        ("reflection_pad1d_backward", "replication_pad1d_backward"),
        ((a_tensor(N_IMAGES, 2, 9), IMAGES[:, 0, :2], [1, 2]),),
    ),
    **dict.fromkeys(
        ("reflection_pad2d_backward", "replication_pad2d_backward"),
        ((a_tensor(N_IMAGES, 2, 7, 9), IMAGES, [2, 1, 1, 2]),),
    ),
    **dict.fromkeys(
        ("reflection_pad3d_backward", "replication_pad3d_backward"),
        ((a_tensor(N_IMAGES, 1, 3, 7, 9), IMAGES[:, None], [2, 1, 1, 2, 1, 0]),),
    ),
    **dict.fromkeys(
        ("upsample_nearest1d_backward", "_upsample_nearest_exact1d_backward"),
        (
            (a_tensor(N_IMAGES, 2, 9), [9], [N_IMAGES, 2, 6]),
            (a_tensor(N_IMAGES, 2, 8), [8], [N_IMAGES, 2, 4]),
        ),
    ),
    **dict.fromkeys(
        ("upsample_nearest3d_backward", "_upsample_nearest_exact3d_backward"),
        ((a_tensor(N_IMAGES, 1, 3, 7, 9), [3, 7, 9], [N_IMAGES, 1, 2, 4, 6]),),
    ),
    "clamp": ((ROWS, 0.2, 0.6), (ROWS, OTHER, OTHER + 0.1), (ROWS, None, 0.5)),
    "clamp_min": ((ROWS - 0.5, 0), (ROWS, OTHER)),
    "clamp_max": ((ROWS - 0.5, 0), (ROWS, OTHER)),
    "hardtanh": ((ROWS - 0.5, -0.1, 0.3), (ROWS - 0.5,)),
    "aminmax": ((ROWS,),),
    "_unique2": ((ROWS,), (ROWS, True, True, True)),
    "unique_dim": ((ROWS, 0), (ROWS, 1, True, True, True)),
    "nanmedian": ((ROWS,), (ROWS, 1), (ROWS, 0, True)),
    "scatter_reduce": (
        (ROWS, 0, PLACES, OTHER, "amax"),
        (ROWS, 1, PLACES, OTHER, "amin"),
        (ROWS, 0, PLACES, OTHER, "mean"),
    ),
    "put": ((ROWS, FIRST[:2], OTHER[0, :2]), (ROWS, FIRST, OTHER[0, :3], True)),
    "norm": ((ROWS,), (ROWS, 1, [0]), (ROWS, None, [1], True)),
    "logsumexp": ((ROWS, [1]), (ROWS, [0, 1], True)),
    "glu": ((ROWS,), (IMAGES, 1)),
    "glu_backward": ((OTHER[:, :2], ROWS, 1),),
    "_prelu_kernel": ((ROWS - 0.5, a_tensor(4)),),
    "_prelu_kernel_backward": ((OTHER, ROWS - 0.5, a_tensor(4)),),
    "elu_backward": (
        (OTHER, 1.0, 1.1, 0.9, False, ROWS - 0.5),
        (OTHER, 0.7, 1, 1, True, ROWS - 0.5),
    ),
    "softplus_backward": ((OTHER, ROWS - 0.5, 2.0, 0.5),),
    "log_sigmoid_backward": ((OTHER, ROWS - 0.5, (ROWS - 0.5).abs().neg().exp()),),
    **dict.fromkeys(("xlogy", "special_xlog1py"), (*_OF_TWO, (ROWS, 2.0))),
    "special_entr": ((ROWS,),),
    "multi_margin_loss": ((ROWS, FIRST), (ROWS, FIRST, 2, 0.5, ROWS[0], 0)),
    "multi_margin_loss_backward": ((torch.tensor(0.5), ROWS, FIRST, 2, 0.5),),
    "multilabel_margin_loss_forward": ((ROWS, LABELS, MEAN), (ROWS, LABELS, 0)),
    "multilabel_margin_loss_backward": ((torch.tensor(0.5), ROWS, LABELS, MEAN, ROWS),),
    "binary_cross_entropy": ((ROWS, OTHER), (ROWS, OTHER, OTHER, 0)),
    "binary_cross_entropy_backward": (
        (torch.tensor(0.5), ROWS, OTHER),
        (OTHER, ROWS, OTHER, OTHER, 0),
    ),
    "soft_margin_loss": ((ROWS, OTHER.sign()), (ROWS, -OTHER.sign(), 0)),
    "soft_margin_loss_backward": ((torch.tensor(0.5), ROWS, OTHER.sign(), MEAN),),
    "native_dropout_backward": ((ROWS, OTHER > 0.5, 2.0),),
    "avg_pool1d": ((IMAGES[:, 0], [2]), (IMAGES[:, 0], [3], [2], [1], True, False)),
    "avg_pool3d": (
        (IMAGES[:, None], [2, 2, 2]),
        (IMAGES[:, None], [2, 3, 3], [1, 2, 2], [1, 1, 1], True),
    ),
    "avg_pool3d_backward": (
        (
            a_tensor(N_IMAGES, 1, 1, 2, 3),
            IMAGES[:, None],
            [2] * 3,
            [2] * 3,
            [0] * 3,
            False,
            True,
            None,
        ),
    ),
    **dict.fromkeys(("_adaptive_avg_pool2d",), ((IMAGES, [3, 4]), (IMAGES, [1, 1]))),
    "_adaptive_avg_pool3d": ((IMAGES[:, None], [2, 3, 4]),),
    "_adaptive_avg_pool2d_backward": ((a_tensor(N_IMAGES, 2, 3, 4), IMAGES),),
    "_adaptive_avg_pool3d_backward": ((a_tensor(N_IMAGES, 1, 2, 3, 4), IMAGES[:, None]),),
    "adaptive_max_pool2d_backward": ((MAXIMA, IMAGES, MAXIMAL_PLACES),),
    "adaptive_max_pool3d_backward": ((MAXIMA_3D, IMAGES[:, None], PLACES_3D),),
    "max_pool3d_with_indices_backward": (
        (MAXIMA_3D, IMAGES[:, None], [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, PLACES_3D),
    ),
    "upsample_bicubic2d": ((IMAGES, [7, 9], False), (IMAGES, [7, 9], True)),
    "upsample_bicubic2d_backward": ((a_tensor(N_IMAGES, 2, 7, 9), [7, 9], *_UP, False),),
    "grid_sampler_2d_backward": tuple(
        (a_tensor(N_IMAGES, 2, 5, 2), IMAGES, _SAMPLED[1] * 2, 0, padding, False, [True, True])
        for padding in (0, 1, 2)
    ),
    "grid_sampler_3d_backward": (
        (
            a_tensor(N_IMAGES, 1, 2, 3, 2),
            IMAGES[:, None],
            a_tensor(N_IMAGES, 2, 3, 2, 3) - 0.3,
            *(0, 0, True, [True, True]),
        ),
    ),
    "_native_batch_norm_legit_no_training": ((*_NORMALISED[:5], 0.1, 1e-5),),
    "arange": ((5,), (1, 9, 3), (0.5, 3.0, 0.5)),
    "linspace": ((-1, 1, 1), (0, 1, 5), (0, 1, 0)),
    "logspace": ((-1, 1, 1), (0, 2, 5), (0, 1, 0), (0, 1, 4, 2.0)),
    "hann_window": ((8,), (1,), (0,)),
    "hamming_window": ((8,), (8, False), (9, True, 0.5, 0.4)),
    "blackman_window": ((8,), (9, False)),
}
"""Of each form by name: what it is called with."""

ELSEWHERE = {
    *("rand", "uniform", "randint", "randperm", "bernoulli", "rand_like", "randint_like", "random"),
    *("randn", "randn_like", "normal", "normal_", "exponential", "multinomial"),
    *("_euclidean_dist", "_cdist_forward", "_cdist_backward", "max_unpool2d", "max_unpool3d"),
    *("_weight_norm_interface", "_weight_norm_interface_backward"),
    "native_dropout",
    *("_fused_sgd", "_fused_adagrad"),
    *("_fused_adam", "_fused_adamw", "cudnn_batch_norm", "cudnn_batch_norm_backward"),
}
"""They draw numbers, write into lists of parameters, or are of a GPU; tested in other files."""

ORDER = {"sort", "topk", "kthvalue", "median", "nanmedian"}
"""Of equal numbers PyTorch may name another place."""


def strided(tensor):
    """The same numbers, lying in memory in the order of the reversed axes."""
    reverse = tuple(range(tensor.dim()))[::-1]
    return tensor.permute(reverse).contiguous().permute(reverse)


def of_first_axis(change):
    """A change of those tensors alone that have images along their first axis."""

    def changed(tensor):
        has_images = tensor.dim() > 0 and tensor.shape[0] == N_IMAGES
        return change(tensor) if has_images else tensor

    return changed


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "usual": lambda tensor: tensor,
    "strided": strided,
    "no axes": lambda tensor: tensor.flatten()[0] if tensor.is_floating_point() else tensor,
    "empty": of_first_axis(lambda tensor: tensor[:0]),
    "without images": of_first_axis(lambda tensor: tensor[0]),
}


def layouts_of(name):
    """Those of PyTorch's own that it checks; some of its inner operations read beyond the end."""
    unchecked = "native_" in name
    if name == "adaptive_max_pool3d_backward":  # PyTorch takes its indices as they lie in memory
        return {label: layout for label, layout in LAYOUTS.items() if label != "strided"}
    return {label: LAYOUTS[label] for label in ("usual", "strided")} if unchecked else LAYOUTS


@dataclass(frozen=True)
class Case:
    """One call of an operation."""

    name: str
    arguments: tuple[Any, ...]

    def of(self, dtype, layout):
        """The arguments as another type of number, and laid out otherwise; made anew."""

        def made(argument):
            if isinstance(argument, list):
                return [made(each) for each in argument]
            if argument is torch.float32:
                return dtype
            if not isinstance(argument, torch.Tensor):
                return argument
            tensor = layout(argument.clone())
            if not tensor.is_floating_point():
                return tensor
            if not dtype.is_floating_point:
                tensor = (tensor * 40).round()
            return tensor.to(dtype)

        return tuple(made(argument) for argument in self.arguments)


def outputs(result):
    return list(result) if isinstance(result, tuple | list) else [result]


OF_PYTORCH = {"hardsigmoid_backward": 1e-7}
"""By how much PyTorch's own are off: of float64 numbers, too, a sixth is one of float32."""


def unlike(name, actual, expected):
    """What is wrong with a result; empty where nothing is."""
    if actual is None or expected is None:
        return "" if actual is None and expected is None else "one of them is None"
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype} {actual.shape}, not {expected.dtype} {expected.shape}"
    if name in ORDER and actual.dtype == torch.int64:
        return ""
    # Two roundings of 16 bits: PyTorch rounds sums on the way, a form once.
    roundings = {torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 2e-2}
    tolerance = max(roundings.get(actual.dtype, 1e-4), OF_PYTORCH.get(name, 0))
    close = torch.allclose(
        actual.double(), expected.double(), tolerance, tolerance / 10, equal_nan=True
    )
    return "" if close else f"{actual.flatten()[:4]}, not {expected.flatten()[:4]}"


def fault_of(case, dtype, layout):
    """Why a form is wrong where PyTorch's own operation can be called; none where it is right."""
    operation = getattr(torch.ops.aten, case.name)
    try:
        expected = operation(*case.of(dtype, layout))
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    try:
        with PortableArithmetic():
            actual = operation(*case.of(dtype, layout))
    except NotPortable:
        return None
    except Exception as error:
        return repr(error)[:200]
    pairs = zip(outputs(actual), outputs(expected), strict=True)
    return "; ".join(filter(None, (unlike(case.name, *pair) for pair in pairs))) or None


def test_every_form_is_tried():
    assert {*FORMS} == {*ARGUMENTS} | ELSEWHERE


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_form_gives_what_pytorch_gives_or_is_refused(name):
    found = {}
    for place, arguments in enumerate(ARGUMENTS[name]):
        for dtype in DTYPES[:4] if name == "smooth_l1_loss_backward" else DTYPES:
            for label, layout in layouts_of(name).items():
                found[place, dtype, label] = fault_of(Case(name, arguments), dtype, layout)
    wrong = {case: fault for case, fault in found.items() if fault is not None}
    assert not wrong


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_form_is_there_for_the_usual_call(name):
    case = Case(name, ARGUMENTS[name][0])
    with PortableArithmetic():
        for dtype in (torch.float32, torch.float64):
            getattr(torch.ops.aten, name)(*case.of(dtype, LAYOUTS["usual"]))
