"""Digests of files, arrays and plain values: SHA-256, 64 digits in lower-case hex.

Those of tensors in memory are faster, see `cellrepro.bits.tensor_digests`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path

import numpy as np

_BLOCK = 2**18  # bytes of a file that are read at a time


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes; ``sha256sum`` agrees.

    Parameters
    ----------
    path : Path

    Returns
    -------
    str

    Raises
    ------
    OSError
        If it cannot be read, or is no file: the reading of a pipe or a device need not end.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  # asked of thousands of files
        raise OSError(errno.EINVAL, "a folder, pipe or device instead of a file", str(path))
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    with Path(path).open("rb", buffering=0) as stream:
        while n_bytes := stream.readinto(buffer):
            digest.update(buffer[:n_bytes])
    return digest.hexdigest()


def array_digest(array: np.ndarray) -> str:
    """SHA-256 of an array's dtype, shape and values in C order, whatever its layout."""
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.sha256(f"{little_endian.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(little_endian).tobytes())
    return digest.hexdigest()


def value_digest(value: object) -> str:
    """SHA-256 of a plain value (JSON types only), whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
