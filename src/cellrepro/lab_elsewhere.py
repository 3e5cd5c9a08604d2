"""Commands that this environment cannot carry out, handed to the lab.

The core alone has the whole command line. A command that it cannot carry out runs with the same
words in the environment that ``cellrepro setup`` made; without one, a message says how to get it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cellrepro.commands import BY_NAME
from cellrepro.extras import EXTRA_OF, IN_THE_LAB, NeedsExtra, absent, missing_module, needs
from cellrepro.progress import print_note
from cellrepro.spec.lab_command import lab_command
from cellrepro.stated import SPELT
from cellrepro.version import __version__
from samebits.libraries import version_of

if TYPE_CHECKING:
    from cellrepro.process.lab import Lab


def carried_out(command: str, options: Mapping[str, object], *, work: Callable[[], int]) -> int:
    """Carry a command out here, or in the lab where this environment cannot."""
    what = f"`cellrepro {command}`"
    try:
        known = BY_NAME.get(command)
        missing = [] if known is None else absent(known.needed(options))
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
    if _is_about_this_cellpose(command) and not absent(["torch", "cellpose"]):
        version = version_of("cellpose")
        cellpose = "the Cellpose" if version is None else f"Cellpose {version}"
        raise NeedsExtra(
            f"{refusal}. Then {cellpose} of this environment is used; the lab in "
            f"{lab.folder} has a Cellpose of its own: {lab.command} {' '.join(SPELT.get()[:1])} …"
        )
    print_note(f"carried out by the lab in {lab.folder}")
    if lab.version != __version__:
        print_note(
            f"the lab has cellrepro {lab.version}, and this is {__version__}: "
            f"`{lab_command('setup', lab.folder, store=None)}` brings it up to date"
        )
    return handed_to(lab, SPELT.get())


def _is_about_this_cellpose(command: str) -> bool:
    known = BY_NAME.get(command)
    return known is not None and known.about_this_cellpose


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
