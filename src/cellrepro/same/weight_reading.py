"""Networks in files, of safetensors, PyTorch and Cellpose, also inside a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.extras import needs
from cellrepro.libraries import has_library
from cellrepro.same.torch_archives import StoredTensor, content_of
from cellrepro.same.weight_tensors import NUMPY_TYPES, Bits, Tensor

if TYPE_CHECKING:
    import torch

    AnyTensor: TypeAlias = torch.Tensor | StoredTensor

ZIP = b"PK\x03\x04"
"""How files begin that PyTorch saves since version 1.6; no length of a safetensors header."""
PICKLE = b"\x80\x02\x8a\nl\xfc\x9cF"
"""How those begin that it saved before."""

_KEYS_OF_NETWORKS = ("model_state_dict", "state_dict", "model", "net", "network", "weights")
"""Usual keys of a network in a checkpoint, the surest first."""
_NO_NETWORKS = ("optim", "sched", "scaler")  # in keys of what holds tensors of a different kind
_WRAPPERS = ("module.", "_orig_mod.")  # of DataParallel and of torch.compile, before every name
_CODES = {"bfloat": "BF", "float": "F", "uint": "U", "int": "I"}
"""Words in PyTorch's names of dtypes, and letters in those of safetensors."""


def open_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the header of a safetensors file, or map what PyTorch saved; content tells which it is.

    Parameters
    ----------
    path : str or Path
        Of a network as safetensors, PyTorch or Cellpose writes it, or of a checkpoint with one.

    Returns
    -------
    dict of str to Tensor
        By name, without the prefixes of `DataParallel` and `torch.compile`.

    Raises
    ------
    BadInput
        If it is no such file or a damaged one, holds no network or several, or has tensors of a
        type that cannot be compared.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            beginning = stream.read(len(PICKLE))
        is_archive = beginning.startswith(ZIP)
        if is_archive and not has_library("torch"):
            tensors = _open_archive(path)
        elif is_archive or beginning.startswith(PICKLE):
            tensors = _open_torch(path, mapped=is_archive)
        else:
            tensors = _open_safetensors(path)
    except ModuleNotFoundError as error:  # a file of PyTorch before 1.6
        raise needs(["torch"], what=f"reading {path}, which an old PyTorch wrote,") from error
    except Exception as error:  # of a file that is something else PyTorch raises anything
        problem = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise BadInput(
            f"{path} is no weights file that can be read ({problem}); expected .safetensors, or a "
            "network's state_dict as torch.save and Cellpose write it; if it was copied or "
            "downloaded, do that again"
        ) from error
    for name, tensor in tensors.items():
        if tensor.dtype not in NUMPY_TYPES:
            raise BadInput(
                f"{path} holds {name} as {tensor.dtype}, and {', '.join(NUMPY_TYPES)} can be "
                "compared; store it as one of these"
            )
    return tensors


# -- safetensors -----------------------------------------------------------------------------


def _open_safetensors(path: Path) -> dict[str, Tensor]:
    """The library's own NumPy reader has no bfloat16 and hands out whole tensors only."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy"):
        pass  # the library checks the header, every range in it and the file's length
    with path.open("rb") as stream:
        n_header = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(n_header))
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        shape = tuple(entry["shape"])
        offset = 8 + n_header + entry["data_offsets"][0]
        read = partial(_read_from_file, path, entry["dtype"], math.prod(shape), offset)
        tensors[name] = Tensor(dtype=entry["dtype"], shape=shape, read=read)
    return tensors


def _read_from_file(path: Path, dtype: str, n: int, offset: int, start: int, stop: int) -> Bits:
    """Parameters start to stop of a tensor of n that begins at a byte of a file."""
    width = np.dtype(NUMPY_TYPES[dtype]).itemsize
    n_asked = min(stop, n) - start
    bits = np.fromfile(path, f"<u{width}", count=n_asked, offset=offset + start * width)
    if len(bits) < n_asked:
        raise BadInput(f"{path} became shorter while it was read; let its writer finish")
    return bits


# -- PyTorch's files, without PyTorch --------------------------------------------------------


def _open_archive(path: Path) -> dict[str, Tensor]:
    key, network = _network_in(content_of(path))
    return {
        _unwrapped(str(name)): Tensor(
            dtype=tensor.dtype,
            shape=tensor.shape,
            read=tensor.read,
            stored_as=str(name),
            under=key,
        )
        for name, tensor in network.items()
        if isinstance(tensor, StoredTensor)
    }


# -- PyTorch ---------------------------------------------------------------------------------


def _open_torch(path: Path, *, mapped: bool) -> dict[str, Tensor]:
    import torch

    with torch.serialization.safe_globals(_plain_numbers_of_numpy()):
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    key, network = _network_in(content)
    return {
        _unwrapped(str(name)): Tensor(
            dtype=_dtype_code(tensor),
            shape=tuple(tensor.shape),
            read=partial(_read_from_memory, tensor.detach()),
            stored_as=str(name),
            under=key,
        )
        for name, tensor in network.items()
        if isinstance(tensor, torch.Tensor)
    }


def _unwrapped(name: str) -> str:
    """A tensor's name as Cellpose's own loading means to read it (4.2.1.1), for networks that
    several GPUs trained."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    return name


