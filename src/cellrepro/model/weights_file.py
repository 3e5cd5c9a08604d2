"""Files of weights: safetensors in float32, so that equal networks give equal files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from samebits.digests import file_digest
from samebits.errors import BadInput

if TYPE_CHECKING:
    import torch

    from cellrepro.model.encoders import CellposeNetwork

_ALIGNMENT = 8
"""The header of a safetensors file is padded to a multiple of so many bytes."""


def load_weights(network: CellposeNetwork, path: Path, *, encoder: str) -> None:
    """Load a file into a network; one that lacks a parameter, or has another, is refused."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        network.load_state_dict(load_file(path), strict=True)
    except (SafetensorError, RuntimeError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise BadInput(f"{path} does not fit the network {encoder!r}: {first_line}") from error


def save_weights(network: CellposeNetwork, path: Path, *, architecture: str) -> str:
    """Write a file of weights, and return its SHA-256."""
    from safetensors.torch import save_file

    save_file(_as_float32(network), path, metadata=_metadata(architecture))
    return file_digest(path)


def weights_digest(network: CellposeNetwork, *, architecture: str) -> str:
    """The digest that `save_weights` returns, without a file, or its bytes in memory."""
    tensors = _as_float32(network)
    digest = hashlib.sha256(_safetensors_header(tensors, _metadata(architecture)))
    for tensor in tensors.values():
        digest.update(tensor.reshape(-1).numpy().data)
    return digest.hexdigest()


def _as_float32(network: CellposeNetwork) -> dict[str, torch.Tensor]:
    """Every parameter and buffer as it is written, in the order of names."""
    import torch

    return {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in sorted(network.state_dict().items())
    }


def _metadata(architecture: str) -> dict[str, str]:
    """What the header says beside names and shapes."""
    return {"cellrepro": json.dumps({"architecture": architecture})}


def _safetensors_header(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> bytes:
    """The header of a safetensors file of float32 tensors, as that library writes it.

    `safetensors.torch.save` would hold the whole file in memory for it.
    """
    entries: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        start = end
        end += tensor.nbytes
        entries[name] = {"dtype": "F32", "shape": [*tensor.shape], "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
