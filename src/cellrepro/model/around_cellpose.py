"""Cellpose beside its networks: the modules that its import loads, the images that it lists."""

from __future__ import annotations

import glob
from pathlib import Path

IMPORTED = ("torchvision", "segment_anything", "cellpose.models")
"""What importing Cellpose imports after NumPy and PyTorch, in order; the last has the networks."""


def listed_by_cellpose(folder: Path) -> list[Path]:
    """List the images of a folder as Cellpose does, which knows fewer endings than the lab."""
    from cellpose.io import get_image_files

    try:
        # Its argument is a pattern, and a folder's name may hold brackets.
        return [Path(path) for path in get_image_files(glob.escape(str(folder)), "_masks")]
    except ValueError:  # where it finds none
        return []
