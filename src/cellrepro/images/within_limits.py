"""A process with limits on memory and time, for a file whose decoder may take any of them.

`arrays_of` starts a script that calls `answer_with`; its last words are the folder for its answer
and the limits. Windows limits only the time that is waited and the size of the answer, and macOS
no memory.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cellrepro.errors import CellreproError
from cellrepro.images.mapped import Content, is_large
from cellrepro.own_scripts import script_command
from samebits.errors import BadInput, NotPossibleHere

Arrays = Mapping[str, np.ndarray]
"""What a script answers with."""

_REFUSED = 2
_NOT_HERE = 3
_FAILED = 4
_LEAST_MEMORY = 2**30  # bytes; NumPy itself takes about a tenth
_LEAST_SECONDS = 20
_SECONDS_PER_BYTE = 1e-7


class Failed(Exception):
    """Reading it took more than its limits, or ended in an error that the script does not know."""


@dataclass(frozen=True)
class Limits:
    """The memory, time and answer that reading a file may take."""

    memory: int
    """Bytes of memory."""
    seconds: int
    """CPU time."""
    answer: int
    """Size of the arrays in the answer, in bytes."""

    @classmethod
    def for_bytes(cls, n_bytes: int, *, answer: int) -> Limits:
        """Give the usual limits for reading or making ``n_bytes``."""
        seconds = int(_LEAST_SECONDS + _SECONDS_PER_BYTE * n_bytes)
        return cls(_LEAST_MEMORY + 4 * n_bytes, seconds, answer)


def arrays_of(
    script: str, *arguments: str, limits: Limits, content: Content = b""
) -> dict[str, np.ndarray]:
    """Run a script that ends with `answer_with`, with content on its standard input.

    What the script refuses, as `NotPossibleHere` or another error of the lab, is refused here.
    """
    numbers = map(str, (limits.memory, limits.seconds, limits.answer))
    no_end = f"reading it did not end within {limits.seconds} s, or crashed"
    with (
        tempfile.TemporaryFile() as stdin,
        # Windows removes no file that is mapped.
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as answer,
        tempfile.TemporaryFile() as errors,
    ):
        stdin.write(content)
        stdin.seek(0)
        try:
            ended = subprocess.run(
                script_command(script, *arguments, answer, *numbers),
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # each thread takes memory
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=4 * limits.seconds,  # of a busy machine
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(no_end) from error
        errors.seek(0)
        reason = errors.read(2**20).decode(errors="replace").rpartition("\n")[2]
        if ended.returncode == _NOT_HERE:
            raise NotPossibleHere(reason)
        if ended.returncode == _REFUSED:
            raise BadInput(reason)
        if ended.returncode == _FAILED:
            raise Failed(reason)
        files = sorted(Path(answer).glob("*.npy"))
        if ended.returncode or sum(file.stat().st_size for file in files) > limits.answer:
            raise Failed(no_end)
        return {file.stem: _loaded(file) for file in files}


def _loaded(file: Path) -> np.ndarray:
    is_mapped = is_large(file.stat().st_size)
    return np.load(file, mmap_mode="r" if is_mapped else None, allow_pickle=False)


# -- in that process -------------------------------------------------------------------------------


def answer_with(make: Callable[[], Arrays]) -> None:
    """Set this process's limits, and write a function's arrays, or end with its reason."""
    scratch = Path(sys.argv[-4])
    limits = Limits(*map(int, sys.argv[-3:]))
    hold_memory(limits.memory)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        for kind, limit in (
            (resource.RLIMIT_CPU, limits.seconds),
            (resource.RLIMIT_FSIZE, limits.answer),
        ):
            within = _within_hard_limit(kind, limit)
            resource.setrlimit(kind, (within, within))
    code = _FAILED
    try:
        for name, array in make().items():
            np.save(scratch / f"{name}.npy", array)
        return
    except MemoryError:
        reason = f"it asks for more memory than the {limits.memory // 2**20} MiB of its size"
    except NotPossibleHere as error:
        code = _NOT_HERE
        reason = str(error)
    except CellreproError as error:
        code = _REFUSED
        reason = str(error)
    except Exception as error:  # damaged files end in nearly any
        reason = f"{type(error).__name__}: {ascii(str(error))[1:-1][:200]}"
    with contextlib.suppress(OSError):
        sys.stderr.write("\n" + " ".join(reason.split("\n")))
        sys.stderr.flush()
    os._exit(code)  # at once, without destructors of what is half made


def array_of_zeros(shape: tuple[int, ...], dtype: np.dtype, *, maps: bool) -> np.ndarray:
    """Make an array; a mapped one lies in a temporary file that is gone with it."""
    if not maps:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def hold_memory(n_bytes: int) -> None:
    """Limit this process's memory, where the system can."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows; macOS refuses
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)  # stays, as more may be needed later
        within = _within_hard_limit(resource.RLIMIT_AS, n_bytes)
        resource.setrlimit(resource.RLIMIT_AS, (within, hard))


def _within_hard_limit(kind: int, limit: int) -> int:
    """The limit, or the hard one of this process where that is lower, as only root raises it."""
    import resource

    _, hard = resource.getrlimit(kind)
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard)
