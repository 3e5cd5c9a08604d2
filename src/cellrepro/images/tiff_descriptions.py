"""What a TIFF says of itself: whether it is of a usual kind, and how many planes it counts."""

from __future__ import annotations

import math
import re
from pathlib import Path

from cellrepro.store.tiff_pages import IMAGE_DESCRIPTION, TiffPages
from samebits.errors import BadInput
from samebits.words import amount

_SOFTWARE = 305
_USUAL_TAGS = frozenset(range(254, 348)) | {
    700,  # XMP
    32997,  # depth of an image
    33432,  # copyright
    33550,  # geographic, up to 34737
    33922,
    34264,
    34377,  # of Photoshop
    34675,  # a colour profile
    34735,
    34736,
    34737,
    42112,  # of GDAL
    42113,
    50838,  # of ImageJ
    50839,
}
"""With no tags but these, tifffile takes a file for none of its other kinds."""
_OTHER_SOFTWARE = re.compile(r"SI\.|PerkinElmer|Philips|Ventana|ScanOutput|Indica")
_OTHER_DESCRIPTION = re.compile(r"state\.|Aperio |(?s:.*)scanimage\.SI")
_UNUSUAL_IN_OME = ("Modulo", "<!")  # axes of any length, entities
_MOST_OF_OME = 2**24  # letters
_ORDER_OF_OME = "DimensionOrder"
_COUNTS_OF_OME = ("PlaneCount", "NumPlanes")
_MOST_NAMED = 2**16  # planes, of an OME description


def is_usual(pages: TiffPages) -> bool:
    """Whether tifffile reads a file as an ordinary TIFF, its own, ImageJ's or OME's."""
    if not pages.numbers <= _USUAL_TAGS:
        return False
    if any(_OTHER_SOFTWARE.match(text) for text in pages.texts(_SOFTWARE)):
        return False
    descriptions = pages.texts(IMAGE_DESCRIPTION)
    for text in descriptions:
        if _OTHER_DESCRIPTION.match(text) or (text.startswith("<") and not is_ome(text)):
            return False
        is_unusual = len(text) > _MOST_OF_OME or any(word in text for word in _UNUSUAL_IN_OME)
        if is_ome(text) and is_unusual:
            return False
    return True


def is_ome(description: str) -> bool:
    """Whether a description is that of an OME-TIFF."""
    return description[-10:].endswith("OME>")


def refuse_planes_elsewhere(file: Path, pages: TiffPages) -> None:
    """Refuse an OME-TIFF whose description counts more planes than the file has pages."""
    for text in filter(is_ome, pages.texts(IMAGE_DESCRIPTION)):
        from xml.etree import ElementTree

        try:
            n_planes = _planes_counted(text, pages)
        except (ElementTree.ParseError, ValueError, KeyError):  # tifffile then reads no planes
            continue
        if n_planes > pages.n_pages:
            raise BadInput(
                f"{file}: its OME description counts {amount(n_planes, 'plane')}, and it has "
                f"{pages.n_pages}: one of several files of a multi-file OME-TIFF, or cut off; save "
                "the image as one TIFF"
            )


def _planes_counted(ome: str, pages: TiffPages) -> int:
    """The most planes that an element of an OME description counts; too many are added up."""
    from xml.etree import ElementTree

    n_planes = 0
    n_named = 0  # tifffile looks each of them up
    for element in ElementTree.fromstring(ome).iter():
        if element.tag.endswith("Pixels"):
            sizes = [int(element.attrib[f"Size{axis}"]) for axis in element.attrib[_ORDER_OF_OME]]
            n_planes = max(n_planes, math.prod(sizes) // pages.samples_of_page)
        elif element.tag.endswith("TiffData"):
            counts = [int(element.attrib.get(name, 0)) for name in _COUNTS_OF_OME]
            n_planes = max(n_planes, *counts)
            n_named += max(counts) or ("IFD" in element.attrib or pages.n_pages)
    return n_named if n_named > max(_MOST_NAMED, 4 * pages.n_pages) else n_planes