def _dtype_code(tensor: torch.Tensor) -> str:
    """As safetensors spells it; of a sparse tensor something that is refused."""
    import torch

    if tensor.layout != torch.strided:
        return f"{tensor.layout} tensor".upper()
    code = str(tensor.dtype).removeprefix("torch.")
    for word, letters in _CODES.items():
        code = code.replace(word, letters)
    return code.upper()


def _read_from_memory(tensor: torch.Tensor, start: int, stop: int) -> Bits:
    """Parameters start to stop of a tensor that PyTorch mapped."""
    import torch

    width = tensor.element_size()
    integers = tensor.reshape(-1).view(getattr(torch, f"int{8 * width}"))
    return integers[start:stop].numpy().view(f"<u{width}")


def _network_in(content: object) -> tuple[str, Mapping[str, AnyTensor]]:
    """A network's tensors in what a file holds: all of it, or what is under a key of a checkpoint.

    Parameters
    ----------
    content : object
        What `torch.load` gave, or `content_of`.

    Returns
    -------
    tuple of str and mapping
        The key, with dots where it lies deeper, empty where the whole file is a network; and the
        tensors by name.

    Raises
    ------
    TypeError
        If there is none, or several and no name tells which is meant.
    """
    if _is_network(content):
        return "", content
    networks = _networks_below(content)
    if not networks:
        raise TypeError("it holds no state_dict: names with tensors, by itself or under a key")
    known = [key for name in _KEYS_OF_NETWORKS for key in networks if key.split(".")[-1] == name]
    if len(networks) > 1 and not known:
        keys = ", ".join(networks)
        raise TypeError(f"it holds several networks, under {keys}: save the one to use by itself")
    key = known[0] if known else next(iter(networks))
    return key, networks[key]


def _is_network(content: object) -> TypeGuard[Mapping[str, AnyTensor]]:
    """Whether these are names with tensors, of which some hold real numbers."""
    if not isinstance(content, Mapping) or not content:
        return False
    if not all(isinstance(name, str) for name in content):
        return False
    if all(isinstance(tensor, StoredTensor) for tensor in content.values()):
        return any(tensor.has_real_numbers for tensor in content.values())
    return has_library("torch") and _are_tensors_of_torch(content)


def _are_tensors_of_torch(content: Mapping[str, object]) -> bool:
    import torch

    tensors = [tensor for tensor in content.values() if isinstance(tensor, torch.Tensor)]
    if len(tensors) < len(content):
        return False
    return any(tensor.dtype.is_floating_point for tensor in tensors)


def _networks_below(
    content: object, prefix: str = "", depth: int = 2
) -> dict[str, Mapping[str, AnyTensor]]:
    """Networks in a checkpoint by their keys, but for what belongs to an optimizer."""
    if not isinstance(content, Mapping) or not depth:
        return {}
    networks: dict[str, Mapping[str, AnyTensor]] = {}
    for name, part in content.items():
        if any(word in str(name).lower() for word in _NO_NETWORKS):
            continue
        if _is_network(part):
            networks[f"{prefix}{name}"] = part
        else:
            networks |= _networks_below(part, f"{prefix}{name}.", depth - 1)
    return networks


def _plain_numbers_of_numpy() -> list[Any]:
    """What stands for a number of NumPy in a pickle, as a loss in a checkpoint often is."""
    from numpy._core.multiarray import scalar

    numbers = (np.float64, np.float32, np.int64, np.int32)
    return [scalar, np.dtype, *(type(np.dtype(number)) for number in numbers)]
