"""Zip files of unknown origin, opened without reading an endless list of their parts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellrepro.pickles import Refused

_LONGEST_DIRECTORY = 2**24  # bytes: a hundred thousand parts


class _Bounded(io.BufferedReader):
    """A file of which only so many bytes can be read at once, until the list is read."""

    most_bytes: int | None = _LONGEST_DIRECTORY

    def read(self, size: int | None = -1, /) -> bytes:
        if self.most_bytes is not None and size is not None and size > self.most_bytes:
            raise Refused(f"its list of parts has more than {self.most_bytes} bytes")
        return super().read(size)


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for one block; `zipfile` alone reads the whole list of its parts at once."""
    with _Bounded(io.FileIO(path)) as stream, zipfile.ZipFile(stream) as archive:
        stream.most_bytes = None
        yield archive
