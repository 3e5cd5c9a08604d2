"""Which commands need the lab, and how they are handed to it where this environment lacks it.

The core alone has the whole command line. A command that it cannot carry out runs with the same
words in the environment that ``cellrepro setup`` made; without one, a message says how to get it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cellrepro.extras import (
    ABOUT_THIS_CELLPOSE,
    EXTRA_OF,
    IN_THE_LAB,
    NeedsExtra,
    absent,
    missing_module,
    needs,
)
from cellrepro.stated import SPELT
from cellrepro.version import __version__

if TYPE_CHECKING:
    from cellrepro.process.lab import Lab

_NETWORK = ("torch", "cellpose", "pyarrow")
_NOTEBOOKS = (*_NETWORK, "papermill", "nbformat", "ipykernel")
_OF_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "audit": _NETWORK,
    "demo": (*_NOTEBOOKS, "pandas"),
    "diverge": _NETWORK,
    "doctor": _NETWORK,
    "explain": _NETWORK,
    "grid": _NOTEBOOKS,
    "growth": _NETWORK,
    "report": ("pandas", "pyarrow"),
    "segment": _NETWORK,
    "sensitivity": _NETWORK,
    "tiles": _NETWORK,
    "track": ("mlflow",),
    "train": _NETWORK,
    "verify": _NETWORK,
    "watch": ("rich",),
}
"""Modules that a command always needs beside the core; others may lack one only as they run."""
_NEEDED_ONLY_WITH = {"explain": "image", "tiles": "data", "verify": "replay"}
"""Commands that need them only where this option or argument is given."""


def needed_by(command: str, options: Mapping[str, object]) -> Sequence[str]:
    """The modules that a command with these options needs beside the core."""
    deciding = _NEEDED_ONLY_WITH.get(command)
    if deciding is not None and options.get(deciding) in (None, False):
        return ()
    return _OF_COMMANDS.get(command, ())


def carried_out(command: str, options: Mapping[str, object], *, work: Callable[[], int]) -> int:
    """Carry a command out here, or in the lab where this environment cannot."""
    what = f"`cellrepro {command}`"
    try:
        missing = absent(needed_by(command, options))
        if missing:
            raise needs(missing, what=what)
        return work()
    except ModuleNotFoundError as error:
        module = missing_module(error)
        if module is None:
            raise
        return _in_lab(needs([module], what=what), command)
    except NeedsExtra as refusal:
        return _in_lab(refusal, command)


def _in_lab(refusal: NeedsExtra, command: str) -> int:
    """Hand this command line to the lab; refuse without a lab, or where Cellpose would change."""
    from cellrepro.process.lab import known_lab

    lab = known_lab()
    if lab is None or lab.is_here:
        raise refusal
    if any(EXTRA_OF[module] not in IN_THE_LAB for module in refusal.modules):
        raise refusal  # the lab would say the same
    if command in ABOUT_THIS_CELLPOSE and not absent(["torch", "cellpose"]):
        from importlib import metadata

        version = metadata.version("cellpose")
        raise NeedsExtra(
            f"{refusal}. Then Cellpose {version} of this environment is used; the lab in "
            f"{lab.folder} has a Cellpose of its own: {lab.command} {' '.join(SPELT.get()[:1])} …"
        )
    sys.stderr.write(f"note: carried out by the lab in {lab.folder}\n")
    if lab.version != __version__:
        sys.stderr.write(
            f"note: the lab has cellrepro {lab.version}, and this is {__version__}: "
            f"`cellrepro setup {lab.folder}` brings it up to date\n"
        )
    return handed_to(lab, SPELT.get())


def handed_to(lab: Lab, words: Sequence[str], *, replaces: bool = os.name == "posix") -> int:
    """Run the lab's command line with these words; on POSIX it replaces this process."""
    from cellrepro.process.lab import environment_for

    command = [str(lab.command), *words]
    environment = environment_for(lab, os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    if replaces:
        os.execve(command[0], command, environment)
    import subprocess

    with subprocess.Popen(command, env=environment) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the lab gets the signal, too, and ends in its own way
                continue
