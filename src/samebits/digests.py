"""Digests of files, arrays and plain values: SHA-256, 64 digits in lower-case hex.

Those of tensors in memory are faster, see `samebits.tensor_digests`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path

import numpy as np

from samebits.errors import BadInput

_BLOCK = 2**18  # bytes of a file that are read at a time


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes; ``sha256sum`` agrees."""
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
    if array.dtype.hasobject:
        raise BadInput(
            f"an array of dtype {array.dtype} holds objects, which have no digest; expected numbers"
        )
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.sha256(f"{little_endian.dtype.str}{array.shape}".encode())
    # A view of its bytes: a copy of them would need the memory of the array once more.
    digest.update(np.ascontiguousarray(little_endian).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def value_digest(value: object) -> str:
    """SHA-256 of a plain value (JSON types only), whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
