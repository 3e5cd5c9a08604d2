"""Cellpose's ``_seg.npy``, a pickle, read without executing anything of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.errors import BadInput, no_such_file
from cellrepro.images import seg_pickle
from cellrepro.images.decoding import SEG_ENDING, empty_file
from cellrepro.images.label_image import label_image
from cellrepro.images.within_limits import Limits, Refused, arrays_of
from cellrepro.results import Result, Row
from cellrepro.words import amount

_LEAST_ANSWER = 2**26  # bytes


@dataclass(frozen=True, eq=False, repr=False)
class SegFile(Result):
    """What Cellpose's GUI or ``masks_flows_to_seg`` wrote."""

    masks: np.ndarray
    """Uint32, shape (Y, X) or (Z, Y, X), 0 is background."""
    settings: Mapping[str, Any]
    """All else that was recorded, under the file's own names; NaN, for *not known*, is None.
    The GUI: ``model_path``, ``diameter``, ``flow_threshold``, ``cellprob_threshold``,
    ``normalize_params``, ``restore``, ``ratio``, ``filename``, ``ismanual``, ``manual_changes``,
    ``n_colors``; ``masks_flows_to_seg``: ``diameter`` (None), ``filename``, ``chan_choose``,
    ``ismanual``. In Cellpose 2 the diameter is ``est_diam``."""
    flows: tuple[np.ndarray, ...] = ()
    """Flows, as they are stored; an empty one has shape (0,)."""

    @property
    def diameter(self) -> float | None:
        """Recorded diameter of the cells in pixels; None where it is not known."""
        recorded = self.settings.get("diameter", self.settings.get("est_diam"))
        is_number = isinstance(recorded, int | float) and not isinstance(recorded, bool)
        return float(recorded) if is_number else None

    def sentence(self) -> str:
        """Say how many cells it holds, and how much is recorded of how they were made."""
        n_cells = np.unique(self.masks[self.masks > 0]).size
        shape = "×".join(map(str, self.masks.shape))
        settings = amount(len(self.settings), "setting")
        return f"{amount(n_cells, 'cell')} in {shape} pixels; {settings}"

    def rows(self) -> list[Row]:
        """Give the settings that it records."""
        return [{"setting": name, "value": value} for name, value in self.settings.items()]


def read_seg(path: str | os.PathLike[str]) -> SegFile:
    """Read a ``_seg.npy``: its masks and what it records of how they were made.

    A process of its own, with limits, takes the pickle apart. Names in it other than those of
    arrays and paths are refused, and nothing of it is executed.

    Parameters
    ----------
    path : path-like
        The file, ``NAME_seg.npy``.

    Returns
    -------
    SegFile
        Its masks, and the settings that Cellpose wrote down with them.

    Raises
    ------
    BadInput
        If there is no such file, or it holds something else than Cellpose writes.
    """
    file = Path(path)
    if not file.is_file():
        raise no_such_file(file, expected=f"a {SEG_ENDING} that Cellpose wrote")
    arrays = _arrays_of_file(file)
    masks = label_image(f"{file}: masks", arrays.pop("masks").squeeze())
    settings = json.loads(arrays.pop("settings").tobytes())
    flows = [arrays[f"flows_{number}"] for number in range(len(arrays))]
    return SegFile(masks.astype(np.uint32), settings, tuple(flows))


def _arrays_of_file(file: Path) -> dict[str, np.ndarray]:
    """Read a file's arrays in a process with limits: ``masks``, ``flows_0`` …, and ``settings``.

    The settings are JSON in bytes.
    """
    n_bytes = file.stat().st_size
    if n_bytes == 0:
        raise empty_file(file)
    limits = Limits.for_bytes(n_bytes, answer=_LEAST_ANSWER + 8 * n_bytes)
    try:
        return arrays_of(seg_pickle.__file__, str(file.resolve()), limits=limits)
    except Refused as error:
        raise _refused(file, str(error)) from error


def _refused(file: Path, why: str) -> BadInput:
    return BadInput(
        f"{file}: refused, {why}. Nothing of it was executed. Expected a {SEG_ENDING} as "
        "Cellpose writes it; save the masks as TIFF in the program that made it, and do not "
        "load the file with allow_pickle=True"
    )
