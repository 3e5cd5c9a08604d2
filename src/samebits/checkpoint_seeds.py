"""The seed of a training of one's own in its checkpoint: added, and checked before it goes on."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from samebits.errors import BadInput
from samebits.generator_states import ENTRY, capture, parsed_states
from samebits.seeds import check_seed


def other_seeds(state: Mapping[str, Any], seed: int) -> list[str]:
    """A sentence for each of PyTorch's generators in a state that began with another seed."""
    stored = parsed_states(state)
    states = {"torch": stored.torch}
    for index, cuda_state in enumerate(stored.cuda or ()):
        states[f"cuda:{index}"] = cuda_state
    sentences = []
    for name, numbers in states.items():
        # PyTorch's hold the seed that they began with.
        own_seed = int.from_bytes(bytes(numbers[:8]), "little")
        if own_seed != seed:
            sentences.append(f"{name}'s generator has seed {own_seed}")
    return sentences


def add_seed_to(checkpoint: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put seed and state of every generator into a dict that ``torch.save`` will write.

    Parameters
    ----------
    checkpoint : dict
        It gets one more entry, of plain numbers, which ``torch.load(weights_only=True)`` reads.

    Returns
    -------
    dict
        The same ``checkpoint``.

    Raises
    ------
    BadInput
        If PyTorch was not seeded with `samebits.seed_everything`, or the checkpoint is a
        network's bare state dict.
    """
    import torch

    initial_seed = torch.initial_seed()
    if initial_seed >= 2**32:  # drawn by PyTorch as it started, as long as nobody sets one
        raise BadInput(
            f"PyTorch's generator has the seed {initial_seed}, which no seed of samebits is: call "
            "samebits.seed_everything(seed) before the training begins"
        )
    if checkpoint and all(isinstance(value, torch.Tensor) for value in checkpoint.values()):
        raise BadInput(
            "the checkpoint holds tensors alone, as a network's state dict, which would not load "
            "with another entry; expected {'model': network.state_dict(), ...}"
        )
    checkpoint[ENTRY] = capture()
    return checkpoint


def check_seed_of(checkpoint: Mapping[str, Any] | str | Path, seed: int) -> bool:
    """Whether a checkpoint says that it is of a seed.

    Parameters
    ----------
    checkpoint : dict, str or Path
        The dict, or the path of a file that ``torch.save`` wrote.
    seed : int
        That of `samebits.seed_everything` in the process that saved it.

    Returns
    -------
    bool
        False, and a warning that says what is unknown, for one that was saved without
        `add_seed_to`.

    Raises
    ------
    BadInput
        If it is of a different seed, or the file cannot be read.
    """
    if isinstance(checkpoint, str | Path):
        name = str(checkpoint)
        content = _loaded(checkpoint)
    else:
        name = "the checkpoint"
        content = checkpoint
    if not isinstance(content, Mapping) or ENTRY not in content:
        warnings.warn(
            f"{name} holds no seed: which one it was trained with, and where its generators "
            "stood, is unknown, so a training that goes on from it may end in different bits; call "
            "samebits.add_seed_to(checkpoint) before torch.save",
            stacklevel=2,
        )
        return False
    problems = other_seeds(content, check_seed(seed))
    if problems:
        raise BadInput(
            f"{name} is not of seed {seed}: {'; '.join(problems)}; give the checkpoint of seed "
            f"{seed}, or go on with the seed that it was begun with"
        )
    return True


def _loaded(path: str | Path) -> Any:
    """The content of a file of ``torch.save``."""
    import torch

    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        if isinstance(error, EOFError):
            why = "it ends too soon, as on a disk that was full"
        else:
            why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"{path} cannot be read ({why}); expected a file that "
            "torch.save wrote, or the dict that you loaded from it"
        ) from error
