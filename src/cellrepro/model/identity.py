"""Why two weights files may differ while every parameter in them agrees."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from cellrepro.store.digests import file_digest


@dataclass(frozen=True)
class SavedAs:
    """One way of saving the same weights.

    Attributes
    ----------
    how : str
        What was done.
    file_digest : str
        SHA-256 of the file.
    parameters_equal : bool
        Whether every parameter read back has the bits of the original.
    """

    how: str
    file_digest: str
    parameters_equal: bool


def save_in_several_ways(weights: Path) -> list[SavedAs]:
    """Save the same parameters under two names and in another order, and read them back.

    ``torch.save``, which Cellpose uses, writes the file's own name into the archive, and the
    device of every tensor (torch 2.15); ``safetensors`` as the store writes it holds neither.

    Parameters
    ----------
    weights : Path
        A stored ``weights.safetensors``.

    Returns
    -------
    list of SavedAs
    """
    import torch
    from safetensors.torch import load_file, save_file

    original = load_file(weights)

    def row(how: str, path: Path, read: dict[str, torch.Tensor]) -> SavedAs:
        equal = read.keys() == original.keys() and all(
            torch.equal(read[name].view(torch.uint8), original[name].view(torch.uint8))
            for name in original
        )
        return SavedAs(how, file_digest(path), equal)

    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("monday.pth", "tuesday.pth"):
            path = Path(scratch, name)
            torch.save(original, path)
            rows.append(row(f"torch.save as {name}", path, torch.load(path, weights_only=True)))
        for how, names in (("in order", sorted(original)), ("reversed", sorted(original)[::-1])):
            path = Path(scratch, f"{how.split()[-1]}.safetensors")
            save_file({name: original[name] for name in names}, path)
            rows.append(row(f"safetensors, parameters given {how}", path, load_file(path)))
    return rows
