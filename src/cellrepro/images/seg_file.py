"""Cellpose's ``_seg.npy``, a pickle, read without executing anything of it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cellrepro.errors import no_such_file
from cellrepro.images.decoding import SEG_ENDING, empty_file
from cellrepro.images.label_image import label_image
from cellrepro.pickles import PLAIN_NAMES, PickleReader, Refused, UnknownName, of_array
from samebits.errors import BadInput
from samebits.results import Result, Row
from samebits.words import amount

N_COLORS = "n_colors"
"""The GUI writes a colour for each cell; only how many there are is handed on."""
_FORMAT = np.lib.format
_HEADERS = {(1, 0): _FORMAT.read_array_header_1_0, (2, 0): _FORMAT.read_array_header_2_0}
_LONGEST_HEADER = 2**14  # bytes
_DEEPEST = 100
_OVERLAP = 4
_SMALL = 2**20
"""One array or text can stand in several places: in all there may be four times as many bytes as in
the file, and a million letters more."""
_NO_SETTINGS = {"masks", "flows", "outlines", "colors", "img", "img_restore"}


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

    Nothing of it is executed: what it names other than arrays and paths is refused.

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
    with file.open("rb") as stream:
        return seg_in(file, stream, file.stat().st_size)


def seg_in(file: Path, stream: BinaryIO, n_bytes: int) -> SegFile:
    """Read the bytes of a ``_seg.npy``, of which there are so many."""
    if not n_bytes:
        raise empty_file(file)
    try:
        masks, settings, flows = _content_of(stream, n_bytes)
    except UnknownName as error:
        why = f"it names '{error.name}', which is neither a NumPy array nor a plain container"
        raise _refused(file, why) from error
    except Refused as error:
        raise _refused(file, str(error)) from error
    except Exception as error:  # what a damaged header ends in can be nearly any
        why = f"{type(error).__name__}: {ascii(str(error))[1:-1][:200]}"
        raise _refused(file, why) from error
    return SegFile(label_image(f"{file}: masks", masks).astype(np.uint32), settings, flows)


def _refused(file: Path, why: str) -> BadInput:
    return BadInput(
        f"{file}: refused, {why}. Nothing of it was executed. Expected a {SEG_ENDING} as "
        "Cellpose writes it; save the masks as TIFF in the program that made it, and do not "
        "load the file with allow_pickle=True"
    )


# -- what is in the pickle -----------------------------------------------------------------------


def _content_of(
    stream: BinaryIO, n_bytes: int
) -> tuple[np.ndarray, dict[str, Any], tuple[np.ndarray, ...]]:
    """Read masks, settings and flows."""
    header = io.BytesIO(stream.read(_LONGEST_HEADER))
    read_header = _HEADERS.get(_FORMAT.read_magic(header))
    if read_header is None or read_header(header)[2] != np.dtype(object):
        raise Refused("no dictionary in the format of numpy.save")
    stream.seek(header.tell())
    content = of_array(PickleReader(stream, names=PLAIN_NAMES, most_bytes=n_bytes).load())
    masks = of_array(content.get("masks")) if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(masks, np.ndarray):
        raise Refused("no dictionary with an array `masks`")
    recorded = {name: value for name, value in content.items() if name not in _NO_SETTINGS}
    settings = _Plain(_OVERLAP * n_bytes + _SMALL).dictionary(recorded)
    colors = of_array(content.get("colors"))
    if isinstance(colors, np.ndarray) and colors.ndim:
        settings[N_COLORS] = len(colors)
    return (
        masks.squeeze(),
        settings,
        _flows(of_array(content.get("flows")), most_bytes=_OVERLAP * n_bytes),
    )


def _flows(recorded: object, *, most_bytes: int) -> tuple[np.ndarray, ...]:
    values = map(of_array, recorded if isinstance(recorded, list | tuple) else ())
    flows = [flow if isinstance(flow, np.ndarray) else np.zeros(0) for flow in values]
    if sum(flow.nbytes for flow in flows) > most_bytes:  # one array can stand twice
        raise Refused("more arrays than its size allows")
    return tuple(flow.copy("K") for flow in flows)


class _Plain:
    """Converts values for JSON: at most so many, with letters of texts, as one can stand twice."""

    def __init__(self, n_left: int) -> None:
        self._n_left = n_left

    def dictionary(self, values: Mapping[object, object], depth: int = 0) -> dict[str, Any]:
        return {self._text(str(name)): self._of(item, depth) for name, item in values.items()}

    def _of(self, value: object, depth: int) -> Any:
        """Convert a value; NaN, infinity and arrays of several axes become None."""
        self._n_left -= 1
        if self._n_left < 0:
            raise Refused("more values than its size allows")
        if depth > _DEEPEST:
            raise Refused(f"values in values, more than {_DEEPEST} deep")
        value = of_array(value)
        if isinstance(value, np.ndarray):
            value = value.tolist() if value.ndim < 2 else None
        if isinstance(value, dict):
            return self.dictionary(value, depth + 1)
        if isinstance(value, list | tuple | set):
            return [self._of(item, depth + 1) for item in value]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int | float):
            return value if abs(value) <= sys.float_info.max else None
        if value is None:
            return None
        raise Refused(f"a value of type {type(value).__name__}")

    def _text(self, text: str) -> str:
        """Escape lone surrogates, which no file and no terminal takes."""
        self._n_left -= len(text)
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
