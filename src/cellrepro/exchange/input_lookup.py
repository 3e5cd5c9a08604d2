"""Finding the images and the network of a run again: where they were, or sent with the run."""

from __future__ import annotations

from pathlib import Path

from cellrepro.images.folder import folder_digest
from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store.record_values import is_on_another_computer
from cellrepro.store.store import Store
from samebits.errors import BadInput

INPUTS = "inputs"
"""Folder with the image folders of runs, in a store and in an exported file."""
NETWORKS = "networks"
"""Folder with the networks from which runs started, in a store and in an exported file."""


def folder_of_inputs(store: Store, data_digest: str) -> Path:
    """Path of an image folder that was sent with runs, which need not exist."""
    return store.root / INPUTS / data_digest[:KEY_LENGTH]


def find_images(
    spec: Spec,
    store: Store,
    *,
    given: str | Path | None = None,
    recorded: str | None = None,
) -> Path | None:
    """Find a folder with the images of a run by their digest; None if there is none.

    A ``given`` folder is the only candidate, and refused if it has other images.
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
    """Find the network of a run among those that were sent: a safetensors file, or None."""
    if spec.model_digest is None:
        return None
    path = store.root / NETWORKS / f"{spec.model_digest}.safetensors"
    return path if path.is_file() else None


def holds_images_of(spec: Spec, folder: Path) -> bool:
    """Whether a folder holds the images of a run, unchanged and under the same names."""
    try:
        if not folder.is_dir():
            return False
        digest = folder_digest(folder, to_train=spec.task == "train")
    except (BadInput, OSError, ValueError):  # ValueError: a path with a null byte
        return False
    return digest == spec.data_digest
