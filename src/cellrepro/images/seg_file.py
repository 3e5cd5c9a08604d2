"""Cellpose's ``_seg.npy``, a pickle, read without executing anything of it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.images import seg_pickle
from cellrepro.images.label_image import label_image

SEG_ENDING = "_seg.npy"
_LEAST_MEMORY, _LEAST_SECONDS = 2**30, 20  # bytes; for NumPy itself about a tenth
_SECONDS_PER_BYTE = 1e-7


@dataclass(frozen=True, eq=False)
class SegFile:
    """What Cellpose's GUI or ``masks_flows_to_seg`` wrote."""

    masks: np.ndarray  # uint32, (Y, X) or (Z, Y, X), 0 is background
    settings: Mapping[str, Any]
    """What else was recorded, under the file's own names; NaN, which means *not known*, is None.

    The GUI: ``model_path``, ``diameter``, ``flow_threshold``, ``cellprob_threshold``,
    ``normalize_params``, ``restore``, ``ratio``, ``filename``, ``ismanual``, ``manual_changes``;
    ``masks_flows_to_seg``: ``diameter`` (None), ``filename``, ``chan_choose``, ``ismanual``. In
    Cellpose 2 the diameter is ``est_diam``.
    """
    flows: tuple[np.ndarray, ...] = ()  # as stored; shape (0,) where one is empty


def read_seg(path: str | os.PathLike[str]) -> SegFile:
    """Read a ``_seg.npy``: its masks and what it records of how they were made.

    A process of its own, with limits, takes the pickle apart. Names in it other than those of
    arrays are refused, and nothing of it is executed.
    """
    file = Path(path)
    if not file.is_file():
        raise BadInput(f"{file}: no such file; expected a {SEG_ENDING} that Cellpose wrote")
    size = file.stat().st_size
    seconds = int(_LEAST_SECONDS + _SECONDS_PER_BYTE * size)
    limits = [str(_LEAST_MEMORY + 4 * size), str(seconds)]
    try:
        ended = subprocess.run(
            [sys.executable, "-P", seg_pickle.__file__, str(file.resolve()), *limits],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # each thread takes memory
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=4 * seconds,  # of a busy machine
        )
        code, told = ended.returncode, ended.stderr.decode(errors="replace")
        reason = told.rpartition("\n")[2]  # before it Python may complain of a buffer
    except subprocess.TimeoutExpired:
        code, reason = -1, ""
    if code:
        reason = reason if code == 2 else f"reading it did not end within {seconds} s, or crashed"
        raise BadInput(
            f"{file}: refused, {reason}. Nothing of it was executed. Expected a {SEG_ENDING} as "
            "Cellpose writes it; save the masks as TIFF in the program that made it, and do not "
            "load the file with allow_pickle=True"
        )
    with np.load(io.BytesIO(ended.stdout), allow_pickle=False) as found:
        arrays = dict(found)
    masks = label_image(f"{file}: masks", arrays.pop("masks").squeeze())
    settings = json.loads(arrays.pop("settings").tobytes())
    return SegFile(masks.astype(np.uint32), settings, tuple(arrays.values()))
