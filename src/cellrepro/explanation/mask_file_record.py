"""What is recorded of a mask file: in it, in its tags, and in the files beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION, refuse_no_precision
from cellrepro.explanation.mask_files import MaskReader, OutlineReader
from cellrepro.explanation.recorded_settings import (
    FILENAME,
    MODEL_DIGEST,
    MODEL_PATH,
    SOFTWARE,
    WRITTEN,
    RecordedSettings,
    generation_number,
    of_file,
)
from cellrepro.images.decoding import SEG_ENDING
from cellrepro.images.image_file import read_labels
from cellrepro.images.image_names import image_name
from cellrepro.images.outline_files import is_outline_file, read_outlines
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.explanation.hand_edits import HandEdit
    from cellrepro.images.outlines import Outlines
    from cellrepro.images.seg_file import SegFile

# What reads a kind of record is imported where a file of that kind lies: most masks have none, and
# two of them are compared in the time that the readers take to load.

_MOST_BYTES_OF_SIDECAR = 2**24
_SIDECAR_FIELDS = frozenset(
    {"settings", FILENAME, MODEL, MODEL_PATH, MODEL_DIGEST, PRECISION, "run", "versions"}
)
_TIFF_ENDINGS = (".tif", ".tiff")
_TIFF_TAGS = {"Software": SOFTWARE, "DateTime": WRITTEN, "ImageDescription": "description"}
_MOST_LETTERS_OF_TAG = 120


@dataclass(frozen=True, eq=False)
class RecordedMasks:
    """The masks of a file, and what is recorded of how they were made."""

    masks: np.ndarray
    record: RecordedSettings
    edits: tuple[HandEdit, ...] = ()
    """Cells that were drawn or removed by hand."""
    outlines: Outlines | None = None
    """From which the masks were drawn."""

    def drawn_like(self, other: RecordedMasks) -> RecordedMasks:
        """Draw its outlines, if it holds such, in the size of another file's masks."""
        if self.outlines is None or other.outlines is not None:
            return self
        return replace(self, masks=self.outlines.drawn(other.masks.shape).labels)

    @property
    def reader(self) -> MaskReader:
        """Give the masks once more; outlines are drawn anew, in the size that is needed."""
        outlines = self.outlines
        return (lambda: self.masks) if outlines is None else OutlineReader(lambda: outlines)


def recorded_masks(path: Path) -> RecordedMasks:
    """Read a mask file with what it, and the files beside it, record."""
    if path.name.endswith(SEG_ENDING):
        from cellrepro.explanation.hand_edits import hand_edits
        from cellrepro.images.seg_file import read_seg

        seg = read_seg(path)
        return RecordedMasks(seg.masks, seg_file_record(path, seg), hand_edits(seg))
    if is_outline_file(path):
        outlines = read_outlines(path)
        return RecordedMasks(outlines.drawn().labels, RecordedSettings(), outlines=outlines)
    masks = read_labels(path)
    return RecordedMasks(masks, label_image_record(path, masks))


def label_image_record(path: Path, masks: np.ndarray) -> RecordedSettings:
    """Read the record of a label image; one beside it counts before its own tags."""
    tags = tiff_record(path)
    if any(path.parent.glob("*.json")):
        from cellrepro.explanation.script_record import script_record

        by_script = script_record(path, masks)
        if by_script is not None:
            return by_script.with_more_of(tags)
        if path.with_suffix(".json").is_file():
            return sidecar_record(path).with_more_of(tags)
    return _record_of_seg_beside(path, masks).with_more_of(tags)


def seg_file_record(path: Path, seg: SegFile) -> RecordedSettings:
    """Read the record of a ``_seg.npy``; its own fields count before that of a script beside it."""
    from cellrepro.explanation.script_record import script_record
    from cellrepro.explanation.seg_record import seg_record

    own = seg_record(path.name, seg)
    by_script = script_record(path, seg.masks)
    return own if by_script is None else own.with_more_of(by_script)


