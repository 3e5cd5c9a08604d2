"""What this host lends to a grid: its GPUs; and whether it ran out of memory."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.store.this_machine import gpus


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, as it can name them.

    Their UUIDs, or the variable's own words where NVIDIA's library does not know them.
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


def n_killed_for_memory() -> int:
    """Count processes that the system has ended because memory was short; 0 if that is unknown.

    One of a container may be counted twice, so only whether the count grows means something.
    """
    total = 0
    for path in (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")):
        if path.is_file():
            counts = re.findall(r"^oom_kill (\d+)$", path.read_text("utf-8"), re.MULTILINE)
            total += sum(int(count) for count in counts)
    return total
