"""Exported files, as an attacker would change them: every trick that a zip allows.

Each function takes the bytes of a good file, or its contents by name, and gives other bytes.
"""

import hashlib
import io
import struct
import tarfile
import warnings
import zipfile
import zlib

from cellrepro.store.seal import seal_text
from zip_form import END, Entry, local_header, tail

SUMS = "SHA256SUMS"
KEY = "0123456789abcdef"
REPEAT = f"runs/{KEY}/laptop-00c0ffee/0"
_LOCAL_HEADER = b"PK\x03\x04"
_RECORD = b"PK\x01\x02"


def digests_of(contents):
    """SHA-256 of each content by its name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def contents_of(whole):
    """The files of an exported file by name, but for the digests."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != SUMS}


def packed(contents):
    """The form of an exported file, right to the last byte, over any contents and names."""
    files = {**contents, SUMS: seal_text(digests_of(contents)).encode("utf-8", "surrogateescape")}
    return formed([(name, files[name]) for name in sorted(files, key=_as_bytes)])


def _as_bytes(name):
    return name.encode("utf-8", "surrogateescape")


class _Name(str):
    """A name whose bytes need not be UTF-8."""

    __slots__ = ()

    def encode(self, *_):
        return super().encode("utf-8", "surrogateescape")


def formed(files):
    """The skeleton of an exported file over these files, in this order; no digests are added."""
    entries = [Entry(_Name(name), len(content), zlib.crc32(content)) for name, content in files]
    body = b"".join(
        local_header(entry) + content for entry, (_, content) in zip(entries, files, strict=True)
    )
    return body + tail(entries)


def with_file(name, content=b"x"):
    """One more file, which the digests name, too."""
    return lambda whole: packed({**contents_of(whole), name: content})


def by_python(compression=zipfile.ZIP_STORED, change=None):
    """The same contents, packed by the standard library."""

    def make(whole):
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with zipfile.ZipFile(buffer, "w", compression) as archive:
                for name, content in contents_of(whole).items():
                    entry = zipfile.ZipInfo(name)
                    if change is not None:
                        change(entry)
                    archive.writestr(entry, content, compression)
        return buffer.getvalue()

    return make


def tar(mode):
    """A tar archive, whose one member leads out of the folder."""

    def make(_):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=f"w:{mode}") as archive:
            member = tarfile.TarInfo("../../outside")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
        return buffer.getvalue()

    return make


def at_end(field, value):
    """Another number in the last record, as `END` has them: 5 and 6 are size and place."""

    def make(whole):
        fields = [*END.unpack(whole[-END.size :])]
        fields[field] = value
        return whole[: -END.size] + END.pack(*fields)

    return make


def in_record(offset, form, value, *, n=1):
    """Other bytes in the record that the directory has of a file."""
    return _overwritten(_RECORD, offset, form, value, n=n)


def in_header(offset, form, value, *, n=1):
    """Other bytes in the header before the content of a file."""
    return _overwritten(_LOCAL_HEADER, offset, form, value, n=n)


def _overwritten(mark, offset, form, value, *, n):
    def make(whole):
        place = -1
        for _ in range(n):
            place = whole.index(mark, place + 1)
        written = struct.pack(form, value)
        start = place + offset
        return whole[:start] + written + whole[start + len(written) :]

    return make


def in_both(record_offset, header_offset, form, value):
    """The same other bytes in both, so that they do not contradict each other."""
    return lambda whole: in_header(header_offset, form, value)(
        in_record(record_offset, form, value)(whole)
    )


def two_directories(whole):
    """The directory twice, one after the other; the end speaks of the second."""
    start = END.unpack(whole[-END.size :])[6]
    directory = whole[start : -END.size]
    fields = [*END.unpack(whole[-END.size :])]
    fields[6] += len(directory)
    return whole[: -END.size] + directory + END.pack(*fields)


