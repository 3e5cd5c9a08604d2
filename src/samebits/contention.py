"""Another process that loads a device, since some races show only where a machine is busy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from samebits.errors import NotPossibleHere

# It ends with the process that started it, whose end closes its standard input.
_LOAD = """
import sys, threading
import torch
device = torch.device(sys.argv[1])
threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0)), daemon=True).start()
torch.set_num_threads(int(sys.argv[2]))
a = torch.rand(512, 512, device=device)
a @ a
print("loaded", flush=True)
while True:
    (a @ a).sum().item()
"""


@contextmanager
def contention(device: str = "cpu") -> Iterator[None]:
    """Load a device from another process while a block runs.

    Products of matrices, on a processor with a thread for each of its cores: threads of the block
    come later and in other orders than on an idle machine.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda``, ``cuda:1`` …

    Yields
    ------
    None
        Once the other process computes.

    Raises
    ------
    NotPossibleHere
        If it cannot compute on that device.
    """
    command = [sys.executable, "-c", _LOAD, device, str(os.cpu_count() or 1)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as load:
        try:
            assert load.stdout is not None
            assert load.stderr is not None
            if load.stdout.readline() != "loaded\n":
                reason = load.stderr.read().strip().splitlines()[-1:] or ["it ended"]
                raise NotPossibleHere(f"no process can load {device!r} here: {reason[0]}")
            yield
        finally:
            load.kill()
