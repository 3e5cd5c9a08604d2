"""What a file is: weights, a `_seg.npy`, a label image, a baseline; or a stored run, or a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.asked import defaults
from cellrepro.bits.digests import array_digest, file_digest
from cellrepro.changes.named import kind_of
from cellrepro.errors import BadInput
from cellrepro.images.image_file import read_labels
from cellrepro.images.label_image import doubt
from cellrepro.images.seg_file import SEG_ENDING, read_seg
from cellrepro.model.known_weights import (
    CHECKPOINT,
    DEFAULT,
    OF_SEVERAL_GPUS,
    OFFICIAL_NAMES,
    known_to_cellpose,
    recognise,
)
from cellrepro.same.labels import canonical
from cellrepro.same.weight_reading import open_weights
from cellrepro.store import baseline_file
from cellrepro.store.store import Repeat, Store


@dataclass(frozen=True)
class Description:
    """What a file is; what does not apply is None."""

    kind: str  # ``weights``, ``_seg.npy``, ``label image``, ``baseline``, ``run`` or ``name``
    generation: str | None = None  # of Cellpose: ``2 or 3``, ``4 (SAM)``, ``4 (DINO)``
    dtype: str | None = None
    n_parameters: int | None = None
    digest: str | None = None  # SHA-256 of the file; of a run, of its weights
    loads_as: str | None = None
    """As what the installed Cellpose would load it: ``itself``, the name of another network that it
    takes without a word, ``a partly random network``, or None where it refuses it."""
    official_name: str | None = None  # of Cellpose's published weights, by their digest
    details: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def describe(reference: str, *, store: str | Path = defaults.STORE) -> Description:
    """Say what a file is, or a ``KEY``, ``KEY/REPEAT`` of the store, or a model's name."""
    path = Path(reference)
    kind = kind_of(path)
    if kind == "folder":
        raise BadInput(f"{path} is a folder; expected one file in it, or a KEY of the store")
    if not path.exists():
        return _of_run_or_name(reference, Store(store))
    if kind == "masks":
        return _of_masks(path)
    if kind == "baseline":
        record = baseline_file.read(path).record
        return Description("baseline", digest=file_digest(path), details=record)
    return _of_weights(path)


def _of_weights(path: Path) -> Description:
    tensors = open_weights(path)
    with path.open("rb") as stream:
        saved_by_torch = stream.read(2) in (b"PK", b"\x80\x02")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    found = recognise(shapes, saved_by_torch=saved_by_torch)
    if found.loads_as and any(one.stored_as.startswith("module.") for one in tensors.values()):
        found = replace(found, loads_as=None, note=OF_SEVERAL_GPUS)
    under = next((tensor.under for tensor in tensors.values()), "")
    details = {"format": "PyTorch" if saved_by_torch else "safetensors", "network": found.network}
    if under:
        details["found_under"] = under
        found = replace(found, loads_as=None, note=CHECKPOINT.format(key=under))
    digest = file_digest(path)
    return Description(
        "weights",
        found.generation,
        ", ".join(sorted({tensor.dtype for tensor in tensors.values()})),
        sum(tensor.n for tensor in tensors.values()),
        digest,
        found.loads_as,
        OFFICIAL_NAMES.get(digest),
        details,
        found.note,
    )


def _of_masks(path: Path) -> Description:
    seg = read_seg(path) if path.name.endswith(SEG_ENDING) else None
    masks = read_labels(path) if seg is None else seg.masks
    own = canonical(masks)
    details = {
        "shape": masks.shape,
        "n_objects": int(own.max(initial=0)),
        "largest_label": int(masks.max(initial=0)),
        "canonical_digest": array_digest(own),
    }
    if seg is None:
        doubtful = doubt(masks)
        return Description(
            "label image",
            dtype=str(masks.dtype),
            digest=file_digest(path),
            details=details,
            note="" if doubtful is None else f"it has {doubtful}",
        )
    recorded = {name: value for name, value in seg.settings.items() if name != "ismanual"}
    details |= {"settings": recorded, "n_manual": int(np.sum(seg.settings.get("ismanual") or 0))}
    return Description("_seg.npy", digest=file_digest(path), details=details)


def _of_run_or_name(reference: str, store: Store) -> Description:
    try:
        repeat = store.find(reference)
    except BadInput as error:
        if Path(reference).is_absolute() or Path(reference).suffix:
            raise BadInput(f"{reference}: no such file; check its spelling") from error
        if "/" in reference:
            raise
        if known_to_cellpose(reference):
            return Description("name", loads_as="itself", note="one of this Cellpose's models")
        note = "no file, no stored run, no model of this Cellpose, which takes another one then"
        return Description("name", loads_as=DEFAULT, note=f"{note}; only its log says so")
    return _of_run(repeat)


def _of_run(repeat: Repeat) -> Description:
    manifest = repeat.manifest
    details = {
        "name": repeat.name,
        "label": repeat.spec.label,
        "task": repeat.spec.task,
        "n_images": len(manifest.masks),
        "n_objects": manifest.n_objects,
    }
    if repeat.weights is None:
        return Description("run", details=details, note="it only segmented and holds no weights")
    of = _of_weights(repeat.weights)
    return replace(of, kind="run", details=details | dict(of.details))
