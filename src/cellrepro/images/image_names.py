"""The name of the image that a file of masks is of."""

import re

_SUFFIXES = (
    *("_cp_outlines", "_outlines", "_cp_masks", "_masks", "_mask", "_labels", "_label", "_seg"),
    "_rois",
)
"""What follows the name of an image in that of its masks: as Cellpose's command line writes them,
as it reads them (and as `cellrepro segment --masks-into` does), as other programs do, as its GUI
does. Longest first."""
_OF_TRACKING = re.compile(r"(?:man_seg|man_track|mask)(\d+)")
"""Masks of the image t000 in the Cell Tracking Challenge: of annotators, and of programs."""
OME = ".ome"
"""Of NAME_masks.ome.tif, before the ending."""


def image_name(stem: str) -> str:
    """Give the name of the image whose masks a file holds.

    The one rule by which files, folders, baselines and runs are paired.
    """
    stem = stem.removesuffix(OME) or stem
    of_tracking = _OF_TRACKING.fullmatch(stem)
    if of_tracking:
        return f"t{of_tracking[1]}"
    ending = next((suffix for suffix in _SUFFIXES if stem.endswith(suffix)), "")
    return stem.removesuffix(ending) or stem


def is_named_as_masks(stem: str) -> bool:
    """Whether a name is that of masks of an image, as NAME_masks is.

    >>> is_named_as_masks("a_masks"), is_named_as_masks("a.ome"), is_named_as_masks("a_masks.ome")
    (True, False, True)
    """
    return image_name(stem) != stem.removesuffix(OME)
