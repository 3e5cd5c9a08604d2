"""The header of a JPEG: height, width and channels of its image."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN = 0xDA
_JPEG_ALONE = frozenset({0x00, 0x01, 0xFF, *range(0xD0, 0xD9)})
"""Second bytes of JPEG markers without a length, and of what only looks like a marker."""


@dataclass(frozen=True)
class JpegFrame:
    """Height and width in pixels, and number of channels, by the header of a JPEG."""

    height: int
    width: int
    n_channels: int


def jpeg_frame(data: bytes) -> JpegFrame | None:
    """Find the header of a JPEG's image, not that of a preview; None where there is none."""
    at = data.find(b"\xff")
    while 0 <= at < len(data) - 9:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            height, width, n_channels = struct.unpack_from(">HHB", data, at + 5)
            return JpegFrame(height, width, n_channels)
        if marker == _JPEG_SCAN:
            return None
        (length,) = struct.unpack_from(">H", data, at + 2)
        is_alone = marker in _JPEG_ALONE
        at = data.find(b"\xff", at + 1 if is_alone else at + 2 + length)
    return None