def gap(whole):
    """Bytes between two files, of which nothing speaks; the directory is put right."""
    second = whole.index(_LOCAL_HEADER, 4)
    hidden = b"#!/bin/sh\n"
    start = END.unpack(whole[-END.size :])[6]
    changed = bytearray(whole[:second] + hidden + whole[second:])
    place = changed.index(_RECORD, start)
    is_first = True
    while place >= 0:
        if not is_first:
            (offset,) = struct.unpack_from("<I", changed, place + 42)
            struct.pack_into("<I", changed, place + 42, offset + len(hidden))
        is_first = False
        place = changed.find(_RECORD, place + 4)
    struct.pack_into("<I", changed, len(changed) - 6, start + len(hidden))
    return bytes(changed)


def overlapping(whole):
    """Every file of the directory is the first one (CVE-2024-0450)."""
    start = END.unpack(whole[-END.size :])[6]
    changed = bytearray(whole)
    place = changed.index(_RECORD, start)
    while place >= 0:
        struct.pack_into("<I", changed, place + 42, 0)
        place = changed.find(_RECORD, place + 4)
    return bytes(changed)


def huge_files(*sizes):
    """A directory where the end says that it is, which promises files of so many bytes."""

    def make(_):
        directory = b""
        for number, size in enumerate(sizes):
            name = b"SHA256SUMS" if number == 0 else f"{REPEAT}/masks/{number}.tif".encode()
            extra = struct.pack("<2H2Q", 1, 16, size, size)
            directory += struct.pack(
                "<4s6H3I5H2I", _RECORD, 0x32D, 45, 2048, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1,
                len(name), len(extra), 0, 0, 0, 0o100644 << 16, 0,
            )  # fmt: skip
            directory += name + extra
        n = len(sizes)
        return directory + END.pack(b"PK\x05\x06", 0, 0, n, n, len(directory), 0, 0)

    return make


