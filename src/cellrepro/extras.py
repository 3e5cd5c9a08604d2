"""What is not part of the core: which modules belong to which extra, and how one gets them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from cellrepro.errors import NotPossibleHere
from cellrepro.libraries import has_library
from cellrepro.words import joined

Extra = Literal["lab", "notebook", "formats", "cluster", "mlflow", "bioimageio"]

EXTRA_OF: Mapping[str, Extra] = {
    "cellpose": "lab",
    "ipykernel": "lab",
    "nbclient": "lab",
    "nbformat": "lab",
    "papermill": "lab",
    "pooch": "lab",
    "pyarrow": "lab",
    "rich": "lab",
    "segment_anything": "lab",
    "torch": "lab",
    "torchvision": "lab",
    "voila": "lab",
    "IPython": "notebook",
    "anywidget": "notebook",
    "ipywidgets": "notebook",
    "pandas": "notebook",
    "traitlets": "notebook",
    "imagecodecs": "formats",
    "bioimageio": "bioimageio",
    "dask": "cluster",
    "dask_jobqueue": "cluster",
    "distributed": "cluster",
    "mlflow": "mlflow",
}
"""The modules that the core does without, and the extra of ``pyproject.toml`` that brings each."""

IN_THE_LAB: frozenset[Extra] = frozenset({"lab", "notebook", "formats", "cluster"})
"""The extras that an environment made by ``cellrepro setup`` has."""

_BESIDE_THE_LAB: frozenset[Extra] = frozenset({"notebook", "formats", "mlflow", "bioimageio"})
"""Those that pip adds to any environment; the lab may have one of its own."""

ABOUT_THIS_CELLPOSE = ("audit", "explain", "segment", "sensitivity", "tiles")
"""Commands whose answer is about the Cellpose that is installed: the lab has one of its own."""

_OLDEST_CELLPOSE = (3, 1)
"""Which the extra ``lab`` leaves as it is; pip replaces an older one."""


class NeedsExtra(NotPossibleHere):
    """Something was asked for that the installed extras do not bring."""

    modules: tuple[str, ...] = ()
    """What is missing, of `EXTRA_OF`."""


def absent(modules: Sequence[str]) -> list[str]:
    """Those of some modules that are not installed; none is imported."""
    return [name for name in modules if not has_library(name)]


def missing_module(error: ImportError) -> str | None:
    """The module of an extra that an import did not find; none if it failed for another reason."""
    name = (error.name or "").partition(".")[0]
    return name if name in EXTRA_OF else None


def needs(modules: Sequence[str], *, what: str) -> NeedsExtra:
    """Say what is missing, and how one gets it."""
    error = NeedsExtra(f"{what} needs {joined(modules)}, not installed here: {_remedy(modules)}")
    error.modules = tuple(modules)
    return error


def _remedy(modules: Sequence[str]) -> str:
    extras = {EXTRA_OF[name] for name in modules}
    if "cluster" in extras:
        extra = "cluster"
    elif len(extras) > 1 or "lab" in extras:
        extra = "lab"
    else:
        extra = min(extras)
    into_this = f'pip install "cellrepro[{extra}]"'  # these quotes hold in every shell
    if extra in _BESIDE_THE_LAB:
        return into_this
    return (
        "`cellrepro setup FOLDER` makes the lab in an environment of its own, changes nothing that "
        f"is installed here, and commands that need the lab then run there; {into_this} brings it "
        f"into this environment{_what_it_replaces()}"
    )


def _what_it_replaces() -> str:
    """What pip would replace, where Cellpose is older than the lab can use."""
    if not has_library("cellpose"):
        return ""
    from importlib import metadata

    version = metadata.version("cellpose")
    if tuple(map(int, re.findall(r"\d+", version)[:2])) >= _OLDEST_CELLPOSE:
        return ""
    return f", and replaces Cellpose {version} there, with the NumPy and PyTorch that it uses"
