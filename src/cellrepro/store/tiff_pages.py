"""The chain of pages of a TIFF file, followed before tifffile follows it."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_ORDERS = {b"II": "<", b"MM": ">"}


@dataclass(frozen=True)
class _Layout:
    """How offsets are written in one kind of TIFF."""

    first: str
    n_tags: str
    tag_bytes: int
    next: str


_CLASSIC = _Layout(first="4xI", n_tags="H", tag_bytes=12, next="I")
_BIG = _Layout(first="8xQ", n_tags="Q", tag_bytes=20, next="Q")
_LAYOUTS = {42: _CLASSIC, 43: _BIG}


def refuse_endless_file(path: Path) -> None:
    """Refuse a TIFF file of which a page names an earlier one as the next; see `refuse_endless`.

    Parameters
    ----------
    path : Path

    Raises
    ------
    ValueError
        If the chain turns back, or the file is empty.
    """
    with (
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        refuse_endless(data)


def refuse_endless(data: bytes | mmap.mmap) -> None:
    """Refuse a TIFF of which a page names an earlier one as the next: it has no end.

    tifffile 2026.3.3 follows such a chain for ever, unless it turns back within 100 pages.

    Parameters
    ----------
    data : bytes or mmap
        Of the file. What is no TIFF, or is cut off, is left to whoever decodes it.

    Raises
    ------
    ValueError
        If the chain turns back.

    Examples
    --------
    >>> refuse_endless(b"II*\\x00" + struct.pack("<IHI", 8, 0, 0))
    >>> refuse_endless(b"II*\\x00" + struct.pack("<IHI", 8, 0, 8))
    Traceback (most recent call last):
    ValueError: page 1 of the TIFF is followed by page 1, so that it has no end
    """
    order = _ORDERS.get(data[:2])
    if order is None or len(data) < 4:
        return
    layout = _LAYOUTS.get(struct.unpack_from(f"{order}H", data, 2)[0])
    if layout is None:
        return
    seen: dict[int, int] = {}
    offset = _number(f"{order}{layout.first}", data, 0)
    while offset:
        if offset in seen:
            raise ValueError(
                f"page {len(seen)} of the TIFF is followed by page {seen[offset]}, so that it has "
                "no end"
            )
        seen[offset] = len(seen) + 1
        n_tags = _number(f"{order}{layout.n_tags}", data, offset)
        tags_at = offset + struct.calcsize(f"={layout.n_tags}")
        offset = _number(f"{order}{layout.next}", data, tags_at + n_tags * layout.tag_bytes)


def _number(form: str, data: bytes | mmap.mmap, at: int) -> int:
    """A number at a place; 0 beyond the end."""
    if at + struct.calcsize(form) > len(data):
        return 0
    (number,) = struct.unpack_from(form, data, at)
    return int(number)