def many_records(n):
    """A directory of so many files of no bytes, without their headers."""

    def make(_):
        record = struct.pack(
            "<4s6H3I5H2I", _RECORD, 0x314, 20, 2048, 0, 0, 33, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0
        )
        directory = b"".join(record + b"%08x" % i for i in range(n))
        zip64 = struct.pack(
            "<4sQ2H2I4Q4sIQI", b"PK\x06\x06", 44, 45, 45, 0, 0, n, n, len(directory), 0,
            b"PK\x06\x07", 0, len(directory), 1,
        )  # fmt: skip
        end = END.pack(b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
        return directory + zip64 + end

    return make


def zip64_lies(n_files, size, start):
    """Records of ZIP64 with these numbers, behind a good file."""

    def make(whole):
        before = whole[: -END.size]
        zip64 = struct.pack(
            "<4sQ2H2I4Q4sIQI", b"PK\x06\x06", 44, 45, 45, 0, 0, n_files, n_files, size, start,
            b"PK\x06\x07", 0, len(before), 1,
        )  # fmt: skip
        full = END.pack(b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
        return before + zip64 + full

    return make


def with_descriptor(whole):
    """A data descriptor behind the first file, as programs write that cannot seek."""
    second = whole.index(_LOCAL_HEADER, 4)
    descriptor = b"PK\x07\x08" + whole[14:26]
    changed = whole[:second] + descriptor + whole[second:]
    return in_both(8, 6, "<H", 2048 | 8)(changed)


def without_sums(whole):
    """No digests."""
    return formed(list(contents_of(whole).items()))


def with_sums(change):
    """Other digests, in a form that is right."""

    def make(whole):
        contents = contents_of(whole)
        files = [(SUMS, change(digests_of(contents))), *contents.items()]
        return formed(sorted(files, key=lambda file: file[0].encode()))

    return make


_MASKS = f"{REPEAT}/masks"


ARCHIVES = {
    "no bytes": (lambda _: b"", "empty"),
    "text": (lambda _: b"hello\n", "no zip file"),
    "moves the cursor": (lambda _: b"\x1b[2J\x1b[H" * 9, "no zip file"),
    "tar": (tar(""), "tar or gzip"),
    "tar.gz": (tar("gz"), "tar or gzip"),
    "tar.xz": (tar("xz"), "no zip file"),
    "7z": (lambda _: b"7z\xbc\xaf\x27\x1c" + bytes(99), "no zip file"),
    "a script before it": (lambda whole: b"#!/bin/sh\necho\n" + whole, "not where its end says"),
    "bytes behind it": (lambda whole: whole + b"x", "end is missing|follows it"),
    "a zip behind it": (lambda whole: whole + whole, "not where its end says"),
    "a comment": (lambda whole: at_end(7, 2)(whole) + b"hi", "end is missing|follows it"),
    "a comment that is promised": (at_end(7, 9), "directory is not as"),
    "several disks": (at_end(1, 1), "directory is not as"),
    "another number of files": (at_end(4, 1), "directory is not as"),
    "a directory of 4 GB": (at_end(5, 2**32 - 2), "not where its end says"),
    "a directory elsewhere": (at_end(6, 0), "not where its end says"),
    "two directories": (two_directories, "not where|add up|directory is not as"),
    "cut in the directory": (lambda whole: whole[:-9], "end is missing"),
    "cut in a file": (lambda whole: whole[: len(whole) // 2], "end is missing"),
    "compressed": (by_python(zipfile.ZIP_DEFLATED), "compressed"),
    "compressed by bzip2": (by_python(zipfile.ZIP_BZIP2), "compressed"),
    "compressed by LZMA": (by_python(zipfile.ZIP_LZMA), "compressed"),
    "packed by another program": (by_python(), "not as it was written|add up|SHA256SUMS"),
    "encrypted": (in_both(8, 6, "<H", 2048 | 1), "not as it was written"),
    "a link": (in_record(38, "<I", 0o120777 << 16), "directory is not as"),
    "a device": (in_record(38, "<I", 0o020666 << 16), "directory is not as"),
    "executable for root": (in_record(38, "<I", 0o104755 << 16), "directory is not as"),
    "made by DOS": (in_record(4, "<H", 20), "directory is not as"),
    "of today": (in_both(14, 12, "<H", 0x5B7A), "not as it was written"),
    "a data descriptor": (with_descriptor, "add up|not as it was written|not where"),
    "two names of one file": (
        in_header(30, "<8s", b"evil.exe"),
        "what stands before .* is not as",
    ),
    "two sizes of one file": (in_header(22, "<I", 1), "what stands before .* is not as"),
    "a smaller file": (in_both(24, 22, "<I", 1), "directory is not as"),
    "a larger file": (in_both(24, 22, "<I", 2**31), "directory is not as"),
    "an extra field": (in_header(28, "<H", 4), "what stands before .* is not as"),
    "another checksum": (in_both(16, 14, "<I", 0), "SHA256SUMS is not what was exported"),
    "a gap with a script": (gap, "add up"),
    "every file the same bytes": (overlapping, "do not add up"),
    "4 GB of one file": (huge_files(2**32), "add up"),
    "8 EiB of one file": (huge_files(2**63), "add up"),
    "16 EiB of one file": (huge_files(2**64 - 1), "add up"),
    "more than can be counted": (huge_files(2**63, 2**63), "add up"),
    "ZIP64 that lies about files": (zip64_lies(2**63, 99, 0), "not where"),
    "ZIP64 that lies about bytes": (zip64_lies(1, 2**63, 2**63), "not where"),
    "ZIP64 without need": (
        lambda whole: zip64_lies(1, 0, len(whole) - 22)(whole),
        "not where its end says",
    ),
    "a million files": (many_records(600_000), "more than 500000 files"),
    "no digests": (without_sums, "holds no SHA256SUMS"),
    "digests of fewer": (with_sums(lambda _: b""), "differ in"),
    "digests of more": (
        with_sums(lambda sums: seal_text({**sums, "../x": "0" * 64}).encode()),
        "'../x' leads out",
    ),
    "digests not sorted": (
        with_sums(lambda s: b"".join(seal_text(s).encode().splitlines(True)[::-1])),
        "not as it was written",
    ),
    "digests of other bytes": (
        with_sums(lambda sums: seal_text(dict.fromkeys(sums, "0" * 64)).encode()),
        "is not what was exported|not the file|does not fit|not that of",
    ),
    "digests with a cursor": (
        with_sums(lambda _: b"\x1b[2J" * 9 + b"\n"),
        r"line 1 of SHA256SUMS is '\\x1b",
    ),
    "digests that are no text": (with_sums(lambda _: b"\xff\n"), "cannot be read"),
    "the same name twice": (
        lambda whole: formed(
            [("SHA256SUMS", b""), *[(f"{_MASKS}/a.tif", b"x")] * 2],
        ),
        "same name",
    ),
    "two names for Windows": (
        lambda w: with_file(f"{_MASKS}/A.tif")(with_file(f"{_MASKS}/a.tif")(w)),
        "the same name on some",
    ),
    "two names for macOS": (
        lambda w: with_file(f"{_MASKS}/stra\u00dfe.tif")(with_file(f"{_MASKS}/strasse.tif")(w)),
        "the same name on some",
    ),
    "not sorted": (
        lambda w: formed([*contents_of(w).items(), ("SHA256SUMS", b"")]),
        "not sorted",
    ),
    "leads out": (with_file("../../outside.tif"), "no plain path"),
    "leads out and back": (with_file(f"runs/{KEY}/../x/spec.json"), "no plain path"),
    "absolute": (with_file("/etc/cron.d/x"), "no plain path"),
    "absolute on Windows": (with_file("C:/Windows/x.tif"), "Windows takes in no name"),
    "on another computer": (with_file("//server/share/x.tif"), "no plain path"),
    "leads out on Windows": (with_file("..\\..\\outside.tif"), "Windows takes in no name"),
    "a stream of NTFS": (with_file(f"{_MASKS}/a.tif:x.tif"), "Windows takes in no name"),
    "a device of Windows": (with_file(f"{_MASKS}/COM1.tif"), "a device on Windows"),
    "a device with a blank": (with_file(f"{_MASKS}/nul .tif"), "a device on Windows"),
    "a dot that Windows drops": (with_file(f"{_MASKS}./a.tif"), "dot or a blank"),
    "hidden": (with_file(f"{_MASKS}/.a.tif"), "dot or a blank"),
    "a name without an end": (with_file(f"{_MASKS}/a\0.tif"), "cannot be printed"),
    "a name with a cursor": (with_file(f"{_MASKS}/\x1b[2J\x07.tif"), "cannot be printed"),
    "a name of two lines": (with_file(f"{_MASKS}/a\ncellrepro: fine.tif"), "cannot be printed"),
    "a name from right to left": (with_file(f"{_MASKS}/\u202efit.exe.tif"), "cannot be printed"),
    "a name with nothing in it": (with_file(f"{_MASKS}/a\u200b.tif"), "cannot be printed"),
    "a name as macOS writes it": (with_file(f"{_MASKS}/a\u0308.tif"), "NFC"),
    "a name that is no Unicode": (with_file(f"{_MASKS}/\udcff.tif"), "directory cannot be read"),
    "a long name": (with_file(f"{_MASKS}/{'a' * 300}.tif"), "more than 240 bytes"),
    "a deep name": (with_file("a/" * 600 + "a.tif"), "more than 1000|no plain path"),
    "a pickle": (with_file(f"{REPEAT}/weights.pth"), "no file of an exported run"),
    "a program": (with_file(f"{REPEAT}/setup.py"), "no file of an exported run"),
    "a folder": (with_file(f"{_MASKS}/"), "no plain path"),
    "a store's own folder": (with_file(".staging/x"), "dot or a blank"),
    "an archive in it": (with_file(f"{REPEAT}/more.zip"), "no file of an exported run"),
    "a page in it": (with_file("report/index.html"), "no file of an exported run"),
    "a run without a number": (
        with_file(f"runs/{KEY}/laptop-00c0ffee/-1/manifest.json"),
        "no file of an exported run",
    ),
    "a run of a large number": (
        with_file(f"runs/{KEY}/laptop-00c0ffee/{'9' * 99}/manifest.json"),
        "no file of an exported run",
    ),
}
