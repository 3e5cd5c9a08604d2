"""One of two results of an image: its masks, and what is recorded of how they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cellrepro.asked import defaults
from cellrepro.asked.segmentation_settings import NAMES, Settings
from cellrepro.changes.conditions import (
    CHANNELS,
    DEPTH,
    MODEL,
    PRECISION,
    VERSION,
    Condition,
    as_read,
    readings,
)
from cellrepro.changes.settings_file import read_sidecar
from cellrepro.changes.trials import n_cells_in
from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.image_file import read_labels
from cellrepro.images.seg_file import SEG_ENDING, read_seg
from cellrepro.model.weight_sources import ModelSource, find_model, started_from
from cellrepro.process.cellpose_versions import is_installed, python_of
from cellrepro.store.store import Store

SideKind = Literal["stored run", "_seg.npy", "label image", "label image with its record"]

_OF_THE_GUI = ("diameter", "flow_threshold", "cellprob_threshold", "niter", "min_size")
_ZERO_IS_NONE = ("diameter", "niter")  # Cellpose's other word for it
_RECORDED_BY_THE_GUI = (
    "restore",
    "ratio",
    "manual_changes",
    "ismanual",
    "filename",
    "chan_choose",
    "model_path",
)


@dataclass(frozen=True)
class Side:
    """One of two results of an image."""

    name: str
    kind: SideKind
    masks: np.ndarray = field(repr=False)
    """uint (Y, X) or (Z, Y, X), 0 is background."""
    known: Condition
    """By name; what is not in it nobody recorded."""
    recorded: Mapping[str, Any]
    """What cannot be varied: versions, restoration, changes by hand."""
    model: ModelSource | None = None
    read: np.ndarray | None = field(default=None, repr=False)
    """The image as a stored run read it."""

    @property
    def n_cells(self) -> int:
        """How many cells it has."""
        return n_cells_in(self.masks)

    def beside(self, image: np.ndarray) -> Side:
        """The side, with how a run read this image, (Y, X) or (Y, X, C), among what is known."""
        return replace(self, known={**self.known, **_reading(self.read, image)})

    def condition(self, sources: Mapping[str, ModelSource]) -> Condition:
        """What is known, with its network where that is one of several."""
        if self.model is None or self.model.label not in sources:
            return self.known
        return {**self.known, MODEL: self.model.label}


def read_side(reference: str, *, image: str, store: Store) -> Side:
    """Read one of two results of an image, as far as it says how it was made.

    Parameters
    ----------
    reference : str
        A ``_seg.npy``, a label image, or ``KEY/REPEAT`` of the store.
    image : str
        Its name in a stored run.
    store : Store

    Raises
    ------
    BadInput
        If a run has no such image, or a file cannot be read.
    """
    path = Path(reference)
    if not path.exists():
        return _of_run(reference, image, store)
    if reference.endswith(SEG_ENDING):
        return _of_seg(path)
    return _of_label_image(path)


def networks(sides: Sequence[Side], model: str | None, store: Store) -> dict[str, ModelSource]:
    """Find the networks by name: the one that is given, or that of each side.

    Raises
    ------
    BadInput
        If none is given, and no side says which network made it.
    """
    if model is not None:
        source = find_model(model, store)
        return {source.label: source}
    of_sides = [side.model for side in sides if side.model is not None]
    by_digest = {source.digest or source.label: source for source in of_sides}
    if not by_digest:
        raise BadInput(
            "neither side says which network made it; give --model: a Cellpose name, a weights "
            "file, or KEY/REPEAT"
        )
    return {source.label: source for source in by_digest.values()}


def _of_label_image(path: Path) -> Side:
    masks = read_labels(path)
    record = read_sidecar(path)
    if record is None:
        return Side(str(path), "label image", masks, known={}, recorded={})
    known: Condition = dict(Settings.model_validate(record["settings"]).by_name())
    if PRECISION in record:
        known[PRECISION] = record[PRECISION]
    recorded = {
        name: value for name, value in record.items() if name not in ("settings", PRECISION)
    }
    version = record.get("versions", {}).get("cellpose")
    _add_version(version, known=known, recorded=recorded)
    return Side(str(path), "label image with its record", masks, known=known, recorded=recorded)


def _of_seg(path: Path) -> Side:
    """What the GUI records is known; what it does not, nobody knows."""
    seg = read_seg(path)
    known: Condition = {}
    for name in _OF_THE_GUI:
        value = seg.settings.get(name)
        if value is not None:
            known[name] = None if name in _ZERO_IS_NONE and not value else value
    normalization = seg.settings.get("normalize_params") or {}
    for name, value in normalization.items():
        setting = f"normalize.{'sharpen' if name == 'sharpen_radius' else name}"
        if setting in NAMES:
            known[setting] = tuple(value) if isinstance(value, list) else value
    recorded = {name: seg.settings[name] for name in _RECORDED_BY_THE_GUI if seg.settings.get(name)}
    weights = Path(str(seg.settings.get("model_path") or ""))
    model = find_model(str(weights), Store(defaults.STORE)) if weights.is_file() else None
    return Side(str(path), "_seg.npy", seg.masks, known=known, recorded=recorded, model=model)


def _of_run(reference: str, image: str, store: Store) -> Side:
    repeat = store.find(reference)
    manifest = repeat.manifest
    spec = repeat.spec
    if image not in manifest.masks:
        raise BadInput(
            f"{repeat.name} has no image {image!r}; expected --image with the file of one of "
            f"{', '.join(manifest.masks)}"
        )
    known: Condition = {**spec.settings.by_name(), PRECISION: spec.profile_settings.get("dtype")}
    recorded: dict[str, Any] = {"machine": repeat.machine}
    _add_version(manifest.versions.get("cellpose"), known=known, recorded=recorded)
    trained = manifest.weights is not None
    return Side(
        repeat.name,
        "stored run",
        repeat.masks(image),
        known=known,
        recorded=recorded,
        model=find_model(repeat.name, store) if trained else started_from(repeat, store),
        read=store.image(spec.images_digest, image),
    )


def _add_version(version: str | None, *, known: Condition, recorded: dict[str, Any]) -> None:
    """The version of Cellpose is known where it can be had here; else it is recorded alone."""
    if version is None:
        return
    try:
        if not is_installed(version):
            python_of(version)
    except CellreproError:
        recorded[VERSION] = version
    else:
        known[VERSION] = version


def _reading(kept: np.ndarray | None, image: np.ndarray) -> Condition:
    """How a run read the image, where that is known."""
    as_given = {DEPTH: None, CHANNELS: None}
    if kept is None:
        return {}
    if np.array_equal(kept, image) and kept.dtype == image.dtype:
        return as_given
    if kept.shape[:2] != image.shape[:2]:
        return {}  # a crop, which its masks show
    for reading in readings(image):
        pixels = as_read(image, reading)
        if pixels.dtype == kept.dtype and np.array_equal(pixels, kept):
            return as_given | reading
    return {}
