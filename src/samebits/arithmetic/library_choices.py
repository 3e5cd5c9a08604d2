"""Choices that PyTorch leaves to libraries beside it, made the same on every machine for a block.

oneDNN has a recurrent layer of its own on processors, and cuDNN on GPUs; without them the layer is
made of products and functions that have portable forms. opt_einsum, where it is installed, reorders
the products of ``torch.einsum``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from samebits.arithmetic.kernels.recurrent import LAYERS_AS_ONE_OPERATION


@contextmanager
def choices_of_libraries_made() -> Iterator[None]:
    """Leave recurrent layers to PyTorch, and products of ``torch.einsum`` in their order."""
    with_onednn = torch._C._get_mkldnn_enabled()
    with_cudnn = torch._C._get_cudnn_enabled()
    with_opt_einsum = torch.backends.opt_einsum.enabled
    try:
        # `flags` of torch.backends sets other flags, too, and PyTorch's own tests freeze them
        torch._C._set_mkldnn_enabled(False)
        torch._C._set_cudnn_enabled(False)
        torch.backends.opt_einsum.enabled = False
        with LAYERS_AS_ONE_OPERATION.in_force():
            yield
    finally:
        torch._C._set_mkldnn_enabled(with_onednn)
        torch._C._set_cudnn_enabled(with_cudnn)
        torch.backends.opt_einsum.enabled = with_opt_einsum
