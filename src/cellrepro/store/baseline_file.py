"""A baseline: canonical masks, and how they were made, in one small file (a zip).

Its bytes follow from its content, and from the version of zlib that packed it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cellrepro.errors import no_such_file
from cellrepro.nested_values import each_once
from cellrepro.store.whole_files import whole_file
from cellrepro.zip_files import opened_zip
from samebits.digests import array_digest
from samebits.errors import BadInput, NotPossibleHere, whole_number
from samebits.results import Row
from samebits.words import amount

_RECORD = "baseline.json"
_FORMAT = 1
_MOST_BYTES_OF_RECORD = 2**28
_UNIX = 3  # as a zip says who made it; Windows would write 0
_ALWAYS = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip can hold


@dataclass(frozen=True)
class BaselineFile:
    """A baseline in a file."""

    path: Path
    record: dict[str, Any]
    """``images`` {name: {``digest``, ``n_objects``, ``numbers`` of cells that are not numbered as
    they appear}}, and more."""

    def masks(self, image: str) -> np.ndarray:
        """The masks of one image, with the numbers that its cells had when they were saved."""
        expected = self.record["images"][image]
        try:
            with opened_zip(self.path) as archive:
                name = f"masks/{image}.npy"
                n_bytes = archive.getinfo(name).file_size
                free = psutil.virtual_memory().available
                if n_bytes > free // 4:  # read, and made canonical numbers of four bytes
                    raise NotPossibleHere(
                        f"the masks of {image} in {self.path} take {n_bytes / 1e9:.1f} GB, and "
                        f"{free / 1e9:.1f} GB of memory are free, of which a quarter may be used: "
                        "end other programs, or check on a machine with more memory"
                    )
                content = _content(archive, name, most_bytes=n_bytes)
            masks = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
            masks = masks.astype(np.uint32, casting="safe")
        except NotPossibleHere:
            raise
        except Exception as error:  # of a damaged archive nearly any
            raise _damaged(self.path, error) from error
        if array_digest(masks) != expected["digest"]:
            raise _damaged(self.path, f"the masks of {image} are others than its record says")
        numbers = expected.get("numbers")
        return masks if numbers is None else np.array([0, *numbers], np.uint32)[masks]


def write(
    path: Path,
    record: Mapping[str, Any],
    masks: Mapping[str, np.ndarray],
    *,
    numbers: Mapping[str, Sequence[int]] | None = None,
) -> BaselineFile:
    """Write a baseline of canonical masks, whole or not at all.

    ``numbers`` are those that the cells of an image had, where they had others.
    """
    numbers = numbers or {}
    images = {
        name: {
            "digest": array_digest(labels),
            "n_objects": int(labels.max(initial=0)),
            **({"numbers": [*numbers[name]]} if name in numbers else {}),
        }
        for name, labels in sorted(masks.items())
    }
    whole = {"format": _FORMAT, **record, "images": images}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        text = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False)
        _add(archive, _RECORD, text.encode("utf-8"))
        for name, labels in sorted(masks.items()):
            smallest_type = np.min_scalar_type(labels.max(initial=0))
            content = io.BytesIO()
            np.save(content, labels.astype(smallest_type))
            _add(archive, f"masks/{name}.npy", content.getvalue())
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as scratch:
        scratch.write_bytes(buffer.getvalue())
    return read(path)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file with a fixed time and system, so that its entry is the same everywhere."""
    entry = zipfile.ZipInfo(name, _ALWAYS)
    entry.create_system = _UNIX
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=9)


def held_text(record: Mapping[str, Any]) -> str:
    """Say how many cells a baseline holds, in how many images, and whose they are."""
    images = record["images"].values()
    n_cells = amount(sum(image["n_objects"] for image in images), "cell")
    of = f" of {record['from']}" if "from" in record else ""
    return f"{n_cells} in {amount(len(images), 'image')}{of}"


def cells_by_image(record: Mapping[str, Any]) -> list[Row]:
    """Give each image of a baseline with its number of cells."""
    images = record["images"]
    return [{"image": name, "cells": image["n_objects"]} for name, image in images.items()]


def is_one(path: Path) -> bool:
    """Whether a file is a baseline, by its entries."""
    try:
        with opened_zip(path) as archive:
            return _RECORD in archive.namelist()
    except Exception:  # a damaged directory ends in nearly any
        return False


def read(path: Path) -> BaselineFile:
    """Read the record of a baseline; its masks are read on demand."""
    try:
        with opened_zip(path) as archive:
            record = json.loads(
                _content(archive, _RECORD, most_bytes=_MOST_BYTES_OF_RECORD),
                object_pairs_hook=each_once,
            )
        if record["format"] != _FORMAT:
            raise ValueError(f"its format is {record['format']!r}, this version reads {_FORMAT}")
        for name, image in record["images"].items():
            if not isinstance(image["digest"], str) or whole_number(image["n_objects"]) is None:
                raise ValueError(f"of the image {name!r} it tells neither digest nor cells")
            _refuse_numbers(name, image)
        limits = record.get("limits", {})
        if not isinstance(limits, dict):
            raise ValueError("its limits are no table")
        for name, limit in limits.items():
            if isinstance(limit, bool) or not isinstance(limit, int | float):
                raise ValueError(f"its limit {name!r} is no number")
        return BaselineFile(path, record)
    except FileNotFoundError as error:
        raise no_such_file(path, expected="a file of `cellrepro baseline save`") from error
    except Exception as error:  # of a damaged archive nearly any
        if _is_something_else(path):
            raise BadInput(
                f"{path} is no baseline; expected first a file of `cellrepro baseline save`, then "
                "the masks"
            ) from error
        raise _damaged(path, error) from error


def _is_something_else(path: Path) -> bool:
    """Whether this is a folder, or a file that does not even begin as an archive."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return file.read(2) not in (b"PK", b"")
    except OSError:  # the message about the first attempt says why
        return False


def _refuse_numbers(name: str, image: Mapping[str, Any]) -> None:
    """Refuse numbers of cells that are not one for each."""
    if "numbers" not in image:
        return
    numbers = image["numbers"]
    is_list = isinstance(numbers, list) and len(numbers) == image["n_objects"]
    if not is_list or not all(type(n) is int and 0 < n < 2**32 for n in numbers):
        raise ValueError(f"the numbers of the cells of {name!r} are not one for each")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"two cells of {name!r} have one number")


def _content(archive: zipfile.ZipFile, name: str, *, most_bytes: int) -> bytes:
    """Read an entry of an archive, and refuse one that unpacks to more than it claims."""
    with archive.open(name) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"{name} unpacks to more than {most_bytes} bytes")
    return content


def _damaged(path: Path, why: object) -> BadInput:
    return BadInput(
        f"{path} is no whole baseline ({why}); expected a file of `cellrepro baseline save`, copy "
        "it again or save it anew"
    )
