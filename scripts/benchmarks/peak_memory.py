"""Compare two mask files in a process of its own, and print its memory, time and objects.

``peak_memory.py A B``. Pages of mapped files are not counted: the system takes them back at need.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path


def main(a: str, b: str) -> int:
    """Print peak memory in bytes, seconds, and objects of the first file."""
    started = time.perf_counter()
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        is_done = False
        while not is_done:  # and once more at the end: a short comparison has a peak, too
            is_done = done.wait(0.005)
            text = Path("/proc/self/status").read_text()
            peak = max(peak, int(text.split("RssAnon:")[1].split()[0]) * 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    from cellrepro.explanation.compare_files import compare

    result = compare(a, b)
    result.as_text()
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    print(peak, seconds, result.totals.n_objects_a)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
