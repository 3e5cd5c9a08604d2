"""The ``setup`` command: the lab in an environment of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cellrepro.commands import BY_NAME
from cellrepro.extras import absent
from cellrepro.process.lab import Lab, make_lab
from cellrepro.terminal import FileName
from samebits.libraries import version_of
from samebits.results import Result
from samebits.words import joined


@dataclass(frozen=True, repr=False)
class LabMade(Result):
    """The full lab that was made."""

    python: Path
    """Path of its Python."""
    command: Path
    """Path of its ``cellrepro``."""
    version: str
    """Version of cellrepro in it."""
    _lab: Lab

    def sentence(self) -> str:
        """Say where it is."""
        return f"the lab is in {self._lab.folder}, and nothing that was installed has changed"

    def lines(self) -> list[str]:
        """Give the sentence, and what to do next."""
        jupyter = self._lab.program("jupyter")
        return [
            self.sentence(),
            "commands that need it now run there: cellrepro doctor",
            *_kept_to_this_cellpose(self._lab),
            f"its notebooks: {self.command} notebooks FOLDER, then {jupyter} lab FOLDER",
        ]


def set_up_lab(folder: FileName, /, *, python: str | None = None) -> LabMade:
    """Make the full lab in an environment of its own; nothing that is installed changes.

    Parameters
    ----------
    folder : str or Path
        A new folder, or one that this command has made.
    python : str, optional
        The interpreter to make it with; by default the one that runs this.

    Returns
    -------
    LabMade
        Where its programs are.

    Raises
    ------
    BadInput
        If something else is in the folder, or there is no such interpreter.
    NotPossibleHere
        If a library cannot be fetched or installed.

    Examples
    --------
    Make the lab in the new folder lab; your Cellpose stays as it is

    ``cellrepro setup lab``
    """
    lab = make_lab(folder, python=python)
    return LabMade(lab.python, lab.command, lab.version, lab)


def _kept_to_this_cellpose(lab: Lab) -> list[str]:
    """The commands that do not run in the lab, since they are about the Cellpose installed here."""
    if absent(["torch", "cellpose"]):
        return []
    version = version_of("cellpose")
    cellpose = "the Cellpose" if version is None else f"Cellpose {version}"
    names = joined(sorted(n for n, command in BY_NAME.items() if command.about_this_cellpose))
    return [
        f"but {names} keep to {cellpose} of this environment; with the lab's own: "
        f"{lab.command} segment …"
    ]
