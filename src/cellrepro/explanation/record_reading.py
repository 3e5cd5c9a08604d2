"""What is recorded of a result, from the files that lie with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.explanation.named import image_name
from cellrepro.explanation.recorded_settings import RecordedSettings
from cellrepro.explanation.tiff_record import tiff_record
from cellrepro.images.decoding import SEG_ENDING
from cellrepro.images.image_file import read_labels

if TYPE_CHECKING:
    from cellrepro.explanation.hand_edits import HandEdit
    from cellrepro.images.integer_images import Integers
    from cellrepro.images.seg_file import SegFile


@dataclass(frozen=True, eq=False)
class RecordedMasks:
    """The masks of a file, and what is recorded of how they were made."""

    masks: Integers
    record: RecordedSettings
    edits: tuple[HandEdit, ...] = ()
    """Cells that were drawn or removed by hand."""


def recorded_masks(path: Path) -> RecordedMasks:
    """Read a mask file with what it, and the files beside it, record."""
    if path.name.endswith(SEG_ENDING):
        from cellrepro.explanation.hand_edits import hand_edits
        from cellrepro.images.seg_file import read_seg

        seg = read_seg(path)
        return RecordedMasks(seg.masks, seg_file_record(path, seg), hand_edits(seg))
    masks = read_labels(path)
    return RecordedMasks(masks, label_image_record(path, masks))


# What reads a kind of record is imported where a file of that kind lies: most masks have none.


def label_image_record(path: Path, masks: Integers) -> RecordedSettings:
    """Give what is recorded of a label image: beside it, in its tags."""
    tags = tiff_record(path)
    if any(path.parent.glob("*.json")):
        from cellrepro.explanation.script_record import script_record
        from cellrepro.explanation.settings_file import sidecar_record
        from cellrepro.run.masks_folder import sidecar_of

        by_script = script_record(path, masks)
        if by_script is not None:
            return by_script.with_more_of(tags)
        if sidecar_of(path).is_file():
            return sidecar_record(path).with_more_of(tags)
    return _of_seg_beside(path, masks).with_more_of(tags)


def seg_file_record(path: Path, seg: SegFile) -> RecordedSettings:
    """Give what is recorded of a ``_seg.npy``: in it, and by the script that made its labels.

    What its own fields say counts first.
    """
    from cellrepro.explanation.script_record import script_record
    from cellrepro.explanation.seg_record import seg_record

    own = seg_record(path.name, seg)
    by_script = script_record(path, seg.masks)
    return own if by_script is None else own.with_more_of(by_script)


def _of_seg_beside(path: Path, masks: Integers) -> RecordedSettings:
    """What Cellpose's own file beside its masks records, where it holds the same labels."""
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
