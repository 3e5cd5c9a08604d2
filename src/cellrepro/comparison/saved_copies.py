"""One network saved under several names and in several orders, and how the files differ."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.comparison.weight_files import FileComparison, compare_files
from samebits.digests import file_digest


class SavedFile(NamedTuple):
    """A file in which a network was saved again."""

    name: str
    """Its file name."""
    digest: str
    """SHA-256 of its bytes."""
    same_parameters: bool
    """Whether every bit of the network came back."""
    beside: str
    """The first file of its format; its own name where it is the first."""
    comparison: FileComparison
    """How it differs from that file."""


def saved_in_several_ways(weights: Path) -> Iterator[SavedFile]:
    """Save a stored network again: under several names, in two orders, from a GPU if any."""
    import torch
    from safetensors.torch import load_file, save_file

    network = load_file(weights)
    tensors_by_file = {
        "monday.pth": network,
        "tuesday.pth": network,
        "in_order.safetensors": network,
        "reversed.safetensors": dict(reversed(network.items())),
    }
    if torch.cuda.is_available():
        tensors_by_file["from_gpu.pth"] = {name: tensor.cuda() for name, tensor in network.items()}
    first_of_format: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, tensors in tensors_by_file.items():
            path = Path(scratch, name)
            save = torch.save if path.suffix == ".pth" else save_file
            save(tensors, path)
            same = compare_weights(weights, path).equal
            first = first_of_format.setdefault(path.suffix, path)
            comparison = compare_files(first, path, same_parameters=same)
            yield SavedFile(name, file_digest(path), same, first.name, comparison)
