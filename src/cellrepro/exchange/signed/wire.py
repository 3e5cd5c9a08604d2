"""Bytes as SSH writes them: a length in four bytes, then so many bytes."""

from __future__ import annotations

import struct


class WireReader:
    """Reads fields from bytes, one after the other."""

    def __init__(self, content: bytes):
        self._content = content
        self._at = 0

    def string(self) -> bytes:
        """The next bytes, as many as their length says."""
        return self._next(self.number())

    def number(self) -> int:
        """The next four bytes as a number."""
        (number,) = struct.unpack(">I", self._next(4))
        return int(number)

    def _next(self, n_bytes: int) -> bytes:
        end = self._at + n_bytes
        if end > len(self._content):
            raise ValueError(f"{n_bytes} bytes expected, {len(self._content) - self._at} there")
        taken = self._content[self._at : end]
        self._at = end
        return taken

    @property
    def at_end(self) -> bool:
        """Whether all was read."""
        return self._at == len(self._content)


def wire_string(content: bytes) -> bytes:
    """Give bytes with their length before them."""
    return struct.pack(">I", len(content)) + content
