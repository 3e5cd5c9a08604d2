"""Images and label images in OME-Zarr, and plain arrays of Zarr, read whole.

Written against OME-Zarr 0.1 to 0.5 (ngff.openmicroscopy.org) and Zarr formats 2 and 3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.images.image_axes import Decoded
from cellrepro.libraries import has_library
from cellrepro.words import joined

if TYPE_CHECKING:
    import zarr

_METADATA = (".zarray", ".zgroup", "zarr.json")
_MOST_BYTES_OF_METADATA = 2**24
_UNPACKING = frozenset(
    {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
    | {"bytes", "crc32c", "delta", "sharding_indexed", "shuffle", "transpose"}
)
"""Codecs that unpack numbers and do nothing else; ``pickle``, one of numcodecs, runs code."""
_AXES_OF_FIRST_VERSIONS = "tczyx"  # 0.1 and 0.2 name none


class _Axis(TypedDict):
    name: str


class _Level(TypedDict):
    path: str


class _Multiscale(TypedDict, total=False):
    """An image at several sizes, the full one first."""

    axes: list[_Axis | str]
    datasets: list[_Level]


def is_zarr(path: Path) -> bool:
    """Whether a folder is an array or a group of Zarr."""
    return path.is_dir() and any((path / name).is_file() for name in _METADATA)


def read_zarr(folder: Path) -> Decoded:
    """Read an array, or the image at full size of a group of OME-Zarr."""
    if not has_library("zarr"):
        from cellrepro.extras import needs

        raise needs(["zarr"], what=f"reading {folder}")
    import zarr

    try:
        _refuse_codecs(folder)
        if _is_array(folder):
            array = zarr.open_array(str(folder), mode="r")
            return _decoded(folder, array, "zyx"[-array.ndim :] if array.ndim <= 3 else "")
        level, axes = _full_size(folder)
        _refuse_codecs(folder / level)
        # Opened by its own folder: a group may hold copies of metadata, which nobody has checked.
        return _decoded(folder / level, zarr.open_array(str(folder / level), mode="r"), axes)
    except CellreproError:
        raise
    except Exception as error:  # of damaged metadata or chunks nearly any
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise BadInput(
            f"{folder}: cannot be read as Zarr ({reason}); copy it again from its source"
        ) from error


def _is_array(folder: Path) -> bool:
    described = folder / "zarr.json"
    is_of_format_3 = described.is_file() and _metadata(described).get("node_type") == "array"
    return is_of_format_3 or (folder / ".zarray").is_file()


def _metadata(path: Path) -> dict[str, object]:
    """A file of metadata; empty where there is none."""
    if not path.is_file():
        return {}
    if path.stat().st_size > _MOST_BYTES_OF_METADATA:
        raise BadInput(f"{path}: too large for metadata of Zarr; copy it again")
    return cast("dict[str, object]", json.loads(path.read_bytes()))


def _full_size(folder: Path) -> tuple[str, str]:
    """The path of the largest array of an image, and its axes."""
    of_format_3 = cast("dict[str, object]", _metadata(folder / "zarr.json").get("attributes", {}))
    attributes = of_format_3 or _metadata(folder / ".zattrs")
    described = cast("Mapping[str, list[_Multiscale]]", attributes.get("ome", attributes))
    if not described.get("multiscales"):
        arrays = sorted(path.name for path in folder.iterdir() if is_zarr(path))
        inside = f"it holds {joined(arrays[:8])}" if arrays else "no array lies in it"
        raise BadInput(
            f"{folder}: a Zarr group without an image of OME-Zarr, {inside}; give the path of one "
            "array, or of a label image (NAME.zarr/labels/NAME)"
        )
    image = described["multiscales"][0]
    axes = image.get("axes", [])
    named = [axis if isinstance(axis, str) else axis["name"] for axis in axes]
    level = str(image["datasets"][0]["path"])
    if ".." in Path(level).parts or Path(level).is_absolute():
        raise BadInput(f"{folder}: its image lies at {level!r}; expected a path inside of it")
    return level, "".join(named) or _AXES_OF_FIRST_VERSIONS


def _decoded(folder: Path, array: zarr.Array, axes: str) -> Decoded:
    if array.dtype.kind not in "uibf":
        raise BadInput(f"{folder}: an array of {array.dtype}; expected numbers")
    import psutil

    n_bytes = array.size * array.dtype.itemsize
    if 2 * n_bytes > psutil.virtual_memory().available:  # missing chunks promise any size
        raise NotPossibleHere(
            f"{folder}: shape {array.shape} takes {n_bytes / 1e9:.1f} GB of memory, and a "
            "comparison twice that for each side; crop it"
        )
    pixels = np.asarray(array[...])
    if len(axes) != pixels.ndim:
        raise BadInput(
            f"{folder}: shape {pixels.shape}, and its metadata name the axes {axes!r}; expected a "
            "name for each axis"
        )
    return Decoded.of(pixels, axes.upper())


def _refuse_codecs(folder: Path) -> None:
    """Refuse an array whose codecs may do more than unpack, before any of them is made."""
    strange = sorted(set(_codecs(folder)) - _UNPACKING)
    if strange:
        raise BadInput(
            f"{folder}: packed by {joined(strange)}, which is not used; expected a usual codec "
            "(blosc, gzip, zstd …): save it so, or as TIFF"
        )


def _codecs(folder: Path) -> Iterator[str]:
    """The names of all codecs of an array, those inside shards among them."""
    for name in (".zarray", "zarr.json"):
        metadata = _metadata(folder / name)
        yield from _named_in([metadata.get(key) for key in ("compressor", "filters", "codecs")])


def _named_in(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _named_in(each)
    elif isinstance(value, dict):
        yield from (str(value[key]) for key in ("id", "name") if key in value)
        for each in value.values():
            if isinstance(each, list | dict):
                yield from _named_in(each)
