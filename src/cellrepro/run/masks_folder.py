"""A folder of label images for the user, beside each how it was made, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.images.folder_files import is_read_with, list_folder
from cellrepro.store.whole_files import refuse_existing, whole_file, write_whole
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.store.stored_run import Repeat


def sidecar_of(masks: Path) -> Path:
    """The path of the record: ``NAME_masks.json`` beside ``NAME_masks.tif``."""
    return masks.with_suffix(".json")


def write_sidecar(masks: Path, record: Mapping[str, Any]) -> None:
    """Write how a label image was made beside it."""
    write_whole(sidecar_of(masks), json.dumps(record, indent=1, ensure_ascii=False))


def refuse_masks(folder: Path, data: Path) -> None:
    """Refuse a folder that masks cannot be written to, before anything is segmented."""
    if is_read_with(folder, data):
        raise BadInput(
            f"masks are to be written into {folder}, which is read with the images of {data}: "
            "there they would be taken for masks that you have drawn; expected a different folder, "
            f"such as {folder / 'segmented'}"
        )
    if not folder.is_dir():
        refuse_existing(folder)
    masks = (path for ending in ("tif", "json") for path in folder.glob(f"*_masks.{ending}"))
    refuse_existing(*sorted(masks))


def write_masks(repeat: Repeat, folder: Path, *, data: Path) -> None:
    """Write the masks of a stored repeat, each with its record beside it.

    ``data`` holds the images; the stored repeat may be of equal ones that lay elsewhere.
    """
    import tifffile

    folder.mkdir(parents=True, exist_ok=True)
    record = _record_of(repeat)
    pairs = list_folder(data.resolve(), to_train=False).pairs
    split = repeat.manifest.data.segmented
    images = {pair.image.stem: str(pair.image) for pair in pairs if pair.split == split}
    for name in repeat.manifest.masks:
        path = folder / f"{name}_masks.tif"
        labels = repeat.masks(name)
        with whole_file(path) as scratch:
            tifffile.imwrite(
                scratch,
                labels,
                photometric="minisblack",  # three or four planes are no colours
                compression="zlib",
                metadata={"axes": "ZYX"[-labels.ndim :]},
            )
        write_sidecar(path, {**record, "filename": images[name]})


def _record_of(repeat: Repeat) -> dict[str, Any]:
    manifest = repeat.manifest
    spec = repeat.spec
    weights = manifest.weights
    return {
        "settings": spec.settings.model_dump(mode="json"),
        "model": spec.model if weights is None else repeat.name,
        "model_path": manifest.model.path if weights is None else None,
        "model_digest": manifest.model.initial_weights if weights is None else weights.digest,
        "precision": spec.precision,
        "run": repeat.name,
        "versions": manifest.versions,
    }
