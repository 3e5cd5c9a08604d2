"""Compare two arrays from files in a process of its own, and print what that took.

``peak_memory.py MODE A B``; with the mode ``r`` the files are mapped, with ``-`` they are read.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np


def main(mode: str, path_a: str, path_b: str) -> int:
    """Compare two arrays; print peak memory in bytes, seconds, and objects."""
    from cellrepro.comparison.mask_comparison import compare_masks

    compare_masks(np.eye(3, dtype=int), np.eye(3, dtype=int))
    mapped = mode == "r"
    a = np.load(path_a, mmap_mode="r" if mapped else None)
    b = np.load(path_b, mmap_mode="r" if mapped else None)
    field = "RssAnon:" if mapped else "VmRSS:"
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        is_done = False
        while not is_done:  # and once more at the end: a short comparison has a peak, too
            is_done = done.wait(0.005)
            text = Path("/proc/self/status").read_text()
            peak = max(peak, int(text.split(field)[1].split()[0]) * 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    result = compare_masks(a, b)
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    print(peak, seconds, result.n_objects_a)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
