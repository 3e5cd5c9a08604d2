"""What the machine and its libraries are."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "cellrepro",
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
    "safetensors",
    "papermill",
)
"""Packages whose version can change a result, or how it is stored."""


def versions() -> dict[str, str]:
    """Installed version of each of `PACKAGES`, and of Python; absent ones are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def host() -> dict[str, Any]:
    """Name the machine: processor, cores, memory (bytes), system, GPUs.

    GPUs are asked of NVIDIA's own library, so PyTorch need not be imported.
    """
    import psutil

    processor, flags = _processor()
    return {
        "processor": processor,
        "architecture": platform.machine(),
        "instructions": [name for name in ("avx2", "avx512f", "amx_bf16") if name in flags],
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "system": platform.platform(terse=True),
        "gpus": gpus(),
    }


def _processor() -> tuple[str, set[str]]:
    """Name and instruction flags of the processor."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():  # py-cpuinfo reads this too, and takes a second for other sources
        first = listing.read_text(encoding="utf-8").split("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        if "model name" in fields and "flags" in fields:
            return fields["model name"], set(fields["flags"].split())
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return info.get("brand_raw", platform.processor()), set(info.get("flags", ()))


def gpus() -> list[dict[str, Any]]:
    """The NVIDIA GPUs of this machine: name, memory (bytes), driver; empty without any."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                "driver": pynvml.nvmlSystemGetDriverVersion(),
            }
            for handle in handles
        ]
    finally:
        pynvml.nvmlShutdown()


def numeric_libraries() -> list[dict[str, Any]]:
    """The BLAS and OpenMP libraries loaded in this process, with their thread counts, in order."""
    from threadpoolctl import threadpool_info

    keys = ("user_api", "internal_api", "version", "num_threads", "architecture")
    pools = [{key: pool[key] for key in keys if key in pool} for pool in threadpool_info()]
    return sorted(pools, key=lambda pool: [str(pool.get(key)) for key in keys])  # not as they load
