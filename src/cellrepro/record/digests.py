"""SHA-256 digests of files, arrays and plain values, in lower-case hex."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes; ``sha256sum`` agrees.

    Parameters
    ----------
    path : Path
        Read in pieces, so its size does not matter.

    Returns
    -------
    str
        64 lower-case hex digits.
    """
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def array_digest(array: np.ndarray) -> str:
    """SHA-256 of an array's dtype, shape and values in C order.

    Any layout of equal values gives the same digest; another dtype or shape another one.

    Examples
    --------
    >>> array_digest(np.zeros((2, 3))) == array_digest(np.zeros((3, 2)))
    False
    """
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.sha256(f"{little_endian.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(little_endian).tobytes())
    return digest.hexdigest()


def value_digest(value: Any) -> str:
    """SHA-256 of a plain value (JSON types only), whatever the order of its keys.

    Examples
    --------
    >>> value_digest({"a": 1, "b": 2}) == value_digest({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
