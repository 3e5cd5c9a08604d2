"""The network of a bioimage.io package: Cellpose's own class, with the flows as its one output.

This file is copied into the package, where ``bioimageio.core`` imports it, so it imports nothing of
the lab: PyTorch, Cellpose from 4.2 on, and segment_anything.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from cellpose.vit import CPSAM
from segment_anything import sam_model_registry
from segment_anything.modeling import ImageEncoderViT


class PackagedNetwork(CPSAM):
    """Cellpose's network without its second output, the style."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give the flows of a batch of tiles."""
        with _in_float32():
            flows: torch.Tensor = super().forward(x)[0]
        return flows


def packaged_network(
    *, patch: int = 8, encoder: Mapping[str, float | Sequence[int]] | None = None
) -> PackagedNetwork:
    """Build the network; its weights are loaded by ``bioimageio.core``."""
    if encoder is None:
        return PackagedNetwork(ps=patch)
    with _encoder_in_place(encoder):
        return PackagedNetwork(ps=patch)


@contextmanager
def _encoder_in_place(sizes: Mapping[str, float | Sequence[int]]) -> Iterator[None]:
    """Let Cellpose's class find an encoder of these sizes where it looks SAM's ViT-L up."""

    def build_encoder(checkpoint: None = None) -> SimpleNamespace:
        encoder = ImageEncoderViT(
            norm_layer=functools.partial(torch.nn.LayerNorm, eps=1e-6),
            use_rel_pos=True,
            window_size=14,
            global_attn_indexes=tuple(sizes["global_blocks"]),  # type: ignore[arg-type]
            embed_dim=sizes["width"],
            depth=sizes["depth"],
            num_heads=sizes["heads"],
            mlp_ratio=sizes["mlp_ratio"],
        )
        return SimpleNamespace(image_encoder=encoder)

    builder = sam_model_registry["vit_l"]
    sam_model_registry["vit_l"] = build_encoder
    try:
        yield
    finally:
        sam_model_registry["vit_l"] = builder


@contextmanager
def _in_float32() -> Iterator[None]:
    """Forbid TF32 on NVIDIA GPUs, which importing ``cellpose.vit`` allows (4.2.1.1)."""
    products = torch.backends.cuda.matmul
    convolutions = torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = False
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
