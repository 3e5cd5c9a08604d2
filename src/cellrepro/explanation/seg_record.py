"""What a ``_seg.npy`` records of how its masks were made, for each generation of Cellpose.

The file names no version. Which generation wrote it shows in its fields (read in the sources of
1.0.2, 2.0.5, 2.1.1, 2.3.2, 3.0.11, 3.1.1.2, 4.0.1, 4.0.9 and 4.2.1.1):

- ``est_diam``: Cellpose 1 and 2, `masks_flows_to_seg`; the GUI of 2 writes no diameter at all.
- ``chan_choose`` with a number for ``diameter``: Cellpose 3; with ``normalize_params``: its GUI.
- ``chan_choose`` with NaN for ``diameter``: Cellpose 4, `masks_flows_to_seg`, which writes
  ``[0, 0]`` whatever was used.
- ``normalize_params`` without ``chan_choose``: the GUI of Cellpose 4; of a stack that of 3, too.
- ``runstring``, ``bounds`` or ``affinity_graph``: the GUI of Omnipose (1.1.4), no Cellpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.explanation.conditions import MODEL
from cellrepro.explanation.hand_edits import hand_edits
from cellrepro.explanation.recorded_settings import (
    DRAWN,
    FILENAME,
    MODEL_PATH,
    REMOVED,
    RESTORE,
    RUNSTRING,
    GenerationNumber,
    RecordedSettings,
    of_file,
)
from cellrepro.images.seg_file import N_COLORS
from cellrepro.spec.segmentation_settings import CHANNELS, NAMES
from samebits.words import amount, joined

if TYPE_CHECKING:
    from cellrepro.images.seg_file import SegFile

_OF_THE_GUI = ("flow_threshold", "cellprob_threshold", "niter", "min_size")
_ZERO_IS_NONE = ("diameter", "niter")  # Cellpose's other word for it
_NETWORKS_OF_2_AND_3 = ("cyto", "nuclei", "tissuenet", "livecell", "yeast", "bact", "deepbact")
_NUMBERED = re.compile(r"torch_\d$")
_OF_OMNIPOSE = frozenset({RUNSTRING, "bounds", "affinity_graph"})
_OMNIPOSE = "the GUI of Omnipose"
_BY_SCRIPT = "masks_flows_to_seg (a script or the command line)"
_NO_DIAMETER = {
    "2": "the GUI of Cellpose 2 writes no diameter into this file",
    "4": "masks_flows_to_seg of Cellpose 4 writes no diameter into this file",
}


def seg_record(name: str, seg: SegFile) -> RecordedSettings:
    """Read what a ``_seg.npy`` records, under the names of the settings of ``eval``."""
    fields = seg.settings
    by_gui = "model_path" in fields
    is_of_omnipose = _is_of_omnipose(fields)
    generation = None if is_of_omnipose else _generation(fields, by_gui=by_gui)
    values = {
        **_thresholds(fields, by_gui=by_gui),
        **_diameter(fields, by_gui=by_gui),
        **_normalization(fields),
        **_network(fields),
        **_other(fields, generation),
        **_edits(seg),
        **_image_name(fields),
    }
    writer = _OMNIPOSE if is_of_omnipose else ""
    if generation is not None:
        writer = f"the GUI of Cellpose {generation}"
        if not by_gui:
            writer = f"{_BY_SCRIPT} of Cellpose {generation}"
    remarks = [*_contradictions(seg)]
    if generation is not None and "diameter" not in values:
        remarks.append(_NO_DIAMETER.get(generation, ""))
    return RecordedSettings(
        of_file(name, values),
        generation=generation,
        written_by=writer,
        remarks=tuple(filter(None, remarks)),
    )


def _is_of_omnipose(fields: Mapping[str, object]) -> bool:
    """Whether Omnipose's GUI, a program of its own by now, wrote these fields."""
    return bool(_OF_OMNIPOSE & fields.keys()) or "omni" in _file_name(fields.get("model_path"))


