"""A process of its own, with limits, for a file that may ask for any memory or time.

`arrays_of` starts a script that calls `answer_with`. On Windows, and for memory on macOS, only time
and the size of the answer are held to.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cellrepro.own_scripts import script_command

_REFUSED = 2
_NOT_HERE = 3
_LEAST_MEMORY = 2**30  # bytes; NumPy itself takes about a tenth
_LEAST_SECONDS = 20
_SECONDS_PER_BYTE = 1e-7


class Refused(Exception):
    """The file holds something else than was expected, or asks for more than its limits."""


class NotHere(Exception):
    """The file may be good, and this machine cannot read it."""


@dataclass(frozen=True)
class Limits:
    """What reading a file may take."""

    memory: int
    """Bytes."""
    seconds: int
    """Of a processor."""
    answer: int
    """Bytes of the arrays that come of it."""

    @classmethod
    def for_bytes(cls, n_bytes: int, *, answer: int) -> Limits:
        """The usual limits for so many bytes that are read or made."""
        seconds = int(_LEAST_SECONDS + _SECONDS_PER_BYTE * n_bytes)
        return cls(_LEAST_MEMORY + 4 * n_bytes, seconds, answer)


def arrays_of(
    script: str, *arguments: str, limits: Limits, given: bytes = b""
) -> dict[str, np.ndarray]:
    """Run a script that ends with `answer_with`, and give its arrays."""
    words = [str(limits.memory), str(limits.seconds), str(limits.answer)]
    no_end = f"reading it did not end within {limits.seconds} s, or crashed"
    with (
        tempfile.TemporaryFile() as asked,
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as said,
    ):
        asked.write(given)
        asked.seek(0)
        try:
            ended = subprocess.run(
                script_command(script, *arguments, *words),
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # each thread takes memory
                stdin=asked,
                stdout=answer,
                stderr=said,
                timeout=4 * limits.seconds,  # of a busy machine
            )
        except subprocess.TimeoutExpired as error:
            raise Refused(no_end) from error
        said.seek(0)
        reason = said.read(2**20).decode(errors="replace").rpartition("\n")[2]
        if ended.returncode == _NOT_HERE:
            raise NotHere(reason)
        if ended.returncode == _REFUSED:
            raise Refused(reason)
        n_bytes = answer.seek(0, os.SEEK_END)
        if ended.returncode or n_bytes > limits.answer:
            raise Refused(no_end)
        answer.seek(0)
        with np.load(answer, allow_pickle=False) as arrays:
            return dict(arrays)


# -- in that process -------------------------------------------------------------------------------


def limits_given() -> Limits:
    """The limits to which this process, a script, was told to hold itself."""
    return Limits(*map(int, sys.argv[-3:]))


def answer_with(make: Callable[[], Mapping[str, np.ndarray]]) -> None:
    """Hold this process to its limits, and write the arrays that come of a function; then end."""
    limits = limits_given()
    hold_memory(limits.memory)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.answer, limits.answer))
    code = _REFUSED
    try:
        np.savez(sys.stdout.buffer, **make())  # type: ignore[arg-type]
        sys.stdout.flush()
        return
    except MemoryError:
        reason = f"it asks for more memory than the {limits.memory // 2**20} MiB of its size"
    except NotHere as error:
        code = _NOT_HERE
        reason = str(error)
    except Refused as error:
        reason = str(error)
    except Exception as error:  # damaged files end in nearly any
        reason = f"{type(error).__name__}: {ascii(str(error))[1:-1][:200]}"
    with contextlib.suppress(OSError):
        sys.stderr.write("\n" + " ".join(reason.split("\n")))
        sys.stderr.flush()
    os._exit(code)  # what is left half made is not taken down


def hold_memory(n_bytes: int) -> None:
    """Hold this process to so much memory, where the system can."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows; macOS refuses
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, resource.RLIM_INFINITY))
