"""Well-known networks, small, each with its usual loss and optimizer, by torch.nn alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Example:
    """A network with a batch and the way in which it is trained."""

    network: nn.Module
    batch: tuple[torch.Tensor, ...]
    """What it is called with; the target of its loss comes last."""
    loss: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer

    def step(self) -> torch.Tensor:
        """Train once; the loss before."""
        *inputs, target = self.batch
        self.optimizer.zero_grad()
        loss = self.loss(self.network(*inputs), target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


# -- convolutional -------------------------------------------------------------------------


class Residual(nn.Module):
    """A basic block of ResNet (He et al. 2016)."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out))
        self.shortcut = nn.Identity() if n_in == n_out and stride == 1 else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet(width: int = 8, n_blocks: Sequence[int] = (1, 1, 1)) -> nn.Module:
    """ResNet with a stem whose pooling windows overlap; ``n_blocks`` are those of each stage."""
    layers = [
        nn.Conv2d(3, width, 7, 2, 3),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    n_in = width
    for stage, n_of_stage in enumerate(n_blocks):
        n_out = width * 2**stage
        for block in range(n_of_stage):
            layers.append(Residual(n_in, n_out, 2 if stage and not block else 1))
            n_in = n_out
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, 10))
    return nn.Sequential(*layers, *head)


class Kinds:
    """Layers for images in two dimensions, or in three."""

    def __init__(self, n_axes: int) -> None:
        self.convolution = {2: nn.Conv2d, 3: nn.Conv3d}[n_axes]
        self.transposed = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[n_axes]
        self.norm = {2: nn.BatchNorm2d, 3: nn.InstanceNorm3d}[n_axes]
        self.pool = {2: nn.MaxPool2d, 3: nn.MaxPool3d}[n_axes]

    def convolutions(self, n_in: int, n_out: int) -> nn.Module:
        return nn.Sequential(
            *(self.convolution(n_in, n_out, 3, 1, 1), self.norm(n_out, affine=True), nn.ReLU()),
            *(self.convolution(n_out, n_out, 3, 1, 1), self.norm(n_out, affine=True), nn.ReLU()),
        )


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015), with transposed convolutions on the way up; in three
    dimensions that of Çiçek et al. (2016), normalised for each image."""

    def __init__(self, width: int = 8, n_axes: int = 2) -> None:
        super().__init__()
        kinds = Kinds(n_axes)
        self.down = nn.ModuleList(
            [kinds.convolutions(1, width), kinds.convolutions(width, 2 * width)]
        )
        self.bottom = kinds.convolutions(2 * width, 4 * width)
        self.rise = nn.ModuleList(
            [
                kinds.transposed(4 * width, 2 * width, 2, 2),
                kinds.transposed(2 * width, width, 2, 2),
            ]
        )
        self.up = nn.ModuleList(
            [kinds.convolutions(4 * width, 2 * width), kinds.convolutions(2 * width, width)]
        )
        self.pool = kinds.pool(2)
        self.head = kinds.convolution(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for rise, up in zip(self.rise, self.up, strict=True):
            x = up(torch.cat([kept.pop(), rise(x)], 1))
        return self.head(x)


class ConvNeXtBlock(nn.Module):
    """A block of ConvNeXt (Liu et al. 2022): depthwise, layer normalisation, GELU, a scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, 1, 3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.wide(y)))
        return x + (self.scale * y).permute(0, 3, 1, 2)


