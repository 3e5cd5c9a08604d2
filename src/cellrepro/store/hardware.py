"""The hardware of this machine: processor, memory, and the NVIDIA GPUs that a process sees."""

from __future__ import annotations

import functools
import itertools
import os
import platform
import re
from pathlib import Path
from typing import Any, NamedTuple

from samebits.errors import BadInput


def host() -> dict[str, Any]:
    """Processor, cores, memory (bytes), system and GPUs; PyTorch need not be imported."""
    import psutil

    own = processor()
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "processor": own.name,
        "architecture": platform.machine(),
        "instructions": [name for name in ("avx2", "avx512f", "amx_bf16") if name in own.flags],
        "cores": os.cpu_count() if affinity is None else len(affinity(0)),
        "memory": psutil.virtual_memory().total,
        "system": platform.platform(terse=True),
        "gpus": [{name: gpu[name] for name in ("name", "memory", "driver")} for gpu in gpus()],
    }


class Processor(NamedTuple):
    """The processor of this machine."""

    name: str
    flags: set[str]
    """The instructions that it has, as the system calls them."""


@functools.cache
def processor() -> Processor:
    """Ask the system for its processor."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():  # py-cpuinfo reads this too, and takes a second for other sources
        first = listing.read_text(encoding="utf-8").split("\n\n")[0]
        fields = dict(re.findall(r"^(model name|flags)\s*: (.*)$", first, re.MULTILINE))
        if len(fields) == 2:
            return Processor(fields["model name"].strip(), set(fields["flags"].split()))
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return Processor(info.get("brand_raw", platform.processor()), set(info.get("flags", ())))


# -- NVIDIA's GPUs -----------------------------------------------------------------------------


def gpus() -> list[dict[str, Any]]:
    """The NVIDIA GPUs, by NVIDIA's own library: name, memory (bytes), driver, UUID.

    The memory is None of a GPU that shares the processor's, as that of GB10 does.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [
            {
                "name": pynvml.nvmlDeviceGetName(gpu),
                "memory": _memory_of(gpu),
                "driver": pynvml.nvmlSystemGetDriverVersion(),
                "uuid": pynvml.nvmlDeviceGetUUID(gpu),
            }
            for gpu in handles
        ]
    except pynvml.NVMLError:
        return []


def _memory_of(gpu: Any) -> int | None:
    """The memory of a GPU, by its handle; None where NVIDIA's library does not know it."""
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total)
    except pynvml.NVMLError_NotSupported:
        return None


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
