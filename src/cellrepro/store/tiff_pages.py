"""The pages of a TIFF file, walked and checked before tifffile reads them.

tifffile 2026.3.3 follows a chain that turns back for ever, and only logs most damage: a stack that
was cut off comes back as the pages that are left.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

MOST_PAGES = 2**17
"""tifffile takes 15 s for a hundred thousand pages as programs write them."""
IMAGE_DESCRIPTION = 270
_SIZES = (256, 257, 277, 32997)  # width, height, channels, depth
_SUB_IFDS = 330
_ORDERS = {b"II": "<", b"MM": ">"}
_MOST_TAGS = 4096  # of a page; tifffile reads no more, either
_BYTES_OF_TYPE = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)
"""Bytes of a value, by the number that TIFF gives its type; 0 where there is none, which readers
pass over."""
_FORMAT_OF_TYPE = {3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_TEXT = (1, 2, 7)  # bytes and undefined bytes, too, as some programs write
_HEADER_BYTES = 8  # some programs write offsets below, which lead into the header and are harmless


@dataclass(frozen=True)
class _Layout:
    """Struct formats of the offsets in classic TIFF or in BigTIFF."""

    first: str
    n_tags: str
    tag: str
    next: str


_CLASSIC = _Layout(first="4xI", n_tags="H", tag="HHI4s", next="I")
_BIG = _Layout(first="8xQ", n_tags="Q", tag="HHQ8s", next="Q")
_LAYOUTS = {42: _CLASSIC, 43: _BIG}


class TooManyPages(ValueError):
    """The TIFF may be whole, and has more pages than are read here."""


Tag: TypeAlias = tuple[int, int, int]
"""The type of a value as TIFF numbers them, how many there are, and the byte where they begin."""
Tags: TypeAlias = dict[int, list[Tag]]
"""The tags of a page by number; a page can have a tag several times."""


@dataclass(frozen=True)
class TiffPages:
    """The tables of a TIFF file's pages, each known to lie within the file."""

    data: bytes | mmap.mmap
    """The bytes of the file."""
    n_pages: int = 0
    """Without the smaller copies of pages; 0 of what is no TIFF."""
    first: Tags = field(default_factory=dict)
    """Tags of the first page."""
    samples_of_page: int = 1
    """Pixels of the first page, times their channels."""
    numbers: frozenset[int] = frozenset()
    """Numbers of the tags that any page has."""

    def texts(self, number: int) -> list[str]:
        """The texts that the first page has under a number."""
        tags = self.first.get(number, ())
        contents = [bytes(self.data[at : at + n]) for kind, n, at in tags if kind in _TEXT]
        return [text.rstrip(b"\0").decode("utf-8", errors="replace").strip() for text in contents]


