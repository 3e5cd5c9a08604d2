"""The name of the image that a file of masks is of."""

_SUFFIXES = ("_cp_masks", "_masks", "_mask", "_seg")
"""What follows the name of an image in that of its masks: as Cellpose's command line writes them,
as it reads them (and as `cellrepro segment --masks-into` does), as other programs do, as its GUI
does. Longest first."""
OME = ".ome"
"""Of NAME_masks.ome.tif, before the ending."""


def image_name(stem: str) -> str:
    """Give the name of the image whose masks a file holds.

    The one rule by which files, folders, baselines and runs are paired.
    """
    stem = stem.removesuffix(OME) or stem
    ending = next((suffix for suffix in _SUFFIXES if stem.endswith(suffix)), "")
    return stem.removesuffix(ending) or stem
