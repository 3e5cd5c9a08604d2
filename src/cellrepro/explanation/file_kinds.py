"""What a file is that holds neither masks nor weights, and what to do with it."""

from __future__ import annotations

from typing import NamedTuple


class FileKind(NamedTuple):
    """What a file is."""

    name: str
    """"ROIs of ImageJ, 30 of them"."""
    next_step: str
    """What takes it, or what to do to compare it here; ``{path}`` stands for its path."""
    may_be_passports: bool = True
    """Whether a file of that kind may be one of passports, if its name says so: a damaged one."""
    is_record: bool = False
    """Whether it records how masks beside it were made."""


AS_LABELS = (
    "cells are compared as label images: give the NAME_masks.tif, or the NAME_seg.npy, that "
    "Cellpose writes of the same cells (--save_tif), or draw them as one"
)
AS_TIFF = "save labels as a TIFF of whole numbers, 0 for background; `cellrepro compare` takes it"
CONVERT = "open it with the program that wrote it, and save the image or the labels as TIFF"
UNPACK = "unpack it, and give one of its files"
NOT_USED = "it holds nothing that the lab compares"
