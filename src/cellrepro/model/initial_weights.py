"""The weights that an untrained network begins with: drawn by NumPy, equal on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cellrepro.model.encoders import CellposeNetwork, Encoder


def draw_weights(network: CellposeNetwork, generator: np.random.Generator, sizes: Encoder) -> None:
    """Initialise like PyTorch, uniform in ±1/sqrt(fan-in), but with the same bytes everywhere."""
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
    """Walsh functions of a patch, the smoothest first: exact in binary, so equal everywhere. The
    same for each of Cellpose's three channels, of which grey images fill one."""
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