def _generation(fields: Mapping[str, object], *, by_gui: bool) -> GenerationNumber | None:
    """Tell which Cellpose wrote these fields; None where two generations write the same."""
    if "est_diam" in fields:
        return "2"
    if by_gui and "normalize_params" not in fields:
        return "2"
    if "chan_choose" in fields:
        return "3" if by_gui or fields.get("diameter") is not None else "4"
    if not by_gui:
        return None
    model = _file_name(fields.get("model_path"))
    if model.startswith("cpsam"):
        return "4"
    if model.startswith(_NETWORKS_OF_2_AND_3):
        return "3"
    is_stack = "zdraw" in fields
    return None if is_stack else "4"


def _thresholds(fields: Mapping[str, object], *, by_gui: bool) -> dict[str, object]:
    """Thresholds, steps and sizes; the GUI writes none for a flow threshold that is off."""
    values = {}
    for name in _OF_THE_GUI:
        value = fields.get(name)
        if value is not None:
            values[name] = None if name in _ZERO_IS_NONE and not value else value
    if by_gui and "flow_threshold" in fields and fields["flow_threshold"] is None:
        values["flow_threshold"] = None
    return values


def _diameter(fields: Mapping[str, object], *, by_gui: bool) -> dict[str, object]:
    """The diameter in pixels; the GUI of Cellpose 4 writes none where its box is empty."""
    value = fields.get("diameter", fields.get("est_diam"))
    if isinstance(value, list):  # masks_flows_to_seg of Cellpose 2 took arrays of one number
        value = value[0] if len(value) == 1 else None
    if value is not None:
        return {"diameter": value or None}
    return {"diameter": None} if by_gui and "diameter" in fields else {}


def _normalization(fields: Mapping[str, object]) -> dict[str, object]:
    values = {}
    recorded = fields.get("normalize_params")
    for name, value in recorded.items() if isinstance(recorded, dict) else ():
        setting = f"normalize.{'sharpen' if name == 'sharpen_radius' else name}"
        if setting in NAMES:
            values[setting] = tuple(value) if isinstance(value, list) else value
    return values


def _network(fields: Mapping[str, object]) -> dict[str, object]:
    path = fields.get("model_path")
    # Cellpose 2 and 3 keep the network cyto2 in a file cyto2torch_0.
    return {MODEL: _NUMBERED.sub("", _file_name(path)), MODEL_PATH: str(path)} if path else {}


def _file_name(path: object) -> str:
    """The last part of a path of any system; the GUI writes 0 where it loaded no network."""
    return PureWindowsPath(str(path)).name if path else ""


def _other(fields: Mapping[str, object], generation: GenerationNumber | None) -> dict[str, object]:
    values: dict[str, object] = {}
    if "chan_choose" in fields and generation != "4":
        values[CHANNELS] = fields["chan_choose"]
    if fields.get(RESTORE):
        values[RESTORE] = fields[RESTORE]
        values["ratio"] = fields.get("ratio")
    if fields.get(RUNSTRING):
        values[RUNSTRING] = str(fields[RUNSTRING])
    return values


def _image_name(fields: Mapping[str, object]) -> dict[str, object]:
    return {FILENAME: str(fields[FILENAME])} if fields.get(FILENAME) else {}


def _edits(seg: SegFile) -> dict[str, object]:
    values: dict[str, object] = {}
    drawn = seg.settings.get("ismanual")
    if isinstance(drawn, list):
        values[DRAWN] = sum(map(bool, drawn))
    n_removed = sum(edit.kind == "removed" for edit in hand_edits(seg))
    if n_removed:
        values[REMOVED] = n_removed
    return values


def _contradictions(seg: SegFile) -> Iterator[str]:
    """Say which lists of one entry for each cell have another number of entries."""
    n_cells = np.unique(seg.masks[seg.masks > 0]).size
    drawn = seg.settings.get("ismanual")
    lengths = {
        "ismanual": len(drawn) if isinstance(drawn, list) else n_cells,
        "colors": seg.settings.get(N_COLORS, n_cells),
    }
    others = [f"{name} has {n}" for name, n in lengths.items() if n != n_cells]
    if others:
        yield (
            f"the masks hold {amount(n_cells, 'cell')}, and {joined(others)} entries: the file "
            "contradicts itself, and Cellpose's GUI may fail to open it (IndexError). The masks "
            "can be read; save them as TIFF"
        )
