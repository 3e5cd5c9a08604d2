"""What is recorded of a result, from the files that lie with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cellrepro.explanation.recorded_settings import RecordedSettings
from cellrepro.explanation.references import image_name
from cellrepro.explanation.script_record import script_record
from cellrepro.explanation.seg_record import seg_record
from cellrepro.explanation.settings_file import sidecar_record
from cellrepro.explanation.tiff_record import tiff_record
from cellrepro.images.integer_images import Integers
from cellrepro.images.seg_file import SEG_ENDING, SegFile, read_seg
from cellrepro.run.masks_folder import sidecar_of


def label_image_record(path: Path, masks: Integers) -> RecordedSettings:
    """Give what is recorded of a label image: beside it, in its tags."""
    tags = tiff_record(path)
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
    own = seg_record(path.name, seg)
    by_script = script_record(path, seg.masks)
    return own if by_script is None else own.with_more_of(by_script)


def _of_seg_beside(path: Path, masks: Integers) -> RecordedSettings:
    """What Cellpose's own file beside its masks records, where it holds the same labels."""
    beside = path.with_name(f"{image_name(path.stem)}{SEG_ENDING}")
    if beside == path or not beside.is_file():
        return RecordedSettings()
    seg = read_seg(beside)
    if not np.array_equal(seg.masks, masks):
        remark = f"{beside.name} lies next to {path.name} and holds different masks: it is not used"
        return RecordedSettings(remarks=(remark,))
    return seg_record(beside.name, seg)
