"""Which commands need the lab, and how they are carried out where this environment has none.

The core alone has the whole command line. What it cannot do runs in the environment that
``cellrepro setup`` has made, with the same words; without one, the message says how to get it.
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
"""What a command needs beside the core; one that is not here may still find that it does."""
_WITHOUT = {"explain": "image", "tiles": "data", "verify": "replay"}
"""Commands that read files alone where this option or argument is not given."""


def needed_by(command: str, options: Mapping[str, object]) -> Sequence[str]:
    """The modules that a command with these options needs beside those of the core."""
    deciding = _WITHOUT.get(command)
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
    """Hand this command line to the lab; refuse where there is none, or it would swap Cellpose."""
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
    """Have the lab's command line carry out some words.

    Its exit code, if this process is still there.
    """
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
            except KeyboardInterrupt:  # the lab hears of it, too, and ends in its own way
                continue
