"""What this host lends to a grid: its GPUs; and whether it ran out of memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cellrepro.store.this_machine import gpus


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, as it can name them.

    Returns
    -------
    list of str
        Their UUIDs, or the variable's own words where NVIDIA's library does not know them.
    """
    known = {str(index): gpu["uuid"] for index, gpu in enumerate(gpus())}
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = [*known] if chosen is None else chosen.split(",")
    return [known.get(word, word) for word in words if word not in ("", "-1", "NoDevFiles")]


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
