"""What must be said before a process starts, and whether it was.

Python and the libraries beneath PyTorch read these variables once. Setting them later changes
``os.environ`` and nothing else, so it is refused with the way to do it in time.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from cellrepro.determinism import modes
from cellrepro.determinism.seeding import check_seed
from cellrepro.errors import BadInput

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Thread counts that libraries read when they are loaded."""

_INITIAL = Path("/proc/self/environ")


def startup_variables(
    seed: int, *, mode: str = "fast", threads: int | None = None
) -> dict[str, str]:
    """The variables to start a process with, beside seeding inside it.

    Parameters
    ----------
    seed : int
        In [0, 2**32); becomes ``TCNN_SEED``. ``PYTHONHASHSEED`` is always "0", so that sets and
        hashes of text come in one order whatever the seed.
    mode : str
        ``warn`` and ``strict`` add ``CUBLAS_WORKSPACE_CONFIG``; see `determinism.environment`.
    threads : int, optional
        At least 1; by default the machine decides, and results differ between machines.

    Raises
    ------
    BadInput
        If the seed is out of range, there is no such mode, or the threads are no count.

    Examples
    --------
    >>> startup_variables(3)
    {'PYTHONHASHSEED': '0', 'TCNN_SEED': '3'}
    >>> startup_variables(3, mode="strict")["CUBLAS_WORKSPACE_CONFIG"]
    ':4096:8'
    """
    variables = {"PYTHONHASHSEED": "0", "TCNN_SEED": str(check_seed(seed))}
    variables |= modes.environment(mode)
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise BadInput(f"threads is {threads!r}; expected a whole number from 1, or None")
        variables |= dict.fromkeys(THREADS, str(threads))
    return variables


def variables_at_start() -> dict[str, str]:
    """The environment this process was started with, as far as it can be known.

    On Linux the kernel keeps it. Elsewhere, and where the process has overwritten that memory
    with a title of its own (setproctitle does), it is ``os.environ`` as it is now. What
    ``PYTHONHASHSEED`` really is follows from ``sys.flags`` everywhere: ``python -I`` and ``-E``
    ignore the variable. A forked process answers as the one that was started.
    """
    variables = _initial()
    if variables is None:
        variables = dict(os.environ)
    if not sys.flags.hash_randomization:
        variables["PYTHONHASHSEED"] = "0"
    elif sys.flags.ignore_environment or variables.get("PYTHONHASHSEED") == "0":
        variables.pop("PYTHONHASHSEED", None)
    return variables


def require_at_startup(variables: Mapping[str, str], *, what: str = "this") -> None:
    """Raise unless this process was started with these variables and still has them.

    Parameters
    ----------
    variables : mapping of str to str
        As `startup_variables` or a profile's ``variables`` give them.
    what : str
        What needs them, for the message.

    Raises
    ------
    BadInput
        If one was different at the start, set too late, or changed since; the message says which
        and how to start the process. Also if the variables are no mapping of text to text.

    Examples
    --------
    >>> require_at_startup({})
    >>> require_at_startup({"NEVER_SET": "1"}, what="the example")
    Traceback (most recent call last):
    ...
    cellrepro.errors.BadInput: the example needs ... NEVER_SET is not set, expected '1'; ...
    """
    if not isinstance(variables, Mapping) or not all(
        isinstance(text, str) for item in variables.items() for text in item
    ):
        raise BadInput(f"variables is {variables!r}; expected names with values, both text")
    started = variables_at_start()
    problems = [
        problem
        for name, expected in variables.items()
        if (problem := _problem(name, expected, started.get(name), os.environ.get(name)))
    ]
    if problems:
        command = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        raise BadInput(
            f"{what} needs variables that must be set before the process starts, but here "
            f"{'; '.join(problems)}; start it again as `{command} python ...` (a notebook's "
            "Jupyter likewise: in a cell it is too late), or through `cellrepro train`, "
            "`cellrepro grid` or a notebook's call of cellrepro.train, which start a process of "
            "their own with their profile's variables"
        )


def _problem(name: str, expected: str, started: str | None, now: str | None) -> str | None:
    """What is wrong with one variable, or none."""
    if started == expected == now:
        return None
    if started == expected:
        then = "removed" if now is None else f"changed to {now!r}"
        return f"{name} was {expected!r} at the start and has since been {then}"
    was = "not set" if started is None else repr(started)
    if now == expected:
        return f"{name} was {was} at the start and took {expected!r} too late, or was ignored"
    return f"{name} is {was}, expected {expected!r}"


def _initial() -> dict[str, str] | None:
    """The environment as the kernel keeps it; none where it keeps none, or it is overwritten."""
    try:
        entries = [entry for entry in _INITIAL.read_bytes().split(b"\0") if entry]
    except OSError:
        return None
    if not entries or not all(b"=" in entry for entry in entries):
        return None
    variables: dict[str, str] = {}
    for entry in entries:
        name, _, value = entry.partition(b"=")
        variables.setdefault(os.fsdecode(name), os.fsdecode(value))  # the first one counts in C
    return variables
