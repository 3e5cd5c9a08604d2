"""OpenSSH's binary format: a length in four bytes, then so many bytes."""

from __future__ import annotations

import struct


class WireReader:
    """Reads the fields of OpenSSH's binary format, one after the other."""

    def __init__(self, content: bytes):
        self._content = content
        self._position = 0

    def string(self) -> bytes:
        """The next string of bytes."""
        return self._next(self.number())

    def number(self) -> int:
        """The next 32-bit number."""
        (number,) = struct.unpack(">I", self._next(4))
        return int(number)

    def _next(self, n_bytes: int) -> bytes:
        end = self._position + n_bytes
        if end > len(self._content):
            raise ValueError(
                f"{n_bytes} bytes expected, {len(self._content) - self._position} there"
            )
        taken = self._content[self._position : end]
        self._position = end
        return taken

    @property
    def at_end(self) -> bool:
        """Whether nothing follows."""
        return self._position == len(self._content)


def wire_string(content: bytes) -> bytes:
    """Bytes in OpenSSH's binary format."""
    return struct.pack(">I", len(content)) + content
