"""Folders of images that came with runs, and where the images of a run are now."""

from __future__ import annotations

from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store.manifest import is_on_another_computer
from cellrepro.store.store import Store

INPUTS = "inputs"
"""Folder of a store, and of an exported file, with the image folders of its runs."""
NETWORKS = "networks"
"""The same with the networks that they started from."""


def folder_of_inputs(store: Store, data_digest: str) -> Path:
    """Where a store keeps the image folder that came with runs, if one came."""
    return store.root / INPUTS / data_digest[:KEY_LENGTH]


def find_images(
    spec: Spec,
    store: Store,
    *,
    given: str | Path | None = None,
    recorded: str | None = None,
) -> Path | None:
    """Find the images of a run: a folder that holds them as they were, by its digest.

    None where no folder holds them. Its name need not be the one in the spec.
    """
    if given is not None:
        if not holds_images_of(spec, Path(given)):
            raise BadInput(
                f"{given} does not hold the images of run {spec.key}, whose digest begins with "
                f"{spec.data_digest[:12]}; expected the folder {spec.data} as it was then, every "
                "file unchanged and under its name"
            )
        return Path(given)
    candidates = [folder_of_inputs(store, spec.data_digest)]
    if recorded is not None and not is_on_another_computer(recorded):
        candidates.insert(0, Path(recorded))
    for folder in candidates:
        if holds_images_of(spec, folder):
            return folder
    return None


def find_network(spec: Spec, store: Store) -> Path | None:
    """Find the network that a run started from among those that came with runs.

    A safetensors file; None where none came, or the network follows from the seed.
    """
    if spec.model_digest is None:
        return None
    path = store.root / NETWORKS / f"{spec.model_digest}.safetensors"
    return path if path.is_file() else None


def holds_images_of(spec: Spec, folder: Path) -> bool:
    """Whether a folder holds the images of a run, every file under its name and unchanged."""
    try:
        if not folder.is_dir():
            return False
        digest = folder_digest(folder, to_train=spec.task == "train")
    except (BadInput, OSError, ValueError):  # a name that no system takes, among others
        return False
    return digest == spec.data_digest
