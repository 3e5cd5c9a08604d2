"""The names of modes and profiles, which the command line lists without importing the rest."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal, get_args

Mode = Literal["off", "fast", "warn", "strict", "portable"]
"""``off`` seeds and sets nothing, as plain Cellpose; ``fast`` fixes nothing but the seeds, ``warn``
warns of operations without a deterministic implementation, ``strict`` makes them an error and puts
the substitutes in place, and ``portable`` also computes everything in an arithmetic that gives the
same bits on every machine."""

MODES: tuple[Mode, ...] = get_args(Mode)
"""All of them, from the loosest."""

PROFILE_FOLDER = resources.files("cellrepro.determinism") / "profiles"
"""Folder of the profiles that come with the package, ``NAME.yaml``."""


def profile_names() -> list[str]:
    """The profiles that come with the package, sorted."""
    files = [file.name for file in PROFILE_FOLDER.iterdir()]
    return sorted(Path(file).stem for file in files if file.endswith(".yaml"))
