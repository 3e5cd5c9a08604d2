"""Images and label images in OME-Zarr, and plain arrays of Zarr, read whole.

Written against OME-Zarr 0.1 to 0.5 (ngff.openmicroscopy.org) and Zarr formats 2 and 3. Chunks are
unpacked in a process with limits: a codec tells nobody beforehand how much a chunk becomes.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np

from cellrepro.images import within_limits
from cellrepro.images.image_axes import Decoded
from cellrepro.images.mapped import is_large, refuse_full_disk
from samebits.errors import BadInput, NotPossibleHere
from samebits.libraries import has_library
from samebits.words import joined

if TYPE_CHECKING:
    import zarr

_METADATA = (".zarray", ".zgroup", "zarr.json")
_MOST_BYTES_OF_METADATA = 2**24
_UNPACKING = frozenset(
    {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
    | {"bytes", "crc32c", "delta", "sharding_indexed", "shuffle", "transpose"}
)
"""Codecs that unpack numbers and do nothing else; ``pickle``, one of numcodecs, runs code."""
_AXES_OF_FIRST_VERSIONS = "TCZYX"  # 0.1 and 0.2 name none


class _Axis(TypedDict):
    name: str


class _Level(TypedDict, total=False):
    path: str
    coordinateTransformations: object  # its name in the file


class Multiscale(TypedDict, total=False):
    """An image at several sizes, the full one first."""

    axes: list[_Axis | str]
    datasets: list[_Level]


def is_zarr(path: Path) -> bool:
    """Whether a folder is an array or a group of Zarr."""
    return path.is_dir() and any((path / name).is_file() for name in _METADATA)


def read_zarr(folder: Path, *, may_map: bool = False) -> Decoded:
    """Read an array, or the image at full size of a group of OME-Zarr."""
    if not has_library("zarr"):
        from cellrepro.extras import needs

        raise needs(["zarr"], what=f"reading {folder}")
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    limits = within_limits.Limits.for_bytes(n_bytes, answer=2**40)
    try:
        words = (str(folder), "may map" if may_map else "")
        arrays = within_limits.arrays_of(__file__, *words, limits=limits)
    except within_limits.Failed as error:
        raise BadInput(
            f"{folder}: cannot be read as Zarr ({error}); copy it again from its source"
        ) from error
    return Decoded(arrays["pixels"], str(arrays["axes"]))


# -- in a process with limits ------------------------------------------------------------------


def main() -> within_limits.Arrays:
    """The pixels in the folder that the command line names, and what their axes are."""
    decoded = _read_whole(Path(sys.argv[1]), may_map=sys.argv[2] != "")
    return {"pixels": decoded.pixels, "axes": np.array(decoded.axes)}


def _read_whole(folder: Path, *, may_map: bool) -> Decoded:
    if _is_array(folder):
        array = _array_in(folder)
        axes = "ZYX"[-array.ndim :] if array.ndim <= 3 else ""
        return _decoded(folder, array, axes, may_map=may_map)
    level, axes = _full_size(folder)
    return _decoded(folder / level, _array_in(folder / level), axes, may_map=may_map)


def _array_in(folder: Path) -> zarr.Array:
    """Open an array by its own folder: a group may hold copies of metadata that nobody checks."""
    import zarr

    _refuse_codecs(folder)
    return zarr.open_array(str(folder), mode="r")


def _is_array(folder: Path) -> bool:
    of_format_3 = _metadata(folder / "zarr.json")
    return of_format_3.get("node_type") == "array" or (folder / ".zarray").is_file()


def _metadata(path: Path) -> dict[str, object]:
    """A file of metadata; empty where there is none."""
    if not path.is_file():
        return {}
    if path.stat().st_size > _MOST_BYTES_OF_METADATA:
        raise BadInput(f"{path}: too large for metadata of Zarr; copy it again")
    return cast("dict[str, object]", json.loads(path.read_bytes()))


def multiscale_of(folder: Path) -> Multiscale:
    """Read what a group of OME-Zarr says of its first image; nobody has checked it."""
    of_format_3 = cast("dict[str, object]", _metadata(folder / "zarr.json").get("attributes", {}))
    attributes = of_format_3 or _metadata(folder / ".zattrs")
    described = cast("Mapping[str, list[Multiscale]]", attributes.get("ome", attributes))
    if not described.get("multiscales"):
        arrays = sorted(path.name for path in folder.iterdir() if is_zarr(path))
        inside = f"it holds {joined(arrays[:8])}" if arrays else "no array lies in it"
        raise BadInput(
            f"{folder}: a Zarr group without an image of OME-Zarr, {inside}; give the path of one "
            "array, or of a label image (NAME.zarr/labels/NAME)"
        )
    return described["multiscales"][0]


def _full_size(folder: Path) -> tuple[str, str]:
    """The path of the largest array of an image, and its axes."""
    image = multiscale_of(folder)
    axes = image.get("axes", [])
    named = [axis if isinstance(axis, str) else axis["name"] for axis in axes]
    level = str(image["datasets"][0]["path"])
    if ".." in Path(level).parts or Path(level).is_absolute():
        raise BadInput(f"{folder}: its image lies at {level!r}; expected a path inside of it")
    return level, "".join(map(_letter, named)) or _AXES_OF_FIRST_VERSIONS


def _letter(axis: str) -> str:
    """The letter of an axis, as tifffile has it: Q for one of another name."""
    letter = axis.upper()
    return letter if letter in set(_AXES_OF_FIRST_VERSIONS) else "Q"


def _decoded(folder: Path, array: zarr.Array, axes: str, *, may_map: bool) -> Decoded:
    if array.dtype.kind not in "uibf":
        raise BadInput(f"{folder}: an array of {array.dtype}; expected numbers")
    chunk = math.prod(array.chunks) * array.dtype.itemsize
    n_bytes = max(array.size * array.dtype.itemsize, chunk)
    maps = may_map and is_large(n_bytes)
    _refuse_more_than_memory(folder, array.shape, chunk if maps else n_bytes)
    if maps:
        refuse_full_disk(folder, n_bytes)
    within_limits.hold_memory(within_limits.Limits.for_bytes(n_bytes, answer=0).memory)
    pixels = within_limits.array_of_zeros(array.shape, array.dtype, maps=maps)
    for place in _chunks(array):
        pixels[place] = array[place]
    if len(axes) != pixels.ndim:
        raise BadInput(
            f"{folder}: shape {pixels.shape}, and its metadata name the axes {axes!r}; expected a "
            "name for each axis"
        )
    return Decoded.of(pixels, axes)


def _refuse_more_than_memory(folder: Path, shape: tuple[int, ...], n_bytes: int) -> None:
    """Missing chunks promise any size."""
    import psutil

    if 2 * n_bytes > psutil.virtual_memory().available:
        raise NotPossibleHere(
            f"{folder}: shape {shape} takes {n_bytes / 1e9:.1f} GB of memory, and a comparison "
            "twice that for each side; crop it"
        )


def _chunks(array: zarr.Array) -> Iterator[tuple[slice[int, int, None], ...]]:
    corners = (range(0, n, step) for n, step in zip(array.shape, array.chunks, strict=True))
    for corner in itertools.product(*corners):
        ends = (first + step for first, step in zip(corner, array.chunks, strict=True))
        yield tuple(map(slice, corner, ends))


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


if __name__ == "__main__":
    within_limits.answer_with(main)
