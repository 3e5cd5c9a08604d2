"""Checkpoints of a training: all that its next step depends on, without pickle.

A checkpoint is a folder of two files, ``state.safetensors`` (weights and the optimizer's tensors)
and ``state.json`` (the rest). It appears whole or not at all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cellrepro.store.removal import remove_if_possible
from cellrepro.store.unchanged import digest_once
from cellrepro.store.whole_files import folder_to_disk, to_disk
from samebits import generator_states
from samebits.digests import file_digest
from samebits.errors import BadInput

_FORMAT = 1
STATE = "state.safetensors"
PLAIN = "state.json"
NETWORK = "network/"
"""Prefix of the network's tensors in `STATE`; the optimizer's have ``optimizer/0/``."""
_FOLDER = "epoch-"
CHECKPOINTS = "checkpoints"
"""Folder of a finished repeat with the checkpoints that were kept."""
START_ANEW = "remove that folder and train without --resume"
"""Advice at the end of what is said of a broken checkpoint."""


class BrokenCheckpoint(BadInput):
    """A checkpoint that is not whole, or has changed since it was written."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem}; {START_ANEW}"


@dataclass(frozen=True)
class Origin:
    """The training that a checkpoint belongs to."""

    spec: dict[str, Any]
    """The spec as plain values; the digests of data and model are among them."""
    repeat: int
    """Number of the repeat, from 0."""
    numeric_class: dict[str, Any]
    """``name`` and ``probes``, see `cellrepro.store.numeric_class`."""
    initial_weights: str
    """SHA-256 of the weights the training started from."""

    def training(self) -> dict[str, Any]:
        """Spec, repeat and initial weights, by the names that messages use."""
        return {
            **self.spec,
            "repeat": self.repeat,
            "initial weights": self.initial_weights,
        }


@dataclass(frozen=True)
class LoopState:
    """The state of a training between two steps, without weights and generators."""

    position: dict[str, Any]
    """Position of the loop as plain values, with ``epochs`` that are done and ``n_steps``."""
    optimizer: dict[str, Any]
    """State dict of the optimizer."""


@dataclass(frozen=True)
class TrainingState:
    """The state that a checkpoint restores, without the generators."""

    network: dict[str, Any]
    """State dict of the network, on the processor."""
    loop: LoopState
    """Position and optimizer, whose tensors are on the processor, too."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk, its plain part read."""

    folder: Path
    origin: Origin
    epoch: int
    """Epochs done."""
    step: int
    """Steps done."""
    loop: dict[str, Any]
    """Position of the loop, as in `LoopState`."""
    groups: list[dict[str, Any]]
    """Parameter groups of the optimizer."""
    generators: dict[str, Any]
    """States of the generators, by `generator_states.capture`."""
    n_rows: dict[str, int]
    """Rows that each ledger has up to here, by file name."""
    state: str
    """SHA-256 of the file of tensors, as it was written."""

    def network(self) -> dict[str, Any]:
        """The network's state dict alone, on the processor."""
        from safetensors import safe_open

        with safe_open(self.folder / STATE, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(NETWORK)]  # noqa: SIM118
            return {name.removeprefix(NETWORK): file.get_tensor(name) for name in names}

    def training_state(self) -> TrainingState:
        """Read all tensors, from which a training can go on."""
        from safetensors.torch import load_file

        network: dict[str, Any] = {}
        states: dict[int, dict[str, Any]] = {}
        for name, in_file in load_file(self.folder / STATE).items():
            tensor = in_file.clone()  # the file's own memory is aligned otherwise than PyTorch's
            if name.startswith(NETWORK):
                network[name.removeprefix(NETWORK)] = tensor
            else:
                _, index, key = name.split("/")
                states.setdefault(int(index), {})[key] = tensor
        groups = [
            {key: tuple(value) if key == "betas" else value for key, value in group.items()}
            for group in self.groups
        ]
        optimizer = {"state": states, "param_groups": groups}
        return TrainingState(network, LoopState(self.loop, optimizer))


def save(
    parent: Path,
    *,
    origin: Origin,
    network: Any,
    loop_state: LoopState,
    n_rows: Mapping[str, int],
) -> Path:
    """Write a checkpoint below a folder, whole or not at all."""
    from safetensors.torch import save_file

    loop = loop_state.position
    optimizer = loop_state.optimizer
    tensors = {f"{NETWORK}{name}": tensor for name, tensor in network.state_dict().items()}
    for index, state in optimizer["state"].items():
        tensors |= {f"optimizer/{index}/{key}": value for key, value in state.items()}
    epoch = len(loop["epochs"])
    folder = parent / f"{_FOLDER}{epoch:05d}"
    with _whole_checkpoint(folder) as scratch:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            scratch / STATE,
        )
        plain = {
            "format": _FORMAT,
            "origin": asdict(origin),
            "epoch": epoch,
            "step": loop["n_steps"],
            "loop": loop,
            "groups": optimizer["param_groups"],
            "generators": generator_states.capture(),
            "n_rows": dict(n_rows),
            "state": file_digest(scratch / STATE),
        }
        # NumPy's numbers become Python's, which have the same bits.
        text = json.dumps(plain, default=lambda number: number.item())
        (scratch / PLAIN).write_text(text, encoding="utf-8")
    return folder


def save_copy(checkpoint: Checkpoint, parent: Path) -> Path:
    """Write a checkpoint below another folder, whole or not at all."""
    folder = parent / checkpoint.folder.name
    with _whole_checkpoint(folder) as scratch:
        shutil.copyfile(checkpoint.folder / STATE, scratch / STATE)
        plain = {"format": _FORMAT, **asdict(checkpoint)}
        del plain["folder"]
        (scratch / PLAIN).write_text(json.dumps(plain), encoding="utf-8")
    return folder


@contextmanager
def _whole_checkpoint(folder: Path) -> Iterator[Path]:
    """Give a scratch folder for the two files, which an atomic rename turns into the checkpoint."""
    scratch = folder.with_name(f".{folder.name}.part")
    remove_if_possible(scratch)
    scratch.mkdir(parents=True)
    yield scratch
    for name in (STATE, PLAIN):
        to_disk(scratch / name)
    remove_if_possible(folder)
    scratch.rename(folder)
    folder_to_disk(folder.parent)


def is_one(folder: Path) -> bool:
    """Whether a folder holds the two files of a checkpoint."""
    return (folder / PLAIN).is_file() and (folder / STATE).is_file()


def read_plain(folder: Path) -> Checkpoint:
    """Read a checkpoint's plain part: which step it is of is known before gigabytes are read."""
    try:
        plain = json.loads((Path(folder) / PLAIN).read_text(encoding="utf-8"))
        written_as = plain.pop("format")
        if written_as != _FORMAT:
            raise ValueError(f"it has the format {written_as!r}; this version reads {_FORMAT}")
        return Checkpoint(folder=Path(folder), origin=Origin(**plain.pop("origin")), **plain)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenCheckpoint(f"{folder} is no whole checkpoint ({error})") from error


def refuse_changed(checkpoint: Checkpoint) -> None:
    """Raise unless a checkpoint's tensors are those it was written with."""
    path = checkpoint.folder / STATE
    digest = digest_once(path) if path.exists() else "of no file"
    if digest != checkpoint.state:
        raise BrokenCheckpoint(
            f"{path} changed since it was written: its SHA-256 is {digest[:12]}…, "
            f"not {checkpoint.state[:12]}…"
        )


def folders(parent: Path) -> list[Path]:
    """The checkpoints below a folder, the earliest first."""
    return sorted(parent.glob(f"{_FOLDER}*"), key=lambda path: (len(path.name), path.name))
