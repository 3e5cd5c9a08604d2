"""How large a pixel is, as the file of an image says; never guessed.

Programs write it where everybody may write anything, so it is read without trust: what is no plain
number in a unit of length, or differs between rows and columns, is not used. The resolution of a
TIFF that only says inches or centimetres is that of a screen or a printer, and is not used, either.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from cellrepro.errors import CellreproError
from cellrepro.images.decoding import FORMATS, read_bytes
from cellrepro.images.ome_zarr import is_zarr, multiscale_of
from cellrepro.images.tiff_descriptions import is_ome, is_usual
from cellrepro.store.tiff_pages import IMAGE_DESCRIPTION, TiffPages, pages_of

_MICROMETRES = {
    **dict.fromkeys(("µm", "μm", "um", "micron", "microns", "micrometer", "micrometre"), 1.0),
    **dict.fromkeys(("nm", "nanometer", "nanometre"), 1e-3),
    **dict.fromkeys(("mm", "millimeter", "millimetre"), 1e3),
    **dict.fromkeys(("cm", "centimeter", "centimetre"), 1e4),
    **dict.fromkeys(("pm", "picometer", "picometre"), 1e-6),
    **dict.fromkeys(("Å", "angstrom"), 1e-4),
    **dict.fromkeys(("m", "meter", "metre"), 1e6),
}
"""The length of each unit, as OME, OME-Zarr and ImageJ write it."""
_LEAST = 1e-6  # micrometres
_MOST = 1e5
_EQUAL = 0.01  # how far rows and columns may differ, as a share
_RESOLUTIONS = (283, 282)  # tags of pixels per unit, along y and x
_RATIONAL = 5  # the type of a fraction in TIFF
_UNREADABLE = (
    *(CellreproError, OSError, ValueError, TypeError, LookupError),
    *(AttributeError, ArithmeticError, RecursionError, struct.error),
)
"""What a text or a tag of another form than expected raises."""
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})")  # ImageJ writes the letter µ so


def pixel_size_in(path: Path) -> float | None:
    """Read how long the side of a pixel is, micrometres; None where the file does not say.

    Understood are OME-TIFF (``PhysicalSizeX``), TIFF of ImageJ (its unit and the resolution), and
    OME-Zarr (the scale of the full size). A file that cannot be read has none: whoever reads its
    pixels says why.
    """
    try:
        if is_zarr(path):
            return _of_zarr(path)
        if FORMATS.get(path.suffix.lower()) == "TIFF":
            return _of_tiff(pages_of(read_bytes(path)))
    except _UNREADABLE:
        pass
    return None


def _checked(y: float, x: float, unit: str) -> float | None:
    """The side of a square pixel in micrometres; None of what is none."""
    factor = _MICROMETRES.get(unit.strip(), _MICROMETRES.get(unit.strip().lower()))
    if factor is None or not (math.isfinite(y) and math.isfinite(x)):
        return None
    size = x * factor
    is_square = abs(y - x) <= _EQUAL * abs(x)
    return size if is_square and _LEAST <= size <= _MOST else None


def _of_tiff(pages: TiffPages) -> float | None:
    if not pages.n_pages or not is_usual(pages):
        return None
    for text in pages.texts(IMAGE_DESCRIPTION):
        if is_ome(text):
            return _of_ome(text)
        if text.startswith("ImageJ="):
            return _of_imagej(text, pages)
    return None


def _of_ome(description: str) -> float | None:
    from xml.etree import ElementTree

    try:
        elements = ElementTree.fromstring(description).iter()
    except ElementTree.ParseError:
        return None
    for element in elements:
        if element.tag.endswith("Pixels"):
            y, x = (float(element.attrib[f"PhysicalSize{axis}"]) for axis in "YX")
            units = {element.attrib.get(f"PhysicalSize{axis}Unit", "µm") for axis in "YX"}
            return _checked(y, x, units.pop()) if len(units) == 1 else None
    return None


def _of_imagej(description: str, pages: TiffPages) -> float | None:
    """The unit stands in the description, pixels for each unit in the tags of the resolution."""
    lines = dict(line.split("=", 1) for line in description.splitlines() if "=" in line)
    unit = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), lines.get("unit", ""))
    y, x = (1 / _fraction(pages, number) for number in _RESOLUTIONS)
    return _checked(y, x, unit)


def _fraction(pages: TiffPages, number: int) -> float:
    """The fraction that the first page has under a number."""
    kind, _, at = pages.first[number][0]
    if kind != _RATIONAL:
        raise ValueError(f"tag {number} is no fraction")
    order = "<" if pages.data[:2] == b"II" else ">"
    above, below = struct.unpack(f"{order}II", bytes(pages.data[at : at + 8]))
    if not above or not below:
        raise ValueError(f"tag {number} is {above}/{below}")
    return float(above / below)


def _of_zarr(folder: Path) -> float | None:
    image = multiscale_of(folder)
    axes = image.get("axes")
    transformations = image["datasets"][0].get("coordinateTransformations")
    if not isinstance(axes, Sequence) or not isinstance(transformations, Sequence):
        return None
    scales = [
        each["scale"]
        for each in transformations
        if isinstance(each, Mapping) and each.get("type") == "scale"
    ]
    sizes = {}
    units = set()
    for axis, size in zip(axes, scales[0], strict=True):
        if isinstance(axis, Mapping) and axis.get("name") in ("y", "x"):
            sizes[axis["name"]] = float(size)
            units.add(str(axis.get("unit", "")))
    return _checked(sizes["y"], sizes["x"], units.pop()) if len(units) == 1 else None
