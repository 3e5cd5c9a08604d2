"""Kill a program with all that it started, also after its parent was killed.

Run as a script, ``python process_trees.py PID`` is a guard: where its standard input closes without
a line, the parent is gone, and it kills the tree of that process. As such it imports nothing of
this package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator


def end_tree(pid: int) -> None:
    """Kill a process and all that it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # a group that has ended
            os.killpg(pid, signal.SIGKILL)
        return
    _end_by_parents(pid)


def _end_by_parents(pid: int) -> None:
    """Kill a process and its descendants, as far as each still names its parent."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()


@contextlib.contextmanager
def ended_with_us(pid: int) -> Iterator[None]:
    """Guard a process: if this one is killed within the block, that one and its tree are, too."""
    # The guard's input closes with us; only a line in it says that all went well.
    from cellrepro.own_scripts import script_command

    command = script_command(__file__, str(pid))
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:
        try:
            yield
        finally:
            guard.communicate(b"ended\n")


if __name__ == "__main__":
    if not sys.stdin.readline():
        end_tree(int(sys.argv[1]))