def convnext(width: int = 16) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 4),
        ConvNeXtBlock(width),
        nn.Conv2d(width, 2 * width, 2, 2),
        ConvNeXtBlock(2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def mobilenet(width: int = 16) -> nn.Module:
    """Inverted residuals of MobileNet V3 (Howard et al. 2019), with hard swish."""
    return nn.Sequential(
        *(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.Hardswish()),
        *(nn.Conv2d(width, width, 3, 1, 1, groups=width), nn.BatchNorm2d(width), nn.ReLU6()),
        *(nn.Conv2d(width, 2 * width, 1), nn.BatchNorm2d(2 * width), nn.Hardsigmoid()),
        *(nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout()),
        nn.Linear(2 * width, 10),
    )


class Diffusion(nn.Module):
    """A U-Net of denoising diffusion (Ho et al. 2020): time by sines, SiLU, group normalisation."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.first = nn.Conv2d(1, width, 3, 1, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(2))
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.last = nn.Conv2d(2 * width, 1, 3, 1, 1)

    def forward(self, x: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        frequencies = torch.tensor([10_000.0 ** (-i / half) for i in range(half)])
        angles = moment[:, None] * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        first = functional.silu(self.norms[0](self.first(x)) + time)
        low = functional.silu(self.norms[1](self.down(first)))
        tokens = low.flatten(2).mT
        low = low + self.attention(tokens, tokens, tokens)[0].mT.reshape(low.shape)
        up = functional.interpolate(low, scale_factor=2, mode="nearest")
        return self.last(torch.cat([first, up], 1))


class Autoencoder(nn.Module):
    """A variational autoencoder (Kingma and Welling 2014)."""

    def __init__(self, width: int = 32, n_pixels: int = 256) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Flatten(), nn.Linear(n_pixels, width), nn.ELU(), nn.Linear(width, 8)
        )
        self.decode = nn.Sequential(nn.Linear(4, width), nn.Softplus(), nn.Linear(width, n_pixels))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.encode(x).chunk(2, 1)
        drawn = mean + noise * (0.5 * log_variance).exp()
        return torch.cat([self.decode(drawn), mean, log_variance], 1)

    @staticmethod
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        decoded, mean, log_variance = output.split([output.shape[1] - 8, 4, 4], 1)
        of_images = functional.binary_cross_entropy_with_logits(decoded, target.flatten(1))
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean()
        return of_images + divergence


# -- sequences -----------------------------------------------------------------------------


def transformer(width: int, *, dropout: float) -> nn.Module:
    """Two layers of an encoder, normalised first."""
    layer = nn.TransformerEncoderLayer(
        width, 4, 64, dropout, functional.gelu, batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class ViT(nn.Module):
    """A vision transformer (Dosovitskiy et al. 2021)."""

    def __init__(self, width: int = 32, n_patches: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.full((1, n_patches + 1, width), 0.02))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.place
        return self.head(self.body(tokens)[:, 0])


class GPT(nn.Module):
    """A causal transformer over tokens (Radford et al. 2018)."""

    def __init__(self, width: int = 32, n_tokens: int = 50, length: int = 24) -> None:
        super().__init__()
        self.tokens = nn.Embedding(n_tokens, width)
        self.places = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, n_tokens, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        n = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        x = self.tokens(tokens) + self.places(torch.arange(n))
        return self.head(self.body(x, mask=mask, is_causal=True)).flatten(0, 1)


class Recurrent(nn.Module):
    """A recurrent network over tokens, its last state classified."""

    def __init__(self, kind: type[nn.RNNBase], width: int = 24) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.body = kind(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.tokens(tokens))[0][:, -1])


def perceptron(width: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.LeakyReLU()),
        nn.Linear(width, 1),
    )


class WaveNet(nn.Module):
    """Dilated causal convolutions of sound (van den Oord et al. 2016), their weights normalised."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Embedding(32, width)
        normalised = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(
            normalised(nn.Conv1d(width, 2 * width, 2, dilation=2**i)) for i in range(3)
        )
        self.head = nn.Conv1d(width, 32, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens).mT
        for i, layer in enumerate(self.layers):
            values, gate = layer(functional.pad(x, (2**i, 0))).chunk(2, 1)
            x = x + values.tanh() * gate.sigmoid()
        return self.head(x)


# -- all of them ---------------------------------------------------------------------------


def _images(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


def _example(
    network: nn.Module,
    batch: tuple[torch.Tensor, ...],
    loss: Callable[..., torch.Tensor],
    kind: type[torch.optim.Optimizer],
    **settings: Any,
) -> Example:
    return Example(network, batch, loss, kind(network.parameters(), **settings))


_COLOUR = (4, 3, 32, 32)
_GREY = (2, 1, 32, 32)
_SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4, "nesterov": True}
_ADAM = {"lr": 1e-3}
CLASSES = functional.cross_entropy

EXAMPLES: dict[str, Callable[[], Example]] = {
    "ResNet, SGD": lambda: _example(
        resnet(), (_images(*_COLOUR), _whole(10, 4)), CLASSES, torch.optim.SGD, **_SGD
    ),
    "U-Net, Adam": lambda: _example(
        UNet(),
        (_images(*_GREY), _images(*_GREY).round()),
        functional.binary_cross_entropy_with_logits,
        torch.optim.Adam,
        **_ADAM,
    ),
    "3-D U-Net, Adam": lambda: _example(
        UNet(4, 3),
        (_images(1, 1, 4, 8, 12), _images(1, 1, 4, 8, 12).round()),
        functional.binary_cross_entropy_with_logits,
        torch.optim.Adam,
        **_ADAM,
    ),
    "ConvNeXt, AdamW": lambda: _example(
        convnext(), (_images(*_COLOUR), _whole(10, 4)), CLASSES, torch.optim.AdamW, **_ADAM
    ),
    "MobileNet, RMSprop": lambda: _example(
        mobilenet(), (_images(*_COLOUR), _whole(10, 4)), CLASSES, torch.optim.RMSprop, **_ADAM
    ),
    "diffusion U-Net, AdamW": lambda: _example(
        Diffusion(),
        (_images(2, 1, 16, 16), torch.tensor([3.0, 700.0]), _images(2, 1, 16, 16)),
        functional.mse_loss,
        torch.optim.AdamW,
        **_ADAM,
    ),
    "variational autoencoder, Adam": lambda: _example(
        Autoencoder(),
        (_images(4, 1, 16, 16), _images(4, 4), _images(4, 1, 16, 16)),
        Autoencoder.loss,
        torch.optim.Adam,
        **_ADAM,
    ),
    "ViT, AdamW": lambda: _example(
        ViT(), (_images(*_COLOUR), _whole(10, 4)), CLASSES, torch.optim.AdamW, **_ADAM
    ),
    "GPT, AdamW": lambda: _example(
        GPT(), (_whole(50, 2, 24), _whole(50, 48)), CLASSES, torch.optim.AdamW, **_ADAM
    ),
    "WaveNet, Adam": lambda: _example(
        WaveNet(), (_whole(32, 2, 24), _whole(32, 2, 24)), CLASSES, torch.optim.Adam, **_ADAM
    ),
    "LSTM, Adam": lambda: _example(
        Recurrent(nn.LSTM), (_whole(50, 4, 12), _whole(4, 4)), CLASSES, torch.optim.Adam, **_ADAM
    ),
    "GRU, Adagrad": lambda: _example(
        Recurrent(nn.GRU), (_whole(50, 4, 12), _whole(4, 4)), CLASSES, torch.optim.Adagrad, lr=0.01
    ),
    "RNN, SGD": lambda: _example(
        Recurrent(nn.RNN), (_whole(50, 4, 12), _whole(4, 4)), CLASSES, torch.optim.SGD, lr=0.01
    ),
    "perceptron, Adadelta": lambda: _example(
        perceptron(16),
        (_images(16, 8), _images(16, 1)),
        functional.smooth_l1_loss,
        torch.optim.Adadelta,
    ),
}
"""Each made anew, from one seed that the caller sets."""

_LARGE_COLOUR = (8, 3, 64, 64)
_LARGE_GREY = (2, 1, 128, 128)
_WORDS = (_whole(50, 32, 50), _whole(4, 32))

LARGER: dict[str, Callable[[], Example]] = {
    "ResNet, SGD": lambda: _example(
        resnet(64, (2, 2, 2, 2)),
        (_images(*_LARGE_COLOUR), _whole(10, 8)),
        CLASSES,
        torch.optim.SGD,
        **_SGD,
    ),
    "U-Net, Adam": lambda: _example(
        UNet(32),
        (_images(*_LARGE_GREY), _images(*_LARGE_GREY).round()),
        functional.binary_cross_entropy_with_logits,
        torch.optim.Adam,
        **_ADAM,
    ),
    "ConvNeXt, AdamW": lambda: _example(
        convnext(96), (_images(*_LARGE_COLOUR), _whole(10, 8)), CLASSES, torch.optim.AdamW, **_ADAM
    ),
    "MobileNet, RMSprop": lambda: _example(
        mobilenet(64),
        (_images(*_LARGE_COLOUR), _whole(10, 8)),
        CLASSES,
        torch.optim.RMSprop,
        **_ADAM,
    ),
    "diffusion U-Net, AdamW": lambda: _example(
        Diffusion(64),
        (_images(4, 1, 64, 64), torch.tensor([3.0, 40.0, 200.0, 700.0]), _images(4, 1, 64, 64)),
        functional.mse_loss,
        torch.optim.AdamW,
        **_ADAM,
    ),
    "variational autoencoder, Adam": lambda: _example(
        Autoencoder(512, 1024),
        (_images(128, 1, 32, 32), _images(128, 4), _images(128, 1, 32, 32)),
        Autoencoder.loss,
        torch.optim.Adam,
        **_ADAM,
    ),
    "ViT, AdamW": lambda: _example(
        ViT(256, 64), (_images(*_LARGE_COLOUR), _whole(10, 8)), CLASSES, torch.optim.AdamW, **_ADAM
    ),
    "GPT, AdamW": lambda: _example(
        GPT(256, 1000, 128),
        (_whole(1000, 4, 128), _whole(1000, 512)),
        CLASSES,
        torch.optim.AdamW,
        **_ADAM,
    ),
    "LSTM, Adam": lambda: _example(
        Recurrent(nn.LSTM, 256), _WORDS, CLASSES, torch.optim.Adam, **_ADAM
    ),
    "GRU, Adagrad": lambda: _example(
        Recurrent(nn.GRU, 256), _WORDS, CLASSES, torch.optim.Adagrad, lr=0.01
    ),
    "RNN, SGD": lambda: _example(Recurrent(nn.RNN, 256), _WORDS, CLASSES, torch.optim.SGD, lr=0.01),
    "perceptron, Adadelta": lambda: _example(
        perceptron(512),
        (_images(512, 8), _images(512, 1)),
        functional.smooth_l1_loss,
        torch.optim.Adadelta,
    ),
}
"""The same ones of the size at which they are of use, for benchmarks."""
