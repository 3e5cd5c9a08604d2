"""Choices that PyTorch leaves to libraries beside it, made the same on every machine for a block.

oneDNN has a recurrent layer of its own on processors, and cuDNN on GPUs; without them the layer is
made of products and functions that have portable forms. opt_einsum, where it is installed, reorders
the products of ``torch.einsum``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.backends.mha
import torch.backends.opt_einsum  # PyTorch 2.6 imports it with the first product of einsum
from torch.nn import functional

from samebits.arithmetic.kernels.recurrent import layers_as_one_operation
from samebits.arithmetic.layouts import attention_laid_out
from samebits.replaced_functions import Replacement, SharedByBlocks, replaced

_BY_OPERATIONS = "math_sdp"
_KINDS_OF_ATTENTION = (_BY_OPERATIONS, "flash_sdp", "mem_efficient_sdp", "cudnn_sdp")
"""In ``torch.backends.cuda``, though they hold on processors, too (torch 2.6 to 2.15)."""


@contextmanager
def _choices_made() -> Iterator[None]:
    """Leave attention and recurrent layers to PyTorch, products of ``einsum`` in their order."""
    with_onednn = torch._C._get_mkldnn_enabled()
    with_cudnn = torch._C._get_cudnn_enabled()
    with_opt_einsum = torch.backends.opt_einsum.enabled
    kinds_of_attention = {
        name: getattr(torch.backends.cuda, f"{name}_enabled")() for name in _KINDS_OF_ATTENTION
    }
    with_fastpath = torch.backends.mha.get_fastpath_enabled()
    try:
        # `flags` of torch.backends sets other flags, too, and PyTorch's own tests freeze them
        torch._C._set_mkldnn_enabled(False)
        torch._C._set_cudnn_enabled(False)
        torch.backends.opt_einsum.enabled = False
        torch.backends.mha.set_fastpath_enabled(False)
        for name in kinds_of_attention:
            getattr(torch.backends.cuda, f"enable_{name}")(name == _BY_OPERATIONS)
        attention = Replacement(functional, "scaled_dot_product_attention", attention_laid_out)
        with replaced([*layers_as_one_operation(), attention]):
            yield
    finally:
        torch._C._set_mkldnn_enabled(with_onednn)
        torch._C._set_cudnn_enabled(with_cudnn)
        torch.backends.opt_einsum.enabled = with_opt_einsum
        torch.backends.mha.set_fastpath_enabled(with_fastpath)
        for name, is_enabled in kinds_of_attention.items():
            getattr(torch.backends.cuda, f"enable_{name}")(is_enabled)


CHOICES_OF_LIBRARIES = SharedByBlocks(_choices_made)
