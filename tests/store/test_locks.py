"""Locks under three processes at once.

With ``PYTHONPATH`` set to a folder with a different filelock the processes use that one:
``pip install --target old --no-deps filelock==3.20.4``, then ``PYTHONPATH=old pytest FILE``.
"""

import subprocess
import sys
import textwrap

import pytest

from cellrepro.store import locks

N_PROCESSES = 3
SECONDS = 0.6

TAKES = """
    import os, sys, time
    from pathlib import Path
    from cellrepro.store.locks import is_locked, locked

    folder, wait, seconds = Path(sys.argv[1]), sys.argv[2] == "wait", float(sys.argv[3])
    marker = str(folder.parents[2] / "held")
    n_held = n_double = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with locked(folder, wait=wait) as is_ours:
            if not is_ours:
                continue
            n_held += 1
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                n_double += 1
                continue
            os.unlink(marker)
    print(n_held, n_double)
"""
LOOKS = """
    import sys, time
    from pathlib import Path
    from cellrepro.store.locks import is_locked

    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        is_locked(Path(sys.argv[1]))
"""


def start(script, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("wait", ["wait", "ask"])
def test_only_one_process_holds_a_lock(tmp_path, wait):
    """The lock's file and the folders above it come and go all the time."""
    folder = tmp_path / "unfinished" / "run" / "0"
    takers = [start(TAKES, folder, wait, SECONDS) for _ in range(N_PROCESSES)]
    counts = [[int(word) for word in taker.communicate()[0].split()] for taker in takers]
    assert all(n_held and not n_double for n_held, n_double in counts), counts
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_who_only_looks_holds_nothing(tmp_path):
    """A training that starts while the store is looked at is no second one."""
    folder = tmp_path / "0"
    lookers = [start(LOOKS, folder, 2 * SECONDS) for _ in range(N_PROCESSES - 1)]
    n_refused = n_tries = 0
    while any(looker.poll() is None for looker in lookers):
        with locks.locked(folder) as is_ours:
            n_tries += 1
            n_refused += not is_ours
    for looker in lookers:
        looker.communicate()
    assert n_tries > 100
    assert n_refused == 0
