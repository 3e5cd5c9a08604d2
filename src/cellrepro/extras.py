"""Optional extras: which modules each of them brings, and how to install what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from samebits.errors import NotPossibleHere
from samebits.libraries import has_library, version_of
from samebits.words import joined

Extra = Literal[
    "lab", "notebook", "formats", "measure", "exchange", "cluster", "mlflow", "bioimageio"
]

EXTRA_OF: Mapping[str, Extra] = {
    "cellpose": "lab",
    "ipykernel": "lab",
    "nbclient": "lab",
    "nbformat": "lab",
    "papermill": "lab",
    "pooch": "lab",
    "pyarrow": "lab",
    "segment_anything": "lab",
    "torch": "lab",
    "torchvision": "lab",
    "voila": "lab",
    "IPython": "notebook",
    "anywidget": "notebook",
    "ipywidgets": "notebook",
    "matplotlib": "notebook",
    "pandas": "notebook",
    "traitlets": "notebook",
    "imagecodecs": "formats",
    "roifile": "formats",
    "zarr": "formats",
    "skimage": "measure",
    "bioimageio": "bioimageio",
    "cryptography": "exchange",
    "rocrate": "exchange",
    "dask": "cluster",
    "dask_jobqueue": "cluster",
    "distributed": "cluster",
    "mlflow": "mlflow",
}
"""The modules that the core does without, and the extra of ``pyproject.toml`` that brings each."""

IN_THE_LAB: frozenset[Extra] = frozenset(
    {"lab", "notebook", "formats", "measure", "exchange", "cluster"}
)
"""Extras in an environment that ``cellrepro setup`` made."""

_BESIDE_THE_LAB: frozenset[Extra] = frozenset(
    {"notebook", "formats", "measure", "exchange", "mlflow", "bioimageio"}
)
"""Extras that pip can add to any environment; the others may conflict with what is installed."""

_OLDEST_CELLPOSE = (3, 1)
"""The extra ``lab`` leaves this version as it is; pip replaces an older one."""


class NeedsExtra(NotPossibleHere):
    """A command or function needs modules of an extra that is not installed."""

    modules: tuple[str, ...] = ()
    """The missing ones."""


def absent(modules: Sequence[str]) -> list[str]:
    """List those of some modules that are not installed; none is imported."""
    return [name for name in modules if not has_library(name)]


def missing_module(error: ImportError) -> str | None:
    """The module of an extra that an import lacked; None if it failed for another reason."""
    name = (error.name or "").partition(".")[0]
    return name if name in EXTRA_OF else None


def needs(modules: Sequence[str], *, what: str) -> NeedsExtra:
    """Give the error that says what is missing, and how to install it."""
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
    """Say what pip would replace, where Cellpose is older than the lab can use."""
    version = version_of("cellpose")
    if version is None:
        return ""
    if tuple(map(int, re.findall(r"\d+", version)[:2])) >= _OLDEST_CELLPOSE:
        return ""
    return f", and replaces Cellpose {version} there, with the NumPy and PyTorch that it uses"
