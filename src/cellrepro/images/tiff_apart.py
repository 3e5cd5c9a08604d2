"""Runs as a process of its own: decodes a TIFF of an unusual kind within limits.

``python tiff_apart.py NAME MEMORY SECONDS ANSWER`` takes the file on its standard input; NAME is
for messages.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.images.within_limits import NotHere, Refused, answer_with


def main() -> Mapping[str, NDArray[np.generic]]:
    """The pixels, and what their axes are."""
    from cellrepro.errors import CellreproError, NotPossibleHere
    from cellrepro.images.tiff_decoding import decode_whole

    file = Path(sys.argv[1])
    try:
        decoded = decode_whole(file, sys.stdin.buffer.read(), within_limits_already=True)
    except NotPossibleHere as error:
        raise NotHere(str(error)) from error
    except CellreproError as error:
        raise Refused(str(error)) from error
    return {
        "pixels": decoded.pixels,
        "axes": np.array(decoded.axes),
        "alpha": np.array(decoded.alpha),
    }


if __name__ == "__main__":
    answer_with(main)