def _record_of_seg_beside(path: Path, masks: np.ndarray) -> RecordedSettings:
    """Cellpose's own file beside a label image tells of it only where both hold equal labels."""
    beside = path.with_name(f"{image_name(path.stem)}{SEG_ENDING}")
    if beside == path or not beside.is_file():
        return RecordedSettings()
    from cellrepro.explanation.seg_record import seg_record
    from cellrepro.images.seg_file import read_seg

    seg = read_seg(beside)
    if not np.array_equal(seg.masks, masks):
        remark = f"{beside.name} lies next to {path.name} and holds different masks: it is not used"
        return RecordedSettings(remarks=(remark,))
    return seg_record(beside.name, seg)


# -- JSON that the lab writes beside masks ---------------------------------------------------


def sidecar_record(masks: Path) -> RecordedSettings:
    """Read the JSON beside a label image; empty where there is none, or that of another program."""
    from cellrepro.run.masks_folder import sidecar_of
    from cellrepro.spec.segmentation_settings import Settings

    sidecar = _read_sidecar(masks)
    if sidecar is None:
        return RecordedSettings()
    values: dict[str, Any] = dict(Settings().replaced(**sidecar["settings"]).by_name())
    versions = dict(sidecar.get("versions") or {})
    version = versions.pop(VERSION, None)
    for name in (FILENAME, MODEL, MODEL_PATH, MODEL_DIGEST, PRECISION, "run"):
        if sidecar.get(name) is not None:
            values[name] = sidecar[name]
    if version is not None:
        values[VERSION] = version
    return RecordedSettings(
        of_file(sidecar_of(masks).name, {**values, **versions}),
        generation=generation_number(version) or "4",
        written_by="cellrepro",
    )


def _read_sidecar(masks: Path) -> dict[str, Any] | None:
    from cellrepro.run.masks_folder import sidecar_of
    from cellrepro.store.store_paths import regular_bytes

    path = sidecar_of(masks)
    if not path.is_file():
        return None
    try:
        text = regular_bytes(path, most_bytes=_MOST_BYTES_OF_SIDECAR)
        if b'"settings"' not in text:
            return None  # of LabelMe, QuPath, Micro-Manager …
        sidecar: dict[str, Any] = json.loads(text)
        if not _is_of_the_lab(sidecar):
            return None
        if not isinstance(sidecar["settings"], dict):
            raise TypeError("settings is no table")
        if not isinstance(sidecar.get("versions") or {}, dict):
            raise TypeError("versions is no table")
        if sidecar.get(PRECISION) is not None:
            refuse_no_precision(sidecar[PRECISION])
        for name in (FILENAME, MODEL, MODEL_PATH, MODEL_DIGEST, "run"):
            if not isinstance(sidecar.get(name) or "", str):
                raise TypeError(f"{name} is no text")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"{path}: no record of settings ({error}); expected JSON with `settings`, as cellrepro "
            "writes it next to masks; remove or mend the file"
        ) from error
    return sidecar


def _is_of_the_lab(content: object) -> bool:
    """Whether the lab wrote this JSON, by its fields or by the names of its settings."""
    if not isinstance(content, dict) or "settings" not in content:
        return False
    from cellrepro.spec.segmentation_settings import Settings

    settings = content["settings"]
    names = settings if isinstance(settings, dict) else ()
    has_known_setting = any(str(name).split(".")[0] in Settings.model_fields for name in names)
    return content.keys() <= _SIDECAR_FIELDS or has_known_setting


# -- tags ------------------------------------------------------------------------------------


def tiff_record(path: Path) -> RecordedSettings:
    """Read the tags of a TIFF, but for a description that only repeats the array's shape."""
    if path.suffix.lower() not in _TIFF_ENDINGS:
        return RecordedSettings()
    import tifffile

    values: dict[str, object] = {}
    with tifffile.TiffFile(path) as file:
        tags = file.pages.first.tags
        for tag, name in _TIFF_TAGS.items():
            text = str(tags[tag].value).strip() if tag in tags else ""
            if text and not text.startswith('{"shape"'):
                values[name] = " ".join(text.split())[:_MOST_LETTERS_OF_TAG]
    return RecordedSettings(of_file(path.name, values))