def check_pages_of_file(path: Path) -> None:
    """Refuse a TIFF file whose chain of pages is damaged; see `pages_of`."""
    with (
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        pages_of(data)


def pages_of(data: bytes | mmap.mmap) -> TiffPages:
    """Follow the chain of a TIFF's pages to its end.

    >>> pages_of(b"II*\\x00" + struct.pack("<IHHHIII", 8, 1, 256, 4, 1, 32, 0)).n_pages
    1
    >>> pages_of(b"II*\\x00" + struct.pack("<IHI", 8, 0, 8))
    Traceback (most recent call last):
    ValueError: page 1 of the TIFF is followed by page 1, so that it has no end
    """
    order = _ORDERS.get(data[:2])
    layout = None
    if order is not None and len(data) >= _HEADER_BYTES:
        layout = _LAYOUTS.get(struct.unpack_from(f"{order}H", data, 2)[0])
    if order is None or layout is None:
        return TiffPages(data)
    return _Walk(data, order, layout).pages()


class _Walk:
    """A walk from table to table, in which all tables together are bounded by the file's size."""

    def __init__(self, data: bytes | mmap.mmap, order: str, layout: _Layout) -> None:
        self._data = data
        self._order = order
        self._layout = layout
        self._tag_form = f"{order}{layout.tag}"
        self._tag_bytes = struct.calcsize(self._tag_form)
        self._room = struct.calcsize(f"={layout.next}")  # of a value within its table
        self._table_bytes_left = len(data)  # tables do not lie over each other
        self._value_bytes_left = 2**26 + 16 * len(data)  # values may be shared

    def pages(self) -> TiffPages:
        """Look at every page and every smaller copy of one."""
        offsets = self._chain()
        first: Tags = {}
        numbers: set[int] = set()
        for n, offset in enumerate(offsets, start=1):
            tags = self._tags(offset, f"page {n} of the TIFF")
            if not tags:
                raise ValueError(f"page {n} of the TIFF holds no image")
            first = first or tags
            numbers.update(tags)
            for copy in self._numbers(tags.get(_SUB_IFDS, ())):
                if copy >= _HEADER_BYTES:
                    self._tags(copy, f"a smaller copy of page {n} of the TIFF")
        sizes = [next(self._numbers(first.get(number, ())), 1) for number in _SIZES]
        samples_of_page = max(1, math.prod(sizes))
        return TiffPages(self._data, len(offsets), first, samples_of_page, frozenset(numbers))

    def _chain(self) -> list[int]:
        """The offsets of the pages, one after the other."""
        offset = self._number(self._layout.first, 0, "the header of the TIFF")
        seen: dict[int, int] = {}
        while offset:
            if offset in seen:
                raise ValueError(
                    f"page {len(seen)} of the TIFF is followed by page {seen[offset]}, so that it "
                    "has no end"
                )
            if offset >= len(self._data):
                raise ValueError(
                    f"page {len(seen) + 1} of the TIFF should stand at byte {offset}, and the file "
                    f"ends at {len(self._data)}"
                )
            seen[offset] = len(seen) + 1
            if len(seen) > MOST_PAGES:
                raise TooManyPages(
                    f"it has more than {MOST_PAGES} pages; save the part that is to be used as a "
                    "file of its own"
                )
            table_end = self._table(offset, f"page {len(seen)} of the TIFF")[1]
            offset = self._number(self._layout.next, table_end, "the end of the last page")
        return [*seen]

    def _table(self, offset: int, where: str) -> tuple[int, int]:
        """The bytes at which the tags of a page begin and end."""
        n_tags = self._number(self._layout.n_tags, offset, where)
        if n_tags > _MOST_TAGS:
            raise ValueError(f"{where} has a table of {n_tags} tags")
        start = offset + struct.calcsize(f"={self._layout.n_tags}")
        end = start + n_tags * self._tag_bytes
        if end > len(self._data):
            raise ValueError(
                f"the table of {where} should end at byte {end}, the file at {len(self._data)}"
            )
        return start, end

    def _tags(self, offset: int, where: str) -> Tags:
        """The tags of a page whose values lie within the file; others, of no type, are left out."""
        start, end = self._table(offset, where)
        self._table_bytes_left -= end - start
        if self._table_bytes_left < 0:
            raise ValueError(f"the table of {where} lies over others")
        tags: Tags = {}
        for index, entry in enumerate(struct.iter_unpack(self._tag_form, self._data[start:end])):
            number, kind, count, value = entry
            n_bytes = count * _BYTES_OF_TYPE[kind] if kind < len(_BYTES_OF_TYPE) else 0
            at = start + (index + 1) * self._tag_bytes - self._room
            if n_bytes > self._room:
                (at,) = struct.unpack(f"{self._order}{self._layout.next}", value)
                if at < _HEADER_BYTES:
                    continue
                self._check_value(at + n_bytes, n_bytes, number, where)
            if n_bytes:
                tags.setdefault(number, []).append((kind, count, at))
        return tags

    def _check_value(self, end: int, n_bytes: int, number: int, where: str) -> None:
        if end > len(self._data):
            raise ValueError(
                f"the value of tag {number} of {where} should end at byte {end}, the file at "
                f"{len(self._data)}"
            )
        self._value_bytes_left -= n_bytes
        if self._value_bytes_left < 0:
            raise ValueError(f"the values of its tags, up to {where}, lie over each other")

    def _numbers(self, tags: Iterable[Tag]) -> Iterator[int]:
        for kind, count, at in tags:
            if kind in _FORMAT_OF_TYPE:
                form = f"{self._order}{count}{_FORMAT_OF_TYPE[kind]}"
                yield from struct.unpack_from(form, self._data, at)

    def _number(self, form: str, at: int, what: str) -> int:
        form = f"{self._order}{form}"
        if at + struct.calcsize(form) > len(self._data):
            raise ValueError(
                f"{what} should stand at byte {at}, the file ends at {len(self._data)}"
            )
        (number,) = struct.unpack_from(form, self._data, at)
        return int(number)
