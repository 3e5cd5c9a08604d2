"""The peak of a process's memory, and how to reset it."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path


def peak_memory() -> dict[str, int | None]:
    """Peak bytes of this ``process``, and of PyTorch on the ``gpu``, None without one."""
    in_process = peak_memory_of_process()
    if "torch" not in sys.modules:  # then nothing of it took memory, and importing it takes some
        return {"process": in_process, "gpu": None}
    import torch

    gpu_is_used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "process": in_process,
        "gpu": torch.cuda.max_memory_allocated() if gpu_is_used else None,
    }


def peak_memory_of_process() -> int:
    """Peak resident bytes of this process."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not `getrusage`: on Linux its maximum goes on counting in a program that is started, so
        # it is that of a notebook's kernel where the kernel is larger than the worker it started.
        high_water = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text("utf-8"), re.MULTILINE)
        if high_water is not None:
            return int(high_water[1]) * 1024
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak_memory() -> None:
    """Reset the peak: on a GPU, and on Linux also of the process."""
    import torch

    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
