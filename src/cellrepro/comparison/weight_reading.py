"""Networks in files, of safetensors, PyTorch and Cellpose, also inside a checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeGuard

from cellrepro.comparison.file_content import FileContent, content_beside, is_optimizer
from cellrepro.comparison.stored_tensors import Numbers, View, strides_in_order
from cellrepro.comparison.torch_archives import content_of
from cellrepro.comparison.weight_tensors import NUMPY_TYPES, Tensor
from cellrepro.nested_values import each_once
from cellrepro.pickles import Refused, UnknownName
from cellrepro.store import checkpoints
from cellrepro.torch_files import is_saved_by_torch
from samebits.errors import BadInput
from samebits.generator_states import ENTRY

_KEYS_OF_NETWORKS = ("model_state_dict", "state_dict", "model", "net", "network", "weights")
"""Usual keys of a network in a checkpoint, the surest first."""
_NO_NETWORKS = ("optim", "sched", "scaler")  # in keys of what holds tensors of a different kind
_WRAPPERS = re.compile(r"\A(module\.|_orig_mod\.)+")  # of DataParallel and of torch.compile


class NoNetwork(ValueError):
    """A file that holds no network, or several."""


def open_weights(path: str | Path) -> dict[str, Tensor]:
    """Open a safetensors file, or what PyTorch saved; content tells which it is.

    Tensors by name, without the prefixes of `DataParallel` and `torch.compile`; none is read yet.
    """
    content = open_file(path)
    if content.why_no_network:
        raise _cannot_be_read(Path(path), content.why_no_network)
    return dict(content.network)


def open_file(path: str | Path) -> FileContent:
    """Read what lies in a file of tensors: a network, and what else a checkpoint has."""
    path = Path(path)
    try:
        content = _content(path)
    except BadInput:
        raise
    except UnknownName as error:
        raise BadInput(
            f"{path} is no weights file that can be read ({error}); save what is to be read as "
            "tensors, of a network torch.save(network.state_dict(), 'weights.pt')"
        ) from error
    except Exception as error:  # what a file that is something else ends in can be nearly any
        problem = str(error).partition("\n")[0]
        if not isinstance(error, Refused):
            problem = f"{type(error).__name__}: {problem}"
        raise _cannot_be_read(path, problem) from error
    of_parts = content.tensors.values()
    for name, tensor in chain(content.network.items(), *(part.items() for part in of_parts)):
        if tensor.dtype not in NUMPY_TYPES:
            raise BadInput(
                f"{path} holds {name} as {tensor.dtype}, and {', '.join(NUMPY_TYPES)} can be "
                "compared; store it as one of these"
            )
    return content


def _content(path: Path) -> FileContent:
    if path.is_dir():
        return _of_the_lab(path)
    if is_saved_by_torch(path):
        return _saved_by_torch(path)
    return FileContent(network=_open_safetensors(path))


def _cannot_be_read(path: Path, problem: str) -> BadInput:
    return BadInput(
        f"{path} is no weights file that can be read ({problem}); expected .safetensors, or a "
        "network's state_dict as torch.save and Cellpose write it; if it was copied or "
        "downloaded, do that again"
    )


def _of_the_lab(folder: Path) -> FileContent:
    """A checkpoint of the lab: two files, of tensors and of plain values."""
    plain = checkpoints.read_plain(folder)
    tensors = _open_safetensors(folder / checkpoints.STATE)
    network = {
        name.removeprefix(checkpoints.NETWORK): replace(
            tensor, stored_as=name, under=checkpoints.NETWORK.rstrip("/")
        )
        for name, tensor in tensors.items()
        if name.startswith(checkpoints.NETWORK)
    }
    state: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if not name.startswith(checkpoints.NETWORK):
            _, index, key = name.split("/")
            state.setdefault(index, {})[key] = tensor
    beside = {
        "optimizer": {"state": state, "param_groups": plain.groups},
        "origin": plain.origin.training(),
        "loop": plain.loop,
        "epoch": plain.epoch,
        "step": plain.step,
        ENTRY: plain.generators,
    }
    content = content_beside(beside, network={}, under="")
    return replace(content, network=network, under=checkpoints.NETWORK.rstrip("/"))


# -- safetensors -----------------------------------------------------------------------------


def _open_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the header; the library's NumPy reader has no bfloat16 and hands out whole tensors."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy"):
        pass  # the library checks the header, every range in it and the file's length
    with path.open("rb") as stream:
        n_header = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(n_header), object_pairs_hook=each_once)
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        shape = tuple(entry["shape"])
        start, end = (8 + n_header + offset for offset in entry["data_offsets"])
        numbers = Numbers(entry["dtype"], end - start, start)
        view = View(path, numbers, entry["dtype"], 0, shape, strides_in_order(shape))
        tensors[name] = view.tensor
    return tensors


# -- PyTorch ---------------------------------------------------------------------------------


def _saved_by_torch(path: Path) -> FileContent:
    content = content_of(path)
    try:
        key, tensors = _network_in(content)
    except NoNetwork as error:
        return content_beside(content, network={}, under="", why=str(error))
    is_one_to_one = len({_unwrapped(name) for name in tensors}) == len(tensors)
    network = {
        _unwrapped(name) if is_one_to_one else name: replace(tensor, stored_as=name, under=key)
        for name, tensor in tensors.items()
    }
    return content_beside(content, network=network, under=key)


def _unwrapped(name: str) -> str:
    """A tensor's name without what several GPUs put before it, as Cellpose (4.2.1.1) means to."""
    return _WRAPPERS.sub("", name)


def _network_in(content: object) -> tuple[str, Mapping[str, Tensor]]:
    """Find the network in what a file holds: all of it, or what is under a key of a checkpoint.

    The key has dots where it lies deeper, and is empty where the whole file is a network.
    """
    if _is_network(content):
        return "", content
    if is_optimizer(content):
        raise NoNetwork("it holds the state of an optimizer alone")
    networks = _networks_below(content)
    if not networks:
        raise NoNetwork("it holds no state_dict: names with tensors, by itself or under a key")
    known = [key for name in _KEYS_OF_NETWORKS for key in networks if key.split(".")[-1] == name]
    if len(networks) > 1 and not known:
        keys = ", ".join(networks)
        raise NoNetwork(f"it holds several networks, under {keys}: save the one to use by itself")
    key = known[0] if known else next(iter(networks))
    return key, networks[key]


def _is_network(content: object) -> TypeGuard[Mapping[str, Tensor]]:
    """Whether these are names with tensors, of which some hold real numbers."""
    if not isinstance(content, Mapping) or not content:
        return False
    if not all(isinstance(name, str) for name in content):
        return False
    tensors = [tensor for tensor in content.values() if isinstance(tensor, Tensor)]
    return len(tensors) == len(content) and any(tensor.is_real for tensor in tensors)


def _networks_below(
    content: object, prefix: str = "", depth: int = 2
) -> dict[str, Mapping[str, Tensor]]:
    """Networks in a checkpoint by their keys, but for what belongs to an optimizer."""
    if not isinstance(content, Mapping) or not depth:
        return {}
    networks: dict[str, Mapping[str, Tensor]] = {}
    for name, part in content.items():
        if is_optimizer(part) or any(word in str(name).lower() for word in _NO_NETWORKS):
            continue
        if _is_network(part):
            networks[f"{prefix}{name}"] = part
        else:
            networks |= _networks_below(part, f"{prefix}{name}.", depth - 1)
    return networks
