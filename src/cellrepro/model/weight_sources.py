"""Sources of weights, and the reference to one: a network, a name, a file or a stored run."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.model.cellpose_generation import generation_of, of_another_generation
from cellrepro.model.encoders import ARCHITECTURES, ENCODERS, PRETRAINED
from cellrepro.store.record_values import is_on_another_computer
from cellrepro.store.unchanged import digest_once
from cellrepro.torch_files import is_saved_by_torch
from samebits.digests import file_digest
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.store.store import Store
    from cellrepro.store.stored_run import Repeat


@dataclass(frozen=True)
class ModelSource:
    """The source of a network's weights."""

    label: str
    """Its name in the spec."""
    architecture: str
    """One of `ARCHITECTURES`."""
    path: Path | None = None
    """The file; None for weights that a seed draws, and for names of Cellpose."""
    digest: str | None = None
    """SHA-256 of that file."""

    @property
    def untrained(self) -> bool:
        """Whether a seed draws its weights."""
        return self.path is None and self.architecture in ENCODERS

    @property
    def remark(self) -> str:
        """What whoever segments with it should read first; empty where there is nothing."""
        if not self.untrained:
            return ""
        return f"{self.label} has learnt nothing yet; name a trained model (KEY/REPEAT)"


def cellpose_folder() -> Path:
    """The folder in which Cellpose keeps its networks, without importing it (4.2.1.1)."""
    own = os.environ.get("CELLPOSE_LOCAL_MODELS_PATH")
    return Path(own) if own else Path.home() / ".cellpose" / "models"


def _is_run(reference: str, store: Store) -> bool:
    try:
        store.find_run(reference)
    except BadInput:
        return False
    return True


def find_model(reference: str, store: Store) -> ModelSource:
    """Resolve a model reference, without importing PyTorch."""
    if reference in ENCODERS:
        return ModelSource(reference, reference)
    generation = generation_of()
    if reference in generation.names:
        return ModelSource(reference, PRETRAINED)
    path = Path(reference)
    if path.is_file():
        return ModelSource(path.name, _architecture(path), path, file_digest(path))
    try:
        repeat = store.find(reference)
    except BadInput as error:
        run_key, _, place = reference.partition("/")
        if place and _is_run(run_key, store):  # of which there is no such repeat
            raise
        own_networks = tuple(ENCODERS) if generation.builds_own_networks else ()
        names = ", ".join(map(repr, (*own_networks, *generation.names)))
        raise BadInput(
            f"unknown model {reference!r}; expected {names}, the path of a weights file, or "
            f"KEY/REPEAT of a run in the store {store.root}"
            f"{of_another_generation(reference)}"
        ) from error
    if repeat.weights is None:
        raise BadInput(f"run {repeat.name} only segmented; it holds no weights to start from")
    return ModelSource(
        label=repeat.name,
        architecture=_architecture(repeat.weights),
        path=repeat.weights,
        digest=digest_once(repeat.weights),
    )


def _architecture(path: Path) -> str:
    """The architecture that a weights file is for, by its header."""
    if is_saved_by_torch(path):
        return PRETRAINED  # Cellpose's own format
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            described = (file.metadata() or {}).get("cellrepro", '{"architecture": "cellpose"}')
            architecture = json.loads(described)["architecture"]
            if architecture not in ARCHITECTURES:
                raise ValueError(f"its architecture {architecture!r} is unknown")
            return architecture
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path} is not a whole weights file ({error}); expected a file saved by Cellpose or "
            "by cellrepro; copy it again, it may be truncated"
        ) from error


def started_from(repeat: Repeat, store: Store) -> ModelSource:
    """Find the weights that a run started from, by its spec or where its manifest has them."""
    spec = repeat.spec
    for reference in filter(None, (spec.model, repeat.manifest.model.path)):
        if is_on_another_computer(reference):
            continue
        with suppress(BadInput):
            source = find_model(reference, store)
            if source.digest == spec.model_digest:
                return replace(source, label=spec.model)
    raise BadInput(
        f"the model {spec.model} that {spec.key} started from is not to be found as it was; put "
        "the file back"
    )
