"""The names of the profiles, which the command line lists without importing the rest."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

PROFILE_FOLDER = resources.files("cellrepro.profiles") / "provided"
"""Folder of the profiles that come with the package, ``NAME.yaml``."""


def profile_names() -> list[str]:
    """The profiles that come with the package, sorted."""
    files = [file.name for file in PROFILE_FOLDER.iterdir()]
    return sorted(Path(file).stem for file in files if file.endswith(".yaml"))
