"""The checkpoints that a finished training has stored."""

from __future__ import annotations

from cellrepro.errors import BadInput
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.store import checkpoints
from cellrepro.store.checkpoints import Checkpoint
from cellrepro.store.store import Repeat

CHECKPOINTS = "checkpoints"
"""The folder of a stored repeat that holds those that were kept."""


def stored_checkpoints(repeat: Repeat) -> list[Checkpoint]:
    """Read the plain parts of a stored repeat's checkpoints, the earliest first."""
    stored = []
    for folder in checkpoints.folders(repeat.folder / CHECKPOINTS):
        repeat.file(f"{CHECKPOINTS}/{folder.name}/{checkpoints.PLAIN}")
        stored.append(checkpoints.read_plain(folder))
    return stored


def last_checkpoint(repeat: Repeat) -> Checkpoint:
    """The checkpoint of a finished training's last epoch, whole."""
    stored = stored_checkpoints(repeat)
    if not stored or stored[-1].epoch != repeat.spec.epochs:
        raise BadInput(
            f"{repeat.name} is no training that kept the checkpoint of its last epoch, from which "
            "it could go on; train with keep_checkpoints 'last', in another store if it is in this"
        )
    checkpoints.refuse_changed(stored[-1])
    return stored[-1]


def give_weights_of(checkpoint: Checkpoint, network: CellposeNetwork, dtype: str) -> None:
    """Give a network the weights of a checkpoint, to segment in a profile's precision."""
    import torch

    network.dtype = torch.float32  # in which it was trained
    network.load_state_dict(checkpoint.network())
    network.dtype = getattr(torch, dtype)
