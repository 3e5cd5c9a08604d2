"""The NVIDIA GPUs of this machine, and which of them a process sees."""

from __future__ import annotations

import itertools
import os
from typing import Any

from cellrepro.errors import BadInput


def gpus() -> list[dict[str, Any]]:
    """The NVIDIA GPUs, by NVIDIA's own library: name, memory (bytes), driver, UUID."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [
            {
                "name": pynvml.nvmlDeviceGetName(gpu),
                "memory": pynvml.nvmlDeviceGetMemoryInfo(gpu).total,
                "driver": pynvml.nvmlSystemGetDriverVersion(),
                "uuid": pynvml.nvmlDeviceGetUUID(gpu),
            }
            for gpu in handles
        ]
    except pynvml.NVMLError:
        return []


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that ``CUDA_VISIBLE_DEVICES`` leaves: UUIDs, or the variable's own words.

    Words stay where NVIDIA's library does not know the GPU.
    """
    present = gpus()
    known = {str(index): gpu["uuid"] for index, gpu in enumerate(present)}
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [*known.values()]
    words = [word.strip() for word in chosen.split(",")]
    # CUDA ends its list at the first word that names no GPU.
    words = list(itertools.takewhile(lambda word: word not in ("", "-1", "NoDevFiles"), words))
    is_counted = any(word in known for word in words)
    has_other_kinds = len({gpu["name"] for gpu in present}) > 1
    by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if is_counted and has_other_kinds and not by_bus:
        raise BadInput(
            f"CUDA_VISIBLE_DEVICES is {chosen!r}, and this machine has GPUs of several kinds, "
            "which CUDA counts by their speed and NVIDIA's library by their bus: set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID (nvidia-smi -L)"
        )
    return [known.get(word, word) for word in words]


def driver() -> str | None:
    """The version of NVIDIA's driver; None without such a GPU."""
    return next((gpu["driver"] for gpu in gpus()), None)
