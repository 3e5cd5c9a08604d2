"""The ``setup`` command: the lab in an environment of its own, or with versions of a passport."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cellrepro.commands import BY_NAME
from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import read_bundle
from cellrepro.exchange.passport import Passport
from cellrepro.extras import absent
from cellrepro.process.lab import Lab, make_lab
from cellrepro.progress import print_note
from cellrepro.results import Result
from cellrepro.store.installed_versions import PACKAGES
from cellrepro.terminal import FileName
from cellrepro.version import __version__
from cellrepro.words import joined, some

_OWN = "cellrepro"
_BUILD = re.compile(r"\+.*")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.!-]*")


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
    _like: str | None
    """File of the passport whose versions it has."""

    def sentence(self) -> str:
        """Say where it is."""
        versions = "" if self._like is None else f" with the versions of {self._like}"
        folder = self._lab.folder
        return f"the lab{versions} is in {folder}, and nothing that was installed has changed"

    def lines(self) -> list[str]:
        """Give the sentence, and what to do next."""
        if self._like is not None:
            again = f"{self.command} verify {self._like} --replay --data FOLDER"
            return [self.sentence(), f"compute the run again there: {again}"]
        jupyter = self._lab.program("jupyter")
        return [
            self.sentence(),
            "commands that need it now run there: cellrepro doctor",
            *_kept_to_this_cellpose(self._lab),
            f"its notebooks: {self.command} notebooks FOLDER, then {jupyter} lab FOLDER",
        ]


def set_up_lab(
    folder: FileName, /, *, python: str | None = None, like: FileName | None = None
) -> LabMade:
    """Make the full lab in an environment of its own; nothing that is installed changes.

    Parameters
    ----------
    folder : str or Path
        A new folder, or one that this command has made.
    python : str, optional
        The interpreter to make it with; by default the one that runs this.
    like : str or Path, optional
        A passport, whose versions of the numeric libraries it gets.

    Returns
    -------
    LabMade
        Where its programs are.

    Raises
    ------
    BadInput
        If something else is in the folder, there is no such interpreter, or the passport names no
        versions, or different ones.
    NotPossibleHere
        If a library cannot be fetched or installed.

    Examples
    --------
    Make the lab in the new folder lab; your Cellpose stays as it is

    ``cellrepro setup lab``

    The same with the versions with which a run was made

    ``cellrepro setup lab_of_basel --like basel.intoto.jsonl``
    """
    if like is None:
        lab = make_lab(folder, python=python)
    else:
        lab = make_lab_like(like, folder, python=python)
    passport = None if like is None else str(like)
    return LabMade(lab.python, lab.command, lab.version, lab, passport)


def _kept_to_this_cellpose(lab: Lab) -> list[str]:
    """The commands that do not run in the lab, since they are about the Cellpose installed here."""
    if absent(["torch", "cellpose"]):
        return []
    version = metadata.version("cellpose")
    names = joined(sorted(n for n, command in BY_NAME.items() if command.about_this_cellpose))
    return [
        f"but {names} keep to Cellpose {version} of this environment; with the lab's own: "
        f"{lab.command} segment …"
    ]


def make_lab_like(passport: str | Path, folder: str | Path, *, python: str | None = None) -> Lab:
    """Make the lab with the numeric libraries of a passport, for a replay of its run."""
    bundle = read_bundle(passport)
    versions = [_versions(one) for one in bundle.passports]
    if not versions or not versions[0]:
        raise BadInput(
            f"{passport} names no version of a numeric library; expected the passport of a run"
        )
    if any(other != versions[0] for other in versions):
        names = some([f"{one.name}: {_in_words(one)}" for one in bundle.passports], 4)
        raise BadInput(
            f"{passport} holds passports with different versions ({names}); expected one of them: "
            "export it by itself"
        )
    _note_what_stays_different(bundle.passports[0])
    interpreter = python or _interpreter(bundle.passports[0].packages.get("python"))
    return make_lab(folder, python=interpreter, versions=versions[0])


def _versions(passport: Passport) -> Mapping[str, str]:
    """The versions to install for a passport, without builds such as ``+cpu``, which PyPI lacks."""
    versions = {}
    for name, version in sorted(passport.packages.items()):
        if name not in PACKAGES or name == _OWN:
            continue
        plain = _BUILD.sub("", version)
        if not _VERSION.fullmatch(plain):
            raise BadInput(
                f"the passport of {passport.name} names the version {version[:40]!r} of {name}; "
                "expected digits with dots: ask its sender for it once more"
            )
        versions[name] = plain
    return versions


def _in_words(passport: Passport) -> str:
    return ", ".join(f"{name} {version}" for name, version in _versions(passport).items())


def _note_what_stays_different(passport: Passport) -> None:
    """Note the differences from a passport that an installation cannot remove."""
    builds = [f"{name} {version}" for name, version in passport.packages.items() if "+" in version]
    if builds:
        print_note(
            f"the passport names builds that are not in the registry ({some(builds)}): the usual "
            "build of the same version is installed, which may compute other bits"
        )
    theirs = passport.packages.get(_OWN)
    if theirs not in (None, __version__):
        print_note(
            f"the run was made with cellrepro {theirs}; this one, {__version__}, comes along"
        )


def _interpreter(version: str | None) -> str | None:
    """The Python of the passport's version; None for the one that runs this."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    numbers = re.match(r"[0-9]+\.[0-9]+(?![0-9])", version or here)
    wanted = here if numbers is None else numbers[0]
    if wanted == here:
        return None
    interpreter = shutil.which(f"python{wanted}")
    if interpreter is None:
        print_note(
            f"the run was made with Python {wanted}, and this is {here}, for which its versions "
            "may not be had: name one with --python"
        )
    return interpreter
