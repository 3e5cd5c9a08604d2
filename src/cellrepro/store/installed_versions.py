"""Versions of what is installed and can change a result, and the numeric libraries in use."""

from __future__ import annotations

import functools
import platform
import re
from contextlib import suppress
from email import message_from_string
from email.message import Message
from importlib import metadata
from typing import Any

from cellrepro.store.hardware import driver
from samebits.libraries import has_library

_COMPUTING = (
    "cellpose",
    "torch",
    "torchvision",
    "segment-anything",
    "numpy",
    "scipy",
    "opencv-python-headless",
    "fastremap",
    "fill-voids",
    "tifffile",
    "imagecodecs",
)
"""Packages whose code computes a result."""


PACKAGES = ("cellrepro", *_COMPUTING, "safetensors", "papermill")
"""Packages whose version can change a result or its files."""


@functools.cache
def distributions() -> dict[str, str]:
    """Version of every installed distribution, by name, sorted."""
    heads = [_head(each) for each in metadata.distributions()]
    return dict(sorted((head["Name"], head["Version"]) for head in heads if head["Name"]))


def _head(distribution: metadata.Distribution) -> Message:
    """Name, version and the like, without the README behind them, which takes longest to read."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    return message_from_string(text.partition("\n\n")[0])


def versions() -> dict[str, str]:
    """Installed version of Python and of each of `PACKAGES`; absent ones are left out."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def numeric_versions() -> dict[str, str]:
    """Versions of `_COMPUTING`, without the build (``+cpu``, ``+cu130``): the device says that."""
    return {
        name: re.sub(r"\+(cpu|cu\d+)$", "", version)
        for name, version in versions().items()
        if name in _COMPUTING
    }


def cuda() -> dict[str, str | None]:
    """Versions of NVIDIA's driver and of PyTorch's CUDA runtime and cuDNN; null where absent."""
    if not has_library("torch"):
        return {"driver": driver(), "runtime": None, "cudnn": None}
    import torch

    cudnn = torch.backends.cudnn.version()
    return {
        "driver": driver(),
        "runtime": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
    }


def numeric_libraries() -> list[dict[str, Any]]:
    """The BLAS and OpenMP libraries loaded in this process, with their thread counts, in order."""
    from threadpoolctl import threadpool_info

    keys = ("user_api", "internal_api", "version", "num_threads", "architecture")
    pools = [{key: pool[key] for key in keys if key in pool} for pool in threadpool_info()]
    return sorted(pools, key=lambda pool: [str(pool.get(key)) for key in keys])  # not as they load
