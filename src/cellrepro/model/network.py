"""Cellpose's network, built: small ones that train on any laptop, and larger ones.

``tiny`` is Cellpose's own ``CPSAM`` class around a small encoder of SAM's own class, so that every
operation is the real one. NumPy draws its initial weights, the same bytes on every machine;
PyTorch's own depend on the processor's vector instructions (torch 2.15).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.model.cellpose_generation import refuse_own_network
from cellrepro.model.encoders import ENCODERS, CellposeNetwork, Encoder
from cellrepro.model.pretrained import load_pretrained
from cellrepro.model.weight_sources import ModelSource
from cellrepro.model.weights_file import load_weights
from samebits.generator_states import generators_kept
from samebits.seeds import check_seed

if TYPE_CHECKING:
    import torch


IMPORTED = ("torchvision", "segment_anything", "cellpose.models")
"""What importing Cellpose imports after NumPy and PyTorch, in order; the last has the networks."""


def import_cellpose() -> None:
    """Import Cellpose, before a mode is set: its network module switches TF32 on (4.2.1.1)."""
    import cellpose.models  # noqa: F401


def build(
    source: ModelSource, *, seed: int | None, device: torch.device, dtype: str
) -> CellposeNetwork:
    """Build Cellpose's ``CPSAM`` with its weights; no generator of the process is moved."""
    import torch

    from samebits.torch_internals import modes_suspended_if_any

    with generators_kept(), modes_suspended_if_any():
        if source.architecture in ENCODERS:
            refuse_own_network(source.architecture)
            network = seeded_network(source.architecture, seed=seed)
            if source.path is not None:
                load_weights(network, source.path, encoder=source.architecture)
        else:
            network = load_pretrained(source)
        network.to(device)
        network.dtype = getattr(torch, dtype)
    return network


def seeded_network(
    encoder: str, *, seed: int | None, device: torch.device | str = "cpu"
) -> CellposeNetwork:
    """Build Cellpose's ``CPSAM`` in float32, with weights that a seed draws."""
    if seed is not None:
        check_seed(seed)
    sizes = ENCODERS[encoder]
    with generators_kept():
        with encoder_in_place(sizes):
            network = _network_class()(ps=sizes.patch)
        _draw_weights(network, np.random.default_rng(seed), sizes)
    return network.to(device)


@functools.cache
def parameter_shapes(encoder: str) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, by name, of a network around one of `ENCODERS`."""
    import torch

    sizes = ENCODERS[encoder]
    with generators_kept(), torch.device("meta"), encoder_in_place(sizes):
        parameters = _network_class()(ps=sizes.patch).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in parameters.items()}


def _network_class() -> Any:
    """Cellpose's ``CPSAM``; before 4.2 it is a ``Transformer`` of another module."""
    try:
        from cellpose.vit import CPSAM
    except ImportError:
        from cellpose.vit_sam import Transformer

        return Transformer
    return CPSAM


@contextmanager
def encoder_in_place(sizes: Encoder) -> Iterator[None]:
    """Let ``CPSAM()`` find an encoder of these sizes where it looks SAM's ViT-L up.

    `packaged_network` has a copy of this: it goes into packages, and imports nothing of the lab.
    """
    import torch
    from segment_anything import sam_model_registry
    from segment_anything.modeling import ImageEncoderViT

    def build_encoder(checkpoint: None = None) -> SimpleNamespace:
        encoder = ImageEncoderViT(
            norm_layer=functools.partial(torch.nn.LayerNorm, eps=1e-6),
            use_rel_pos=True,
            window_size=14,
            global_attn_indexes=sizes.global_blocks,
            embed_dim=sizes.width,
            depth=sizes.depth,
            num_heads=sizes.heads,
            mlp_ratio=sizes.mlp_ratio,
        )
        return SimpleNamespace(image_encoder=encoder)

    builder = sam_model_registry["vit_l"]
    sam_model_registry["vit_l"] = build_encoder
    try:
        yield
    finally:
        sam_model_registry["vit_l"] = builder


def _draw_weights(network: CellposeNetwork, generator: np.random.Generator, sizes: Encoder) -> None:
    """Draw initial weights as PyTorch does, uniform in ±1/sqrt(fan-in), equal on every machine."""
    import torch

    # Half the memory and time for 300 million numbers; tiny's draws are pinned in float64.
    dtype = np.float64 if sizes.is_small else np.float32
    for module in network.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
            fan_in = dtype(np.sqrt(module.weight[0].numel()))
            for parameter in module.parameters(recurse=False):
                drawn = (2 * generator.random(tuple(parameter.shape), dtype) - 1) / fan_in
                parameter.data = torch.from_numpy(drawn.astype(np.float32, copy=False))
    if sizes.patch**2 < sizes.width:
        return  # fewer patterns than numbers in a token: its patches stay as drawn
    # CPSAM.forward reads the patch embedding's data, so it is never trained (4.2.1.1): noise
    # would stay noise. An orthogonal basis keeps what is in the patch.
    patch = network.encoder.patch_embed.proj
    patch.weight.data = torch.from_numpy(_walsh_patches(sizes.width, sizes.patch))
    patch.bias.data.zero_()


def _walsh_patches(n_patterns: int, size: int) -> np.ndarray:
    """Walsh functions of a patch, the smoothest first, alike for Cellpose's three channels.

    They are exact in binary, so equal on every machine; grey images fill one channel.
    """
    from scipy.linalg import hadamard

    rows = hadamard(size)
    by_sequency = rows[np.argsort((np.diff(rows, axis=1) != 0).sum(axis=1))]
    pairs = ((i, j) for i in range(size) for j in range(size))
    order = sorted(pairs, key=lambda pair: (sum(pair), pair))
    # Weighted by sequency, as a whitening filter: images hold most power in smooth patterns, and
    # the layer norm behind the embedding would drown texture in brightness.
    patterns = np.stack(
        [(1 + i + j) * np.outer(by_sequency[i], by_sequency[j]) for i, j in order[:n_patterns]]
    )
    return np.repeat(patterns[:, None], 3, axis=1).astype(np.float32) / (2 * size)
