"""The lab with the versions that a passport names, in an environment of its own."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import read_bundle
from cellrepro.exchange.passport import Passport
from cellrepro.process.lab import Lab, make_lab
from cellrepro.progress import print_note
from cellrepro.store.this_machine import PACKAGES
from cellrepro.version import __version__
from cellrepro.words import some

_OWN = "cellrepro"
_BUILD = re.compile(r"\+.*")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.!-]*")


def make_lab_like(passport: str | Path, folder: str | Path, *, python: str | None = None) -> Lab:
    """Make the lab with the numeric libraries of a passport, so that its run can be replayed
    there."""
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
    """What is installed for a passport; a registry has no builds such as ``+cpu``."""
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
    """Say what of a passport no installation brings back."""
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
    """A Python of the passport's version; none takes the one that runs this."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    numbers = re.match(r"[0-9]+\.[0-9]+(?![0-9])", version or here)
    wanted = here if numbers is None else numbers[0]
    if wanted == here:
        return None
    found = shutil.which(f"python{wanted}")
    if found is None:
        print_note(
            f"the run was made with Python {wanted}, and this is {here}, for which its versions "
            "may not be had: name one with --python"
        )
    return found
