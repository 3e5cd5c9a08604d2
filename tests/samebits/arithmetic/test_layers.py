"""Layers, sums and resampling: near PyTorch's own in float64, forward and backward."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from samebits.arithmetic.kernels import convolutions
from samebits.arithmetic.kernels.sums import pairwise_mean, pairwise_sum
from samebits.arithmetic.kernels.table import FORMS
from samebits.arithmetic.portable_mode import PortableArithmetic

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


def in_halves(numbers):
    """The definition, in plain Python floats of float64."""
    while len(numbers) > 1:
        half = len(numbers) // 2
        sums = [a + b for a, b in zip(numbers[:half], numbers[half : 2 * half], strict=True)]
        if len(numbers) % 2:
            sums[0] += numbers[-1]
        numbers = sums
    return numbers[0]


@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33, 100, 1025])
def test_sums_add_in_halves(length):
    numbers = torch.randn(4, length, dtype=torch.float64) * 10.0 ** torch.arange(4)[:, None]
    sums = pairwise_sum(numbers, [1])
    assert sums.tolist() == [in_halves(row) for row in numbers.tolist()]
    assert pairwise_sum(numbers.T.contiguous(), [0]).tolist() == sums.tolist()
    assert torch.equal(pairwise_sum(numbers, [-1], keepdim=True)[:, 0], sums)


def test_sums_are_near_the_exact_ones():
    numbers = torch.rand(3, 5, 70)
    assert math.isclose(pairwise_sum(numbers).item(), math.fsum(numbers.flatten()), rel_tol=1e-6)
    assert torch.allclose(pairwise_mean(numbers, [0, 2]), numbers.double().mean((0, 2)).float())
    assert pairwise_sum(torch.ones(0, 3), [0]).tolist() == [0, 0, 0]
    assert pairwise_mean(torch.ones(0)).isnan()
    assert numbers.shape == (3, 5, 70)  # and nothing was written into what was given


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1), ()])
def test_a_sum_over_one_number_is_a_number_of_its_own(shape):
    """What is written into the sum leaves what was added as it was."""
    numbers = torch.ones(shape)
    for dims in ([0], [1], None) if shape else (None,):
        total = pairwise_sum(numbers, dims)
        total += 1
        assert torch.equal(numbers, torch.ones(shape))


def transformer():
    return nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, dropout=0.0)


class Attention(nn.Module):
    def forward(self, x):
        rows = x.reshape(2, 4, 15, 16)
        return functional.scaled_dot_product_attention(rows, rows, rows)


class Resampling(nn.Module):
    def forward(self, x):
        larger = functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        line = functional.interpolate(x.flatten(2), size=17, mode="linear", align_corners=True)
        return larger.sum() + (line * line).sum()


class Sampling(nn.Module):
    def forward(self, x):
        theta = torch.tensor([[[0.9, 0.2, 0.1], [-0.2, 1.1, -0.3]]]).expand(len(x), -1, -1)
        grid = functional.affine_grid(theta.to(x), x.shape, align_corners=False)
        return functional.grid_sample(x, grid, align_corners=False)


NETWORKS = {
    "linear": (lambda: nn.Linear(30, 7), (5, 30)),
    "convolution": (lambda: nn.Conv2d(4, 6, 3, padding=1, stride=2), (3, 4, 9, 8)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2), (2, 4, 9, 8)),
    "pointwise": (lambda: nn.Conv2d(4, 6, 1), (2, 4, 5, 8)),
    "transposed": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
        (2, 4, 5, 6),
    ),
    "transposed with dilation": (
        lambda: nn.ConvTranspose2d(
            4, 6, (2, 3), stride=2, padding=1, dilation=3, output_padding=2, groups=2
        ),
        (2, 4, 5, 6),
    ),
    "transposed with gaps": (
        lambda: nn.ConvTranspose2d(4, 6, 2, stride=(4, 5), output_padding=(3, 2)),
        (2, 4, 5, 6),
    ),
    "gaps": (lambda: nn.Conv2d(4, 6, 2, stride=(4, 5)), (2, 4, 17, 19)),
    "line": (lambda: nn.Conv1d(4, 6, 3, padding=1, stride=2, groups=2), (3, 4, 9)),
    "transposed line": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, dilation=2), (3, 4, 9)),
    "volume": (
        lambda: nn.Conv3d(4, 6, (2, 3, 3), stride=(1, 2, 1), padding=1, groups=2),
        (2, 4, 3, 6, 9),
    ),
    "transposed volume": (
        lambda: nn.ConvTranspose3d(4, 6, 2, stride=(2, 2, 3), output_padding=(1, 0, 2)),
        (2, 4, 2, 3, 4),
    ),
    "one image": (lambda: nn.Conv2d(4, 6, 3, padding="same"), (4, 9, 8)),
    "batch norm": (lambda: nn.BatchNorm2d(4), (3, 4, 5, 8)),
    "batch norm as learnt": (lambda: nn.BatchNorm2d(4).eval(), (3, 4, 5, 8)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5, 8)),
    "pooling": (
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.Upsample(scale_factor=3), nn.AvgPool2d(3, 2, 1)),
        (2, 3, 8, 10),
    ),
    "layer norm": (lambda: nn.LayerNorm([3, 8]), (4, 5, 3, 8)),
    "transformer": (transformer, (2, 9, 32)),
    "attention": (Attention, (2, 4, 15, 16)),
    "activations": (lambda: nn.Sequential(nn.Tanh(), nn.SiLU(), nn.LeakyReLU(), nn.GELU()), (9, 9)),
    "log softmax": (lambda: nn.LogSoftmax(dim=1), (4, 11, 3)),
    "resampling": (Resampling, (2, 3, 8, 9)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_forward_and_gradients_near_those_in_float64(name):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    network = make()
    x = torch.randn(shape)
    weights = torch.randn(network(x).shape)

    def gradients(network, x, weights):
        x = x.clone().requires_grad_()
        output = network(x)
        (output * weights).sum().backward()
        return [output.detach(), x.grad, *(parameter.grad for parameter in network.parameters())]

    with PortableArithmetic():
        actual = gradients(network, x, weights)
    network.zero_grad()
    expected = gradients(network.double(), x.double(), weights.double())
    for portable, exact in zip(actual, expected, strict=True):
        assert (portable - exact).abs().max() <= 4e-6 * exact.abs().max()


def test_sampling_between_pixels():
    x = torch.randn(2, 3, 12, 14)
    with PortableArithmetic():
        actual = Sampling()(x)
    assert (actual - Sampling()(x.double())).abs().max() < 1e-5


@pytest.mark.parametrize("is_transposed", [False, True])
def test_parts_of_a_convolution_change_no_bit(monkeypatch, is_transposed):
    """Large images are convolved in parts, for their patches take much memory."""
    images = torch.rand(2, 4, 3, 9, 8)
    weight = torch.rand(4, 2, 2, 3, 3)
    settings = ([1, 2, 2], [0, 1, 0], [1, 1, 1], is_transposed, [0, 1, 0], 2)

    def results():
        output = FORMS["convolution"](images, weight, None, *settings)
        gradients = FORMS["convolution_backward"](
            output, images, weight, [output.shape[1]], *settings, [True, True, True]
        )
        return [output, *gradients]

    whole = results()
    monkeypatch.setattr(convolutions, "_MOST_TOGETHER", 1)
    assert all(map(torch.equal, results(), whole))


@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_convolution_of_no_images(is_transposed):
    images = torch.zeros(0, 3, 9, 8)
    weight = torch.ones(3, 3, 2, 3)
    settings = ([2, 2], [1, 0], [1, 1], is_transposed, [1, 0], 1)
    expected = torch.ops.aten.convolution(images, weight, None, *settings)
    output = FORMS["convolution"](images, weight, None, *settings)
    assert output.shape == expected.shape
    gradients = FORMS["convolution_backward"](
        output, images, weight, [3], *settings, [True, True, True]
    )
    assert [gradient.shape for gradient in gradients] == [images.shape, weight.shape, (3,)]
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float64, 1e-14), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)]
)
def test_products_and_convolutions_in_other_types_are_rounded_once(dtype, error):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 4, 9, 8, generator=generator).to(dtype)
    weight = torch.randn(6, 4, 3, 3, generator=generator).to(dtype)
    rows = weight.flatten(1)
    convolution = (images, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    for name, arguments in {
        "mm": (rows, rows.T.contiguous()),
        "addmm": (rows[0, :6], rows, rows.T),
        "mv": (rows, rows[0]),
        "addmv": (rows[0, :6], rows, rows[0]),
        "addbmm": (rows[0, :6], rows[None], rows.T[None]),
        "convolution": convolution,
    }.items():
        actual = FORMS[name](*arguments)
        wide = [a.double() if isinstance(a, torch.Tensor) else a for a in arguments]
        exact = getattr(torch.ops.aten, name)(*wide)
        assert actual.dtype == dtype
        assert (actual.double() - exact).abs().max() <= error * exact.abs().max()


@pytest.mark.parametrize(
    "viewed",
    [
        lambda q, image: functional.scaled_dot_product_attention(q, q, q).transpose(1, 2),
        lambda q, image: functional.conv2d(image, torch.ones(2, 3, 3, 3)).permute(0, 2, 3, 1),
        lambda q, image: functional.avg_pool2d(image, 2).permute(0, 2, 3, 1),
    ],
    ids=["attention", "convolution", "pooling"],
)
def test_a_result_can_be_viewed_as_pytorchs(viewed):
    """Of what networks make: heads beside tokens, and images with their channels last."""
    q = torch.rand(2, 5, 3, 4).transpose(1, 2)
    image = torch.rand(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    expected = viewed(q, image).stride()
    with PortableArithmetic():
        result = viewed(q, image)
        assert result.view(2, -1).shape[0] == 2
    assert result.stride() == expected
